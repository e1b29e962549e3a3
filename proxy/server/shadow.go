package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Bounds in shadow (limits.shadow) are told of and not enforced. What the text alone shows is
// decided without them, and once more with each; what the shards are asked for is weighed as ever;
// and what they answered is compared at the end.

// bound decides about a request within its limits, and lets those go that are in shadow.
func (x *exchange) bound(ctx context.Context, req *endpoint.Request, now time.Time) (*policy.Decision, error) {
	x.strict = x.limits
	parsing := parsing{x: x, ctx: ctx}
	defer parsing.end()
	known := policy.Known{Read: parsing.begin}
	in := x.st.cfg.Limits.Shadow
	if len(in) == 0 || x.wall { // what a tenant may see depends on no rollout
		return policy.DecideKnown(req, policy.Limits(x.limits), x.st.owned, now, &known)
	}
	x.limits = config.Limits(policy.Limits(x.strict).Without(in...))
	d, err := policy.DecideKnown(req, policy.Limits(x.limits), x.st.owned, now, &known)
	if err == nil && (!x.exempt || x.account != nil) {
		x.shadow = d.Acts(req, policy.Limits(x.strict), in, x.st.owned, now, &known)
	}
	return d, err
}

// inShadow tells whether the bound is not enforced on the request.
func (x *exchange) inShadow(bound string) bool {
	return !x.wall && slices.Contains(x.st.cfg.Limits.Shadow, bound)
}

// lighter is in how many pieces a query is asked, as it was weighed: where max_shard_bytes would
// refuse it, or have it evaluated here, and is in shadow, it is asked as it is. Pieces of time are
// no refusal, and stay.
func (x *exchange) lighter(pieces int, err error) (int, error) {
	if err == nil || !x.inShadow(policy.BoundMaxShardBytes) {
		return pieces, err
	}
	if qe, elsewhere := (*qerr.Error)(nil), (*answer.Inexact)(nil); !errors.Is(err, answer.ErrPieces) && !errors.As(err, &elsewhere) &&
		!(errors.As(err, &qe) && qe.Bound == policy.BoundMaxShardBytes) {
		return pieces, err
	}
	x.shade(policy.BoundMaxShardBytes)
	return 1, nil
}

// touches is what became of looking at how many series a query selects: where max_series_touched
// would refuse it, and is in shadow, it is asked.
func (x *exchange) touches(err error) error {
	qe := (*qerr.Error)(nil)
	if err == nil || !x.inShadow(policy.BoundMaxSeriesTouched) || !errors.As(err, &qe) || qe.Bound != policy.BoundMaxSeriesTouched {
		return err
	}
	x.shade(policy.BoundMaxSeriesTouched)
	return nil
}

func (x *exchange) shade(bound string) {
	if !slices.Contains(x.shadow, bound) {
		x.shadow = append(x.shadow, bound)
	}
}

// shadowed are the bounds in shadow that would have acted on the request, which is over, sorted.
func (x *exchange) shadowed() []string {
	if x.dec == nil || x.exempt { // it was refused before, or whoever runs Spillway asks
		return nil
	}
	x.lookShadow()
	slices.Sort(x.shadow)
	for _, b := range x.shadow {
		x.s.metrics.shadow.WithLabelValues(b).Inc()
	}
	return x.shadow
}

// lookShadow compares what an attempt has read and answered with the bounds in shadow.
func (x *exchange) lookShadow() {
	if x.inShadow(policy.BoundMaxSeries) && x.budget.OverTold() {
		x.shade(policy.BoundMaxSeries)
	}
	wrote := x.client.n.Load()
	if x.out != nil { // with what its caller has not taken yet
		wrote = max(wrote, x.out.Len())
	}
	if x.inShadow(policy.BoundMaxResponseBytes) && max(x.budget.Bytes(), wrote) > x.strict.MaxResponseBytes {
		x.shade(policy.BoundMaxResponseBytes)
	}
}
