package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestForgetStore: a store that was taken out of a Thanos Query on purpose is missed, and what is
// asked refused, until somebody says so. One that is listed, that nobody has heard of, or that the
// flags of the server name cannot be forgotten.
func TestForgetStore(t *testing.T) {
	t.Parallel()
	line := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"lastCheck":"2026-10-01T00:00:00Z","lastError":null,"labelSets":[{"cluster":"heron"}],"minTime":0,"maxTime":9223372036854775807}`, name)
	}
	var listed atomic.Pointer[string]
	list := func(names ...string) {
		var lines []string
		for _, n := range names {
			lines = append(lines, line(n))
		}
		text := `{"status":"success","data":{"store":[` + strings.Join(lines, ",") + `]}}`
		listed.Store(&text)
	}
	list("s:1", "s:2", "s:3")
	fake := fakeshard.Start(t, fakeshard.Config{
		Version: "0.42.4", Flags: map[string]string{
			"query.lookback-delta": "0s", "query.default-evaluation-interval": "1m", "query.timeout": "2m", "endpoint": "s:3",
		},
		Series: []map[string]string{{"__name__": "up", "cluster": "heron"}},
		Routes: []fakeshard.Route{
			{Path: "/api/v1/status/config", Script: "status 404; send no"}, {Path: "/api/v1/features", Script: "status 404; send no"},
		},
		Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
			return fakeshard.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(*listed.Load())},
				r.Path == "/api/v1/stores"
		},
	})
	r := &rig{t: t, client: newClient(t), log: &logbook{}}
	text := fmt.Sprintf("groups: [{name: heron, labels: {cluster: heron}, shards: [{replicas: [{url: %q, type: thanos}]}]}]\n", fake.URL())
	r.s, r.url = startProxy(t, t.Context(), text+limits(ample), func(o *Options) {
		o.Ready = func(_, admin netAddr) { r.admin = "http://" + admin.String() }
	})
	forget := func(name string) *reply {
		req, err := http.NewRequest(http.MethodDelete, r.admin+adminAPI+"stores/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.ask(req)
	}
	r.eventually("it answers", func() bool { return r.asks("/api/v1/query", "query", "up").status == 200 })
	list("s:1")
	for _, name := range []string{"s:2", "s:3"} {
		r.eventually(name+" is missed", func() bool {
			got := r.asks("/api/v1/query", "query", "up")
			return got.status == http.StatusBadGateway && strings.Contains(got.String(), name)
		})
	}
	for name, want := range map[string]string{
		"s:1": "it is listed still", "s:3": "--endpoint names it", "s:4": "no Thanos Query is missing a store",
	} {
		if got := forget(name); got.status/100 != 4 || !strings.Contains(got.String(), want) {
			t.Errorf("%s: %s, want %q", name, got, want)
		}
	}
	if got := forget("s:2"); got.status != 200 || !strings.Contains(got.String(), `"store":"s:2","replicas":["heron/`) {
		t.Errorf("s:2: %s", got)
	}
	if got := r.asks("/api/v1/query", "query", "up"); strings.Contains(got.String(), "s:2") || !strings.Contains(got.String(), "s:3") {
		t.Errorf("s:2 was taken out: %s", got)
	}
	list("s:1", "s:3")
	r.eventually("it answers again", func() bool { return r.asks("/api/v1/query", "query", "up").status == 200 })
	if got := forget("s:2"); got.status != http.StatusNotFound {
		t.Errorf("once more: %s", got)
	}
}
