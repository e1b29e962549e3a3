package cluster

import "slices"

// Pods that get no node: half of a gang, or a whole one beside free GPUs.

// pendingHalf is until when the second half of the gang's pods in an attempt
// that began at created gets no node; 0: all of them do.
func (m *Model) pendingHalf(e *experiment, created, finish int64) int64 {
	if !m.tl.kinds[GangHalfPending] {
		return 0
	}
	until := int64(0)
	for _, ev := range m.tl.staged[eventKey{GangHalfPending, e.name}] {
		if ev.from < created && ev.until > created {
			until = max(until, min(ev.until, finish))
		}
	}
	return until
}

// evictions are the troubles that end a gang's attempt so that it begins again
// with half of its pods.
func (m *Model) evictions(e *experiment, from, until int64) []event {
	if !m.tl.kinds[GangHalfPending] {
		return nil
	}
	evs := m.tl.events(GangHalfPending, e.name, from, until)
	for i := range evs {
		// Pods are made anew at once, not at the end of the trouble.
		evs[i] = event{from: evs[i].from, until: evs[i].from + 1}
	}
	return evs
}

// evicted says whether it is such a trouble that begins at a time.
func (m *Model) evicted(e *experiment, at int64) bool {
	if !m.tl.kinds[GangHalfPending] {
		return false
	}
	return slices.ContainsFunc(m.tl.staged[eventKey{GangHalfPending, e.name}], func(ev event) bool { return ev.from == at })
}

// firstWaiting is the rank of the first pod that waits in a half pending gang.
func (e *experiment) firstWaiting() int { return (e.size() + 1) / 2 }

// of is the attempt as the pod of one rank lives it.
func (a attempt) of(e *experiment, rank int) attempt {
	if a.halfUntil == 0 || rank < e.firstWaiting() {
		return a
	}
	start := a.started - a.scheduled
	a.scheduled = min(a.halfUntil, a.ended)
	a.started = min(a.scheduled+start, a.ended)
	if a.scheduled == a.ended {
		a.removed = a.ended // cancelled while it was pending
	}
	return a
}

// works is when the gang begins to work: with its last pod.
func (a attempt) works(e *experiment) int64 { return a.of(e, e.size()-1).started }

// freePools chooses the pools that stay empty while PodsPendingGPUsFree lasts:
// a quarter of the GPUs at least.
func (m *Model) freePools() {
	if !m.tl.kinds[PodsPendingGPUsFree] {
		return
	}
	m.freed = make([]bool, len(m.pools))
	want := (m.o.Nodes*m.o.GPUsPerNode + 3) / 4
	for n, at := 0, int(mix(m.seed)%uint64(max(1, len(m.pools)))); n < len(m.pools) && want > 0; n++ {
		i := (at + n) % len(m.pools)
		m.freed[i] = true
		want -= m.pools[i].nodes * m.pools[i].gpus
	}
}

// emptied says from when on nobody may use a pool at a time, and until when;
// false: it is used as ever.
func (m *Model) emptied(p *pool, at int64) (event, bool) {
	if m.freed == nil {
		return event{}, false
	}
	for _, e := range m.tl.staged[eventKey{PodsPendingGPUsFree, WholeCluster}] {
		if at >= e.from && at < e.until && m.freed[p.index] {
			return e, true
		}
	}
	return event{}, false
}

// cutShort ends an experiment whose pool has to be free: what it did before
// stays as it was. false: nothing is left of it.
func (m *Model) cutShort(e *experiment) bool {
	if m.freed == nil || !m.freed[e.pool.index] {
		return true
	}
	for _, ev := range m.tl.staged[eventKey{PodsPendingGPUsFree, WholeCluster}] {
		at := ev.from
		if at <= e.attempts[0].created {
			if at < ev.until && e.attempts[0].created < ev.until {
				return false
			}
			continue
		}
		if at >= e.removed {
			continue
		}
		kept := e.attempts[:0]
		for _, a := range e.attempts {
			if a.created >= at {
				break
			}
			if a.ended > at {
				a.scheduled, a.started, a.ended, a.failed = min(a.scheduled, at), min(a.started, at), at, false
				a.inPlace = slices.DeleteFunc(a.inPlace, func(r inPlace) bool { return r.back >= at })
			}
			a.removed = min(a.removed, at+2*60*second)
			if a.scheduled == at {
				a.removed = at
			}
			kept = append(kept, a)
		}
		e.attempts = kept
		e.removed = kept[len(kept)-1].removed
	}
	return true
}

// waiting are the gangs that get no node although GPUs are free: each asks for
// whole nodes, and none that is free may be used by it.
func (m *Model) waiting(from, until int64) []experiment {
	if m.freed == nil {
		return nil
	}
	var out []experiment
	for i, ev := range m.tl.staged[eventKey{PodsPendingGPUsFree, WholeCluster}] {
		if ev.until <= from || ev.from > until {
			continue
		}
		h := hash(m.seed, 'w', uint64(i))
		research := m.spaces[4:]
		e := experiment{
			pool: &pool{nodes: int(ev.value), gpus: m.o.GPUsPerNode, hash: h}, hash: h, labelled: true,
			space: &research[h%uint64(len(research)-1)],
			name:  "pretrain-" + uuid(h)[:8], removed: ev.until,
		}
		// Created when the trouble begins, cancelled when it ends.
		e.attempts = []attempt{{created: ev.from, scheduled: ev.until, started: ev.until, ended: ev.until, removed: ev.until}}
		out = append(out, e)
	}
	return out
}

// eachExperiment walks all experiments of the window pool by pool, those that
// wait beside free GPUs last.
func (m *Model) eachExperiment(from, until int64, f func(*experiment)) {
	for i := range m.pools {
		exps := m.experiments(&m.pools[i], from, until)
		for j := range exps {
			f(&exps[j])
		}
	}
	late := m.waiting(from, until)
	for j := range late {
		f(&late[j])
	}
}

// waitingPods is how many pods the scheduler found no node for.
func (p *page) waitingPods() *steps {
	var waiting []delta
	p.m.eachExperiment(p.from, p.until, func(x *experiment) {
		for _, a := range x.attempts {
			for rank := range x.size() {
				r := a.of(x, rank)
				if r.scheduled > r.created {
					waiting = append(waiting, delta{r.created, 1}, delta{r.scheduled, -1})
				}
			}
		}
	})
	return stepsFromDeltas(waiting)
}
