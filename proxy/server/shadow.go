package server

import (
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Bounds in shadow (limits.shadow) are told of and not enforced. What the text alone shows is
// decided without them, and once more with each; what the shards are asked for is weighed as ever;
// and what they answered is compared at the end.

// bound decides about a request within its limits, and lets those go that are in shadow.
func (x *exchange) bound(req *endpoint.Request, now time.Time) (*policy.Decision, error) {
	x.strict = x.limits
	in := x.st.cfg.Limits.Shadow
	if len(in) == 0 {
		return policy.Decide(req, policy.Limits(x.limits), x.st.owned, now)
	}
	x.limits = config.Limits(policy.Limits(x.strict).Without(in...))
	d, err := policy.Decide(req, policy.Limits(x.limits), x.st.owned, now)
	if err == nil {
		x.shadow = d.Acts(req, policy.Limits(x.strict), in, x.st.owned, now)
	}
	return d, err
}

// shadows tells whether an error is the refusal of a bound that is in shadow, and remembers it.
func (x *exchange) shadows(err error) bool {
	qe := qerr.From(err)
	if qe == nil || !slices.Contains(x.st.cfg.Limits.Shadow, qe.Bound) {
		return false
	}
	x.shade(qe.Bound)
	return true
}

func (x *exchange) shade(bound string) {
	if !slices.Contains(x.shadow, bound) {
		x.shadow = append(x.shadow, bound)
	}
}

// shadowed are the bounds in shadow that would have acted on the request, which is over, sorted.
func (x *exchange) shadowed() []string {
	if x.dec == nil { // it was refused before
		return nil
	}
	for _, b := range x.st.cfg.Limits.Shadow {
		if b == policy.BoundMaxSeries && x.budget.Series() > int64(x.strict.MaxSeries) ||
			b == policy.BoundMaxResponseBytes && max(x.budget.Bytes(), x.client.n) > x.strict.MaxResponseBytes {
			x.shade(b)
		}
	}
	slices.Sort(x.shadow)
	for _, b := range x.shadow {
		x.s.metrics.shadow.WithLabelValues(b).Inc()
	}
	return x.shadow
}
