package server

import (
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestServersWithoutMemory: while one server has no memory left, what is heavy there is refused
// with 503 where it needs that server, goes without it where it may, and everything else is
// answered as ever. The server is sent no heavy query.
func TestServersWithoutMemory(t *testing.T) {
	const wide, light = "max_over_time(abs(up)[1h:15s])", "sum(up)"
	full := fakeshard.Start(t, fakeshard.Config{Metrics: map[string]float64{
		"go_gc_gomemlimit_bytes": 3 << 30, "go_gc_heap_live_bytes": 2.8 * (1 << 30),
	}})
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}, {"jaguar", false, []int{1}}}, "limits: {max_shard_bytes: 100KiB, shard_budget: 100KiB}\n",
		func(o *Options) { o.Config.Groups[1].Shards[0].Replicas[0].URL = full.URL() })
	noMemory(r)
	sent := func() (n int) {
		for _, rec := range full.RequestsTo("/api/v1/query") {
			if strings.Contains(rec.Form.Get("query"), "[1h:15s]") {
				n++
			}
		}
		return n
	}
	for _, tc := range []struct {
		name, query, partial string
		status               int
		warned               bool
	}{
		{"wide", wide, "false", qerr.Unavailable.Status(), false},
		{"wide, of the other group", strings.Replace(wide, "up", `up{cluster="heron"}`, 1), "false", 200, false},
		{"wide, and may go without", wide, "true", 200, true},
		{"light", light, "false", 200, false},
		{"light, of the server", `sum(up{cluster="jaguar"})`, "false", 200, false},
	} {
		got := r.ask(r.request(t.Context(), asking{path: "/api/v1/query"}, "query", tc.query, "partial_response", tc.partial))
		if warned := len(got.message.Warnings) > 0; got.status != tc.status || warned != tc.warned {
			t.Errorf("%s: %d, %q", tc.name, got.status, got)
		}
		if tc.status != 200 && got.header.Get("Retry-After") != "10" {
			t.Errorf("%s: come again in %q", tc.name, got.header.Get("Retry-After"))
		}
	}
	if n := sent(); n != 0 {
		t.Errorf("%d wide queries were sent to the server without memory", n)
	}
	r.idle()
}
