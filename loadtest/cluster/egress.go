package cluster

// What pods send to the internet: a share of their traffic, more of it while an
// EgressJump is on. The node's accounting rules, its network card and cadvisor's
// figures for the pod all show the same jump.

// egress adds up what the pods of one node send.
type egress struct {
	m          *Model
	sent, over []delta
}

// sends is what one pod of the experiment sends to the internet in normal
// times, bytes a second; whole, so that sums of it are exact.
func (e *experiment) sends() float64 { return float64(150_000 + hash(e.hash, 50)%400_000) }

// pod books one pod of the experiment's attempt.
func (o *egress) pod(e *experiment, a *attempt) {
	r := e.sends()
	o.sent = append(o.sent, delta{a.started, r}, delta{a.ended, -r})
	o.m.surgeOf(e, a.started, a.ended, func(from, until int64, more float64) {
		o.sent = append(o.sent, delta{from, more}, delta{until, -more})
		o.over = append(o.over, delta{from, more}, delta{until, -more})
	})
}

// surgeOf calls f for what the jumps add to a pod of the experiment's.
func (m *Model) surgeOf(e *experiment, from, until int64, f func(from, until int64, more float64)) {
	for _, s := range m.surges {
		a, b := max(from, s.from), min(until, s.until)
		if a < b && (s.space == "" || s.space == e.space.name) {
			f(a, b, float64(int64((s.or(10)-1)*e.sends())))
		}
	}
}

func (o *egress) steps() (sent, over *steps) {
	if len(o.over) > 0 {
		over = stepsFromDeltas(o.over)
	}
	return stepsFromDeltas(o.sent), over
}

// jumped is what the jumps add to one pod; nil: nothing ever.
func (m *Model) jumped(q *pod) *steps {
	if q.exp == nil || len(m.surges) == 0 {
		return nil
	}
	var d []delta
	m.surgeOf(q.exp, q.a.started, q.a.ended, func(from, until int64, more float64) {
		d = append(d, delta{from, more}, delta{until, -more})
	})
	if d == nil {
		return nil
	}
	return stepsFromDeltas(d)
}
