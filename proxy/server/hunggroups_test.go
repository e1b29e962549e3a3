package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// hungGroups is a fleet of groups of four shards each, of which some groups answer nothing but
// health probes.
type hungGroups struct {
	*rig
	names  []string           // of the groups that hang
	shards []*fakeshard.Shard // theirs
}

// newHungGroups starts a fleet in which so many of the groups, spread over all of them, can be made
// to hang.
func newHungGroups(t testing.TB, groups, hung int) *hungGroups {
	f := &hungGroups{rig: newRig(t, clusters(groups, 4), limits(ample))}
	for i := range hung {
		name := fmt.Sprintf("c%03d", 3+i*groups/hung)
		f.names = append(f.names, name)
		for _, replicas := range f.rig.shards[name] {
			f.shards = append(f.shards, replicas...)
		}
	}
	return f
}

// hang makes them hang, and returns when that is known. One request that needs them all is enough
// for it.
func (f *hungGroups) hang() {
	f.t.Helper()
	for _, s := range f.shards {
		if err := s.Set("stall"); err != nil {
			f.t.Fatal(err)
		}
	}
	if got := f.query("sum(up)", "timeout", "20s"); got.status == 200 {
		f.t.Errorf("of servers that hang: %s", got)
	}
	f.eventually("all servers that hang are known to be silent", func() bool { return f.silent() == len(f.shards) })
}

// silent is how many servers are known to be so.
func (f *hungGroups) silent() int { return int(f.metric("spillway_shard_replica_silent")) }

func (f *hungGroups) query(text string, more ...string) *reply {
	return f.ask(f.request(context.Background(), asking{path: "/api/v1/query"}, append(more, "query", text)...))
}

// strict are requests that need all groups.
func (f *hungGroups) strict(more ...string) []*reply {
	out := []*reply{f.query("sum(up)", more...), f.query("quantile(0.5, up)", more...)}
	for _, a := range groupValues() {
		out = append(out, f.ask(f.request(context.Background(), a, more...)))
	}
	return out
}

// TestHungGroups: two of twenty groups hang. Once that is known, a request that needs them fails
// without asking them, one that can go without them is answered, and to one of another group they
// are nothing. When they answer again, so do all.
func TestHungGroups(t *testing.T) {
	t.Parallel()
	f := newHungGroups(t, 20, 2)
	f.hang()
	asked := func() (n int) { // by requests: what a server is asked about itself is not among these
		for _, s := range f.shards {
			for _, rec := range s.Requests() {
				if strings.Contains(rec.Form.Get("query"), "sum(up") || rec.Path == "/api/v1/read" {
					n++
				}
			}
		}
		return n
	}
	before := asked()
	for i, got := range f.strict() {
		if got.status != 502 || got.took > ample/2 || !f.named(got.message.Error, f.shards) ||
			!strings.Contains(got.message.Error, "answers nothing") {
			t.Errorf("%d: %s", i, got)
		}
	}
	for i, got := range f.strict("partial_response", "true") {
		if got.status != 200 || got.took > ample/2 || len(got.message.Warnings) == 0 {
			t.Errorf("%d, partial: %s", i, got)
		}
	}
	for i := range 20 {
		name := fmt.Sprintf("c%03d", i)
		if got := f.query(fmt.Sprintf("sum(up{cluster=%q})", name)); (got.status == 200) == slices.Contains(f.names, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if n := asked() - before; n > 0 && f.silent() == len(f.shards) {
		t.Errorf("servers that are known to hang were asked %d times", n)
	}
	for _, s := range f.shards {
		if err := s.Set(""); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("they answer again", func() bool { return f.silent() == 0 })
	for i, got := range f.strict() {
		if got.status != 200 || len(got.message.Warnings) > 0 {
			t.Errorf("%d, once they answer again: %s", i, got)
		}
	}
}

// BenchmarkHungGroups: ten of 200 groups hang, 40 of 800 servers. It reports how long requests take
// then that need them and fail, that go without them, and of groups that are well, beside what
// these took before.
func BenchmarkHungGroups(b *testing.B) {
	f := newHungGroups(b, 200, 10)
	median := func(list []time.Duration) float64 {
		slices.Sort(list)
		return float64(list[len(list)/2]) / float64(time.Millisecond)
	}
	others := func() float64 {
		var took []time.Duration
		for i := range 50 * b.N {
			got := f.query(fmt.Sprintf(`sum(up{cluster="c%03d"})`, 4+i%9)) // of 200, c003 and c023 hang
			if got.status != 200 {
				b.Fatal(got)
			}
			took = append(took, got.took)
		}
		return median(took)
	}
	f.strict()
	others()
	before := others()
	began := time.Now()
	f.hang()
	known := time.Since(began)
	b.ResetTimer()
	var fails, partial []time.Duration
	for range b.N {
		for _, got := range f.strict() {
			if got.status != 502 {
				b.Fatal(got)
			}
			fails = append(fails, got.took)
		}
		for _, got := range f.strict("partial_response", "true") {
			if got.status != 200 || len(got.message.Warnings) == 0 {
				b.Fatal(got)
			}
			partial = append(partial, got.took)
		}
	}
	after := others()
	b.ReportMetric(known.Seconds(), "known-s")
	b.ReportMetric(slices.Max(fails).Seconds(), "strict-max-s")
	b.ReportMetric(median(fails), "strict-p50-ms")
	b.ReportMetric(median(partial), "partial-p50-ms")
	b.ReportMetric(slices.Max(partial).Seconds(), "partial-max-s")
	b.ReportMetric(before, "others-before-p50-ms")
	b.ReportMetric(after, "others-p50-ms")
	b.ReportMetric(0, "ns/op")
}
