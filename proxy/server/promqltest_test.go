package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

var promqltestAll = flag.Bool("promqltest.all", false, "run all files of promqltest over every layout, not a part of them over each")

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

// promqltestFiles are Prometheus' own files: beside the source of the package that runs them.
func promqltestFiles(t *testing.T) []string {
	t.Helper()
	file, _ := runtime.FuncForPC(reflect.ValueOf(promqltest.RunTest).Pointer()).FileLine(0)
	names, err := filepath.Glob(filepath.Join(filepath.Dir(file), "testdata", "*.test"))
	if err != nil || len(names) != 21 {
		t.Fatalf("21 files of promqltest beside %s: %d, %v", file, len(names), err)
	}
	slices.Sort(names)
	return names
}

// Prometheus' own test files, through the proxy.
func TestPromQLTest(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if testSeed != 0 {
		seed = testSeed
	}
	t.Logf("seed %d (run again with -seed)", seed)
	files := promqltestFiles(t)
	previews := map[string][]*preview{}
	texts := map[string]string{}
	all := 0
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(raw)
		all += len(evalLine.FindAllString(texts[f], -1))
	}
	if exprs, err := promqltest.GetBuiltInExprs(); err != nil || len(exprs) != all {
		t.Fatalf("promqltest has %d evals, the files have %d: %v", len(exprs), all, err)
	}
	ref := func(t testing.TB) *promql.Engine {
		return promqltest.NewTestEngine(t, false, 0, 1e7)
	}
	for i, l := range layouts {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			w := newSpread(t, l, seed)
			e := newProxyEngine(t, w, ref(t))
			var table strings.Builder
			passed, ran := 0, 0
			before := w.plans()
			for j, f := range files {
				if !*promqltestAll && testing.Short() && (i+j)%3 != 0 {
					continue
				}
				name := filepath.Base(f)
				evals, n := len(evalLine.FindAllString(texts[f], -1)), 0
				began, run := time.Now(), false
				ok := t.Run(name, func(t *testing.T) {
					run = true
					if previews[f] == nil && l.gaps == spliceableGaps {
						previews[f] = previewOf(t, texts[f], ref(t))
					}
					promqltest.RunTestWithStorage(t, texts[f], e, func(t testing.TB) storage.Storage {
						var p *preview
						if l.gaps == spliceableGaps {
							p = previews[f][n]
						}
						n++
						return w.open(t, fmt.Sprintf("%s %d", name, n), p)
					})
				})
				if !run { // left out by -run
					continue
				}
				ran += evals
				if ok {
					passed += evals
				}
				after := w.plans()
				fmt.Fprintf(&table, "%-28s %4d evals %-6s %v %s\n", name, evals, map[bool]string{true: "passed", false: "FAILED"}[ok], minus(after, before), time.Since(began).Round(time.Millisecond))
				before = after
			}
			t.Logf("%s: %d of %d evals passed, of %d in all; %d samples for servers, %d of them lost in gaps, %d series put together from replicas; %d queries, %d of them compared with the reference in every respect; by road %v\n%s",
				l.name, passed, ran, all, w.loads, w.left, w.spliced.Load(), e.queries, e.compared, w.plans(), table.String())
		})
	}
}

// plans is how many queries went which road.
func (w *spread) plans() map[string]int {
	out := map[string]int{}
	for _, mode := range []string{"pass", "splice", "push", "raw", "local"} {
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

// previewOf runs a file over plain storages and returns what it does in each.
func previewOf(t *testing.T, text string, e *promql.Engine) []*preview {
	var out []*preview
	promqltest.RunTestWithStorage(t, text, e, func(t testing.TB) storage.Storage {
		r := newPreview(t)
		out = append(out, r.p)
		return r
	})
	return out
}
