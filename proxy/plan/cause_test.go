package plan

import "testing"

// TestCauseOfServersGoesFirst: a pair without a heartbeat is nobody's fault, and hides no fault of
// a server that is met after it.
func TestCauseOfServersGoesFirst(t *testing.T) {
	for _, c := range []struct {
		met  []Cause
		want Cause
	}{
		{[]Cause{CauseNoHeartbeat}, CauseNoHeartbeat},
		{[]Cause{CauseNoHeartbeat, CauseSick}, CauseSick},
		{[]Cause{CauseSick, CauseNoHeartbeat}, CauseSick},
		{[]Cause{CauseNoHeartbeat, CauseEngine, CauseSick}, CauseEngine},
		{nil, CauseExpression},
	} {
		p := &planner{fetches: true}
		for _, m := range c.met {
			p.because(m, nil, "")
		}
		if got := p.why(); got != c.want {
			t.Errorf("%v were met, and the cause is %s, not %s", c.met, got, c.want)
		}
	}
}
