package server

import (
	"context"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
)

const (
	// nudge is by how much sums are changed to see whether an answer depends on their last bits:
	// ten times what they can be off, and nothing that anyone would see.
	nudge = 1e-11
	// alikeTo is by how much the numbers of two answers may differ that say the same.
	alikeTo = 1e-6
	// maxNudged bounds the numbers that are changed at a time, and with them the memory: 2 MiB.
	// maxRough bounds the tables, and with them the evaluations: 22.
	maxNudged = 256 << 10
	maxRough  = 8
)

// pattern says for a number of a table, by its series and step, whether it is made larger or
// smaller.
type pattern func(series, step int) bool

var (
	larger  pattern = func(int, int) bool { return true }
	smaller pattern = func(int, int) bool { return false }
	// patterns are those of all tables together: what is compared may be sums of one table, of
	// neighbouring series or steps.
	patterns = []pattern{
		larger, smaller,
		func(series, _ int) bool { return series%2 == 0 }, func(series, _ int) bool { return series%2 != 0 },
		func(_, step int) bool { return step%2 == 0 }, func(_, step int) bool { return step%2 != 0 },
	}
)

// steady tells whether an answer stays the same where rough tables, whose last bits are not known,
// are a little larger or smaller, each alone and all together. What is compared in it is then not
// equal but for rounding. rest is what was evaluated over the tables, by evaluation. It is false as
// well where that was not found out.
func steady(ctx context.Context, res *promql.Result, rest string, tables []*merge.Table, rough []int,
	evaluation func(parser.Expr, []*merge.Table) (promql.Query, error),
) bool {
	numbers := 0
	for _, i := range rough {
		numbers += len(tables[i].Series) * tables[i].Grid.Len()
	}
	if len(rough) > maxRough || numbers > maxNudged {
		return false
	}
	stays := func(which []int, p pattern) bool {
		nudged := slices.Clone(tables)
		for _, i := range which {
			nudged[i] = nudgedBy(tables[i], p)
		}
		expr, err := tree.Parser.ParseExpr(rest)
		if err != nil {
			return false
		}
		qry, err := evaluation(expr, nudged)
		if err != nil {
			return false
		}
		defer qry.Close()
		other := qry.Exec(ctx)
		return other.Err == nil && alike(res.Value, other.Value)
	}
	for _, p := range patterns {
		if !stays(rough, p) {
			return false
		}
	}
	if len(rough) > 1 {
		for i := range rough {
			if !stays(rough[i:i+1], larger) || !stays(rough[i:i+1], smaller) {
				return false
			}
		}
	}
	return true
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
