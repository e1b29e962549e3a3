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
	for name, matchers := range map[string]string{"research": `, matchers: ['{cluster="jaguar"}']`, "all": ""} {
		token := filepath.Join(dir, name)
		if err := os.WriteFile(token, []byte("token-of-"+name), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("- {name: %s, bearer_token_file: %s%s}\n", name, token, matchers)
	}
	w := &tenantWorld{t: t, client: newClient(t)}
	w.s, w.url = startProxy(t, t.Context(), text)
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
}
