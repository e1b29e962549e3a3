package cluster

import (
	"context"
	"testing"
	"time"
)

// TestSizes prints how many series each job has; docs/simulated-cluster.md
// carries the table.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		o     Options
		every int
	}{
		{Options{Nodes: 10}, 1},
		{Options{Nodes: 40}, 1},
		{Options{Nodes: 7500}, 150},
		{Options{Nodes: 10, Exporters: AllExporters}, 1},
		{Options{Nodes: 10, Detail: Full}, 1},
		{Options{Nodes: 40, Detail: Full}, 1},
		{Options{Nodes: 7500, Detail: Full, APIServers: 5}, 250},
		{Options{Nodes: 10, Detail: Full, Exporters: AllExporters}, 1},
	} {
		if raceEnabled && c.o.Nodes > 1000 {
			t.Logf("nodes %d left out under the race detector, which makes it take minutes", c.o.Nodes)
			continue
		}
		m := mustNew(t, c.o)
		sizes, err := m.Sizes(testUntil, c.every)
		if err != nil {
			t.Fatal(err)
		}
		var all Size
		for _, job := range append(Jobs(), c.o.Exporters.Jobs()...) {
			s := sizes[job]
			t.Logf("nodes %4d detail %d  %-24s %6d targets %9d series %8d buckets", c.o.Nodes, c.o.Detail, job, s.Targets, s.Series, s.Buckets)
			all.add(s)
			if s.Series == 0 {
				t.Errorf("%s has no series", job)
			}
		}
		t.Logf("nodes %4d detail %d  %-24s %6d targets %9d series %8d buckets (%d %%)", c.o.Nodes, c.o.Detail, "all", all.Targets, all.Series, all.Buckets, 100*all.Buckets/all.Series)
	}
	for _, want := range []int{20_000, 100_000} {
		n := NodesForSeries(want)
		sizes, err := mustNew(t, Options{Nodes: n}).Sizes(testUntil, max(1, n/20))
		if err != nil {
			t.Fatal(err)
		}
		var all Size
		for _, s := range sizes {
			all.add(s)
		}
		t.Logf("NodesForSeries(%d) = %d: %d series", want, n, all.Series)
		if all.Series < want*8/10 || all.Series > want*12/10 {
			t.Errorf("NodesForSeries(%d) = %d gives %d series", want, n, all.Series)
		}
	}
}

func TestBackfillSeries(t *testing.T) {
	b := BackfillOptions{From: testUntil.Add(-10 * time.Minute), Until: testUntil, Interval: time.Minute}
	const want = 90_000
	m, st, err := BackfillSeries(context.Background(), t.TempDir(), want, Options{Seed: 4, APIServers: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes, %d custom resources: %d series, %d %% buckets, %d samples", m.Options().Nodes, m.Options().CustomResources, st.Series, 100*st.BucketSeries/st.Series, st.Samples)
	if d := st.Series - want; d > want/50 || -d > want/50 {
		t.Errorf("%d series, wanted %d", st.Series, want)
	}
	if p := 100 * st.BucketSeries / st.Series; p < 57 || p > 63 {
		t.Errorf("%d %% of the series are buckets, wanted 60", p)
	}
}

func BenchmarkBackfillSeries300k(b *testing.B) {
	for b.Loop() {
		o := BackfillOptions{From: testUntil.Add(-time.Hour), Until: testUntil, Interval: time.Minute}
		_, st, err := BackfillSeries(context.Background(), b.TempDir(), 300_000, Options{}, o)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(st.Series), "series")
		b.ReportMetric(float64(st.BucketSeries), "buckets")
		b.ReportMetric(float64(st.Samples), "samples")
	}
}

func BenchmarkPages7500(b *testing.B) {
	m := mustNew(b, Options{Nodes: 7500})
	for b.Loop() {
		if _, err := m.Sizes(testUntil, 10); err != nil {
			b.Fatal(err)
		}
	}
}
