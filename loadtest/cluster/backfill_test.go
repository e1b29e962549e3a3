package cluster

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

var testUntil = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

type sample struct {
	t int64
	v float64
}

// readAll returns every series of a directory of blocks.
func readAll(t *testing.T, dir string) map[string][]sample {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "wal"), 0o755); err != nil { // it insists on one
		t.Fatal(err)
	}
	db, err := tsdb.OpenDBReadOnly(dir, "", promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	return readQuerier(t, q)
}

func readQuerier(t *testing.T, q storage.Querier) map[string][]sample {
	t.Helper()
	out := map[string][]sample{}
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, ""))
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		it = s.Iterator(it)
		var ss []sample
		for it.Next() != chunkenc.ValNone {
			at, v := it.At()
			ss = append(ss, sample{at, v})
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		out[s.Labels().String()] = ss
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return out
}

func mustNew(t testing.TB, o Options) *Model {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func equalSamples(a, b []sample) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].t != b[i].t || math.Float64bits(a[i].v) != math.Float64bits(b[i].v) {
			return false
		}
	}
	return true
}

// Blocks hold exactly what Series says at each scrape, and the head variant
// holds the same; the blocks survive Prometheus' own verification.
func TestBackfillIsWhatSeriesSays(t *testing.T) {
	m := mustNew(t, Options{Seed: 7, Nodes: 4, APIServers: 1})
	o := BackfillOptions{
		From: testUntil.Add(-50 * time.Minute), Until: testUntil.Add(10 * time.Minute), Interval: 2 * time.Minute,
		Jitter: 3 * time.Second, ExternalTargetLabels: labels.FromStrings("cluster", "a"),
	}
	dir := t.TempDir()
	st, err := m.Backfill(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Blocks) != 2 {
		t.Fatalf("want two blocks, one on each side of 08:00, have %v", st.Blocks)
	}
	for _, b := range st.Blocks {
		blk, err := tsdb.OpenBlock(nil, filepath.Join(dir, b), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ir, err := blk.Index()
		if err != nil {
			t.Fatal(err)
		}
		_ = ir.Close()
		if n := blk.Meta().Stats.NumSamples; n == 0 {
			t.Errorf("%s has no samples", b)
		}
		if err := blk.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got := readAll(t, dir)
	if len(got) != st.Series {
		t.Errorf("%d series stored, Stats says %d", len(got), st.Series)
	}
	n := 0
	for _, s := range got {
		n += len(s)
	}
	if n != st.Samples {
		t.Errorf("%d samples stored, Stats says %d", n, st.Samples)
	}

	// The same, asked one scrape at a time.
	j, err := m.newJob(o)
	if err != nil {
		t.Fatal(err)
	}
	checked, missing := 0, 0
	for i := range j.targets {
		tg := m.targets[j.targets[i]]
		sc := m.scrapeTimes(j.page(i), &j.o)
		for k, at := range sc.ts {
			if k%9 != 0 || !sc.answered[k] {
				continue
			}
			err := m.Series(tg, time.UnixMilli(at), func(l labels.Labels, v float64, _ metricType) {
				b := labels.NewBuilder(l)
				j.extra[i].Range(func(x labels.Label) {
					if own := l.Get(x.Name); own != "" {
						b.Set("exported_"+x.Name, own)
					}
					b.Set(x.Name, x.Value)
				})
				ss := got[b.Labels().String()]
				x := sort.Search(len(ss), func(n int) bool { return ss[n].t >= at })
				if x == len(ss) || ss[x].t != at || math.Float64bits(ss[x].v) != math.Float64bits(v) {
					if missing++; missing < 5 {
						t.Errorf("%s at %d: %v is not what is stored", b.Labels(), at, v)
					}
				}
				checked++
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d series, %d samples, %d stale markers, %d values compared", st.Series, st.Samples, st.StaleMarkers, checked)

	opts := tsdb.DefaultOptions()
	opts.MinBlockDuration, opts.MaxBlockDuration = (4 * time.Hour).Milliseconds(), (4 * time.Hour).Milliseconds()
	db, err := tsdb.Open(t.TempDir(), promslog.NewNopLogger(), nil, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	hst, err := m.BackfillHead(context.Background(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	head := readQuerier(t, q)
	if hst.Samples != st.Samples || len(head) != len(got) {
		t.Fatalf("head has %d series and %d samples, blocks %d and %d", len(head), hst.Samples, len(got), st.Samples)
	}
	for l, s := range got {
		if !equalSamples(s, head[l]) {
			t.Fatalf("%s differs between block and head", l)
		}
	}
}

// Two replicas of a shard hold the same series; where and when differs.
func TestReplicasDifferInTimesOnly(t *testing.T) {
	m := mustNew(t, Options{Seed: 3, Nodes: 6, APIServers: 1})
	base := BackfillOptions{
		From: testUntil.Add(-30 * time.Minute), Until: testUntil, Interval: 30 * time.Second, Jitter: time.Second,
		Keep: func(tg Target) bool { return Shard(tg, 2) == 1 },
	}
	write := func(change func(*BackfillOptions)) (map[string][]sample, Stats, string) {
		o := base
		change(&o)
		dir := t.TempDir()
		st, err := m.Backfill(context.Background(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return readAll(t, dir), st, dir
	}
	a, _, dirA := write(func(*BackfillOptions) {})
	again, _, dirB := write(func(*BackfillOptions) {})
	gap := Gap{From: testUntil.Add(-20 * time.Minute), Until: testUntil.Add(-15 * time.Minute)}
	b, _, _ := write(func(o *BackfillOptions) { o.Replica, o.Phase, o.Gaps = 1, 4*time.Second, []Gap{gap} })

	if x, y := dirBytes(t, dirA), dirBytes(t, dirB); x != y {
		t.Error("the same call wrote other bytes")
	}
	for l, s := range a {
		if !equalSamples(s, again[l]) {
			t.Fatalf("%s differs between two equal calls", l)
		}
	}
	only := 0
	for l := range a {
		if _, ok := b[l]; !ok {
			only++ // lived only within the gap, or between two scrapes
		}
	}
	if only > len(a)/20 {
		t.Errorf("%d of %d series are on one replica only", only, len(a))
	}
	for l, s := range b {
		for i, x := range s {
			if x.t >= gap.From.UnixMilli() && x.t < gap.Until.UnixMilli() {
				t.Fatalf("%s has a sample in the gap", l)
			}
			if i > 0 && x.t > gap.Until.UnixMilli() && s[i-1].t < gap.From.UnixMilli() && value.IsStaleNaN(x.v) {
				t.Errorf("%s: a restarted server wrote a stale marker after its gap", l)
			}
		}
	}
	// Evaluated at equal times the replicas say the same: compare a constant.
	for l, s := range a {
		if o, ok := b[l]; ok && len(o) > 0 && len(s) > 0 && s[0].t == o[0].t && s[0].v != o[0].v {
			t.Errorf("%s: same time, other value", l)
		}
	}
}

func dirBytes(t *testing.T, dir string) string {
	t.Helper()
	out := ""
	err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil || fi.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out += fmt.Sprintf("%s %d %x\n", rel, len(b), hashString(0, string(b)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A node that goes and comes back: up falls, each of its series ends in one
// stale marker, and afterwards all are new and counters begin at zero.
func TestBackfillNodeDown(t *testing.T) {
	at := testUntil.Add(-20 * time.Minute)
	down := Trouble{Kind: NodeDown, Target: "gpu-00001", From: at, Until: at.Add(3 * time.Minute)}
	m := mustNew(t, Options{Seed: 2, Nodes: 2, Troubles: []Trouble{down}})
	dir := t.TempDir()
	_, err := m.Backfill(context.Background(), dir, BackfillOptions{
		From: testUntil.Add(-30 * time.Minute), Until: testUntil,
		Keep: func(tg Target) bool { return tg.Labels.Get("node") == down.Target && tg.Job == JobNode },
	})
	if err != nil {
		t.Fatal(err)
	}
	all := readAll(t, dir)
	one := func(name string) []sample {
		for l, s := range all {
			if strings.Contains(l, "__name__=\""+name+"\"") {
				return s
			}
		}
		t.Fatalf("no series %s", name)
		return nil
	}
	ups := 0
	for i, s := range one("up") {
		gone := s.t >= down.From.UnixMilli() && s.t < down.Until.UnixMilli()
		if (s.v == 0) != gone {
			t.Errorf("up is %v at %d", s.v, s.t)
		}
		if gone {
			ups++
		}
		samples, added := one("scrape_samples_scraped")[i].v, one("scrape_series_added")[i].v
		first := !gone && i > 0 && one("up")[i-1].v == 0
		if (samples == 0) != gone || (first && added != samples) || (!first && added != 0) {
			t.Errorf("at %d: up %v, %v samples, %v series added", s.t, s.v, samples, added)
		}
	}
	if ups != 12 {
		t.Errorf("%d failed scrapes in three minutes at 15 s", ups)
	}
	for l, ss := range all {
		if strings.Contains(l, "\"up\"") || strings.Contains(l, "\"scrape_") {
			continue
		}
		stale := 0
		for i, s := range ss {
			if value.IsStaleNaN(s.v) {
				stale++
				if next := ss[i+1].t; s.t-down.From.UnixMilli() > 15000 || next < down.Until.UnixMilli() {
					t.Errorf("%s: stale marker at %d, next sample at %d", l, s.t, next)
				}
			}
		}
		if stale != 1 {
			t.Errorf("%s has %d stale markers", l, stale)
		}
	}
	boot := one("node_boot_time_seconds")
	if v := boot[len(boot)-1].v; v != float64(down.Until.Unix()) {
		t.Errorf("boot time is %v afterwards", v)
	}
}

func TestBackfillRefuses(t *testing.T) {
	m := mustNew(t, Options{Nodes: 1})
	for name, o := range map[string]BackfillOptions{
		"until before from": {From: testUntil, Until: testUntil.Add(-time.Second)},
		"jitter too large":  {From: testUntil, Until: testUntil.Add(time.Hour), Jitter: 8 * time.Second},
		"empty gap":         {From: testUntil, Until: testUntil.Add(time.Hour), Gaps: []Gap{{}}},
	} {
		if _, err := m.Backfill(context.Background(), t.TempDir(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir := t.TempDir()
	if _, err := m.Backfill(ctx, dir, BackfillOptions{From: testUntil.Add(-time.Hour), Until: testUntil}); err == nil {
		t.Error("cancelled context: no error")
	}
	if e, _ := os.ReadDir(dir); len(e) != 0 {
		t.Errorf("a cancelled back-fill left %v", e)
	}
}

func BenchmarkBackfillDemo(b *testing.B) {
	for b.Loop() {
		for _, c := range []string{"jaguar", "ibis"} {
			m := mustNew(b, Options{Cluster: c, Nodes: 40})
			st, err := m.Backfill(context.Background(), b.TempDir(), BackfillOptions{From: testUntil.Add(-time.Hour), Until: testUntil})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(st.Series), "series/cluster")
			b.ReportMetric(float64(st.Samples), "samples/cluster")
		}
	}
}
