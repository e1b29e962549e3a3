package cluster

import (
	"fmt"
	"sort"
	"time"
)

// Kind names one sort of trouble. The set is closed: New refuses a kind that no
// exporter looks at, because a trouble that changes nothing is a lie in a test.
type Kind string

const (
	// NodeDown: a node is rebooted or gone. Its exporters do not answer, its
	// pods fail, kube-state-metrics shows it NotReady, and at Until everything
	// on it starts with fresh counters. Target is the node's name.
	NodeDown Kind = "NodeDown"
	// ProcessRestart: one exporter or server process is started anew at Until
	// and does not answer from From until then. Target is "job/instance".
	ProcessRestart Kind = "ProcessRestart"
	// PodFailure: the gang of one experiment dies at From and is started again.
	// Target is the experiment's name; Value, if not 0, is the Xid that the
	// first GPU of its first pod reports.
	PodFailure Kind = "PodFailure"
)

// kinds is the table of what exists: a new sort of trouble is one line here
// and the exporters that ask the time line for it.
var kinds = map[Kind]string{
	NodeDown:       "a node name",
	ProcessRestart: "job/instance",
	PodFailure:     "an experiment's name",

	NodeUnreachable:       `a node name or "fleet"`,
	NodeCutOff:            "a node name",
	NodeNotReady:          `a node name or "fleet"`,
	NodeDiskFull:          "a node name",
	NodeDiskReadOnly:      "a node name",
	NodeDiskError:         "a node name",
	NodeARPTableFilling:   "a node name",
	NodeARPTableOverflow:  "a node name",
	EgressJump:            `a namespace or "cluster"`,
	NetworkAccountingLost: `a node name or "fleet"`,
	NodeCordoned:          `a node name or "fleet"`,
	NodesReserved:         `a node name or "fleet"`,
	NodeUpgrade:           "a node name",
	NodeAbsent:            "a node name",
	GPUXidFatal:           "node/gpu, such as gpu-00003/5",
	GPUUncorrectableECC:   "node/gpu, such as gpu-00003/5",
	GPUCorrectableECC:     "node/gpu, such as gpu-00003/5",
	GPURowRemapFailure:    "node/gpu, such as gpu-00003/5",
	GPURowRemapPending:    "node/gpu, such as gpu-00003/5",
	GPUHot:                `node/gpu, such as gpu-00003/5, or "fleet"`,
	GPUThrottled:          "node/gpu, such as gpu-00003/5",
	GPUSlow:               "node/gpu, such as gpu-00003/5",
	GPUNVLinkErrors:       `node/gpu, such as gpu-00003/5, or "fleet"`,
	GPUPCIeReplay:         "node/gpu, such as gpu-00003/5",
	GPUExporterGone:       `a node name or "fleet"`,
	GPUAllocatedIdle:      "an experiment's name",

	DNSErrors:                 `"cluster"`,
	DNSSlow:                   `"cluster"`,
	APIThrottling:             "a flow schema",
	APIThrottlingInFlight:     `"cluster"`,
	APIErrors:                 `"cluster"`,
	APISlow:                   `"cluster" or an API server's instance`,
	APIAggregatorDown:         `"cluster"`,
	APIServerMemory:           "an API server's instance",
	APIWatchTraffic:           "a resource, such as pods",
	EtcdFsyncSlow:             "an etcd member's instance",
	EtcdDBGrows:               "an etcd job or a member's instance",
	EtcdHung:                  "an etcd job",
	EtcdNoLeader:              "an etcd job",
	EtcdLeaderChurn:           "an etcd job",
	GangHalfPending:           "an experiment's name",
	PodsPendingGPUsFree:       `"cluster"`,
	AutoscalerStuck:           `"cluster"`,
	AutoscalerScaleUpFailing:  `"cluster"`,
	PrometheusMemoryNearLimit: "a Prometheus server's instance",
	PrometheusOOMLoop:         "a Prometheus server's instance",
	PrometheusReplaying:       "a Prometheus server's instance",
	CardinalityJump:           "a job",
}

// Trouble is one thing that goes wrong in [From, Until). The model's own
// failures (reboots, restarts, failing pods) are Troubles drawn from the seed;
// Options.Troubles adds staged ones to the same time line.
type Trouble struct {
	Kind   Kind
	Target string
	From   time.Time
	Until  time.Time
	Value  float64 // meaning depends on Kind; 0 where it has none
}

func (t Trouble) validate() error {
	what, ok := kinds[t.Kind]
	switch {
	case !ok:
		return fmt.Errorf("kind %q is not one that the model knows", t.Kind)
	case t.Target == "":
		return fmt.Errorf("%s: target is empty; give %s", t.Kind, what)
	case !t.Until.After(t.From):
		return fmt.Errorf("%s %s: until (%s) must be after from (%s)", t.Kind, t.Target, t.Until, t.From)
	}
	return nil
}

// event is a Trouble inside the model, in ms.
type event struct {
	from, until int64
	value       float64
}

type eventKey struct {
	kind   Kind
	target string
}

// timeline answers what goes wrong with one target in one window: the staged
// troubles plus those drawn from the seed. Both are functions of the window
// only, so the answer does not depend on the order of questions.
type timeline struct {
	seed   uint64
	start  int64
	staged map[eventKey][]event
	kinds  map[Kind]bool // of staged
}

func newTimeline(seed uint64, start int64, troubles []Trouble) *timeline {
	tl := &timeline{seed: seed, start: start, staged: map[eventKey][]event{}, kinds: map[Kind]bool{}}
	for _, t := range troubles {
		k := eventKey{t.Kind, t.Target}
		tl.kinds[t.Kind] = true
		tl.staged[k] = append(tl.staged[k], event{t.From.UnixMilli(), t.Until.UnixMilli(), t.Value})
		a := ailment{t.Kind, -1, event{t.From.UnixMilli(), t.Until.UnixMilli(), 0}}
		if down, ok := a.reboot(); ok {
			k.kind = NodeDown
			tl.staged[k] = append(tl.staged[k], down)
		}
	}
	for _, ev := range tl.staged {
		sort.Slice(ev, func(i, j int) bool { return ev[i].from < ev[j].from })
	}
	return tl
}

// recurring describes the chance failures of one kind: one in each period,
// which itself differs between targets.
type recurring struct {
	minPeriod, maxPeriod time.Duration
	minLength, maxLength time.Duration
}

var recurrences = map[Kind]recurring{
	NodeDown:       {6 * 24 * time.Hour, 14 * 24 * time.Hour, 3 * time.Minute, 8 * time.Minute},
	ProcessRestart: {4 * 24 * time.Hour, 10 * 24 * time.Hour, 4 * time.Second, 25 * time.Second},
}

// events returns what happens to target in a window, ordered by time: all that
// ends after from and starts before until.
func (tl *timeline) events(k Kind, target string, from, until int64) []event {
	var out []event
	if r, ok := recurrences[k]; ok {
		h := hashString(hashString(tl.seed, string(k)), target)
		period := int64(between(mix(h), float64(r.minPeriod.Milliseconds()), float64(r.maxPeriod.Milliseconds())))
		phase := int64(between(mix(h+1), 0, float64(period)))
		for n := (from-phase)/period - 1; ; n++ {
			at := phase + n*period
			if at >= until {
				break
			}
			end := at + int64(between(hash(h, uint64(n)), float64(r.minLength.Milliseconds()), float64(r.maxLength.Milliseconds())))
			if end > from && at > tl.start {
				out = append(out, event{from: at, until: end})
			}
		}
	}
	drawn := len(out)
	for _, e := range tl.staged[eventKey{k, target}] {
		if e.until > from && e.from < until {
			out = append(out, e)
		}
	}
	if len(out) > drawn && drawn > 0 {
		sort.Slice(out, func(i, j int) bool { return out[i].from < out[j].from })
	}
	return out
}

// lookBack is longer than any recurring period: the last start of everything
// lies within it.
const lookBack = int64(15 * 24 * time.Hour / time.Millisecond)

// starts returns the start times that govern [from, until]: the last one at or
// before from, then those inside. ends are the events whose end is a start.
func (tl *timeline) starts(ends []event, from, until int64) []int64 {
	last := tl.start
	var inside []int64
	for _, e := range ends {
		switch {
		case e.until <= from:
			last = max(last, e.until)
		case e.until <= until:
			inside = append(inside, e.until)
		}
	}
	sort.Slice(inside, func(i, j int) bool { return inside[i] < inside[j] })
	return append([]int64{last}, inside...)
}

// Troubles lists what goes wrong with one target in a window, drawn and staged,
// by time: what a view or a test may know of the time line. Failures that the
// seed gives to an experiment are seen in Experiments instead.
func (m *Model) Troubles(k Kind, target string, from, until time.Time) []Trouble {
	var out []Trouble
	for _, e := range m.tl.events(k, target, from.UnixMilli(), until.UnixMilli()) {
		out = append(out, Trouble{Kind: k, Target: target, From: time.UnixMilli(e.from), Until: time.UnixMilli(e.until), Value: e.value})
	}
	return out
}
