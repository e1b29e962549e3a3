package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/merge"
)

// TestSteadyWhereNothingIsKnown: what cannot be evaluated over other sums has not stayed the same,
// wherever that begins.
func TestSteadyWhereNothingIsKnown(t *testing.T) {
	grid := merge.Grid{End: 60_000, Step: 15_000}
	table := &merge.Table{Grid: grid, Series: []merge.TableSeries{{Values: []float64{0.6, 0.6, 0.6, 0.6, 0.6}}}}
	answer := &promql.Result{Value: promql.Matrix{{Floats: []promql.FPoint{{T: 60_000, F: 1}}}}}
	for last := range 40 { // evaluations that succeed
		n := 0
		got := steady(t.Context(), answer, `ceil({__spillway_leaf__=~"0"})`, []*merge.Table{table}, []int{0},
			func(e parser.Expr, _ []*merge.Table) (promql.Query, error) {
				if n++; n > last {
					return nil, errors.New("no place")
				}
				return sameAnswerQuery{answer}, nil
			})
		if got != (n <= last) {
			t.Errorf("after %d evaluations steady is %t", last, got)
		}
	}
}

// sameAnswerQuery is a query that has its answer.
type sameAnswerQuery struct{ res *promql.Result }

func (a sameAnswerQuery) Exec(context.Context) *promql.Result { return a.res }
func (a sameAnswerQuery) Close()                              {}
func (a sameAnswerQuery) Statement() parser.Statement         { return nil }
func (a sameAnswerQuery) Stats() *stats.Statistics            { return nil }
func (a sameAnswerQuery) Cancel()                             {}
func (a sameAnswerQuery) String() string                      { return "" }

// TestSteady: an answer that would be another one if its sums were a little larger or smaller is
// not taken; one that would not is.
func TestSteady(t *testing.T) {
	grid := merge.Grid{Start: 0, End: 60_000, Step: 15_000}
	table := func(series ...[]float64) *merge.Table {
		out := &merge.Table{Grid: grid}
		for i, v := range series {
			out.Series = append(out.Series, merge.TableSeries{Labels: labels.FromStrings("job", fmt.Sprintf("j%d", i)), Values: v})
		}
		return out
	}
	flat := func(v float64) []float64 { return []float64{v, v, v, v, v} }
	const a, b = `{__spillway_leaf__=~"0"}`, `{__spillway_leaf__=~"1"}`
	up := math.Nextafter(0.6, 1)
	gone := math.Float64frombits(value.StaleNaN)
	for _, tc := range []struct {
		name, rest string
		tables     []*merge.Table
		rough      []int
		want       bool
	}{
		{"far apart", a + " > " + b, []*merge.Table{table(flat(2)), table(flat(1))}, []int{0, 1}, true},
		{"one bit apart, true", a + " >= bool " + b, []*merge.Table{table(flat(up)), table(flat(0.6))}, []int{0, 1}, false},
		{"one bit apart, false", a + " < bool " + b, []*merge.Table{table(flat(up)), table(flat(0.6))}, []int{0, 1}, false},
		{
			"one bit apart at one step", a + " < bool " + b,
			[]*merge.Table{table([]float64{1, 1, up, 1, 1}), table(flat(0.6))},
			[]int{0},
			false,
		},
		{
			"one bit apart, and neither is rough", a + " < bool " + b,
			[]*merge.Table{table(flat(up)), table(flat(0.6)), table(flat(1))},
			[]int{2},
			true,
		},
		{"a ratio near its threshold", a + " / " + b + " >= 1", []*merge.Table{table(flat(up)), table(flat(0.6))}, []int{0, 1}, false},
		{"a ratio far from it", a + " / " + b + " >= 0.5", []*merge.Table{table(flat(up)), table(flat(0.6))}, []int{0, 1}, true},
		{
			"a sum of two near a threshold", "sum(" + a + ") + sum(" + b + ") > 1.2",
			[]*merge.Table{table(flat(0.6)), table(flat(up))},
			[]int{0, 1},
			false,
		},
		{"neighbouring series", "max(" + a + ") <= bool min(" + a + ")", []*merge.Table{table(flat(0.6), flat(0.6))}, []int{0}, false},
		{
			"neighbouring steps", "idelta(" + a + "[30s:15s]) > bool 0",
			[]*merge.Table{table([]float64{0.6, 0.6, 0.6, 0.6, up})},
			[]int{0},
			false,
		},
		{"steps that are apart", "idelta(" + a + "[30s:15s]) > bool 0", []*merge.Table{table([]float64{1, 2, 3, 4, 5})}, []int{0}, true},
		{"rounded up, far from a whole number", "ceil(" + a + ")", []*merge.Table{table(flat(0.6))}, []int{0}, true},
		{"rounded up, a bit above one", "ceil(10 * " + a + ")", []*merge.Table{table(flat(up))}, []int{0}, false},
		{
			"a bit above one, and not rough", "ceil(10 * " + a + ") + " + b,
			[]*merge.Table{table(flat(up)), table(flat(0.7))},
			[]int{1},
			true,
		},
		{"rounded inside what hides it", "1e12 + ceil(10 * " + a + ")", []*merge.Table{table(flat(up))}, []int{0}, false},
		{"rounded to hundredths", "round(" + a + ", 0.01)", []*merge.Table{table(flat(0.6))}, []int{0}, true},
		{"rounded at the edge of a hundredth", "round(" + a + ", 0.01)", []*merge.Table{table(flat(0.605))}, []int{0}, false},
		{"more digits than there are", "round(" + a + ", 1e-12)", []*merge.Table{table(flat(0.6))}, []int{0}, false},
		{"what is left of a division", a + " % 0.25", []*merge.Table{table(flat(0.6))}, []int{0}, true},
		{"what is left of an even one", a + " % 0.2", []*merge.Table{table(flat(up))}, []int{0}, false},
		{
			"rounded, of sums that are apart by a bit", "ceil(max(" + a + ") - min(" + a + "))",
			[]*merge.Table{table(flat(0.6), flat(0.6), flat(up))},
			[]int{0},
			false,
		},
		{"zero", "ceil(" + a + ")", []*merge.Table{table(flat(0))}, []int{0}, true},
		{"no number", a + " > 1", []*merge.Table{table([]float64{gone, 2, gone, math.NaN(), math.Inf(1)})}, []int{0}, true},
		{
			"too many to try", a + " > 1",
			[]*merge.Table{{Grid: merge.Grid{End: maxNudged, Step: 1}, Series: table(flat(2)).Series}},
			[]int{0},
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var es engines
			evaluate := func(expr parser.Expr, tables []*merge.Table) (promql.Query, error) {
				engine, text := es.take(engineKind{samples: 1e6, interval: time.Minute}, expr)
				from := leafQueryable{tables, storage.QueryableFunc(func(int64, int64) (storage.Querier,
					error,
				) {
					return storage.NoopQuerier(), nil
				}), (*evaluation.Turn)(nil)}
				return engine.NewRangeQuery(t.Context(), from, promql.NewPrometheusQueryOpts(false, time.Second), text,
					time.UnixMilli(30_000), time.UnixMilli(60_000), 15*time.Second)
			}
			expr, err := tree.Parser.ParseExpr(tc.rest)
			if err != nil {
				t.Fatal(err)
			}
			qry, err := evaluate(expr, tc.tables)
			if err != nil {
				t.Fatal(err)
			}
			defer qry.Close()
			res := qry.Exec(t.Context())
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			if got := steady(t.Context(), res, tc.rest, tc.tables, tc.rough, evaluate); got != tc.want {
				t.Errorf("steady is %t, want %t: %v", got, tc.want, res.Value)
			}
		})
	}
}
