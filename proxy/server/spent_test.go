package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/attribution"
)

// TestUsage: what requests took stands under the names of who asked, refusals too, and every sum is
// that of all requests.
func TestUsage(t *testing.T) {
	r := newRig(t, manyShards(2), limits(ample))
	ask := func(user, panel, query string) {
		req := r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {query}}})
		req.Header.Set("X-Grafana-User", user)
		req.Header.Set("X-Dashboard-Uid", "fleet")
		req.Header.Set("X-Panel-Id", panel)
		r.ask(req)
	}
	ask("ada", "7", "up")
	ask("ada", "7", "up")
	ask("ada", "8", "count(  up  )")
	ask("bob", "7", `{le!=""}`)
	r.get(r.url + "/api/v1/rules")
	usage := func(query string) (out []attribution.Top) {
		got := r.get(r.admin + "/api/spillway/v1/usage" + query)
		if got.status != http.StatusOK {
			t.Fatal(got)
		}
		if err := json.Unmarshal(got.message.Data, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	r.eventually("all have ended", func() bool { return usage("?by=user")[0].Total.Requests == 5 })
	if got := usage(""); len(got) != len(attribution.Kinds()) {
		t.Errorf("%d kinds", len(got))
	}
	users := usage("?by=user&order=requests")[0]
	if len(users.Rows) != 2 || users.Rows[0].Name != "ada" || users.Rows[0].Requests != 3 || users.Rows[0].Refused != 0 ||
		users.Rows[0].ShardSeconds <= 0 || users.Rows[0].GiBSeconds <= 0 || users.Rows[0].Samples < 6 {
		t.Errorf("users are %+v", users.Rows)
	}
	if bob := users.Rows[1]; bob.Name != "bob" || bob.Refused != 1 || bob.ShardSeconds != 0 {
		t.Errorf("bob was refused and has %+v", bob)
	}
	if users.Nobody.Requests != 1 || users.Total.Requests != 5 {
		t.Errorf("nobody has %+v, all have %+v", users.Nobody, users.Total)
	}
	two := usage("?by=panel&by=query&limit=1&order=requests")
	if two[0].Rows[0].Name != "fleet/7" || two[0].Rest.Requests != 1 || len(two[0].Rows) != 1 {
		t.Errorf("panels are %+v", two[0])
	}
	if two[1].Rows[0].Name != "up" || two[1].Rows[0].Requests != 2 {
		t.Errorf("queries are %+v", two[1])
	}
	for query, want := range map[string]string{
		"?by=shoe": "by takes tenant or user", "?order=age": "order takes", "?limit=0": "limit takes", "?limit=x": "limit takes",
		"?from=1": "usage takes by, order and limit",
	} {
		got := r.get(r.admin + "/api/spillway/v1/usage" + query)
		if got.status != http.StatusBadRequest || !strings.Contains(got.message.Error, want) {
			t.Errorf("usage%s: %s", query, got)
		}
	}
}
