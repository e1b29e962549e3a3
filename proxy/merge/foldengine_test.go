package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// memory is series of floats that Prometheus' engine can query.
type memory []storage.Series

func (m memory) Querier(int64, int64) (storage.Querier, error) { return m, nil }

func (m memory) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	return &memorySet{list: m, at: -1}
}

func (memory) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (memory) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}
func (memory) Close() error { return nil }

type memorySet struct {
	list memory
	at   int
}

func (s *memorySet) Next() bool                      { s.at++; return s.at < len(s.list) }
func (s *memorySet) At() storage.Series              { return s.list[s.at] }
func (*memorySet) Err() error                        { return nil }
func (*memorySet) Warnings() annotations.Annotations { return nil }

type floatSample struct {
	t int64
	f float64
}

func (s floatSample) T() int64                    { return s.t }
func (floatSample) ST() int64                     { return 0 }
func (s floatSample) F() float64                  { return s.f }
func (floatSample) H() *histogram.Histogram       { return nil }
func (floatSample) FH() *histogram.FloatHistogram { return nil }
func (floatSample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s floatSample) Copy() chunks.Sample         { return s }

// evaluated is what an engine answers over m, as its HTTP API would write it.
func evaluated(t *testing.T, engine *promql.Engine, m memory, query string, grid Grid) []byte {
	t.Helper()
	var (
		q   promql.Query
		err error
	)
	if grid.Len() == 1 {
		q, err = engine.NewInstantQuery(t.Context(), m, nil, query, time.UnixMilli(grid.Start))
	} else {
		q, err = engine.NewRangeQuery(t.Context(), m, nil, query, time.UnixMilli(grid.Start), time.UnixMilli(grid.End),
			time.Duration(grid.Step)*time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(t.Context())
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	var out bytes.Buffer
	out.WriteString(`{"status":"success","data":`)
	e := NewEncoder(&out, 1<<30)
	switch v := res.Value.(type) {
	case promql.Vector:
		err = e.Vector(v)
	case promql.Matrix:
		err = e.Matrix(v)
	default:
		t.Fatalf("a %T", v)
	}
	if err != nil {
		t.Fatal(err)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// TestFoldLikePrometheus splits random series over shards, lets Prometheus' engine aggregate each
// shard's and all of them together, and folds the parts: what stands is the whole's answer.
func TestFoldLikePrometheus(t *testing.T) {
	r := newRand(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute, LookbackDelta: time.Second})
	defer engine.Close()
	stood, inexact := map[string]int{}, map[string]int{}
	for round := range 300 {
		grid := Grid{Start: 1_700_000_000_000, End: 1_700_000_000_000 + int64(r.IntN(5))*30_000, Step: 30_000}
		// Few or many odd values, of one size or of many.
		odd, sizes, negative := []int{0, 0, 0, 60, 6}[r.IntN(5)], []int{0, 3, 40, 2000}[r.IntN(4)], r.IntN(2) == 0
		number := func() float64 {
			if odd > 0 && r.IntN(odd) == 0 {
				return []float64{
					math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0, math.MaxFloat64,
					-math.MaxFloat64,
				}[r.IntN(7)]
			}
			v := (1 + r.Float64()) * math.Pow(2, float64(r.IntN(sizes/2+1)-sizes/4))
			if r.IntN(3) == 0 {
				v = float64(r.IntN(1000))
			}
			if negative && r.IntN(3) == 0 {
				v = -v
			}
			return v
		}
		shards := make([]memory, 1+r.IntN(5))
		var all memory
		for i := range r.IntN(60) {
			var samples []chunks.Sample
			for j := range grid.Len() {
				if r.IntN(4) > 0 {
					samples = append(samples, floatSample{grid.Time(j), number()})
				}
			}
			s := storage.NewListSeries(labels.FromStrings("__name__", "m", "g", fmt.Sprint(r.IntN(6)), "i", fmt.Sprintf("%02d", i)),
				samples)
			k := r.IntN(len(shards))
			shards[k] = append(shards[k], s)
			all = append(all, s)
		}
		by := []string{"", " by (g)"}[r.IntN(2)]
		for op, name := range map[FoldOp]string{
			FoldSum: "sum", FoldCount: "count", FoldMin: "min", FoldMax: "max", FoldGroup: "group",
			FoldAvg: "avg",
		} {
			query := name + by + " (m)"
			push := query
			if op == FoldAvg {
				const named = `label_replace(%s%s (m), %q, %q, "", "")`
				push = fmt.Sprintf(named+" or "+named, "sum", by, PartLabel, "sum", "count", by, PartLabel, "count")
			}
			pool := admit.NewPool(1 << 30)
			b := admit.NewBudget(pool, roomy)
			decode := func(doc []byte) *Table {
				tab, _, err := DecodeTable(t.Context(), Source{Name: "a", Body: bytes.NewReader(doc)}, grid, b)
				if err != nil {
					t.Fatalf("%v\n%s", err, doc)
				}
				return tab
			}
			whole := decode(evaluated(t, engine, all, query, grid))
			var tables []*Table
			for _, m := range shards {
				tables = append(tables, decode(evaluated(t, engine, m, push, grid)))
			}
			got, err := Fold(op, tables, b)
			switch {
			case errors.Is(err, ErrInexact):
				inexact[name]++
				if odd == 0 && !negative {
					t.Errorf("round %d: %s of sound numbers is refused: %v", round, query, err)
				}
			case err != nil:
				t.Fatal(err)
			default:
				stood[name]++
				tolerance := 0.0
				if op == FoldSum || op == FoldAvg {
					tolerance = 1e-12
				}
				if why := differs(got, whole, tolerance); why != "" {
					t.Errorf("round %d: %s over %d shards: %s\ngot\n%swant\n%s", round, query, len(shards), why, shown(got), shown(whole))
				}
			}
			got.Close()
			whole.Close()
			if b.Held() != 0 {
				t.Errorf("%d bytes are held in the end", b.Held())
			}
			b.Close()
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("stood %v, inexact %v", stood, inexact)
	for _, name := range []string{"sum", "count", "min", "max", "group", "avg"} {
		if stood[name] < 100 {
			t.Errorf("%s stood only %d times", name, stood[name])
		}
	}
}

// differs tells what differs between two tables, beyond a relative tolerance; NaN equals NaN.
func differs(a, b *Table, tolerance float64) string {
	if !slices.EqualFunc(a.Series, b.Series, func(x, y TableSeries) bool { return labels.Equal(x.Labels, y.Labels) }) {
		return "label sets"
	}
	for i := range a.Series {
		for j, x := range a.Series[i].Values {
			y := b.Series[i].Values[j]
			same := math.Float64bits(x) == math.Float64bits(y) ||
				!isStale(x) && !isStale(y) && (math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= tolerance*math.Abs(y))
			if !same {
				return fmt.Sprintf("%s at step %d: %v and %v", a.Series[i].Labels, j, x, y)
			}
		}
	}
	return ""
}

// TestFoldOrder shuffles random tables: only the last bits of sums and averages may change.
func TestFoldOrder(t *testing.T) {
	r := newRand(t)
	for range 200 {
		grid := Grid{End: int64(r.IntN(4)), Step: 1}
		n := 2 + r.IntN(5)
		seed := r.Uint64()
		for op := FoldSum; op <= FoldAvg; op++ {
			var first *Table
			var firstErr error
			for turn := range 4 {
				b := admit.NewBudget(admit.NewPool(1<<26), roomy)
				same := rand.New(rand.NewPCG(seed, 3))
				var tables []*Table
				for range n {
					var rows []TableSeries
					for g := range 5 {
						if same.IntN(3) == 0 {
							continue
						}
						values, counts := make([]float64, grid.Len()), make([]float64, grid.Len())
						for i := range values {
							values[i], counts[i] = float64(same.IntN(2000)-100)/7, float64(1+same.IntN(100))
							if op == FoldCount {
								values[i] = counts[i]
							}
							if same.IntN(5) == 0 {
								values[i], counts[i] = none, none
							}
						}
						s := row(fmt.Sprintf("g=%d", g), values...)
						if op != FoldAvg {
							rows = append(rows, s)
							continue
						}
						rows = append(rows, part("sum", s), part("count", TableSeries{Labels: s.Labels, Values: counts}))
					}
					tables = append(tables, made(t, b, grid, rows...))
				}
				r.Shuffle(n, func(i, j int) { tables[i], tables[j] = tables[j], tables[i] })
				got, err := Fold(op, tables, b)
				if turn == 0 {
					first, firstErr = got, err
					continue
				}
				if errors.Is(err, ErrInexact) != errors.Is(firstErr, ErrInexact) {
					t.Fatalf("order decides: %v, %v", err, firstErr)
				}
				if err != nil {
					continue
				}
				tolerance := 0.0
				if op == FoldSum || op == FoldAvg {
					tolerance = 1e-12
				}
				if why := differs(got, first, tolerance); why != "" {
					t.Fatalf("order changes operation %d: %s", op, why)
				}
				got.Close()
				if b.Held() != 0 {
					t.Errorf("%d bytes are held", b.Held())
				}
			}
		}
	}
}
