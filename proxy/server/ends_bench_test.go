package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// How long the last of eight shards works on after its client has left, by FIN or by RST, or after
// somebody has ended the request by its id, wherever the request is on its road. Of eviction it is
// BenchmarkEvicted.
func BenchmarkClientLeaves(b *testing.B) {
	series := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}}
	raw := asking{path: "/api/v1/query", form: url.Values{"query": {"count(info(up))"}}}
	federate := asking{path: "/federate", form: url.Values{"match[]": {"up"}}}
	for _, stage := range []struct {
		name string
		ask  asking
		at   string
		// slow is what the shards do, but for the first one, which does first.
		slow, first string
		sent        int64 // bytes of a body that have come from the others
	}{
		{"headers", series, "/api/v1/series", "stall", "stall", 0},
		{"headers of some", series, "/api/v1/series", "stall", "answer", 0},
		{"body", series, "/api/v1/series", "limit 30 stall; answer", "limit 30 stall; answer", 30},
		{"merge", series, "/api/v1/series", "limit 30 stall; answer", "answer", 30},
		{"raw headers", raw, "/api/v1/read", "stall", "stall", 0},
		{"raw body", raw, "/api/v1/read", "limit 30 stall; answer", "limit 30 stall; answer", 30},
		{"federate", federate, "/api/v1/read", "stall", "answer", 0},
	} {
		for _, way := range []string{"fin", "rst", "kill"} {
			b.Run(fmt.Sprintf("%s/%s", stage.name, way), func(b *testing.B) {
				r := newRig(b, manyShards(8), limits(10*patience))
				for i, s := range r.all() {
					script := stage.slow
					if i == 0 {
						script = stage.first
					}
					if err := s.Set("", fakeshard.Route{Path: stage.at, Script: script}); err != nil {
						b.Fatal(err)
					}
				}
				var took []time.Duration
				for n := 1; n <= max(b.N, 300); n++ {
					c := r.call(r.request(b.Context(), stage.ask))
					for i, s := range r.all() {
						if err := s.WaitSeen(b.Context(), stage.at, n); err != nil {
							b.Fatal(err)
						}
						if i > 0 {
							r.eventually("every shard is in its stage", func() bool { return r.lastAt(s, stage.at).Sent >= stage.sent })
						}
					}
					var left time.Time
					if way == "kill" {
						q := r.queries()
						if len(q) != 1 {
							b.Fatalf("%d requests are under way", len(q))
						}
						left = time.Now()
						r.adminAsk(http.MethodDelete, "/"+q[0].ID, http.StatusOK, nil)
					} else {
						left = c.leave(way == "rst")
					}
					took = append(took, r.allEnded(stage.at).Sub(left))
					r.eventually("it is over", func() bool { return r.metric("spillway_requests_in_flight") == 0 })
				}
				reportTimes(b, took)
			})
		}
	}
}

// allEnded waits until no shard has anything to do, and is when the last of them ended the newest
// request that it had at the path.
func (r *rig) allEnded(path string) (last time.Time) {
	r.t.Helper()
	for _, s := range r.all() {
		if err := s.WaitIdle(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		if rec := r.lastAt(s, path); rec.Ended.After(last) {
			last = rec.Ended
		}
	}
	return last
}

// reportTimes reports the median, the 99th percentile and the longest of them.
func reportTimes(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1000 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(float64(len(took)), "runs")
}

// lastAt is the last request that the shard had at a path.
func (r *rig) lastAt(s *fakeshard.Shard, path string) fakeshard.Record {
	all := s.RequestsTo(path)
	return all[len(all)-1]
}
