package server

import (
	"context"
	"net/http"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// inLane puts the request into its lane, and into its flow in it: whatever is served fairly beside
// others. Who may say on whose behalf he asks has a flow for each source, user and dashboard that
// he names; of anybody else a tenant's address is one flow, whatever its headers say. What this
// process asks itself for a request is in that one's.
func (x *exchange) inLane(ctx context.Context, r *http.Request, own *inner) context.Context {
	who := identity.From(ctx)
	if asked := identity.From(r.Context()); own != nil && asked.Lane != "" {
		who.Lane, who.Flow, who.Peer = asked.Lane, asked.Flow, asked.Peer
	} else {
		source := x.tenant.Source(x.caller)
		who.Lane = laneOf(x.st.lanes, source, &x.caller)
		if c := &x.caller; !c.Claimed && (c.User != "" || c.Dashboard != "" || source != config.SourceAPI) {
			who.Flow = identity.FlowOf("said", c.Tenant, source, c.User, c.Dashboard)
		} else {
			who.Flow = identity.FlowOf("from", c.Tenant, who.Peer)
		}
	}
	x.lane = who.Lane
	return identity.With(ctx, who)
}

// laneOf is the first lane that the caller fits, which comes from the source; or else the last one.
func laneOf(lanes []config.Lane, source string, c *identity.Caller) string {
	last := len(lanes) - 1
	if last < 0 {
		return ""
	}
	said := identity.Caller{Tenant: c.Tenant}
	if !c.Claimed {
		said = *c
	}
	fits := func(want, is string) bool { return want == "" || want == is }
	for i := range lanes[:last] {
		m := &lanes[i].Match
		if fits(m.Tenant, said.Tenant) && fits(m.Source, source) && fits(m.User, said.User) && fits(m.Dashboard, said.Dashboard) {
			return lanes[i].Name
		}
	}
	return lanes[last].Name
}
