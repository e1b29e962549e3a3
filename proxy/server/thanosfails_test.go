package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestThanosQueriesThatFail: where the Thanos Query fails that has all stores, its failure is what
// the client is told. Asked again without those that failed, the request would have to be evaluated
// from series, which they do not serve; that is not what is the matter.
func TestThanosQueriesThatFail(t *testing.T) {
	var urls []string
	line := func(name, labels string) string {
		return fmt.Sprintf(`{"name":%q,"lastCheck":"2026-10-01T00:00:00Z","lastError":null,"labelSets":[{%s}],"minTime":0,"maxTime":9223372036854775807}`, name, labels)
	}
	one := line("s:1", `"cluster":"heron"`)
	for _, stores := range []string{one + "," + line("s:2", `"cluster":"heron","slice":"2"`), one} { // so that the first alone has all
		fake := fakeshard.Start(t, fakeshard.Config{
			Version: "0.42.4", Flags: map[string]string{
				"query.lookback-delta": "0s", "query.default-evaluation-interval": "1m",
				"query.timeout": "2m",
			},
			Series: []map[string]string{{"__name__": "up", "cluster": "heron", "pod": "a"}},
			Routes: []fakeshard.Route{
				{Path: "/api/v1/stores", Script: `header Content-Type application/json; send '{"status":"success","data":{"sidecar":[` + stores + `]}}'`},
				{Path: "/api/v1/status/config", Script: "status 404; send no"},
				{Path: "/api/v1/features", Script: "status 404; send no"},
			},
			Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
				if !strings.Contains(r.Form.Get("query"), "lost") {
					return fakeshard.Answer{}, false
				}
				return fakeshard.Answer{
					Status: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}},
					Body: []byte(`{"status":"error","errorType":"execution","error":"expanding series: proxy Series(): rpc error: code = Aborted desc = receive series from Addr: s:1 MinTime: 0 MaxTime: 9: rpc error: code = Unavailable desc = gone"}`),
				}, true
			},
		})
		urls = append(urls, fmt.Sprintf("{url: %q, type: thanos}", fake.URL()))
	}
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: heron, labels: {cluster: heron}, shards: [{replicas: [%s]}]}]\n", strings.Join(urls, ", ")))
	for _, q := range []string{"lost", "count(lost)", "sum by (pod) (rate(lost[5m]))"} {
		for _, path := range []string{"/api/v1/query", "/api/v1/query_range"} {
			for range 3 {
				code, body := ask(t, base, path, url.Values{"query": {q}, "start": {"1795000000"}, "end": {"1795000600"}, "step": {"60"}})
				if code != http.StatusBadGateway || !strings.Contains(string(body), "could not read its stores") ||
					!strings.Contains(string(body), "s:1") {
					t.Errorf("%s %s: %d %s", path, q, code, body)
				}
			}
		}
	}
}

// TestThanosWithoutAStore: who is refused an answer without a store is told how to have it, each
// way once, and has it then.
func TestThanosWithoutAStore(t *testing.T) {
	fake := fakeThanos(t, "heron", fakeshard.Route{
		Path: "/api/v1/stores",
		Script: `header Content-Type application/json; send '{"status":"success","data":{"sidecar":[` +
			`{"name":"s2","lastCheck":"2026-10-01T00:00:00Z","lastError":"Not ready","labelSets":[{"cluster":"heron"}],"minTime":0,"maxTime":9223372036854775807}]}}'`,
	})
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: heron, labels: {cluster: heron}, shards: [{replicas: [{url: %q, type: thanos}]}]}]\n", fake.URL()))
	for path, form := range map[string]url.Values{
		"/api/v1/query": {"query": {"up"}}, "/api/v1/labels": {"match[]": {"up"}},
	} {
		code, body := ask(t, base, path, form)
		if code != http.StatusBadGateway || strings.Count(string(body), "partial_response=true") != 2 { // sentence and advice
			t.Errorf("%s: %d %s", path, code, body)
		}
		form.Set("partial_response", "true")
		if code, body := ask(t, base, path, form); code != http.StatusOK || !strings.Contains(string(body), "s2 (Not ready)") {
			t.Errorf("%s, without the store: %d %s", path, code, body)
		}
	}
}
