package server

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestCountedOnce: whatever replica breaks off in the middle of its answer, a request counts for
// max_series and max_samples what it counts where all are sound.
func TestCountedOnce(t *testing.T) {
	const of = `up{instance=~"jaguar-.+"}`
	for _, tc := range []struct {
		name, query, script, step string
		nth                       int // of the calls to the replica, that is cut
	}{
		{"spliced", of, "limit 1500 reset; answer", "30", 1},
		{"spliced, all of its samples", of, "limit 2180 close; answer", "30", 1},
		{"one part", "sum by (instance) (" + of + ")", "limit 1500 reset; answer", "30", 1},
		{"one part of many samples", "sum by (instance) (" + of + ")", "limit 150000 reset; answer", "0.4", 1},
		{"two parts", "sum(" + of + ") + count(" + of + ")", "limit 1500 reset; answer", "30", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 8 { // until the replica that breaks off is the one that is asked
				c := newCouples(t, limits(ample))
				c.s.lightSeries = 1 << 40 // nothing else is asked
				end := time.Now().Truncate(time.Minute)
				form := url.Values{"query": {tc.query}, "start": {stamp(end.Add(-time.Hour))}, "end": {stamp(end)}, "step": {tc.step}}
				counts := func() (status int, series, samples float64) {
					get := func(name string) float64 { return c.metric(name, "endpoint=query_range") }
					s, n := get("spillway_series_total"), get("spillway_samples_total")
					got := c.ask(c.request(context.Background(), asking{path: "/api/v1/query_range", form: form}))
					c.eventually("the request has been counted", func() bool { return get("spillway_samples_total") > n })
					return got.status, get("spillway_series_total") - s, get("spillway_samples_total") - n
				}
				status, series, samples := counts()
				bad := c.first[0]
				if err := bad.Set("", fakeshard.Route{Path: "/api/v1/query_range", Nth: tc.nth, Script: tc.script}); err != nil {
					t.Fatal(err)
				}
				before := len(bad.RequestsTo("/api/v1/query_range"))
				again, s, n := counts()
				cut := 0
				for _, r := range bad.RequestsTo("/api/v1/query_range")[before:] {
					if r.End == fakeshard.Cut {
						cut++
					}
				}
				if cut == 0 {
					continue
				}
				t.Logf("sound: %d, %v series, %v samples; cut: %d, %v series, %v samples", status, series, samples, again, s, n)
				if status != 200 || again != 200 || s != series || n != samples {
					t.Error("it counts otherwise")
				}
				return
			}
			t.Error("nothing was cut")
		})
	}
}
