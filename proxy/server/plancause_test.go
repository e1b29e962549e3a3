package server

import (
	"context"
	"net/url"
	"testing"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Why series are fetched is counted, so that what lies with the servers is told from what the
// queries ask for.
func TestPlansAreCountedByCause(t *testing.T) {
	for _, c := range []struct{ name, query, mode, cause string }{
		{"pushed", `sum(up{cluster="jaguar"})`, "push", "none"},
		{"nothing less is exact", `count(info(up{cluster="jaguar"}))`, "raw", "expression"},
		{"no replica is known to be whole", `sum(up{cluster="ibis"})`, "raw", "not_whole"},
		{"no replica can ever be known to be whole", `sum(up{cluster="heron"})`, "raw", "no_heartbeat"},
		{"both", `count(info(up{cluster="jaguar"})) + sum(up{cluster="heron"})`, "raw", "no_heartbeat"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{2}}, {"ibis", false, []int{2}}}, limits(ample),
				func(o *Options) { o.Config.Groups[2].Heartbeat = "nobody_has_this" })
			got := r.ask(r.request(context.Background(),
				asking{id: endpoint.Query, path: "/api/v1/query", form: url.Values{"query": {c.query}}}))
			if got.status != 200 {
				t.Fatal(got)
			}
			if n := r.metric("spillway_query_plans_total", "mode="+c.mode, "cause="+c.cause); n != 1 {
				t.Errorf("%s: %g plans of mode %s and cause %s, of all %g", c.query, n, c.mode, c.cause,
					r.metric("spillway_query_plans_total"))
			}
		})
	}
}
