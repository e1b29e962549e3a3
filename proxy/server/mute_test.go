package server

import (
	"context"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestHungShardsFailSoon: requests that need a shard none of whose servers answers fail long before
// their deadline once that is known; those that need it not, and those that go without it, are
// answered. When a server answers again, so do they all.
func TestHungShardsFailSoon(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		t.Run(string('0'+rune(replicas)), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []rigGroup{{"jaguar", false, []int{replicas, 1}}, {"heron", false, []int{1}}}, limits(ample))
			hung := r.shards["jaguar"][0]
			for _, s := range hung {
				if err := s.Set("stall"); err != nil { // its health page is well
					t.Fatal(err)
				}
			}
			query := asking{path: "/api/v1/query"}
			ask := func(q string, more ...string) *reply {
				return r.ask(r.request(context.Background(), query, append(more, "query", q)...))
			}
			jaguar := r.s.state.Load().top.Groups[0].Shards[0]
			for range 2 { // of a pair the one that is asked first, then the other
				if got := ask(`up{cluster="jaguar"}`, "timeout", "4s"); got.status == 200 {
					t.Errorf("of servers that hang: %s", got)
				}
			}
			silent := func(r *shard.Replica) bool { return !r.Mute().IsZero() }
			r.eventually("the servers are known to be silent", func() bool {
				for _, rep := range jaguar.Replicas {
					if !silent(rep) {
						return false
					}
				}
				return true
			})
			for _, q := range []string{`up{cluster="jaguar"}`, `count(up)`, `quantile(0.5, up)`} {
				got := ask(q)
				if got.status != 502 || got.took > ample/2 || !r.named(got.message.Error, hung) ||
					!strings.Contains(got.message.Error, "answers nothing") {
					t.Errorf("%s: %s", q, got)
				}
			}
			if n := r.metric("spillway_shard_requests_total", "outcome=silent"); n < 3 {
				t.Errorf("%g calls that were not made are counted, after three requests for silent servers", n)
			}
			if got := ask(`up{cluster="heron"}`); got.status != 200 {
				t.Errorf("another group: %s", got)
			}
			if got := ask(`count(up)`, "partial_response", "true"); got.status != 200 || got.took > ample/2 ||
				len(got.message.Warnings) == 0 {
				t.Errorf("without the shard: %s", got)
			}
			for _, s := range hung {
				if err := s.Set("", []fakeshard.Route{}...); err != nil {
					t.Fatal(err)
				}
			}
			r.eventually("a server answers again", func() bool { return !silent(jaguar.Replicas[0]) })
			if got := ask(`count(up)`); got.status != 200 {
				t.Errorf("once they answer again: %s", got)
			}
		})
	}
}
