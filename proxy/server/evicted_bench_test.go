package server

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// How long the last of eight shards works on after the heap's watch has chosen a request to end,
// wherever it holds enough to be chosen (heap.MinWeight): a request that waits for headers holds
// nothing, and is never chosen.
func BenchmarkEvicted(b *testing.B) {
	series := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}}
	raw := asking{path: "/api/v1/query", form: url.Values{"query": {"count(info(up))"}}}
	const some = "limit 1100000 stall; answer"
	for _, stage := range []struct {
		name string
		ask  asking
		at   string
		// slow is what the shards do, but for the first one, which does first.
		slow, first string
	}{
		{"body", series, "/api/v1/series", some, some},
		{"merge", series, "/api/v1/series", some, "answer"},
		{"raw body", raw, "/api/v1/read", some, "answer"},
	} {
		b.Run(stage.name, func(b *testing.B) {
			r := &rig{t: b, shards: map[string][][]*fakeshard.Shard{}, names: map[*fakeshard.Shard]string{}, log: &logbook{}}
			r.client = newClient(b)
			var config strings.Builder
			config.WriteString("groups:\n  - name: jaguar\n    shards:\n")
			for i := range 8 {
				var series []map[string]string
				for j := range 3 { // of about 1 MiB together
					series = append(series, map[string]string{
						"__name__": "up", "instance": fmt.Sprintf("%d-%d", i, j), "large": strings.Repeat("x", 400<<10),
					})
				}
				s := fakeshard.Start(b, fakeshard.Config{Series: series})
				script := stage.slow
				if i == 0 {
					script = stage.first
				}
				if err := s.Set("", fakeshard.Route{Path: stage.at, Script: script}); err != nil {
					b.Fatal(err)
				}
				r.names[s] = s.Addr()
				fmt.Fprintf(&config, "      - replicas: [{url: %q}]\n", s.URL())
			}
			r.s, r.url = startProxy(b, b.Context(), config.String()+limits(10*patience), func(o *Options) {
				o.Ready = func(_, admin netAddr) { r.admin = "http://" + admin.String() }
			})
			var full atomic.Bool    // the process is about to run out of memory
			var chosen atomic.Int64 // when the watch looked last before one was ended, Unix nanoseconds
			r.s.heap = heap.New(heap.Options{
				Ceiling: func() int64 {
					if !full.Load() {
						return math.MaxInt64
					}
					chosen.Store(time.Now().UnixNano())
					return 1 << 20
				},
				Pressed: func(*qerr.Error) {},
				Evicted: func() { full.Store(false) },
			})
			var took []time.Duration
			for n := 1; n <= max(b.N, 100); n++ {
				done := make(chan bool, 1) // whether it was told, or its answer cut off
				go func() {
					got := r.ask(r.request(b.Context(), stage.ask))
					done <- got.err != nil || got.status == http.StatusTooManyRequests
				}()
				r.eventually("it holds what is worth ending", func() bool { return r.s.poolNow().InUse() >= heap.MinWeight })
				full.Store(true)
				if !<-done {
					b.Fatal("it was answered")
				}
				took = append(took, r.allEnded(stage.at).Sub(time.Unix(0, chosen.Load())))
			}
			reportTimes(b, took)
		})
	}
}
