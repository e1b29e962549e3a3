package server

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/randseed"
)

var promqltestAll = flag.Bool("promqltest.all", false, "run all of promqltest's files over every layout, not each over one")

// layouts are what the files' loads are spread over.
var layouts = []layout{
	{name: "one shard", groups: 1, shards: 1, replicas: 1},
	{name: "four shards", groups: 1, shards: 4, replicas: 1},
	{name: "two groups of two shards of two replicas with gaps", groups: 2, shards: 2, replicas: 2, gaps: spliceableGaps},
	{name: "two groups of two shards of two whole replicas", groups: 2, shards: 2, replicas: 2, heartbeat: true},
	{name: "two shards of three replicas with gaps and heartbeats", groups: 1, shards: 2, replicas: 3, gaps: clockGaps, heartbeat: true},
}

// evalLine is a line that begins an eval.
var evalLine = regexp.MustCompile(`(?mi)^\s*eval`)

// promqltestFiles are Prometheus' own files: beside the source of the package that runs them, which
// go is asked for, since a binary built with -trimpath does not know it.
func promqltestFiles(t *testing.T) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/prometheus/prometheus/promql/promqltest").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	names, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "*.test"))
	if err != nil || len(names) != 21 {
		t.Fatalf("21 files of promqltest in %s: %d, %v", dir, len(names), err)
	}
	slices.Sort(names)
	return names
}

// Prometheus' own test files, through the proxy: with -promqltest.all each over every layout, else
// each over one, which the seed chooses.
func TestPromQLTest(t *testing.T) {
	seed := randseed.Of(t, testSeed)
	var files []*testFile
	all := 0
	for _, path := range promqltestFiles(t) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := &testFile{name: filepath.Base(path), text: string(raw), evals: len(evalLine.FindAllIndex(raw, -1))}
		files = append(files, f)
		all += f.evals
	}
	if exprs, err := promqltest.GetBuiltInExprs(); err != nil || len(exprs) != all {
		t.Fatalf("promqltest has %d evals, the files have %d: %v", len(exprs), all, err)
	}
	for i, l := range layouts {
		chosen := files
		if !*promqltestAll {
			chosen = nil
			for j := range files {
				if (uint64(i+j)+seed)%uint64(len(layouts)) == 0 {
					chosen = append(chosen, files[j])
				}
			}
		}
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) { runLayout(t, newSpread(t, l, seed), chosen, all) })
	}
}

// testFile is one of promqltest's files.
type testFile struct {
	name, text string
	evals      int
	previews   []*preview // what it does between two clears, where that was asked for
}

// run runs the file once. It says whether it ran, which -run decides, and whether all of it passed.
func (f *testFile) run(t *testing.T, w *spread, e *proxyEngine) (ran, passed bool) {
	passed = t.Run(f.name, func(t *testing.T) {
		ran = true
		if w.gaps == spliceableGaps && f.previews == nil {
			promqltest.RunTestWithStorage(t, f.text, e.ref, func(t testing.TB) storage.Storage {
				r := newPreview(t)
				f.previews = append(f.previews, r.p)
				return r
			})
		}
		n := 0
		promqltest.RunTestWithStorage(t, f.text, e, func(t testing.TB) storage.Storage {
			var p *preview
			if w.gaps == spliceableGaps {
				p = f.previews[n]
			}
			n++
			return w.open(t, fmt.Sprintf("%s %d", f.name, n), p)
		})
	})
	return ran, passed
}

// runLayout runs files over a layout and prints how many evals passed, of all in the 21 files, and
// which roads the queries went.
func runLayout(t *testing.T, w *spread, files []*testFile, all int) {
	// The file's samples are few; no engine may stop at a number of them.
	e := newProxyEngine(t, w, promqltest.NewTestEngine(t, false, 0, 10_000_000))
	var table strings.Builder
	passed, ran, complete := 0, 0, true
	before := w.plans()
	for _, f := range files {
		began := time.Now()
		is, ok := f.run(t, w, e)
		if !is {
			complete = false
			continue
		}
		verdict := "FAILED"
		if ran += f.evals; ok {
			passed += f.evals
			verdict = "passed"
		}
		after := w.plans()
		fmt.Fprintf(&table, "\n%-25s %4d evals %s, queries by road %v, %s", f.name, f.evals, verdict, minus(after, before),
			time.Since(began).Round(time.Millisecond))
		before = after
	}
	t.Logf("%s: %d of %d evals passed, of %d in all files; %d samples for servers, %d of them lost in gaps, %d series put together from replicas; "+
		"%d queries, %d of them compared with the reference in every respect; by road %v%s",
		w.name, passed, ran, all, w.loads, w.left, w.spliced.Load(), e.queries, e.compared, before, table.String())
	if !complete {
		return
	}
	// What the layout is there for must have happened.
	fast := before["splice"] + before["push"]
	if w.groups*w.shards > 1 && (w.replicas == 1 || w.heartbeat) && 4*fast < fast+before["mixed"]+before["raw"] {
		t.Errorf("only %d of %d queries over several shards were spliced or pushed", fast, fast+before["mixed"]+before["raw"])
	}
	if w.gaps != noGaps && w.left == 0 {
		t.Error("no sample was lost in a gap")
	}
	if w.gaps == spliceableGaps && w.spliced.Load() == 0 {
		t.Error("no series was put together from several replicas")
	}
}

// plans is how many queries went which road; one that had to be planned again counts twice.
func (w *spread) plans() map[string]int {
	out := map[string]int{}
	for _, mode := range []string{"pass", "splice", "push", "mixed", "stretches", "parcels", "raw", "local"} {
		if n := int(w.metric("spillway_query_plans_total", "mode="+mode)); n > 0 {
			out[mode] = n
		}
	}
	return out
}

func minus(a, b map[string]int) map[string]int {
	out := map[string]int{}
	for k, v := range a {
		if v -= b[k]; v > 0 {
			out[k] = v
		}
	}
	return out
}

// The harness itself: a difference between what the servers hold and what the reference holds is
// seen, whichever part of an answer it is in.
func TestPromQLTestSeesDifferences(t *testing.T) {
	w := newSpread(t, layouts[1], 1)
	e := newProxyEngine(t, w, promqltest.NewTestEngine(t, false, 0, 10_000_000))
	st := w.open(t, "differences", nil).(*loaded)
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	sample := func(name string, f float64, h *histogram.FloatHistogram) loadedSample {
		return loadedSample{ls: labels.FromStrings("__name__", name, "a", "b"), t: 60_000, f: f, fh: h}
	}
	h := func(count float64) *histogram.FloatHistogram {
		return &histogram.FloatHistogram{
			Count: count, Sum: 5, PositiveSpans: []histogram.Span{{Length: 1}},
			PositiveBuckets: []float64{count},
		}
	}
	everywhere := []loadedSample{sample("same", 1, nil), sample("same_histogram", 0, h(3))}
	app := st.AppenderV2(t.Context())
	for i := range everywhere {
		if err := everywhere[i].append(app); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	// Behind the harness' back: first what the reference holds, then what the servers hold.
	yes := func(*loadedSample) bool { return true }
	if err := errors.Join(
		commit(st.whole, []loadedSample{
			sample("missing", 1, nil), sample("other", 1, nil), sample("digit", 1, nil),
			sample("histogram", 0, h(3)), sample("kind", 0, h(3)), sample("fails", 1, nil),
		}, yes),
		commit(st.dbs[0], []loadedSample{
			sample("besides", 1, nil), sample("other", 2, nil), sample("digit", 1+1e-15, nil),
			sample("histogram", 0, h(4)), sample("kind", 3, nil),
		}, yes),
	); err != nil {
		t.Fatal(err)
	}
	for expr, seen := range map[string]bool{
		`same`: false, `same_histogram`: false, `sum(same_histogram)`: false, `histogram_count(same_histogram)`: false, `nothing`: false,
		`"text"`: false, `1`: false,
		`missing`: true, `besides`: true, `other`: true, `digit`: true, `max(digit)`: true, `histogram`: true, `kind`: true,
		`absent(missing)`: true, `count(other)`: false, `sum(digit)`: false,
		`topk(NaN, same)`: false, `same + on() group_left() {__name__=~"fails|missing"}`: true, `quantile(2, missing)`: true,
	} {
		qry, err := e.NewInstantQuery(t.Context(), st, nil, expr, time.UnixMilli(60_000))
		if err != nil {
			t.Fatal(err)
		}
		res := qry.Exec(t.Context())
		if got := res.Err != nil && strings.Contains(res.Err.Error(), "not the reference's"); got != seen {
			t.Errorf("%s: a difference is seen %v, want %v: %v %v", expr, got, seen, res.Value, res.Err)
		}
	}
}
