package server

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestGroupsOfOthers: a group in which a tenant can have nothing is not asked on its behalf, so
// that its outage is none of his, and its name is not told to him.
func TestGroupsOfOthers(t *testing.T) {
	const empty = `{"status":"success","data":`
	routes := []fakeshard.Route{
		{Path: "/api/v1/rules", Script: `send '` + empty + `{"groups":[]}}'`},
		{Path: "/api/v1/alerts", Script: `send '` + empty + `{"alerts":[]}}'`},
		{Path: "/api/v1/metadata", Script: `send '` + empty + `{}}'`},
		{Path: "/api/v1/status/buildinfo", Script: `send '` + empty + `{"version":"3.15.0"}}'`},
	}
	mine, theirs := fakeshard.Start(t, fakeshard.Config{Routes: routes}), fakeshard.Start(t, fakeshard.Config{Routes: routes})
	dir := t.TempDir()
	text := fmt.Sprintf("groups:\n- {name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}\n"+
		"- {name: secret-lynx, labels: {cluster: lynx}, shards: [{replicas: [{url: %q}]}]}\ntenants:\n", mine.URL(), theirs.URL())
	for name, matchers := range map[string]string{
		"research": `, matchers: ['{cluster="jaguar"}']`, "all": "", "nobody": `, matchers: ['{cluster="none"}']`,
	} {
		token := filepath.Join(dir, name)
		if err := os.WriteFile(token, []byte("token-of-"+name), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("- {name: %s, bearer_token_file: %s%s}\n", name, token, matchers)
	}
	w := &tenantWorld{t: t, client: newClient(t)}
	w.s, w.url = startProxy(t, t.Context(), text)
	for _, r := range routes {
		if got := w.ask("nobody", http.MethodGet, r.Path, nil, nil); strings.Contains(string(got.body), `"version":""`) {
			t.Errorf("%s of who can have nothing: %s", r.Path, got)
		}
	}
	theirs.Close()
	for _, r := range routes {
		for _, form := range []url.Values{nil, {"partial_response": {"true"}}} {
			got := w.ask("research", http.MethodGet, r.Path, form, nil)
			if got.status != 200 || len(got.message.Warnings) > 0 || strings.Contains(string(got.body), "lynx") {
				t.Errorf("%s %v: %s", r.Path, form, got)
			}
			if got := w.ask("all", http.MethodGet, r.Path, form, nil); got.status == 200 && len(got.message.Warnings) == 0 {
				t.Errorf("who sees everything is told nothing: %s %v: %s", r.Path, form, got)
			}
		}
	}
	// Where his own is away nothing is left, and the others are none of his.
	mine.Close()
	for _, r := range routes {
		for _, form := range []url.Values{nil, {"partial_response": {"true"}}} {
			got := w.ask("research", http.MethodGet, r.Path, form, nil)
			if got.status == 200 || strings.Contains(string(got.body), "lynx") || strings.Contains(string(got.body), "other shard") {
				t.Errorf("%s %v, all of his away: %s", r.Path, form, got)
			}
		}
	}
}

// TestTenantsRegexpCountsOnce: what the operator has written for a tenant stands in each selector
// of its requests, and is nothing that its callers could make shorter.
func TestTenantsRegexpCountsOnce(t *testing.T) {
	const matcher = "team-[a-z0-9]{4,12}"
	fake := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "ns": "team-blue"}}})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-blue"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &tenantWorld{t: t, client: newClient(t)}
	w.s, w.url = startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n"+
		"tenants: [{name: blue, bearer_token_file: %s, matchers: ['{ns=~%q}']}]\n", fake.URL(), token, matcher))
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("m%d", i)
	}
	own := func(n int) string { // written by the caller, each another one
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf(`m{x=~"%d[a-z0-9]{4,12}"}`, i)
		}
		return strings.Join(out, " + ")
	}
	for _, c := range []struct {
		path string
		form url.Values
		code int
	}{
		{"/api/v1/query", url.Values{"query": {strings.Join(many, " + ")}}, 200},
		{"/api/v1/series", url.Values{"match[]": many}, 200},
		{"/api/v1/query", url.Values{"query": {own(8)}}, 200},
		{"/api/v1/query", url.Values{"query": {own(20)}}, 422},
	} {
		if got := w.ask("blue", http.MethodPost, c.path, c.form, nil); got.status != c.code {
			t.Errorf("%s %.80s: %s", c.path, c.form, got)
		}
	}
	for _, r := range fake.RequestsTo("/api/v1/query") {
		if q := r.Form.Get("query"); strings.Count(q, matcher) == 0 {
			t.Errorf("asked without the matcher: %s", q)
		}
	}
}
