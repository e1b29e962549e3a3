package cluster

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Troubles of nodes. All of them begin at From and end at Until; what counters
// have counted by then they keep.
const (
	// NodeUnreachable: the probers of node-mesh do not reach a node, behind a
	// firewall that closes their port or a pod network that is cut. The host's
	// network, by which pages are scraped and the kubelet reports, goes on: the
	// machine runs. Target is the node and Value the share of the probers that
	// fail, 0 means all; or the target is "fleet", Value the share of the nodes,
	// and all probers fail. It needs WithNodeMesh.
	NodeUnreachable Kind = "NodeUnreachable"
	// NodeCutOff: nobody reaches a node, neither the probers of node-mesh nor who
	// scrapes its pages. Its kubelet still reports, and what runs there goes on.
	// Target is the node.
	NodeCutOff Kind = "NodeCutOff"
	// NodeNotReady: the kubelet reports the node as not ready. Its exporters
	// answer, its taint keeps new pods away, and after five minutes its gangs are
	// evicted. Target is the node, or "fleet" with Value as the share of the nodes,
	// neighbours all of them, as behind one broken switch.
	NodeNotReady Kind = "NodeNotReady"
	// NodeDiskFull: the file system of the node's own system, with images, logs and
	// the kubelet's folder (/ on most), has the share Value free, 0 means 0.01.
	NodeDiskFull Kind = "NodeDiskFull"
	// NodeDiskReadOnly: the kernel mounts / of the node read-only after errors.
	NodeDiskReadOnly Kind = "NodeDiskReadOnly"
	// NodeDiskError: the device under /mnt/scratch fails: node_exporter cannot
	// read the file system's state and says so in the label device_error. Value is
	// the number of I/O errors a minute in the kernel's log, 0 means 6.
	NodeDiskError Kind = "NodeDiskError"
	// NodeARPTableFilling: the neighbour table of the node fills up during the
	// first quarter of the time and stays at the share Value of its limit, 0 means 0.9.
	NodeARPTableFilling Kind = "NodeARPTableFilling"
	// NodeARPTableOverflow: the table is at its limit and entries are refused,
	// Value a minute on each CPU, 0 means 30.
	NodeARPTableOverflow Kind = "NodeARPTableOverflow"
	// NodeCordoned: the remediation controller has cordoned the node and marked it
	// with its taint. What runs there goes on, nothing new comes. Target is the
	// node, or "fleet" with Value as the share of the nodes, 0 means all.
	NodeCordoned Kind = "NodeCordoned"
	// NodesReserved: a taint keeps nodes for the team that has them most of the
	// time, as reservations do. It moves nobody. Target is the node, or "fleet"
	// with Value as the share of the nodes, 0 means all.
	NodesReserved Kind = "NodesReserved"
	// EgressJump: the pods of a namespace (or of all, with the target "cluster")
	// send Value times as much to the internet as before; 0 means 10.
	EgressJump Kind = "EgressJump"
	// NetworkAccountingLost: the rules that account for traffic are gone from the
	// share Value of the nodes, 0 means all; iptables-exporter answers without
	// them, and they count from zero when they are back. Target is "fleet" or a
	// node. It needs WithIPTables.
	NetworkAccountingLost Kind = "NetworkAccountingLost"
)

// fleet is the target of troubles that a share of the nodes has.
const fleet = "fleet"

// ailment is one staged trouble of one node, or of one of its GPUs.
type ailment struct {
	kind Kind
	gpu  int // -1: the node
	event
}

// surge is a staged EgressJump; space is "" for all namespaces.
type surge struct {
	space string
	event
}

// nodeKinds says where each kind of this file and of trouble_gpu.go belongs: to
// a GPU or to a node, and whether the target "fleet" is taken, with Value as the
// share of the nodes, all GPUs of which have it where it is a GPU's.
var nodeKinds = map[Kind]struct {
	gpu, fleet bool
	needs      Exporters
	max        float64 // of Value, 0: none
}{
	NodeUnreachable:       {fleet: true, needs: WithNodeMesh, max: 1},
	NodeCutOff:            {},
	NodeNotReady:          {fleet: true, max: 1},
	NodeDiskFull:          {max: 1},
	NodeDiskReadOnly:      {},
	NodeDiskError:         {},
	NodeARPTableFilling:   {max: 1},
	NodeARPTableOverflow:  {},
	NetworkAccountingLost: {fleet: true, needs: WithIPTables, max: 1},
	NodeCordoned:          {fleet: true, max: 1},
	NodesReserved:         {fleet: true, max: 1},
	NodeUpgrade:           {},
	NodeAbsent:            {},
	GPUXidFatal:           {gpu: true, max: 999},
	GPUUncorrectableECC:   {gpu: true},
	GPUCorrectableECC:     {gpu: true},
	GPURowRemapFailure:    {gpu: true},
	GPURowRemapPending:    {gpu: true},
	GPUHot:                {gpu: true, fleet: true, max: 150},
	GPUThrottled:          {gpu: true, max: 1},
	GPUSlow:               {gpu: true, max: 1},
	GPUNVLinkErrors:       {gpu: true, fleet: true},
	GPUPCIeReplay:         {gpu: true},
	GPUExporterGone:       {fleet: true, max: 1},
}

// nodeIndex is the inverse of nodeName.
func nodeIndex(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "gpu-")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && len(digits) == 5 && n >= 0
}

// checkNodeTrouble says what is wrong with a trouble of a node or a GPU: a
// target that the cluster does not have would change nothing and prove nothing.
func (o Options) checkNodeTrouble(t Trouble) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s: "+format, append([]any{t.Kind, t.Target}, args...)...))
	}
	if !(t.Value >= 0) || math.IsInf(t.Value, 0) {
		bad("value %v is not a number from 0 up", t.Value)
	}
	where, ok := nodeKinds[t.Kind]
	if !ok || t.Target == "" {
		return errors.Join(errs...)
	}
	o = o.withDefaults()
	if where.needs&^o.Exporters != 0 {
		bad("no exporter looks at it; add %s to Exporters", strings.Join(where.needs.names(), ", "))
	}
	if where.max > 0 && t.Value > where.max && t.Target != fleet {
		bad("value %v is more than %v", t.Value, where.max)
	}
	if where.fleet && t.Target == fleet {
		if t.Value == 0 && t.Kind == NodeNotReady {
			bad("value is the share of the nodes and must be more than 0")
		}
		if t.Value > 1 {
			bad("value %v is the share of the nodes and must be at most 1", t.Value)
		}
		return errors.Join(errs...)
	}
	if t.Kind == NodeAbsent && t.Until.UnixMilli()-t.From.UnixMilli() <= leavesAfter {
		bad("it ends before the node is gone, two minutes after its beginning")
	}
	name, gpu, both := strings.Cut(t.Target, "/")
	if both != where.gpu {
		bad("the target must be %s", kinds[t.Kind])
	}
	if n, ok := nodeIndex(name); !ok || n >= o.Nodes {
		bad("there is no node %q; nodes are gpu-00000 to gpu-%05d", name, o.Nodes-1)
	}
	if g, err := strconv.Atoi(gpu); both && (err != nil || g < 0 || g >= o.GPUsPerNode) {
		bad("there is no GPU %q; a node has 0 to %d", gpu, o.GPUsPerNode-1)
	}
	return errors.Join(errs...)
}

// stageNodeTroubles sorts the staged troubles by node, so that a page asks once
// and not for each kind and GPU. Those of the fleet are spread over its nodes.
func (m *Model) stageNodeTroubles() error {
	m.ill = map[int][]ailment{}
	for i, t := range m.o.Troubles {
		ev := event{t.From.UnixMilli(), t.Until.UnixMilli(), t.Value}
		where, ok := nodeKinds[t.Kind]
		switch {
		case t.Kind == EgressJump:
			s := surge{event: ev}
			if t.Target != WholeCluster {
				s.space = t.Target
				if m.spaceNamed(t.Target).name != t.Target {
					return fmt.Errorf("troubles[%d]: %s: target %q is neither %q nor a namespace of this cluster", i, t.Kind, t.Target, WholeCluster)
				}
			}
			m.surges = append(m.surges, s)
		case !ok:
		case where.fleet && t.Target == fleet:
			first := int(hash(m.seed, hashString(0, string(t.Kind)), uint64(ev.from)) % uint64(m.o.Nodes))
			share := t.Value
			if share == 0 {
				share = 1
			}
			whole := event{from: ev.from, until: ev.until} // the value is used up: on each node it is as bad as it is without one
			for i := range min(m.o.Nodes, max(1, int(math.Round(share*float64(m.o.Nodes))))) {
				n := (first + i) % m.o.Nodes
				if !where.gpu {
					m.ill[n] = append(m.ill[n], ailment{t.Kind, -1, whole})
				}
				for g := range m.o.GPUsPerNode {
					if where.gpu {
						m.ill[n] = append(m.ill[n], ailment{t.Kind, g, whole})
					}
				}
			}
		default:
			name, gpu, both := strings.Cut(t.Target, "/")
			a := ailment{t.Kind, -1, ev}
			if both {
				a.gpu, _ = strconv.Atoi(gpu) // checked by Validate
			}
			n, _ := nodeIndex(name)
			m.ill[n] = append(m.ill[n], a)
		}
	}
	for _, a := range m.ill {
		sort.SliceStable(a, func(i, j int) bool { return a[i].from < a[j].from })
	}
	return nil
}

// of lists the node's troubles of some kinds, by time; gpu is -1 for its own.
func (s *nodeState) of(gpu int, kinds ...Kind) []event {
	var out []event
	for i := range s.ill {
		if a := &s.ill[i]; a.gpu == gpu && slices.Contains(kinds, a.kind) {
			out = append(out, a.event)
		}
	}
	return out
}

// or is the value of an event, or what 0 stands for.
func (e event) or(def float64) float64 {
	if e.value == 0 {
		return def
	}
	return e.value
}

// during is value while an event is on (the last that began, where several
// are), 0 otherwise; nil where there is no event. Events are sorted by from.
func during(ev []event, value func(event) float64) *steps {
	if len(ev) == 0 {
		return nil
	}
	var at []int64
	for _, e := range ev {
		at = append(at, e.from, e.until)
	}
	slices.Sort(at)
	st := &steps{}
	for _, t := range slices.Compact(at) {
		v := 0.0
		for _, e := range ev {
			if t >= e.from && t < e.until {
				v = value(e)
			}
		}
		st.push(t, v)
	}
	return st
}

func once(event) float64 { return 1 }

// flag is 1 while an event is on.
func flag(ev []event) curve {
	if len(ev) == 0 {
		return curve{}
	}
	return curve{kind: gauge, k: 1, st: during(ev, once)}
}

// pace adds up rates a second while events are on; nil where there is none.
func pace(ev []event, perSecond func(event) float64) *steps {
	if len(ev) == 0 {
		return nil
	}
	var d []delta
	for _, e := range ev {
		r := perSecond(e)
		d = append(d, delta{e.from, r}, delta{e.until, -r})
	}
	return stepsFromDeltas(d)
}

// counted is how much has happened since the process started, n at the start
// of each event. starts may be nil: then nothing forgets it.
func counted(ev []event, starts []int64, n func(event) float64) *steps {
	if len(ev) == 0 {
		return nil
	}
	type change struct {
		at    int64
		by    float64
		reset bool
	}
	var all []change
	for i, t := range starts {
		if i > 0 {
			all = append(all, change{at: t, reset: true})
		}
	}
	for _, e := range ev {
		if len(starts) == 0 || e.from >= starts[0] {
			all = append(all, change{at: e.from, by: n(e)})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	st := &steps{}
	sum := 0.0
	for i, c := range all {
		if sum += c.by; c.reset {
			sum = 0
		}
		if i+1 == len(all) || all[i+1].at > c.at {
			st.push(c.at, sum)
		}
	}
	return st
}

// spans joins events that touch.
func spans(ev []event) []event {
	var out []event
	for _, e := range ev {
		if n := len(out) - 1; n >= 0 && e.from <= out[n].until {
			out[n].until = max(out[n].until, e.until)
			continue
		}
		out = append(out, event{from: e.from, until: e.until})
	}
	return out
}

// without calls f for what is left of [from, until) outside the spans.
func without(gone []event, from, until int64, f func(from, until int64)) {
	for _, g := range gone {
		if g.from > from && from < until {
			f(from, min(g.from, until))
		}
		from = max(from, g.until)
	}
	if from < until {
		f(from, until)
	}
}

// evictAfter is how long a pod tolerates a node that is not ready.
const evictAfter = 300 * second

// nodeDeaths are the staged troubles of nodes and GPUs that kill the attempt of
// an experiment that runs in [from, until).
func (m *Model) nodeDeaths(e *experiment, from, until int64) []event {
	if len(m.ill) == 0 {
		return nil
	}
	var out []event
	for n := e.pool.first; n < e.pool.first+e.pool.nodes; n++ {
		for _, a := range m.ill[n] {
			at := a.from
			switch {
			case a.kind == NodeNotReady:
				at += evictAfter
			case a.kind == NodeUpgrade || a.kind == NodeAbsent:
				at += drainAfter
			case a.gpu < e.pool.gpu || a.gpu >= e.pool.gpu+e.pool.gpus || !a.kills():
				continue
			case a.keepsPodsAway():
				at = max(at, from) // it was placed there before, and does not get to run
			}
			if at < a.until && at >= from && at < until {
				end := at + 1
				if a.keepsPodsAway() {
					end = a.until
				}
				out = append(out, event{from: at, until: end})
			}
		}
	}
	return out
}

// roomAt is when the gang can be placed, at t or later: not on a node that is
// not ready, not on one whose plugin holds a GPU of the gang's for dead.
func (m *Model) roomAt(e *experiment, t int64) int64 {
	if len(m.ill) == 0 {
		return t
	}
	for again := true; again; {
		again = false
		for n := e.pool.first; n < e.pool.first+e.pool.nodes; n++ {
			for _, a := range m.ill[n] {
				mine := a.gpu < 0 || a.gpu >= e.pool.gpu && a.gpu < e.pool.gpu+e.pool.gpus
				back := a.until + readyAfter
				if _, planned := a.reboot(); planned {
					back += pluginAfter
				}
				if mine && a.keepsPodsAway() && t >= a.from && t < back {
					t, again = back, true
				}
			}
		}
	}
	return t
}

// keepsPodsAway says whether the scheduler places nothing there meanwhile.
func (a *ailment) keepsPodsAway() bool {
	_, planned := a.reboot()
	return a.kind == NodeNotReady || a.kind == NodeCordoned || planned || a.unhealthy()
}
