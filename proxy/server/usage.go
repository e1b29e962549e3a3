package server

import (
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/usage"
)

// recordUsage counts what bounds in shadow would have done, and leaves the request's line in the
// usage log. What was refused before it was understood has no facts but its endpoint.
func (s *Server) recordUsage(x *exchange, verdict, bound string) {
	shadow := x.shadowed()
	if x.id == "" || x.st.usage == nil {
		return // a path outside the table looks at nothing
	}
	caller := x.caller
	rec := &usage.Record{
		Time: x.began, ID: x.uid, Tenant: caller.Tenant, User: caller.User, Dashboard: caller.Dashboard, Panel: caller.Panel,
		Rule: caller.Rule, Claimed: caller.Claimed,
		Endpoint: string(x.id), Verdict: verdict, Bound: bound,
		Series: x.budget.Series(), Samples: x.budget.Samples(), Bytes: x.budget.Bytes(), PeakBytes: x.peak(),
		ShardSeconds: x.calls.get().Seconds(), Lane: x.lane, Shadow: shadow,
		Caller: identity.FlowOf("usage", caller.Tenant, "from", x.peer),
	}
	if caller.User != "" && !caller.Claimed {
		rec.Caller = identity.FlowOf("usage", caller.Tenant, "said", caller.User)
	}
	if e := x.foreseen.Load(); e != nil {
		rec.EstimatedBy, rec.EstimatedSeries, rec.EstimatedSamples, rec.EstimatedBytes = string(e.By), e.Series, e.Samples, e.Bytes
		rec.EstimatedShardSeconds, rec.EstimatedGiBSeconds = e.Seconds, e.GiBSeconds()
	}
	switch {
	case x.takesStock():
		rec.Purpose = usage.Inventory
	case x.account != nil && x.account.only:
		rec.Purpose = usage.Explain
	case caller.Agent != "":
		rec.Purpose = usage.Agent
	}
	switch {
	case x.dec != nil && x.dec.Expr != nil:
		rec.Facts = usage.Describe(x.dec.Expr)
	case x.dec != nil && len(x.dec.Selectors) > 0:
		rec.Facts = usage.DescribeSelectors(x.dec.Selectors)
	case x.req != nil && x.req.Query != "":
		rec.Facts = usage.DescribeText(x.req.Query)
	}
	if x.dec != nil {
		r := x.dec.Request
		switch r.ID.Span() {
		case endpoint.SpanSteps, endpoint.SpanRange:
			if r.Start.Set && r.End.Set {
				rec.RangeSeconds = float64(max(r.End.Ms-r.Start.Ms, 0)) / 1000
			}
		case endpoint.SpanQueries, endpoint.SpanRecent:
			rec.RangeSeconds = float64(x.dec.End-x.dec.Start) / 1000
		}
		if r.ID.Span() == endpoint.SpanSteps {
			rec.StepSeconds = r.Step.Seconds()
		}
	}
	x.st.usage.Write(rec)
}

// takesStock tells whether spillway relabel asks here what is stored, as far as the caller is
// believed.
func (x *exchange) takesStock() bool { return x.caller.Inventory && x.id.Inventory() }
