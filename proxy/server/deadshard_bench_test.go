package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// ejected is a proxy over the four sound servers, and one over three of them and an address where
// nobody listens, which has been noticed.
func ejected(t testing.TB) (q *quartet, sound, without string) {
	t.Helper()
	q = newQuartet(t)
	const nobody = "http://127.0.0.1:1" // a port that nobody is given
	var urls []string
	for _, p := range q.honest {
		urls = append(urls, p.URL())
	}
	_, sound = startProxy(t, t.Context(), q.config(urls))
	s, without := startProxy(t, t.Context(), q.config(append(slices.Clone(urls[:3]), nobody)),
		func(o *Options) { o.shards = shard.Options{ProbeInterval: 200 * time.Millisecond} })
	r := &rig{t: t, s: s}
	r.eventually("the proxy knows that the fourth shard is down", func() bool {
		status := s.state.Load().top.Status()
		return status[len(status)-1].State == shard.Down
	})
	return q, sound, without
}

// measure asks both proxies in turn and returns the sorted times of each. Every answer of the
// second is partial and says so.
func (q *quartet) measure(t testing.TB, in inquiry, rounds int, sound, without string) (a, b []time.Duration) {
	t.Helper()
	for range rounds {
		one, two := q.ask(sound, in, "partial_response", "true"), q.ask(without, in, "partial_response", "true")
		if one.status != 200 || two.status != 200 || len(one.message.Warnings) != 0 || len(two.message.Warnings) != 1 {
			t.Fatalf("%s: %s\n%s", in.name, one, two)
		}
		a, b = append(a, one.took), append(b, two.took)
	}
	slices.Sort(a)
	slices.Sort(b)
	return a, b
}

// TestEjectedShard prints what a shard that is known to be dead adds to the answers that go without
// it. docs/performance.md has the figures of a quiet machine (BenchmarkEjected); here only the
// answers are judged.
func TestEjectedShard(t *testing.T) {
	q, sound, without := ejected(t)
	for _, in := range q.inquiries() {
		if !takesPartial(in.id) || in.exact {
			continue
		}
		a, b := q.measure(t, in, 3, sound, without)
		t.Logf("%-100s p50 with four shards %8s, with one ejected %8s", in.name, a[len(a)/2].Round(time.Microsecond), b[len(b)/2].Round(time.Microsecond))
	}
}

// BenchmarkEjected reports p50 and p99 of answers of four sound shards and of answers without one
// that is known to be dead, and what that adds to p50.
func BenchmarkEjected(b *testing.B) {
	q, sound, without := ejected(b)
	for _, in := range q.inquiries() {
		if !slices.Contains([]string{
			"query up", "query sum(up)", "query_range rate(requests_total[2m])",
			"query_range max(rate(requests_total[2m]))", "series", "values of node",
		}, in.name) {
			continue
		}
		b.Run(fmt.Sprintf("%q", in.name), func(b *testing.B) {
			q.measure(b, in, 20, sound, without) // warm up
			b.ResetTimer()
			one, two := q.measure(b, in, b.N, sound, without)
			p := func(list []time.Duration, of int) float64 {
				return float64(list[len(list)*of/100]) / float64(time.Millisecond)
			}
			b.ReportMetric(p(one, 50), "sound-p50-ms")
			b.ReportMetric(p(one, 99), "sound-p99-ms")
			b.ReportMetric(p(two, 50), "ejected-p50-ms")
			b.ReportMetric(p(two, 99), "ejected-p99-ms")
			b.ReportMetric(p(two, 50)-p(one, 50), "added-p50-ms")
		})
	}
}
