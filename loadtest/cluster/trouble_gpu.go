package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Troubles of GPUs. Targets are "node/gpu" unless said otherwise, such as
// "gpu-00003/5". DCGM_FI_DEV_XID_ERRORS keeps the last Xid after Until, until the
// machine is restarted.
const (
	// GPUXidFatal: the GPU reports the Xid Value (0 means 79), its pod dies, and
	// unless it is an application's Xid the device plugin holds the GPU for dead
	// until Until: one less is allocatable and nothing is placed on it. With 79 the
	// GPU has fallen off the bus: all its series vanish from DCGM meanwhile, and
	// DCGM_EXP_XID_ERRORS_COUNT never has the Xid; capacity stays.
	GPUXidFatal Kind = "GPUXidFatal"
	// GPUUncorrectableECC: Value (0 means 1) double-bit errors: Xid 48, the pod dies,
	// a row waits to be remapped until Until, when the GPU is reset and its count
	// begins anew.
	GPUUncorrectableECC Kind = "GPUUncorrectableECC"
	// GPUCorrectableECC: Value single-bit errors a minute, 0 means 10, all of which
	// ECC corrects: nothing else comes of them.
	GPUCorrectableECC Kind = "GPUCorrectableECC"
	// GPURowRemapFailure: no spare rows are left: Xid 64 and the flag.
	GPURowRemapFailure Kind = "GPURowRemapFailure"
	// GPURowRemapPending: a row is remapped at the next reset: Xid 63 and the flag.
	GPURowRemapPending Kind = "GPURowRemapPending"
	// GPUHot: the GPU is at Value degrees Celsius, 0 means 92, and its memory six
	// above that. Or the target is "fleet" and Value the share of the nodes, 0 means
	// all, as where the cooling of a row fails: all of their GPUs are at 92.
	GPUHot Kind = "GPUHot"
	// GPUThrottled: heat holds the clocks down for the share Value of the time, 0
	// means 0.2.
	GPUThrottled Kind = "GPUThrottled"
	// GPUSlow: the GPU does the share Value of its experiment's work, 0 means 0.5, as
	// with a process that waits for its data. The gang's other GPUs wait for it in
	// their kernels, and so seem as busy as ever. Where nothing runs nothing changes.
	GPUSlow Kind = "GPUSlow"
	// GPUNVLinkErrors: Value recoveries a minute of its links, 0 means 2, and thirty
	// times as many replays; of NVLink 5 (B200), which counts no replays, half of the
	// recoveries fail. Or the target is "fleet" and Value the share of the
	// nodes, 0 means all, as after a bad firmware: all of their GPUs have two.
	GPUNVLinkErrors Kind = "GPUNVLinkErrors"
	// GPUPCIeReplay: Value replays a minute on its bus, 0 means 30.
	GPUPCIeReplay Kind = "GPUPCIeReplay"
	// GPUExporterGone: dcgm-exporter of a node does not answer. Target is the node,
	// or "fleet" with Value as the share of the nodes, 0 means all.
	GPUExporterGone Kind = "GPUExporterGone"
	// GPUAllocatedIdle: an experiment holds its GPUs and does nothing with them;
	// what it has in their memory stays. Target is the experiment's name.
	GPUAllocatedIdle Kind = "GPUAllocatedIdle"
)

// ignoredXids are those that the device plugin leaves to the application.
var ignoredXids = []float64{13, 31, 43, 45, 68, 109}

// fallenOff is the Xid of a GPU that the bus has lost.
const fallenOff = 79

// xid is what the trouble makes the GPU report, 0 for none.
func (a *ailment) xid() float64 {
	switch a.kind {
	case GPUXidFatal:
		return a.or(fallenOff)
	case GPUUncorrectableECC:
		return 48
	case GPURowRemapFailure:
		return 64
	case GPURowRemapPending:
		return 63
	}
	return 0
}

// unhealthy says whether the device plugin takes the GPU out of what can be
// allocated.
func (a *ailment) unhealthy() bool {
	x := a.xid()
	return x != 0 && !slices.Contains(ignoredXids, x)
}

// kills says whether the pod on the GPU dies of it.
func (a *ailment) kills() bool { return a.kind == GPUXidFatal || a.kind == GPUUncorrectableECC }

// lost are the spans in which DCGM does not see the GPU.
func (s *nodeState) lost(gpu int) []event {
	var out []event
	for i := range s.ill {
		if a := &s.ill[i]; a.gpu == gpu && a.kind == GPUXidFatal && a.xid() == fallenOff {
			out = append(out, a.event)
		}
	}
	return spans(out)
}

// sick is how many of what a node offers the device plugin holds for dead; nil: none ever.
func (s *nodeState) sick(o offer) *steps {
	var d []delta
	for g, n := range o.of {
		if n == 0 {
			continue
		}
		var ev []event
		for i := range s.ill {
			if a := &s.ill[i]; a.gpu == g && a.unhealthy() {
				ev = append(ev, event{from: a.from + readyAfter, until: a.until + readyAfter})
			}
		}
		for _, e := range spans(ev) {
			d = append(d, delta{e.from, n}, delta{e.until, -n})
		}
	}
	if d == nil {
		return nil
	}
	return stepsFromDeltas(d)
}

// stuck gives a reading another value while a trouble of the kind is on.
func stuck(f gpuField, kind Kind, value func(event) float64) gpuField {
	return func(p *page, s *nodeState, d device, h uint64) curve {
		c := f(p, s, d, h)
		c.over = during(s.of(d.gpu, kind), value)
		return c
	}
}

// faster lets a counter rise by so much a second more while a trouble is on.
func faster(f gpuField, kind Kind, perSecond func(event) float64) gpuField {
	return func(p *page, s *nodeState, d device, h uint64) curve {
		c := f(p, s, d, h)
		if ev := s.of(d.gpu, kind); len(ev) > 0 {
			if c.kind == constant {
				c = curve{kind: counter, whole: true, pr: &s.machine}
			}
			c.k, c.st = 1, pace(ev, perSecond)
		}
		return c
	}
}

// flagged is 1 while a trouble of one of the kinds is on.
func flagged(kinds ...Kind) gpuField {
	return func(_ *page, s *nodeState, d device, _ uint64) curve { return flag(s.of(d.gpu, kinds...)) }
}

// jumps is a counter that counts troubles of the kinds. A machine's restart
// forgets them, and a reset of the GPU, which ends each of them, unless they are
// burnt into the card.
func jumps(burnt bool, n func(event) float64, kinds ...Kind) gpuField {
	return func(_ *page, s *nodeState, d device, _ uint64) curve {
		ev := s.of(d.gpu, kinds...)
		var starts []int64
		if !burnt {
			starts = slices.Clone(s.machine.starts)
			for _, e := range ev {
				if e.until > starts[0] {
					starts = append(starts, e.until)
				}
			}
		}
		st := counted(ev, starts, n)
		if st == nil {
			return curve{}
		}
		return curve{kind: gauge, k: 1, st: st}
	}
}

// slowed is the intensity of a GPU that does the share of its work which value
// gives while an event is on, in 64ths as steps want it.
func slowed(st *steps, ev []event, value func(event) float64) *steps {
	share := during(ev, value)
	if share == nil {
		return st
	}
	at := slices.Concat(st.at, share.at)
	slices.Sort(at)
	out := &steps{}
	for _, t := range slices.Compact(at) {
		v := st.level(t)
		if s := share.level(t); s != 0 {
			v = math.Round(64*v*s) / 64
		}
		out.push(t, v)
	}
	return out
}

// checkIdle refuses an idle experiment that runs at no time of the trouble.
func (m *Model) checkIdle() error {
	for i, t := range m.o.Troubles {
		if t.Kind != GPUAllocatedIdle {
			continue
		}
		from, until := t.From.UnixMilli(), t.Until.UnixMilli()
		runs := false
		for k := range m.pools {
			for _, e := range m.experiments(&m.pools[k], from, until) {
				for _, a := range e.attempts {
					runs = runs || e.name == t.Target && a.started < until && a.ended > from
				}
			}
		}
		if !runs {
			return fmt.Errorf("troubles[%d]: %s: no experiment %q runs from %s to %s; Experiments lists them with their Runs",
				i, t.Kind, t.Target, t.From.UTC().Format(time.RFC3339), t.Until.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// idleSpans calls f for the spans in which the attempt holds its GPUs and
// does nothing with them though its container runs. first: the node has rank 0,
// whose container may be gone for a while, when there is nothing to take away.
func (m *Model) idleSpans(e *experiment, a *attempt, first bool, f func(from, until int64)) {
	var gone []event
	if first {
		for _, r := range a.inPlace {
			gone = append(gone, event{from: r.died, until: r.back})
		}
	}
	for _, t := range spans(m.tl.events(GPUAllocatedIdle, e.name, a.started, a.ended)) {
		without(gone, max(t.from, a.started), min(t.until, a.ended), f)
	}
}

// emitClockEvents: how many of DCGM's samples of the last five minutes saw
// the clocks held down by heat; the series is there only while some did.
func emitClockEvents(p *page, e *emitter) {
	const every = 30 * second
	p.eachDevice(func(d device, h holder, pairs []string) {
		var samples []delta
		var seen []event
		for _, t := range spans(p.host.of(d.gpu, GPUThrottled)) {
			at := t.from
			for ; at < t.until; at += every {
				samples = append(samples, delta{at, 1}, delta{at + xidWindow, -1})
			}
			seen = append(seen, event{from: t.from, until: at - every + xidWindow})
		}
		for _, t := range spans(seen) {
			if a, b := max(t.from, h.from), min(t.until, h.until); a < b {
				c := curve{kind: gauge, k: 1, st: stepsFromDeltas(samples)}
				e.addIn(a, b, c, append(pairs[:len(pairs):len(pairs)], "clock_event", "hw_thermal", "window_size_in_ms", "300000")...)
			}
		}
	})
}
