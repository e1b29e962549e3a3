package server

import (
	"context"
	"net/http"
	"testing"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// TestLaneAndFlow: the lane and the flow of a request are what its tenant may say they are, and
// without a tenant nothing that a header says makes a difference.
func TestLaneAndFlow(t *testing.T) {
	lanes := []config.Lane{
		{Name: "oncall", Match: config.LaneMatch{Tenant: "oncall"}},
		{Name: "rules", Match: config.LaneMatch{Source: "alerting"}},
		{Name: "wall", Match: config.LaneMatch{Source: "dashboard", Dashboard: "wall", User: "ada"}},
		{Name: "batch", Match: config.LaneMatch{Source: "batch"}},
		{Name: "default"},
	}
	all := []string{identity.HeaderUser, identity.HeaderDashboard, identity.HeaderRule, identity.HeaderFromAlert}
	grafana := &tenant.Tenant{Tenant: config.Tenant{Name: "grafana", MaySet: all}}
	oncall := &tenant.Tenant{Tenant: config.Tenant{Name: "oncall"}}
	plain := &tenant.Tenant{Tenant: config.Tenant{Name: "plain"}}
	of := func(who *tenant.Tenant, peer string, headers ...string) identity.Request {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		x := &exchange{st: &state{lanes: lanes}}
		x.tenant, x.caller = who, who.Caller(identity.FromRequest(r))
		return identity.From(x.inLane(identity.With(context.Background(), identity.Request{Peer: peer}), r, nil))
	}
	said := func(user, dashboard string) []string {
		return []string{identity.HeaderUser, user, identity.HeaderDashboard, dashboard}
	}
	for _, c := range []struct {
		who     *tenant.Tenant
		headers []string
		want    string
	}{
		{nil, nil, "default"},
		{nil, []string{"FromAlert", "true"}, "default"},
		{nil, []string{"User-Agent", "mcp-grafana/1"}, "default"},
		{nil, said("ada", "wall"), "default"},
		{plain, []string{"FromAlert", "true"}, "default"},
		{plain, []string{"User-Agent", "mcp-grafana/1"}, "default"},
		{oncall, nil, "oncall"},
		{grafana, nil, "default"},
		{grafana, []string{"FromAlert", "true"}, "rules"},
		{grafana, []string{"X-Rule-Uid", "r"}, "rules"},
		{grafana, said("ada", "wall"), "wall"},
		{grafana, said("bob", "wall"), "default"},
		{grafana, []string{"User-Agent", "mcp-grafana/1"}, "batch"},
	} {
		if got := of(c.who, "192.0.2.1", c.headers...).Lane; got != c.want {
			t.Errorf("%v %v is in %s, want %s", c.who, c.headers, got, c.want)
		}
	}
	for _, c := range []struct {
		what string
		a, b identity.Request
		same bool
	}{
		{"invented users of one address", of(nil, "a", said("ada", "x")...), of(nil, "a", said("bob", "y")...), true},
		{"invented users of a tenant that may not say so", of(plain, "a", said("ada", "x")...), of(plain, "a", said("bob", "y")...), true},
		{"two addresses", of(nil, "a"), of(nil, "b"), false},
		{"two tenants of one address", of(plain, "a"), of(oncall, "a"), false},
		{"two users", of(grafana, "a", said("ada", "x")...), of(grafana, "a", said("bob", "x")...), false},
		{"one user at two addresses", of(grafana, "a", said("ada", "x")...), of(grafana, "b", said("ada", "x")...), true},
		{"two dashboards of a user", of(grafana, "a", said("ada", "x")...), of(grafana, "a", said("ada", "y")...), false},
		{"a user called as a tenant is", of(grafana, "a", said("", "")...), of(grafana, "b", said("", "")...), false},
	} {
		if (c.a.Flow == c.b.Flow) != c.same {
			t.Errorf("%s: the same flow is %v", c.what, !c.same)
		}
	}
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	x := &exchange{st: &state{lanes: lanes}}
	asked := of(grafana, "a", "FromAlert", "true")
	inner := identity.From(x.inLane(context.Background(), r.WithContext(identity.With(context.Background(), asked)), &inner{}))
	if inner.Lane != "rules" || inner.Flow != asked.Flow {
		t.Errorf("what is asked for a request is in %s", inner.Lane)
	}
}
