package cost

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

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

// TestHeldGrows: twice the series or steps hold about twice as much, and half of the steps no more
// than half and what does not grow; what a subquery holds does not depend on the steps around it.
func TestHeldGrows(t *testing.T) {
	for _, query := range []string{
		"x", "rate(x[5m])", "sum(rate(x[5m]))", "sum by (pod) (x) / on (pod) group_left (node) y", "a + b + c", "topk(5, x)", `label_replace(x, "a", "$1", "b", "(.*)")`,
		"histogram_quantile(0.9, sum by (le) (rate(x[5m])))", "x or y", "x and y", "-x", "clamp(x, 0, 1)", "quantile_over_time(0.5, x[5m])",
	} {
		e := parsed(t, query)
		held := func(series, steps int64) int64 {
			return Held(e, Grid{Steps: steps, Step: 15_000, Interval: 60_000}, func(*parser.VectorSelector) int64 { return series })
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
	day := parsed(t, "max_over_time(rate(x[5m])[1d:1m])")
	held := func(steps int64) int64 {
		return Held(day, Grid{Steps: steps, Step: 15_000, Interval: 60_000}, func(*parser.VectorSelector) int64 { return 1000 })
	}
	if one, many := held(1), held(100); one < 1000*1441*pointBytes || many < one || many > one+one/4 {
		t.Errorf("a subquery over a day holds %d bytes at one step, %d at a hundred", one, many)
	}
}

// TestHeldIsWhatTheEngineHolds compares what is reckoned, but for the answer's JSON, with what is
// alive in the heap at most while Prometheus' own engine evaluates the query: no less than that but
// for a tenth, and no more than two and a half times as much.
func TestHeldIsWhatTheEngineHolds(t *testing.T) {
	const series, steps = 1500, 400
	for _, query := range []string{
		"x", "rate(x[1m])", "sum(rate(x[1m]))", "x + x", "x + on (pod) group_left () x", "x or x", "sum by (pod) (x)", "max_over_time(rate(x[1m])[1h:15s])",
		"x + x * x - x", "abs(x)", "count(abs(x) > 3)",
	} {
		e := estimate{60_000, func(*parser.VectorSelector) int64 { return series }}
		held := e.of(parsed(t, query), tree.Over(steps, 15_000)).peak
		seen := alive(t, query, series, steps)
		t.Logf("%s: %d KiB held, %d reckoned", query, seen>>10, held>>10)
		if held < seen*9/10 {
			t.Errorf("%s: the engine holds %d bytes, and %d were reckoned", query, seen, held)
		}
		if held > seen*5/2 {
			t.Errorf("%s: the engine holds %d bytes, and %d were reckoned, far more", query, seen, held)
		}
	}
}

// alive is the most that is alive while an engine evaluates a query over series of a sample each 15
// seconds, as a collector sees it that goes through the heap again and again.
func alive(t *testing.T, query string, series, steps int) int64 {
	t.Helper()
	start := time.Unix(1_790_000_000, 0)
	end := start.Add(time.Duration(steps-1) * 15 * time.Second)
	stored := made{n: series}
	for at := start.Add(-2 * time.Hour); !at.After(end); at = at.Add(15 * time.Second) {
		stored.samples = append(stored.samples, sample{at.UnixMilli(), float64(at.Unix())})
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 40, Timeout: time.Minute, NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 }, Parser: parser.NewParser(parser.Options{})})
	qry, err := engine.NewRangeQuery(t.Context(), storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return stored, nil }), nil, query, start, end, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer qry.Close()
	runtime.GC()
	runtime.GC() // what pools kept is gone
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	over, seen := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(seen)
		for {
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
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

// made is a storage of n series of the same samples.
type made struct {
	storage.Querier
	n       int
	samples []chunks.Sample
}

func (m made) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	return &madeSet{made: m, at: -1}
}

func (made) Close() error { return nil }

type madeSet struct {
	made
	at int
}

func (s *madeSet) Next() bool {
	s.at++
	return s.at < s.n
}

func (s *madeSet) At() storage.Series {
	return storage.NewListSeries(labels.FromStrings(labels.MetricName, "x_total", "pod", fmt.Sprintf("pod-%06d", s.at)), s.samples)
}

func (*madeSet) Err() error                        { return nil }
func (*madeSet) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	v float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
