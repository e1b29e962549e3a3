package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestMetadataOfAHistogram: a histogram's series have other names than its metadata. A tenant that
// has such series is told of it, and of no other.
func TestMetadataOfAHistogram(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-research"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := map[string]any{}
	for name, typ := range map[string]string{
		"mine_seconds": "histogram", "lean_seconds": "histogram", "native_seconds": "histogram", "rpc_seconds": "summary",
		"jobs":   "counter",
		"target": "info", "queue": "gaugehistogram", "theirs_seconds": "histogram", "lone": "histogram", "gauge": "gauge",
	} {
		said[name] = []any{map[string]string{"type": typ, "help": "h", "unit": ""}}
	}
	var series []map[string]string
	for _, name := range []string{
		"mine_seconds_bucket", "lean_seconds_count", "lean_seconds_sum", "native_seconds", "rpc_seconds_count", "rpc_seconds_sum",
		"jobs_total",
		"target_info", "queue_gcount", "queue_gsum", "lone_count", "gauge_count", "gauge_bucket",
	} {
		series = append(series, map[string]string{"__name__": name, "namespace": "research-a"})
	}
	series = append(series, map[string]string{"__name__": "theirs_seconds_bucket", "namespace": "b"})
	s := fakeshard.Start(t, fakeshard.Config{Series: series, Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if r.Path != "/api/v1/metadata" {
			return fakeshard.Answer{}, false
		}
		of := said
		if m := r.Form.Get("metric"); m != "" {
			of = map[string]any{m: said[m]}
		}
		body, err := json.Marshal(map[string]any{"status": "success", "data": of})
		if err != nil {
			t.Error(err)
		}
		return fakeshard.Answer{Status: 200, Body: body}, true
	}})
	w := &tenantWorld{t: t, client: newClient(t)}
	w.s, w.url = startProxy(t, t.Context(), fmt.Sprintf(
		"groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\ntenants: [{name: research, bearer_token_file: %s, matchers: ['{namespace=~\"research-.+\"}']}]\n", s.URL(), token))
	mine := []string{"jobs", "lean_seconds", "mine_seconds", "native_seconds", "queue", "rpc_seconds", "target"}
	of := func(form url.Values) []string {
		got := w.ask("research", http.MethodGet, "/api/v1/metadata", form, nil)
		var data map[string][]map[string]string
		if err := json.Unmarshal(got.message.Data, &data); err != nil || got.status != 200 {
			t.Errorf("%v: %v %s", form, err, got)
		}
		return slices.Sorted(maps.Keys(data))
	}
	if got := of(nil); !slices.Equal(got, mine) {
		t.Errorf("metadata of %v, want %v", got, mine)
	}
	for name := range said {
		if got := of(url.Values{"metric": {name}}); slices.Contains(mine, name) != (len(got) == 1) {
			t.Errorf("metadata of %s alone: %v", name, got)
		}
	}
}

// TestMetadataOfATenant: metadata is of the metrics that the tenant has series of, however many
// others there are before them.
func TestMetadataOfATenant(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-research"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{
		{"__name__": "canary_metric", "namespace": "b"},
		{"__name__": "requests_total", "namespace": "research-a"},
		{"__name__": "up", "namespace": "b"},
		{"__name__": "up", "namespace": "research-a"},
	}})
	w := &tenantWorld{t: t, client: newClient(t)}
	w.s, w.url = startProxy(t, t.Context(), fmt.Sprintf(
		"groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\ntenants: [{name: research, bearer_token_file: %s, matchers: ['{namespace=~\"research-.+\"}']}]\n", s.URL(), token))
	for _, c := range []struct {
		form url.Values
		want []string
	}{
		{nil, []string{"requests_total", "up"}},
		{url.Values{"limit": {"1"}}, []string{"requests_total"}},
		{url.Values{"metric": {"up"}}, []string{"up"}},
		{url.Values{"metric": {"canary_metric"}}, nil},
	} {
		got := w.ask("research", http.MethodGet, "/api/v1/metadata", c.form, nil)
		var data map[string]any
		if err := json.Unmarshal(got.message.Data, &data); err != nil || got.status != 200 {
			t.Errorf("%v: %v %s", c.form, err, got)
			continue
		}
		if names := slices.Sorted(maps.Keys(data)); !slices.Equal(names, c.want) {
			t.Errorf("%v: %v, want %v", c.form, names, c.want)
		}
		// Whose words the server has is not known.
		text := string(got.body)
		if strings.Contains(text, "fake") || strings.Count(text, `"type":"gauge","unit":"","help":""`) != len(c.want) {
			t.Errorf("%v: %s", c.form, text)
		}
	}
	// More names than are kept here are an answer too, and not none.
	long := strings.Repeat("x", 1000)
	var names []string
	for i := range 9000 {
		names = append(names, fmt.Sprintf("%q", fmt.Sprintf("%s%05d", long, i)))
	}
	many := `header Content-Type application/json; send '{"status":"success","data":[` + strings.Join(names, ",") + `]}'`
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/label/__name__/values", Script: many}); err != nil {
		t.Fatal(err)
	}
	got := w.ask("research", http.MethodGet, "/api/v1/metadata", nil, nil)
	if got.status != http.StatusUnprocessableEntity || got.message.Spillway.Advice != "ask for one of them with metric=" {
		t.Errorf("metadata of very many names: %s", got)
	}
	// What is asked for exemplars has the matchers, too.
	form := url.Values{"query": {"up + requests_total"}, "start": {"1"}, "end": {"2"}}
	if got := w.ask("research", http.MethodGet, "/api/v1/query_exemplars", form, nil); got.status != 200 {
		t.Errorf("exemplars: %s", got)
	}
	asked := s.RequestsTo("/api/v1/query_exemplars")
	for _, r := range asked {
		if q := r.Form.Get("query"); strings.Count(q, `namespace=~"research-.+"`) != strings.Count(q, "{") {
			t.Errorf("exemplars were asked of %s", q)
		}
	}
	if len(asked) == 0 {
		t.Error("no shard was asked for exemplars")
	}
}

// TestSearchTellsATenantNoTexts: a search by a tenant with matchers does not ask shards for what
// they say of metrics, and what one sends all the same is not passed on.
func TestSearchTellsATenantNoTexts(t *testing.T) {
	const path, lines = "/api/v1/search/metric_names", `{"results":[{"name":"http_total","type":"counter","unit":"u_secret","help":"h_secret"}]}` + "\n" +
		`{"status":"success","has_more":false}` + "\n"
	s := fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		return fakeshard.Answer{Header: http.Header{"Content-Type": {"application/x-ndjson"}}, Body: []byte(lines)}, r.Path == path
	}})
	w := &tenantWorld{t: t, client: newClient(t)}
	text, dir := fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\ntenants:\n", s.URL()), t.TempDir()
	for who, matchers := range map[string]string{"research": `['{namespace=~"research-.+"}']`, "all": "[]"} {
		token := filepath.Join(dir, who)
		if err := os.WriteFile(token, []byte("token-of-"+who), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("  - {name: %s, bearer_token_file: %s, matchers: %s}\n", who, token, matchers)
	}
	w.s, w.url = startProxy(t, t.Context(), text)
	for _, who := range []string{"research", "all"} {
		form := url.Values{"search[]": {"http"}, "include_metadata": {"true"}}
		got := w.ask(who, http.MethodGet, path, form, nil)
		asked := s.RequestsTo(path)
		if got.status != 200 || len(asked) == 0 || !strings.Contains(string(got.body), `"name":"http_total"`) {
			t.Fatalf("%s: %s, asked %d times", who, got, len(asked))
		}
		told := who == "all"
		if sent := asked[len(asked)-1].Form.Get("include_metadata") != ""; sent != told {
			t.Errorf("%s: include_metadata was sent: %t", who, sent)
		}
		for _, of := range []string{`"type"`, "u_secret", "h_secret"} {
			if strings.Contains(string(got.body), of) != told {
				t.Errorf("%s, %s: %s", who, of, got)
			}
		}
		if strings.Contains(string(got.body), "is not for tenants with matchers") == told {
			t.Errorf("%s: %s", who, got)
		}
		delete(form, "include_metadata") // what nobody asked for is in no answer
		if got = w.ask(who, http.MethodGet, path, form, nil); got.status != 200 || strings.Contains(string(got.body), "secret") {
			t.Errorf("%s without it: %s", who, got)
		}
	}
}
