package server

import (
	"context"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
)

const (
	// nudge is by how much sums are changed to see whether an answer depends on their last bits:
	// ten times what they can be off, and nothing that anyone would see.
	nudge = 1e-11
	// alikeTo is by how much the numbers of two answers may differ that say the same.
	alikeTo = 1e-6
	// maxNudged bounds the numbers that are changed at a time, and with them the memory: 2 MiB.
	// maxRough bounds the tables, and maxJumps what is looked at beside the answer, and with them
	// the evaluations: two for each pattern and table.
	maxNudged = 256 << 10
	maxRough  = 8
	maxJumps  = 4
)

// pattern says for a number of a table, by its series and step, whether it is made larger or
// smaller.
type pattern func(series, step int) bool

var (
	larger  pattern = func(int, int) bool { return true }
	smaller pattern = func(int, int) bool { return false }
)

// inverse makes larger what the pattern makes smaller.
func (p pattern) inverse() pattern { return func(series, step int) bool { return !p(series, step) } }

// patterns are those of all tables together: what is compared may be sums of one table, of any two
// series or steps. One for each bit of their numbers tells any two apart.
func patterns(series, steps int) (out []pattern) {
	out = append(out, larger, smaller)
	add := func(p pattern) { out = append(out, p, p.inverse()) }
	for k := range bits.Len(uint(max(series-1, 0))) {
		add(func(series, _ int) bool { return series>>k&1 == 0 })
	}
	for k := range bits.Len(uint(max(steps-1, 0))) {
		add(func(_, step int) bool { return step>>k&1 == 0 })
	}
	return out
}

// steady tells whether an answer stays the same where rough tables, whose last bits are not known,
// are a little larger or smaller, each alone and all together, and whether nothing that jumps looks
// at what may be on the other side. What is compared in it is then not equal but for rounding. rest
// is what was evaluated over the tables, by evaluation. It is false as well where that was not
// found out.
func steady(ctx context.Context, res *promql.Result, rest string, tables []*merge.Table, rough []int,
	evaluation func(parser.Expr, []*merge.Table) (promql.Query, error),
) bool {
	numbers := 0
	for _, i := range rough {
		numbers += len(tables[i].Series) * tables[i].Grid.Len()
	}
	jumps, ok, across := []plan.Jump(nil), false, false
	if expr, err := tree.Parser.ParseExpr(rest); err == nil {
		jumps, ok = plan.JumpsOf(expr)
		across = meetsSteps(expr)
	}
	if !ok || len(rough) > maxRough || len(jumps) > maxJumps || numbers > maxNudged {
		return false
	}
	// value is that of an expression over the tables, until done is called; nil where there is
	// none.
	value := func(expr parser.Expr, tables []*merge.Table) (v parser.Value, done func()) {
		qry, err := evaluation(expr, tables)
		if err != nil {
			return nil, func() {}
		}
		if other := qry.Exec(ctx); other.Err == nil {
			v = other.Value
		}
		return v, qry.Close
	}
	whole := func() parser.Expr { // each time another one, which the engine changes
		expr, _ := tree.Parser.ParseExpr(rest)
		return expr
	}
	for others := range nudges(tables, rough, across) {
		other, done := value(whole(), others)
		same := alike(res.Value, other)
		done()
		if !same {
			return false
		}
	}
	// looksAt is what the nth jump looks at, of a tree of its own.
	looksAt := func(nth int) parser.Expr {
		own, _ := plan.JumpsOf(whole())
		return own[nth].Of
	}
	for nth, jump := range jumps {
		v, done := value(looksAt(nth), tables)
		was := pointsOf(v)
		for others := range nudges(tables, rough, across) {
			if !ok || was == nil {
				break
			}
			other, done := value(looksAt(nth), others)
			ok = sameSide(was, pointsOf(other), jump.Far)
			done()
		}
		if done(); !ok || was == nil {
			return false
		}
	}
	return true
}

// meetsSteps tells whether numbers of several steps meet in an expression over tables: in a
// subquery.
func meetsSteps(n parser.Node) bool {
	if _, ok := n.(*parser.SubqueryExpr); ok {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if meetsSteps(child) {
			return true
		}
	}
	return false
}

// nudges are the tables with the rough ones a little larger or smaller, in all the ways that are
// tried; across tells that steps are told apart, too.
func nudges(tables []*merge.Table, rough []int, across bool) iter.Seq[[]*merge.Table] {
	return func(yield func([]*merge.Table) bool) {
		others := func(which []int, p pattern) []*merge.Table {
			out := slices.Clone(tables)
			for _, i := range which {
				out[i] = nudgedBy(tables[i], p)
			}
			return out
		}
		series, steps := 0, 0
		for _, i := range rough {
			series = max(series, len(tables[i].Series))
			if across {
				steps = max(steps, tables[i].Grid.Len())
			}
		}
		for _, p := range patterns(series, steps) {
			if !yield(others(rough, p)) {
				return
			}
		}
		for i := range rough {
			if alone := rough[i : i+1]; len(rough) > 1 && (!yield(others(alone, larger)) || !yield(others(alone, smaller))) {
				return
			}
		}
	}
}

// nudgedBy is a copy of the table with each number larger or smaller. It owns nothing that has to
// be closed.
func nudgedBy(t *merge.Table, p pattern) *merge.Table {
	out := &merge.Table{Grid: t.Grid, Series: slices.Clone(t.Series)}
	for i := range out.Series {
		values := slices.Clone(out.Series[i].Values)
		for j, v := range values {
			switch {
			case value.IsStaleNaN(v): // no number
			case p(i, j):
				values[j] = v * (1 + nudge)
			default:
				values[j] = v * (1 - nudge)
			}
		}
		out.Series[i].Values = values
	}
	return out
}

// alike tells whether two answers have the same series with points at the same times and numbers
// that are as good as equal.
func alike(a, b parser.Value) bool {
	switch a := a.(type) {
	case promql.Scalar:
		b, ok := b.(promql.Scalar)
		return ok && asGood(a.V, b.V)
	case promql.Vector:
		b, ok := b.(promql.Vector)
		if !ok || len(a) != len(b) {
			return false
		}
		at := make(map[string]promql.Sample, len(a))
		for _, s := range a {
			at[s.Metric.String()] = s
		}
		return !slices.ContainsFunc(b, func(s promql.Sample) bool {
			o, ok := at[s.Metric.String()]
			return !ok || (o.H == nil) != (s.H == nil) || !asGood(o.F, s.F)
		})
	case promql.Matrix:
		b, ok := b.(promql.Matrix)
		if !ok || len(a) != len(b) {
			return false
		}
		at := make(map[string]promql.Series, len(a))
		for _, s := range a {
			at[s.Metric.String()] = s
		}
		return !slices.ContainsFunc(b, func(s promql.Series) bool {
			o, ok := at[s.Metric.String()]
			return !ok || len(o.Histograms) != len(s.Histograms) ||
				!slices.EqualFunc(o.Floats, s.Floats, func(p, q promql.FPoint) bool { return p.T == q.T && asGood(p.F, q.F) })
		})
	}
	return false
}

func asGood(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= alikeTo*max(math.Abs(a), math.Abs(b))
}

// pointsBySeries are the numbers of an answer; what jumps takes no histogram.
type pointsBySeries map[string][]promql.FPoint

// pointsOf returns an answer's points, which are gone when its query is closed; nil where there is
// no answer, or a larger one than is looked at.
func pointsOf(v parser.Value) pointsBySeries {
	switch v := v.(type) {
	case nil:
		return nil
	case promql.Matrix:
		if v.TotalSamples() > maxNudged {
			return nil
		}
	}
	out := pointsBySeries{}
	switch v := v.(type) {
	case promql.Scalar:
		out[""] = []promql.FPoint{{T: v.T, F: v.V}}
	case promql.Vector:
		for _, s := range v {
			if s.H == nil {
				out[s.Metric.String()] = []promql.FPoint{{T: s.T, F: s.F}}
			}
		}
	case promql.Matrix:
		for _, s := range v {
			out[s.Metric.String()] = s.Floats
		}
	}
	return out
}

// sameSide tells whether numbers that a jump looks at, which are other ones over other sums, are
// farther from where it jumps than that.
func sameSide(was, other pointsBySeries, far func(float64) float64) bool {
	if other == nil || len(was) != len(other) {
		return false
	}
	for series, points := range was {
		others := other[series]
		if len(others) != len(points) {
			return false
		}
		for i, p := range points {
			o := others[i]
			if equal := o.F == p.F || math.IsNaN(o.F) && math.IsNaN(p.F); o.T != p.T || !equal && !(math.Abs(o.F-p.F) < far(p.F)) {
				return false
			}
		}
	}
	return true
}
