package mix

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/bench"
)

// TestSmallMix runs everything once, small, on real servers: all paths must answer alike, and the
// report must be whole. How long anything takes is not judged.
func TestSmallMix(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "new")
	var said strings.Builder
	w, err := Start(t.Context(), Options{
		Spillway: realpromtest.Spillway(t), Laboratory: realpromtest.Laboratory(t), Series: 20_000,
		Rounds: 1, Requests: 30, BulkRuns: 1, Dir: dir, Seed: 1, Pairs: true,
		Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = w.Close()
		}
	}()
	held := bulkSeries(t, w)
	// Another proxy beside ours; here it is the single server itself, which is surely right.
	whole, shards := w.Servers()
	if whole == "" || len(shards) != shardCount {
		t.Errorf("servers: %q %q", whole, shards)
	}
	w.o.Peers = []bench.Peer{{Name: "a peer", URL: whole}}
	r, err := w.Measure(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for _, wrong := range r.Wrong {
		t.Error(wrong)
	}
	if err := r.Err(false); err != nil {
		t.Error(err)
	}
	checkResult(t, r, held)
	if err := r.Save(out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mix.md", "mix.json", "mix.svg", "mix.png"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < 500 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(out, "mix.json"))
	if err != nil {
		t.Fatal(err)
	}
	var again Result
	if err := json.Unmarshal(text, &again); err != nil || len(again.Goals) != len(r.Goals) {
		t.Errorf("read the JSON again: %v", err)
	}
	closed = true
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if t.Failed() {
		t.Log(said.String())
	}
}

// bulkSeries is how many of the great many series the data holds.
func bulkSeries(t *testing.T, w *World) int {
	t.Helper()
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(w.o.Mix.Bulk)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, s := range readBlocks(t, w.Data.Whole) {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			held++
		}
	}
	if held == 0 || held%w.Data.Nodes != 0 {
		t.Errorf("the data holds %d series of %s, which are to be as many of each of %d nodes", held, w.o.Mix.Bulk, w.Data.Nodes)
	}
	return held
}

// checkResult: every figure that must exist does. All of the great many series, which are so many,
// are in the answer, at every step.
func checkResult(t *testing.T, r *Result, bulkSeries int) {
	t.Helper()
	names := []string{Direct, DirectShard, Reverse, ReverseShard, SpillwayOne, SpillwayLabeled, SpillwayFour}
	names = append(names, SpillwayPairs, SpillwayGaps, "a peer")
	positive := func(what string, v float64) {
		t.Helper()
		if !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%s is %v", what, v)
		}
	}
	if len(r.Loads) != 2 || r.Loads[0].Concurrency != 1 || r.Loads[1].Concurrency != 2 {
		t.Fatalf("loads: %+v", r.Loads)
	}
	for _, l := range r.Loads {
		if len(l.Paths) != len(names) {
			t.Fatalf("%d paths instead of %d", len(l.Paths), len(names))
		}
		for i, p := range l.Paths {
			if p.Name != names[i] || p.Requests != 30 || p.Failed != 0 || len(p.Queries) != len(Builtin().Queries) {
				t.Errorf("path %d: %+v", i, p)
			}
			for what, v := range map[string]float64{
				"p50": p.P50, "p99": p.P99, "ratio": p.P50Ratio, "ratio for one": p.OneRatio, "ratio for all": p.AllRatio,
				"mean": p.GeoMean, "rate": p.PerSecond, "CPU": p.ServersCPU, "memory": p.PeakMiB,
			} {
				positive(p.Name+": "+what, v)
			}
			if p.Name != Direct && p.Name != DirectShard {
				positive(p.Name+": proxy CPU", p.ProxyCPU)
			}
			for _, q := range p.Queries {
				positive(p.Name+": "+q.Name, q.P50*q.P99*q.Ratio)
			}
		}
		if d := l.path(Direct); d.P50Ratio != 1 || d.GeoMean != 1 {
			t.Errorf("direct compared with itself: %+v", d)
		}
	}
	b := r.Bulk
	// but for series that begin within the range: at 21:00 one in 90 points is missing
	full := bulkSeries * (int(Builtin().Range/Builtin().Step) + 1)
	if b == nil || len(b.Paths) != len(names) || len(b.Failed) > 0 || b.Series != bulkSeries || b.Points > full || b.Points < full-full/20 {
		t.Fatalf("bulk, of %d series: %+v", bulkSeries, b)
	}
	for _, p := range b.Paths {
		positive(p.Name+": bulk time", p.Seconds)
	}
	positive("slowest shard", b.SlowestAlone*b.SlowestAtOnce)
	if want := 2*(7+1) + 2 + 1; len(r.Goals) != want { // of each load that of the pairs besides
		t.Errorf("%d goals instead of %d: %+v", len(r.Goals), want, r.Goals)
	}
	for _, g := range r.Goals {
		if math.IsNaN(g.Figure) || g.Name == "" {
			t.Errorf("goal %+v", g)
		}
	}
}
