package server

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestStalledCopies: a replica whose answer stalls for longer than the request can wait is not
// charged with that, and its copy answers. Where that stalls too, it is the deadline's end, and no
// failure of a server.
func TestStalledCopies(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "g", replicas: []int{2}}}, limits(6*time.Second))
	stalls := func(f *fakeshard.Shard) {
		if err := f.Set("", fakeshard.Route{Path: "/api/v1/series", Script: `send '{"status":"success","data":['; stall`}); err != nil {
			t.Fatal(err)
		}
	}
	pair := r.shards["g"][0]
	for n, want := range []struct {
		status int
		kind   string
	}{{200, ""}, {503, "timeout"}} {
		stalls(pair[n])
		for range 2 {
			got := r.ask(r.request(context.Background(), asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}}))
			if got.status != want.status || got.message.ErrorType != want.kind {
				t.Errorf("%d stall: %d %.400s", n+1, got.status, got.body)
			}
		}
	}
	for _, v := range r.s.state.Load().top.Status() {
		if v.Breaker != shard.Closed {
			t.Errorf("%+v", v)
		}
	}
	for _, rep := range r.s.state.Load().top.Groups[0].Shards[0].Replicas {
		if what, _ := rep.Trouble(); what != "" {
			t.Errorf("%s %s", rep.Name(), what)
		}
	}
}
