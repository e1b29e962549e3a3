package plan

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// Where a sum is compared with a number, its last bit decides only if it is as good as that number.
// The number is followed from the comparison down to the sum, through what keeps values and through
// arithmetic with constants. Where it cannot be followed, as through arithmetic of two vectors, the
// sums below are loose: whoever evaluates the rest looks whether their last bits decide
// (docs/decisions/0011).

// undo is the number that +, -, * or / makes n of together with c, which stands left or right of
// it.
func undo(op parser.ItemType, n, c float64, left bool) float64 {
	switch {
	case op == parser.ADD:
		return n - c
	case op == parser.SUB && left:
		return c - n
	case op == parser.SUB:
		return n + c
	case op == parser.MUL:
		return n / c
	case op == parser.DIV && left:
		return c / n
	}
	return n * c
}

// literal is the number that the expression is, if it is one, at every step.
func literal(e parser.Expr) []float64 {
	switch n := tree.Bare(e).(type) {
	case *parser.NumberLiteral:
		return []float64{n.Val}
	case *parser.UnaryExpr:
		v := literal(n.Expr)
		if v != nil && n.Op == parser.SUB {
			v[0] = -v[0]
		}
		return v
	case *parser.Call:
		if n.Func.Name == "vector" {
			return literal(n.Args[0])
		}
	case *parser.BinaryExpr:
		l, r := literal(n.LHS), literal(n.RHS)
		if l == nil || r == nil {
			return nil
		}
		switch n.Op {
		case parser.ADD:
			return []float64{l[0] + r[0]}
		case parser.SUB:
			return []float64{l[0] - r[0]}
		case parser.MUL:
			return []float64{l[0] * r[0]}
		case parser.DIV:
			return []float64{l[0] / r[0]}
		case parser.POW:
			return []float64{math.Pow(l[0], r[0])}
		}
	}
	return nil
}

// steps are the functions of a subquery that make more than a last bit of a last bit between two
// values: they take a smaller one for a reset, or choose among equal ones.
var steps = nameSet(`changes increase irate rate resets ts_of_max_over_time ts_of_min_over_time`)

// differences are the functions of a subquery that are 0 where its values are equal, however large
// these are.
var differences = nameSet(`delta deriv double_exponential_smoothing idelta mad_over_time stddev_over_time stdvar_over_time`)

// bent are the functions that are others beyond a bound of a scalar argument: where min is above
// max, or where a quantile is beyond 0 or 1.
var bent = nameSet(`clamp double_exponential_smoothing histogram_quantile histogram_quantiles quantile_over_time`)

// keeping are the functions whose every result, but for bounds of clamp, is a value of their vector
// argument, abs but for the sign.
var keeping = nameSet(`abs clamp clamp_max clamp_min first_over_time label_join label_replace last_over_time max_over_time
	min_over_time scalar sort sort_by_label sort_by_label_desc sort_desc vector`)

func nameSet(names string) map[string]bool {
	out := map[string]bool{}
	for _, name := range strings.Fields(names) {
		out[name] = true
	}
	return out
}

// sumOfSeries tells whether the expression is a sum or an average with no other aggregate in it.
// Whether one is equal to a number can be seen; of what is made of several sums, which rounding may
// have made unequal already, nobody finds out.
func sumOfSeries(e parser.Expr) bool {
	agg, ok := tree.Bare(e).(*parser.AggregateExpr)
	return ok && (agg.Op == parser.SUM || agg.Op == parser.AVG) && !tree.Aggregates(agg.Expr)
}

// besideZero are the numbers without 0 where the aggregate is of what is never negative: its sum is
// 0 only if all that it is made of is, in whatever order it is added.
func besideZero(near []float64, agg *parser.AggregateExpr) []float64 {
	if !neverNegative(agg.Expr) {
		return near
	}
	return slices.DeleteFunc(slices.Clone(near), func(n float64) bool { return n == 0 })
}

// neverNegative tells whether no value of the expression is negative: of counters, which are not,
// and of counts.
func neverNegative(e parser.Expr) bool {
	switch n := tree.Bare(e).(type) {
	case *parser.Call:
		switch n.Func.Name {
		case "rate", "increase", "irate", "changes", "resets", "count_over_time", "present_over_time", "abs":
			return true
		}
	case *parser.AggregateExpr:
		return n.Op == parser.COUNT || n.Op == parser.GROUP || n.Op == parser.SUM && neverNegative(n.Expr)
	case *parser.BinaryExpr:
		if n.Op == parser.MUL || n.Op == parser.DIV {
			l, r := literal(n.LHS), literal(n.RHS)
			return (l != nil && l[0] > 0 || neverNegative(n.LHS)) && (r != nil && r[0] > 0 || neverNegative(n.RHS))
		}
	}
	return false
}
