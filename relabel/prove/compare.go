package prove

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// rounding is how far, of itself, a value may be from the other. The engine does not say in which
// order it adds: behind a binary operator over a range, series come in another order each time, and
// so they do where a label went by which they were sorted. Two answers to one query over the same
// data differ in their last bits then.
const rounding = 1e-12

// outcome is what became of a query, from the best to the worst.
type outcome int

const (
	empty outcome = iota
	failed
	equal
	rounded
	within
	different
)

// answer is what the engine said, as a matrix sorted by labels. An instant query has one point of
// each series.
type answer struct {
	series []promql.Series
	err    error
}

// answerOf makes any result an answer. It holds the engine's memory.
func answerOf(res *promql.Result, at time.Time) answer {
	if res.Err != nil {
		return answer{err: res.Err}
	}
	var out answer
	switch v := res.Value.(type) {
	case promql.Matrix:
		out.series = slices.Clone(v)
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				out.series = append(out.series, promql.Series{Metric: s.Metric, Histograms: []promql.HPoint{{T: s.T, H: s.H}}})
			} else {
				out.series = append(out.series, promql.Series{Metric: s.Metric, Floats: []promql.FPoint{{T: s.T, F: s.F}}})
			}
		}
	case promql.Scalar:
		out.series = []promql.Series{{Floats: []promql.FPoint{{T: v.T, F: v.V}}}}
	case promql.String:
		out.series = []promql.Series{{Metric: labels.FromStrings("string", v.V), Floats: []promql.FPoint{{T: at.UnixMilli()}}}}
	}
	// The order of an instant vector is not defined. Two series never have the same labels.
	slices.SortFunc(out.series, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return out
}

// compare says how the answers differ, with quantile for the largest ratio of two values that a
// rule states, or 0; before and after describe the first difference.
func compare(a, b answer, quantile float64) (o outcome, before, after string) {
	switch {
	case a.err != nil && b.err != nil:
		if same(a.err) == same(b.err) {
			return failed, "", ""
		}
		return different, a.err.Error(), b.err.Error()
	case a.err != nil:
		return different, a.err.Error(), b.count()
	case b.err != nil:
		return different, a.count(), b.err.Error()
	case len(a.series) == 0 && len(b.series) == 0:
		return empty, "", ""
	}
	o = equal
	for i, j := 0, 0; i < len(a.series) || j < len(b.series); {
		c := 0
		switch {
		case i == len(a.series):
			c = 1
		case j == len(b.series):
			c = -1
		default:
			c = labels.Compare(a.series[i].Metric, b.series[j].Metric)
		}
		if c < 0 {
			return different, a.count() + ", among them " + a.series[i].Metric.String(), b.count() + ", without it"
		}
		if c > 0 {
			return different, a.count(), b.count() + ", among them " + b.series[j].Metric.String() + ", which was not there"
		}
		p, before, after := points(&a.series[i], &b.series[j], quantile)
		if p == different {
			return different, before, after
		}
		o = max(o, p)
		i++
		j++
	}
	return o, "", ""
}

func (a answer) count() string {
	if len(a.series) == 1 {
		return "1 series"
	}
	return fmt.Sprintf("%d series", len(a.series))
}

// points compares two series of the same labels.
func points(a, b *promql.Series, quantile float64) (o outcome, before, after string) {
	o = equal
	for i := range min(len(a.Floats), len(b.Floats)) {
		p, q := a.Floats[i], b.Floats[i]
		if p.T != q.T {
			return different, point(a.Metric, min(p.T, q.T), a), point(a.Metric, min(p.T, q.T), b)
		}
		v := floats(p.F, q.F, quantile)
		if v == different {
			return different, point(a.Metric, p.T, a), point(a.Metric, p.T, b)
		}
		o = max(o, v)
	}
	for i := range min(len(a.Histograms), len(b.Histograms)) {
		p, q := a.Histograms[i], b.Histograms[i]
		if p.T != q.T || !sameHistogram(p.H, q.H) {
			return different, fmt.Sprintf("%s: %s at %s", a.Metric, p.H, moment(p.T)), fmt.Sprintf("%s at %s", q.H, moment(q.T))
		}
	}
	if len(a.Floats) != len(b.Floats) || len(a.Histograms) != len(b.Histograms) {
		return different, fmt.Sprintf("%s: %d points", a.Metric, len(a.Floats)+len(a.Histograms)),
			fmt.Sprintf("%d points", len(b.Floats)+len(b.Histograms))
	}
	return o, "", ""
}

// point is the value at a moment, for messages.
func point(ls labels.Labels, t int64, s *promql.Series) string {
	i, ok := slices.BinarySearchFunc(s.Floats, t, func(p promql.FPoint, t int64) int { return cmp.Compare(p.T, t) })
	if !ok {
		return fmt.Sprintf("%s: nothing at %s", ls, moment(t))
	}
	return fmt.Sprintf("%s: %v at %s", ls, s.Floats[i].F, moment(t))
}

func moment(t int64) string { return time.UnixMilli(t).UTC().Format(time.RFC3339Nano) }

// floats compares two values: to the bit, so that a stale marker is no NaN and -0 is not 0.
func floats(a, b, quantile float64) outcome {
	if math.Float64bits(a) == math.Float64bits(b) {
		return equal
	}
	if math.IsNaN(a) || math.IsNaN(b) || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return different
	}
	if math.Abs(a-b) <= rounding*max(math.Abs(a), math.Abs(b)) {
		return rounded
	}
	if quantile > 0 && (a > 0) == (b > 0) && a != 0 && b != 0 && max(a/b, b/a) <= quantile*(1+rounding) {
		return within
	}
	return different
}

func sameHistogram(a, b *histogram.FloatHistogram) bool {
	return a.Equals(b) && math.Float64bits(a.Sum) == math.Float64bits(b.Sum) && a.CounterResetHint == b.CounterResetHint
}

// braces are label sets in messages of errors: of several that are wrong, the engine names the one
// that it finds first.
var braces = regexp.MustCompile(`\{[^}]*\}`)

func same(err error) string { return braces.ReplaceAllString(err.Error(), "{}") }

// withoutThresholds is the query without what compares with numbers, and with 0 and 1 in the place
// of what series of comparisons between series filter: an alert that is quiet says nothing about
// what it looks at, and an error that moves a value may move it over a threshold.
func withoutThresholds(expr parser.Expr) (out parser.Expr, changed bool) {
	return rewrite(expr, func(expr parser.Expr) (parser.Expr, bool) {
		e, ok := expr.(*parser.BinaryExpr)
		if !ok || !e.Op.IsComparisonOperator() || e.ReturnBool {
			return expr, false
		}
		left, right := e.LHS.Type() == parser.ValueTypeVector, e.RHS.Type() == parser.ValueTypeVector
		switch {
		case left && right:
			e.ReturnBool = true
			return e, true
		case left:
			return &parser.ParenExpr{Expr: e.LHS}, true
		case right:
			return &parser.ParenExpr{Expr: e.RHS}, true
		}
		return expr, false
	})
}

// withoutChoice is the query without the aggregations that choose series: of equal values, topk
// takes whichever comes first, and what comes first is open.
func withoutChoice(expr parser.Expr) (out parser.Expr, changed bool) {
	return rewrite(expr, func(expr parser.Expr) (parser.Expr, bool) {
		if e, ok := expr.(*parser.AggregateExpr); ok {
			switch e.Op {
			case parser.TOPK, parser.BOTTOMK, parser.LIMITK: // limit_ratio chooses by the labels alone
				return &parser.ParenExpr{Expr: e.Expr}, true
			}
		}
		return expr, false
	})
}

// rewrite replaces parts of an expression, the inner ones first. The expression is used up.
func rewrite(expr parser.Expr, f func(parser.Expr) (parser.Expr, bool)) (out parser.Expr, changed bool) {
	each := func(of *parser.Expr) {
		var c bool
		*of, c = rewrite(*of, f)
		changed = changed || c
	}
	switch e := expr.(type) {
	case *parser.AggregateExpr:
		each(&e.Expr)
	case *parser.BinaryExpr:
		each(&e.LHS)
		each(&e.RHS)
	case *parser.Call:
		for i := range e.Args {
			each(&e.Args[i])
		}
	case *parser.ParenExpr:
		each(&e.Expr)
	case *parser.SubqueryExpr:
		each(&e.Expr)
	case *parser.UnaryExpr:
		each(&e.Expr)
	}
	out, c := f(expr)
	return out, changed || c
}
