package cost

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/spillwayproject/spillway/internal/tree"
)

func parsed(t testing.TB, query string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{EnableExperimentalFunctions: true}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return e
}

// floats are so many series of each selector, none of them native histograms.
func floats(n int64) Series {
	return func(*parser.VectorSelector) (series, native int64) { return n, 0 }
}

// TestHeldGrows: twice the series or steps hold about twice as much, and half of the steps no more
// than half and what does not grow; what a subquery holds does not depend on the steps around it.
func TestHeldGrows(t *testing.T) {
	for _, query := range []string{
		"x", "rate(x[5m])", "sum(rate(x[5m]))", "sum by (pod) (x) / on (pod) group_left (node) y", "a + b + c", "topk(5, x)",
		`label_replace(x, "a", "$1", "b", "(.*)")`,
		"histogram_quantile(0.9, sum by (le) (rate(x[5m])))", "x or y", "x and y", "-x", "clamp(x, 0, 1)", "quantile_over_time(0.5, x[5m])",
	} {
		e := parsed(t, query)
		held := func(series, steps int64) int64 {
			return Held(e, Grid{Steps: steps, Step: 15_000, Interval: 60_000}, floats(series), nil)
		}
		one, more := held(1000, 200), held(2000, 200)
		if more < one*19/10 || more > one*21/10 {
			t.Errorf("%s: %d bytes for 1000 series, %d for 2000", query, one, more)
		}
		if more = held(1000, 400); more <= one || more > 2*one {
			t.Errorf("%s: %d bytes at 200 steps, %d at 400", query, one, more)
		}
		if none := held(0, 200); none > 64<<10 {
			t.Errorf("%s: %d bytes for no series", query, none)
		}
	}
	one := func(*parser.VectorSelector) (int64, int64) { return 1, 1 }
	week := Held(parsed(t, "histogram_count(rate(x[7d]))"), Grid{Steps: 1}, one, nil)
	if points := int64(7 * 24 * time.Hour / assumedInterval); week < points*nativeBytes || week > points*nativeBytes*2 {
		t.Errorf("the points of one native histogram over a week are %d bytes", week)
	}
	day := parsed(t, "max_over_time(rate(x[5m])[1d:1m])")
	held := func(steps int64) int64 {
		return Held(day, Grid{Steps: steps, Step: 15_000, Interval: 60_000}, floats(1000), nil)
	}
	if one, many := held(1), held(100); one < 1000*1441*pointBytes || many < one || many > one+one/4 {
		t.Errorf("a subquery over a day holds %d bytes at one step, %d at a hundred", one, many)
	}
}

// TestLookbackIsHeld: a selector holds the chunks of the time in which its last sample is looked
// for, as a range of that length does but for the points.
func TestLookbackIsHeld(t *testing.T) {
	const month = 31 * 24 * time.Hour
	held := func(query string, lookback time.Duration) int64 {
		return Held(parsed(t, query), Grid{Steps: 1, Lookback: lookback.Milliseconds()}, floats(1000), nil)
	}
	short, long, ranged := held("count(x)", 5*time.Minute), held("count(x)", month), held("count(last_over_time(x[31d]))", 0)
	if long < 50*short || long < ranged*4/5 || long > ranged {
		t.Errorf("%d bytes looking back 5 minutes, %d looking back a month, %d with a range of a month", short, long, ranged)
	}
	if held("count(rate(x[5m]))", month) != held("count(rate(x[5m]))", 0) {
		t.Error("a range has no lookback")
	}
}

// TestHeldIsWhatTheEngineHolds compares what is reckoned, but for the answer's JSON, with what is
// alive in the heap at most while Prometheus' own engine evaluates the query over its own storage:
// no less than that but for a tenth and a MiB, and no more than two and a half times as much.
func TestHeldIsWhatTheEngineHolds(t *testing.T) {
	const series, native = 1500, 60
	start := time.Unix(1_790_000_000, 0)
	stored := head(t, series, native, start.Add(-2*time.Hour), start.Add(100*time.Minute))
	for _, tc := range []struct {
		query string
		steps int64
	}{
		{"x_total", 400},
		{"rate(x_total[1m])", 400},
		{"sum(rate(x_total[1m]))", 400},
		{"x_total + x_total", 400},
		{"x_total + on (pod) group_left () x_total", 400},
		{"x_total or x_total", 400},
		{"sum by (pod) (x_total)", 400},
		{"max_over_time(rate(x_total[1m])[1h:15s])", 400},
		{"x_total + x_total * x_total - x_total", 400},
		{"abs(x_total)", 400},
		{"count(abs(x_total) > 3)", 400},
		{"x_total * on () group_left () topk(1, x_total)", 40}, // another one at each step
		{"x_total * on (node) group_left () topk by (node) (1, x_total)", 40},
		{"x_total * on (node) group_left (p) label_replace(topk by (node) (1, x_total), \"p\", \"$1\", \"pod\", \"(.*)\")", 40},
		{"topk by (node) (1, x_total) * ignoring (pod) group_right () x_total", 40},
		{"x_total * on (pod) group_left (node) topk by (pod) (1, x_total)", 400}, // the same one
		{"absent_over_time(x_total[5m])", 400},
		{"x_total", 1},
		{"sum(x_total + x_total)", 1},
		{"rate(x_total[10m])" + strings.Repeat(" and rate(x_total[11m])", 50), 1},
		{"max(x_total)" + strings.Repeat(" + max(x_total)", 50), 1},
		{"native", 100},
		{"rate(native[1m])", 100},
		{"sum(rate(native[1m]))", 100},
		{"native + native", 100},
		{"max_over_time(histogram_quantile(0.9, rate(native[1m]))[10m:15s])", 100},
		{"histogram_count(sum_over_time(rate(native[1m])[10m:15s]))", 40},
		{"label_replace(native, \"a\", \"b\", \"\", \"\")", 100},
		{"native or x_total", 100},
	} {
		name := fmt.Sprintf("%.60s at %d steps", tc.query, tc.steps)
		e := estimate{times: tree.Times{Interval: 60_000}, series: func(vs *parser.VectorSelector) (int64, int64) {
			if vs.Name == "native" {
				return native, native
			}
			return series, 0
		}, alike: func(_ *parser.VectorSelector, l Labels) int64 {
			if l.Without != slices.Contains(l.Names, "pod") {
				return 1
			}
			return series / 100 // of one node
		}}
		held := int64(e.of(parsed(t, tc.query), tree.Over(tc.steps, 15_000)).peak + e.read)
		measure := func() int64 { return alive(t, stored, tc.query, start, int(tc.steps)) }
		seen := measure()
		less, more := func() bool { return held+1<<20 < seen*9/10 }, func() bool { return held > seen*5/2 }
		for range 9 { // what is made while a collection runs is alive, too; and the most may be over before it is seen
			if less() {
				seen = min(seen, measure())
			} else if more() {
				seen = max(seen, measure())
			}
		}
		t.Logf("%s: %d KiB held, %d reckoned", name, seen>>10, held>>10)
		if less() {
			t.Errorf("%s: the engine holds %d bytes, and %d were reckoned", name, seen, held)
		}
		if more() {
			t.Errorf("%s: the engine holds %d bytes, and %d were reckoned, far more", name, seen, held)
		}
	}
}

// TestHeldOfAnything: what a server tells and a text says may be of any size.
func TestHeldOfAnything(t *testing.T) {
	more := func(*parser.VectorSelector) (int64, int64) { return 1 << 62, 1 << 62 }
	for _, query := range []string{"x", "x[9y]", "sum_over_time(x[9y:1ms])", "x * on () group_left (a) topk(1, x)"} {
		g := Grid{Steps: 11_000, Step: 1 << 40, Interval: 1}
		if held := Held(parsed(t, query), g, more, nil); held != maxHeld {
			t.Errorf("%s: %d bytes", query, held)
		}
	}
	less := func(*parser.VectorSelector) (int64, int64) { return -1 << 62, 1 << 62 }
	if held := Held(parsed(t, "x"), Grid{Steps: 10}, less, nil); held < 0 || held > 1<<10 {
		t.Errorf("%d bytes of less than nothing", held)
	}
}

// TestFunctionsKeepNative compares which functions and aggregations give native histograms with
// what the engine does.
func TestFunctionsKeepNative(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	stored := head(t, 1, 2, now.Add(-10*time.Minute), now)
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1 << 30, Timeout: time.Minute, EnableAtModifier: true,
		Parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true}),
	})
	keeps := func(query string) bool {
		q, err := engine.NewInstantQuery(t.Context(), stored, nil, query, now)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		defer q.Close()
		res := q.Exec(t.Context())
		if res.Err != nil {
			t.Fatalf("%s: %v", query, res.Err)
		}
		v, err := res.Vector()
		return err == nil && slices.ContainsFunc(v, func(s promql.Sample) bool { return s.H != nil })
	}
	reckoned := func(query string) bool {
		e := estimate{series: func(*parser.VectorSelector) (int64, int64) { return 2, 2 }}
		return e.of(parsed(t, query), tree.Over(1, 0)).native > 0
	}
	queries := []string{
		"native + native", "native * 2", "2 * native", "native / 2", "-native", "native or x_total", "x_total or native",
		"native and native", "native unless x_total", "native @ 1790000000", "(native)", "native == native",
	}
	for name, f := range parser.Functions {
		if args := argumentsOf(f); args != "" {
			queries = append(queries, name+"("+args+")")
		}
	}
	for op := range parser.ItemTypeStr {
		switch {
		case !op.IsAggregator():
		case op == parser.COUNT_VALUES:
			queries = append(queries, `count_values("v", native)`)
		case op.IsAggregatorWithParam():
			queries = append(queries, parser.ItemTypeStr[op]+"(1, native)")
		default:
			queries = append(queries, parser.ItemTypeStr[op]+"(native)")
		}
	}
	if len(queries) < 80 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, q := range queries {
		if is, want := reckoned(q), keeps(q); want && !is {
			t.Errorf("%s gives native histograms, and is reckoned not to", q)
		} else if is && !want && !strings.HasPrefix(q, "info(") {
			t.Errorf("%s gives no native histograms, and is reckoned to", q)
		}
	}
}

// argumentsOf are arguments for a function of series; empty where it has none.
func argumentsOf(f *parser.Function) string {
	var args []string
	of, texts := false, []string{"a", "$1", "le", "(.*)"}
	if f.Name == "label_join" {
		texts[3] = "b"
	}
	for i, a := range f.ArgTypes {
		switch a {
		case parser.ValueTypeVector:
			args, of = append(args, "native"), true
		case parser.ValueTypeMatrix:
			args, of = append(args, "native[5m]"), true
		case parser.ValueTypeScalar:
			args = append(args, fmt.Sprintf("0.%d", i+1))
		case parser.ValueTypeString:
			args = append(args, strconv.Quote(texts[min(max(i-1, 0), 3)]))
		}
	}
	if !of {
		return ""
	}
	if f.Name == "info" {
		args = args[:1]
	}
	return strings.Join(args, ", ")
}

// head is a storage of so many series with a sample every 15 seconds, and of so many native
// histograms of 300 buckets.
func head(t *testing.T, series, native int, from, until time.Time) storage.Queryable {
	t.Helper()
	o := tsdb.DefaultHeadOptions()
	o.ChunkDirRoot, o.ChunkRange = t.TempDir(), int64(24*time.Hour/time.Millisecond)
	h, err := tsdb.NewHead(nil, nil, nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := h.Init(from.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	refs := make([]storage.SeriesRef, series+native)
	for at := from; !at.After(until); at = at.Add(15 * time.Second) {
		app := h.Appender(t.Context())
		for i := range refs {
			lbls := labels.EmptyLabels()
			if refs[i] == 0 {
				lbls = labels.FromStrings(model.MetricNameLabel, "x_total", "pod", fmt.Sprintf("pod-%06d", i),
					"namespace", "research-training", "node", fmt.Sprintf("gpu-node-%04d", i%100))
			}
			n := at.Unix() / 15
			if i >= series && at.Before(until.Add(-100*time.Minute-15*time.Minute)) {
				continue
			}
			if i >= series {
				if refs[i] == 0 {
					lbls = labels.FromStrings(model.MetricNameLabel, "native", "pod", fmt.Sprintf("pod-%06d", i))
				}
				if refs[i], err = app.AppendHistogram(refs[i], lbls, at.UnixMilli(), buckets(n-from.Unix()/15+1), nil); err != nil {
					t.Fatal(err)
				}
				continue
			}
			v := (n*7919 + int64(i)*31) % int64(series)
			if refs[i], err = app.Append(refs[i], lbls, at.UnixMilli(), float64(v)); err != nil {
				t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) {
		return tsdb.NewBlockQuerier(tsdb.NewRangeHead(h, mint, maxt), mint, maxt)
	})
}

// buckets is a native histogram after so many scrapes.
func buckets(scrapes int64) *histogram.Histogram {
	const n = 300
	h := &histogram.Histogram{
		Schema: 3, Count: uint64(n * scrapes), Sum: float64(scrapes),
		PositiveSpans: []histogram.Span{{Offset: -n / 2, Length: n}}, PositiveBuckets: make([]int64, n), // of differences
	}
	h.PositiveBuckets[0] = scrapes
	return h
}

// alive is the most that is alive beside what is stored while an engine evaluates a query, as a
// collector sees it that goes through the heap again and again.
func alive(t *testing.T, stored storage.Queryable, query string, start time.Time, steps int) int64 {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1 << 40, Timeout: time.Minute, NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
		Parser: parser.NewParser(parser.Options{}),
	})
	end := start.Add(time.Duration(steps-1) * 15 * time.Second)
	qry, err := engine.NewRangeQuery(t.Context(), stored, nil, query, start, end, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer qry.Close()
	runtime.GC()
	runtime.GC()            // what pools kept is gone
	live := func() uint64 { // what was made since the collection does not count
		m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(m)
		return m[0].Value.Uint64()
	}
	before, most := live(), uint64(0)
	over, seen := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(seen)
		for {
			runtime.GC()
			most = max(most, live())
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	res := qry.Exec(t.Context())
	close(over)
	<-seen
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	return int64(most) - int64(before)
}
