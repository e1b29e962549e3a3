package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestNamesOfATenantAreHeld: the names by which metadata is kept to a tenant are held in
// memory.budget by the request that they are read for.
func TestNamesOfATenantAreHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, log := filepath.Join(dir, "token"), filepath.Join(dir, "usage.jsonl")
	if err := os.WriteFile(token, []byte("token-of-research"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "namespace": "research-a"}}})
	const size = 1000
	var names []string
	for i := range 4000 {
		names = append(names, fmt.Sprintf(`"%s%05d"`, strings.Repeat("x", size-5), i))
	}
	many := `header Content-Type application/json; send '{"status":"success","data":[` + strings.Join(names, ",") + `]}'`
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/label/__name__/values", Script: many}); err != nil {
		t.Fatal(err)
	}
	w := &tenantWorld{t: t, client: newClient(t)}
	w.s, w.url = startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n", s.URL())+roomy(ample)+
		fmt.Sprintf("usage_log: {path: %q}\n", log)+
		fmt.Sprintf("tenants: [{name: research, bearer_token_file: %q, matchers: ['{namespace=~\"research-.+\"}']}]\n", token))
	if got := w.ask("research", http.MethodGet, "/api/v1/metadata", nil, nil); got.status != 200 {
		t.Fatalf("metadata: %s", got)
	}
	r := &rig{t: t, s: w.s}
	var line struct {
		Endpoint string `json:"endpoint"`
		Peak     int64  `json:"peak_bytes"`
	}
	r.eventually("the request is in the usage log", func() bool {
		text, _ := os.ReadFile(log) // not there yet, perhaps
		for l := range strings.Lines(string(text)) {
			if json.Unmarshal([]byte(l), &line) == nil && line.Endpoint == "metadata" {
				return true
			}
		}
		return false
	})
	if least := int64(len(names) * size); line.Peak < least || line.Peak > 4*least {
		t.Errorf("it has held %d bytes, and the names are %d", line.Peak, least)
	}
	r.eventually("all is given back", func() bool { return w.s.poolNow().InUse() == 0 })
}
