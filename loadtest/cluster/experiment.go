package cluster

import (
	"fmt"
	"sort"
	"strconv"
	"time"
)

// namespace belongs to a team, or to nobody: then its team label is missing,
// as it is for somebody in every real cluster.
type namespace struct {
	name, team string
	system     bool
}

func makeNamespaces(seed uint64) []namespace {
	s := []namespace{
		{"kube-system", "platform", true}, {"monitoring", "platform", true}, {"gpu-operator", "platform", true}, {"default", "", true},
	}
	for _, team := range []string{"pretraining", "rlhf", "vision", "audio", "interpretability", "robotics", "evals"} {
		s = append(s, namespace{name: "research-" + team, team: team})
		if mix(hashString(seed, team))%3 == 0 {
			s = append(s, namespace{name: "research-" + team + "-dev", team: team})
		}
	}
	return append(s, namespace{name: "sandbox", team: ""})
}

// pool is a set of neighbouring nodes, or a slice of one node's GPUs, on which
// one experiment after another runs.
type pool struct {
	first, nodes   int // node indices [first, first+nodes)
	gpu, gpus      int // on each node: GPUs [gpu, gpu+gpus)
	part, parts    int // of the one GPU, if it has only one of so many parts; 0: all
	hash           uint64
	index          int   // in Model.pools
	period, offset int64 // ms between the creations of two experiments
}

// gangSizes is how wide experiments are: most are small, most GPUs are in wide
// ones. Wider ones are possible only in larger clusters.
var gangSizes = []int{1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64}

func (m *Model) makePools() {
	m.byNode = make([][]int32, m.o.Nodes)
	widest := max(1, m.o.Nodes/4)
	add := func(p pool) {
		p.hash, p.index = hash(m.seed, 'p', uint64(len(m.pools))), len(m.pools)
		p.period = int64(between(hash(p.hash, 1), 1.2, 6) * 3600e3)
		p.offset = int64(between(hash(p.hash, 2), 0, float64(p.period)))
		for n := p.first; n < p.first+p.nodes; n++ {
			m.byNode[n] = append(m.byNode[n], int32(len(m.pools)))
		}
		m.pools = append(m.pools, p)
	}
	for n := 0; n < m.o.Nodes; {
		h := hash(m.seed, 'n', uint64(n))
		if unit(hash(h, 1)) < m.o.IdleShare {
			n++
			continue
		}
		size := m.alike(n, min(gangSizes[h%uint64(len(gangSizes))], widest, m.o.Nodes-n))
		first := m.o.FirstGang > 0 && len(m.pools) == 0
		if first {
			size = min(m.o.FirstGang, m.o.Nodes-n)
		}
		shares := m.kind(n).Sharing != WholeGPUs
		if shares {
			size = 1
		}
		if shares || size == 1 && !first && mix(h)%2 == 0 && m.o.GPUsPerNode > 1 {
			// A node shared by small experiments.
			for g := 0; g < m.o.GPUsPerNode; {
				if c := m.cut(n, g); c.n > 1 {
					for part := range c.n {
						add(pool{first: n, nodes: 1, gpu: g, gpus: 1, part: part, parts: c.n})
					}
					g++
					continue
				}
				w := min([]int{1, 1, 2, 4}[hash(h, 2, uint64(g))%4], m.whole(n, g))
				add(pool{first: n, nodes: 1, gpu: g, gpus: w})
				g += w
			}
		} else {
			add(pool{first: n, nodes: size, gpus: m.o.GPUsPerNode})
		}
		n += size
	}
}

// experiment is one gang of pods: created, pending, running, perhaps failing
// and started again, done, removed.
type experiment struct {
	name     string
	space    *namespace
	pool     *pool
	hash     uint64
	attempts []attempt
	removed  int64
	labelled bool // has the team's own labels; else only JobSet's
}

// attempt is one life of all the gang's pods. A failed attempt's pods are
// deleted and made anew with the same names: only the uid tells them apart.
type attempt struct {
	created, scheduled, started, ended, removed int64 // ms
	failed                                      bool
	xid                                         float64 // 0: none
	inPlace                                     []inPlace
	halfUntil                                   int64 // the second half of the pods waits until then; 0: none does
}

// inPlace is a container that died and was started again in its pod.
type inPlace struct {
	died, back int64
	ready      int64  // 0: as soon as it is back
	reason     string // of its death; "" means OOMKilled
}

func (e *experiment) size() int { return e.pool.nodes }

const second = int64(1000)

// experiments returns the pool's experiments that exist at some time in
// [from, until], oldest first.
func (m *Model) experiments(p *pool, from, until int64) []experiment {
	var out []experiment
	for k := (from - p.offset) / p.period; ; k++ {
		begin := p.offset + k*p.period
		if begin > until {
			return out
		}
		if begin < m.start {
			continue
		}
		if _, ok := m.emptied(p, begin); ok {
			continue
		}
		if e := m.experiment(p, k, begin); m.cutShort(&e) && e.removed > from {
			out = append(out, e)
		}
	}
}

// appXids are errors that a job brings on itself: they say nothing about the
// GPU and must drain nothing.
var appXids = []float64{13, 31, 43, 45}

var purposes = []string{"pretrain", "sft", "rl", "eval", "sweep", "distill", "ablate", "tokenise"}

func (m *Model) experiment(p *pool, k, begin int64) experiment {
	h := hash(p.hash, 'e', uint64(k))
	e := experiment{pool: p, hash: h, labelled: hash(h, 1)%5 != 0}
	research := m.spaces[4:]
	// A pool stays with one team most of the time: reserved capacity.
	e.space = m.usualSpace(p)
	if hash(h, 2)%4 == 0 {
		e.space = &research[hash(h, 3)%uint64(len(research))]
	}
	e.name = purposes[hash(h, 4)%uint64(len(purposes))] + "-" + strconv.FormatUint(h%(36*36*36*36*36*36*36), 36)

	life := float64(p.period)
	created := begin + int64(between(hash(h, 5), 0, 0.04)*life)
	wait := int64(between(hash(h, 6), 8, 120)) * second
	if hash(h, 7)%6 == 0 { // no room: the gang waits
		wait = int64(between(hash(h, 8), 0.05, 0.15) * life)
	}
	finish := begin + int64(between(hash(h, 9), 0.78, 0.9)*life)
	ttl := int64(between(hash(h, 10), 120, 400)) * second

	for n := uint64(0); ; n++ {
		a := attempt{created: created, scheduled: m.roomAt(&e, created+wait)}
		a.started = a.scheduled + int64(between(hash(h, 11, n), 6, 45))*second
		a.ended, a.removed = finish, finish+ttl
		a.halfUntil = m.pendingHalf(&e, created, finish)
		if a.started >= finish {
			// Never got a node: cancelled while pending.
			a.scheduled, a.started, a.ended = finish, finish, finish
			a.removed = finish
			e.attempts, e.removed = append(e.attempts, a), finish
			return e
		}
		fail, ok := m.firstFailure(&e, n, min(a.works(&e), finish), finish)
		if ok {
			a.ended, a.failed, a.xid = fail.from, true, fail.value
			a.removed = fail.from + int64(between(hash(h, 12, n), 20, 90))*second
			if m.evicted(&e, fail.from) {
				a.removed = fail.from + 2*second
			}
		} else if hash(h, 13)%5 == 0 && a.halfUntil == 0 {
			died := a.started + int64(between(hash(h, 14, n), 0.1, 0.9)*float64(finish-a.started))
			back := died + int64(between(hash(h, 15, n), 10, 60))*second
			if back < finish {
				a.inPlace = []inPlace{{died: died, back: back}}
			}
		}
		e.attempts = append(e.attempts, a)
		e.removed = a.removed
		if !ok || n >= 5 {
			return e
		}
		created = max(a.removed, fail.until)
		wait = int64(between(hash(h, 16, n), 3, 40)) * second
		if created+wait >= finish {
			return e
		}
	}
}

// usualSpace is the namespace that has a pool three times in four.
func (m *Model) usualSpace(p *pool) *namespace {
	research := m.spaces[4:]
	return &research[p.hash%uint64(len(research))]
}

// usualTeam is the team that has a node most of the time. Where nobody has, or
// somebody without a team, it is one of the others: reservations stand idle too.
func (m *Model) usualTeam(node int) string {
	if len(m.byNode[node]) > 0 {
		if s := m.usualSpace(&m.pools[m.byNode[node][0]]); s.team != "" {
			return s.team
		}
	}
	research := m.spaces[4:]
	for i := m.rack(node); ; i++ {
		if s := &research[i%len(research)]; s.team != "" {
			return s.team
		}
	}
}

// firstFailure is the first thing that ends the attempt running in
// [from, until): one drawn from the seed, a staged one, or a node that went.
func (m *Model) firstFailure(e *experiment, n uint64, from, until int64) (event, bool) {
	var found []event
	if hash(e.hash, 20, n)%4 == 0 {
		at := from + int64(between(hash(e.hash, 21, n), 0.05, 0.95)*float64(until-from))
		ev := event{from: at, until: at + 1}
		if hash(e.hash, 22, n)%2 == 0 {
			ev.value = appXids[hash(e.hash, 23, n)%uint64(len(appXids))]
		}
		found = append(found, ev)
	}
	found = append(found, m.tl.events(PodFailure, e.name, from, until)...)
	found = append(found, m.evictions(e, from, until)...)
	for i := range e.size() {
		found = append(found, m.tl.events(NodeDown, m.nodeName(e.pool.first+i), from, until)...)
	}
	found = append(found, m.nodeDeaths(e, from, until)...)
	found = dropBefore(found, from)
	if len(found) == 0 {
		return event{}, false
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].from < found[j].from })
	return found[0], true
}

// dropBefore removes what began before the attempt ran: it cannot kill it.
func dropBefore(ev []event, from int64) []event {
	kept := ev[:0]
	for _, e := range ev {
		if e.from >= from {
			kept = append(kept, e)
		}
	}
	return kept
}

// pod is one member of a gang in one attempt, or a system pod (exp nil).
type pod struct {
	exp       *experiment
	n         int // attempt
	rank      int
	space     *namespace
	name, uid string
	container string
	app       string
	node      int
	gpu, gpus int
	pool      *pool // nil: a system pod
	a         attempt
	owner     [2]string // kind, name
	prom      *promPod  // of a Prometheus server, else nil
}

// pods calls yield for each pod of the experiment that exists in [from, until].
func (e *experiment) pods(from, until int64, yield func(*pod)) {
	for n := range e.attempts {
		a := e.attempts[n]
		if a.removed <= from || a.created > until {
			continue
		}
		for rank := range e.size() {
			p := pod{
				exp: e, n: n, rank: rank, space: e.space, container: "trainer", app: "trainer",
				name: e.name + "-w-" + strconv.Itoa(rank), uid: uuid(hash(e.hash, 30, uint64(n), uint64(rank))),
				node: e.pool.first + rank, gpu: e.pool.gpu, gpus: e.pool.gpus, pool: e.pool, a: a.of(e, rank),
				owner: [2]string{"Job", e.name + "-w"},
			}
			if rank > 0 && len(a.inPlace) > 0 {
				// Only rank 0's container restarts in place; the others wait for it.
				p.a.inPlace = nil
			}
			yield(&p)
		}
	}
}

// share is the part of its GPU that a pod of the pool holds.
func (p *pool) share() float64 { return 1 / float64(max(1, p.parts)) }

// share is the part of its GPU that the pod holds, 1 of those that hold none.
func (q *pod) share() float64 {
	if q.pool == nil {
		return 1
	}
	return q.pool.share()
}

func uuid(h uint64) string {
	g := mix(h)
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", uint32(h), uint16(h>>32), uint16(h>>48)&0xfff, 0x8000|uint16(g)&0x3fff, g>>16)
}

// daemons are the system pods of every node; Lean clusters show the first few.
var daemons = []struct{ app, space string }{
	{"dcgm-exporter", "gpu-operator"},
	{"node-exporter", "monitoring"},
	{"cilium", "kube-system"},
	{"kube-proxy", "kube-system"},
	{"nvidia-device-plugin", "gpu-operator"},
}

func (m *Model) daemonCount() int {
	if m.o.Detail == Full {
		return len(daemons)
	}
	return 1
}

// systemPods calls yield for the daemons of one node, one generation for each
// boot of the node within the window.
func (m *Model) systemPods(node int, boots []int64, until int64, yield func(*pod)) {
	for i := range m.daemonCount() {
		d := daemons[i]
		// A daemon set's pod survives a reboot: its container is restarted.
		h := hash(m.seed, 'd', uint64(node), uint64(i))
		created := m.start + int64(between(h, 5, 60))*second
		p := pod{
			space: m.spaceNamed(d.space), name: d.app + "-" + strconv.FormatUint(36*36*36*36+h%(36*36*36*36*35), 36),
			uid: uuid(h), container: d.app, app: d.app, node: node, rank: i, owner: [2]string{"DaemonSet", d.app},
			a: attempt{created: created, scheduled: created, started: created + 4*second, ended: never, removed: never},
		}
		yield(&p)
	}
	m.promPods(node, yield)
}

const never = int64(1) << 62

func (m *Model) spaceNamed(name string) *namespace {
	for i := range m.spaces {
		if m.spaces[i].name == name {
			return &m.spaces[i]
		}
	}
	return &m.spaces[0]
}

// Experiment is what a test or a view needs to know of one gang.
type Experiment struct {
	Name, Namespace, Team string
	// Nodes are the names of the nodes it runs on, in the order of its pods.
	Nodes []string
	// GPUs is the number of GPUs of each pod, and Share the part of each that it holds, as Pod has
	// it.
	GPUs  int
	Share float64
	// Runs are the spans in which its pods ran, one for each attempt.
	Runs []Span
	// Created is when its first pods were made, Removed when the last were deleted.
	Created, Removed time.Time
}

// Span is a stretch of time, Until exclusive.
type Span struct{ From, Until time.Time }

// Experiments lists what exists at some time within [from, until], ordered by
// pool and time. Its cost grows with nodes and hours.
func (m *Model) Experiments(from, until time.Time) []Experiment {
	var out []Experiment
	for i := range m.pools {
		for _, e := range m.experiments(&m.pools[i], from.UnixMilli(), until.UnixMilli()) {
			x := Experiment{
				Name: e.name, Namespace: e.space.name, Team: e.space.team, GPUs: e.pool.gpus, Share: e.pool.share(),
				Created: time.UnixMilli(e.attempts[0].created), Removed: time.UnixMilli(e.removed),
			}
			for n := range e.size() {
				x.Nodes = append(x.Nodes, m.nodeName(e.pool.first+n))
			}
			for _, a := range e.attempts {
				if at := a.works(&e); a.ended > at {
					x.Runs = append(x.Runs, Span{time.UnixMilli(at), time.UnixMilli(a.ended)})
				}
			}
			out = append(out, x)
		}
	}
	return out
}
