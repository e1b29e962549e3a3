package rewrite

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// What a query may become, so that its new text says all of what it means. Where it is not clear
// that it does, the answer is no.

// each calls f with every node of an expression, and those above it.
func each(e parser.Expr, f func(n parser.Node, path []parser.Node)) {
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		if n != nil {
			f(n, path)
		}
		return nil
	})
}

// framed are functions of the request's own times.
var framed = []string{"start", "end", "step", "range"}

// timeless tells whether the value at a moment depends on neither the start nor the step of the
// request.
func timeless(e parser.Expr) bool {
	ok := true
	each(e, func(n parser.Node, _ []parser.Node) {
		switch n := n.(type) {
		case *parser.VectorSelector:
			ok = ok && n.StartOrEnd != parser.START && n.OriginalOffsetExpr == nil
		case *parser.MatrixSelector:
			ok = ok && n.RangeExpr == nil
		case *parser.SubqueryExpr:
			ok = ok && n.StartOrEnd != parser.START && n.OriginalOffsetExpr == nil && n.RangeExpr == nil && n.StepExpr == nil
		case *parser.Call:
			ok = ok && !slices.Contains(framed, n.Func.Name)
		}
	})
	return ok
}

// turned tells whether an expression has something that fewer series, or less time, turn into
// something else: what is there because something else is not, or for want of it, or is all there
// is.
func turned(e parser.Expr) bool {
	found := false
	each(e, func(n parser.Node, _ []parser.Node) {
		switch n := n.(type) {
		case *parser.BinaryExpr:
			found = found || n.Op == parser.LOR || n.Op == parser.LUNLESS || fills(n)
		case *parser.Call:
			found = found || slices.Contains([]string{"absent", "absent_over_time", "scalar", "info"}, n.Func.Name)
		}
	})
	return found
}

// fills tells whether series that one side lacks have a value.
func fills(b *parser.BinaryExpr) bool {
	m := b.VectorMatching
	return m != nil && (m.FillValues.LHS != nil || m.FillValues.RHS != nil)
}

// compares tells whether an expression compares anything, or leaves out what another one lacks.
func compares(e parser.Expr) bool {
	found := false
	each(e, func(n parser.Node, _ []parser.Node) {
		if b, ok := n.(*parser.BinaryExpr); ok {
			found = found || b.Op.IsComparisonOperator() || b.Op.IsSetOperator()
		}
	})
	return found
}

// Narrows tells whether a matcher on the label, in all selectors, makes the query one about the
// series with that value, and nothing else.
func Narrows(e parser.Expr, label string) bool {
	if turned(e) {
		return false
	}
	ok := true
	each(e, func(n parser.Node, _ []parser.Node) {
		switch n := n.(type) {
		case *parser.BinaryExpr:
			ok = ok && joinsBy(n, label)
		case *parser.Call:
			ok = ok && !writes(n, label)
		case *parser.AggregateExpr:
			ok = ok && !(n.Op == parser.COUNT_VALUES && isText(n.Param, label))
		}
	})
	return ok
}

// joinsBy tells whether two vectors are joined by the label, among others, or no two vectors are.
func joinsBy(b *parser.BinaryExpr, label string) bool {
	m := b.VectorMatching
	if m == nil || b.LHS.Type() != parser.ValueTypeVector || b.RHS.Type() != parser.ValueTypeVector {
		return true
	}
	if !keeps(b.LHS, label) || !keeps(b.RHS, label) {
		return false
	}
	return slices.Contains(m.MatchingLabels, label) == m.On
}

// keeps tells whether series have the label's value that their selectors have.
func keeps(e parser.Expr, label string) bool {
	ok := true
	each(e, func(n parser.Node, _ []parser.Node) {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			if !n.Op.IsAggregatorWithParam() || n.Op == parser.QUANTILE || n.Op == parser.COUNT_VALUES {
				ok = ok && slices.Contains(n.Grouping, label) != n.Without
			}
		case *parser.Call:
			ok = ok && !writes(n, label)
		}
	})
	return ok
}

// writes tells whether a function writes the label.
func writes(c *parser.Call, label string) bool {
	return (c.Func.Name == "label_replace" || c.Func.Name == "label_join") && len(c.Args) > 1 && isText(c.Args[1], label)
}

func isText(e parser.Expr, text string) bool {
	s, ok := e.(*parser.StringLiteral)
	return !ok || s.Val == text // what is not known may be it
}

// The shortest ranges that are proposed: of a selector one in which even slow scrapes are several,
// of a subquery so many of its steps, or one in which those of the server are.
const (
	minRange      = 5 * time.Minute
	minSubSteps   = 4
	minUnsaidStep = 10 * time.Minute
)

// shortens tells whether all ranges of the query that are longer than d can be as short: they are
// the same, contain all others, and none of those is as long.
func shortens(e parser.Expr, d time.Duration) bool {
	if d < minRange || turned(e) || compares(e) || !timeless(e) || sized(e, d) { // of what is compared or matched less is not a part
		return false
	}
	ok, longest := true, time.Duration(0)
	each(e, func(n parser.Node, path []parser.Node) {
		length, sub := lengthOf(n)
		switch {
		case length == 0:
			return
		case length <= d:
			ok = ok && length < d && slices.ContainsFunc(path, func(n parser.Node) bool { l, _ := lengthOf(n); return l > d })
			return
		}
		ok = ok && (longest == 0 || longest == length)
		longest = length
		if sub != nil {
			ok = ok && (sub.Step == 0 && d >= minUnsaidStep || sub.Step > 0 && d >= minSubSteps*sub.Step)
		}
	})
	return ok && longest > 0
}

// sums are functions whose values grow with their range.
var sums = []string{"increase", "sum_over_time", "count_over_time", "changes", "resets"}

// sized tells whether something stands beside a range longer than d that was chosen for its length:
// what is added up over it beside anything that is not, or a number that is that length.
func sized(e parser.Expr, d time.Duration) bool {
	length := time.Duration(0) // which all that are longer have
	each(e, func(n parser.Node, _ []parser.Node) {
		l, _ := lengthOf(n)
		length = max(length, l)
	})
	_, found := beside(e, d, length)
	return found
}

// reads is what an expression is made of: any selector, a range that is longer than d, and what is
// added up over such a one.
type reads struct{ selects, far, sums bool }

// beside is what a node reads, and whether anything in it is sized. Each node is visited once.
func beside(n parser.Node, d, length time.Duration) (r reads, found bool) {
	if b, ok := n.(*parser.BinaryExpr); ok {
		left, inLeft := beside(b.LHS, d, length)
		right, inRight := beside(b.RHS, d, length)
		found = inLeft || inRight || left.sums != right.sums || left.far && computed(b.RHS, right) || right.far && computed(b.LHS, left)
		return reads{left.selects || right.selects, left.far || right.far, left.sums || right.sums}, found
	}
	for child := range parser.ChildrenIter(n) {
		of, in := beside(child, d, length)
		r = reads{r.selects || of.selects, r.far || of.far, r.sums || of.sums}
		found = found || in
	}
	l, _ := lengthOf(n)
	r.far = r.far || l > d
	switch n := n.(type) {
	case *parser.VectorSelector:
		r.selects = true
	case *parser.NumberLiteral:
		found = found || isLength(n.Val, length)
	case *parser.Call:
		r.sums = r.sums || r.far && slices.Contains(sums, n.Func.Name)
		found = found || r.sums && strings.HasPrefix(n.Func.Name, "clamp")
	}
	return r, found
}

// computed tells whether an expression is a number that may be any length: it selects nothing, and
// does not just say it.
func computed(e parser.Expr, r reads) bool {
	_, said := tree.Bare(e).(*parser.NumberLiteral)
	return !r.selects && !said
}

// isLength tells whether a number is a length, in any unit of which that has several.
func isLength(number float64, length time.Duration) bool {
	return slices.ContainsFunc([]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, day, 7 * day},
		func(unit time.Duration) bool { return length > unit && number == float64(length)/float64(unit) })
}

// lengthOf is how long a range is, if the node is one; of a subquery that as well.
func lengthOf(n parser.Node) (time.Duration, *parser.SubqueryExpr) {
	switch n := n.(type) {
	case *parser.MatrixSelector:
		return n.Range, nil
	case *parser.SubqueryExpr:
		return n.Range, n
	}
	return 0, nil
}

// sampled are functions of which fewer samples of the same time give about the same. The last
// sample is none: it would be one of another moment.
var sampled = []string{
	"avg_over_time", "min_over_time", "max_over_time", "quantile_over_time", "stddev_over_time", "stdvar_over_time",
	"rate", "increase", "delta", "deriv",
}

// coarser tells whether a subquery, with what is above it, may be looked at less often.
func coarser(path []parser.Node) bool {
	for i := len(path) - 1; i >= 0; i-- {
		switch n := path[i].(type) {
		case *parser.Call:
			return slices.Contains(sampled, n.Func.Name)
		case parser.Expressions, *parser.ParenExpr:
		default:
			return false
		}
	}
	return false
}

// counters are the ends of names of what only grows.
var counters = []string{"_total", "_count", "_sum", "_bucket"}

func isCounter(name string) bool {
	return slices.ContainsFunc(counters, func(end string) bool { return strings.HasSuffix(name, end) })
}

// names tells whether a query that has one selector may be about that metric: its functions are
// made for such a one.
func names(e parser.Expr, name string) bool {
	ok := true
	each(e, func(n parser.Node, _ []parser.Node) {
		call, is := n.(*parser.Call)
		if !is {
			return
		}
		switch call.Func.Name {
		case "rate", "irate", "increase", "resets":
			ok = ok && isCounter(name)
		case "delta", "idelta", "deriv", "predict_linear", "double_exponential_smoothing":
			ok = ok && !isCounter(name)
		case "histogram_quantile", "histogram_fraction":
			ok = ok && strings.HasSuffix(name, "_bucket")
		}
	})
	return ok
}

// byName tells whether the query is about the names of metrics: it groups by them.
func byName(e parser.Expr) bool {
	found := false
	each(e, func(n parser.Node, _ []parser.Node) {
		agg, ok := n.(*parser.AggregateExpr)
		found = found || ok && slices.Contains(agg.Grouping, model.MetricNameLabel)
	})
	return found
}

// additive tells whether all series of an expression can be added up: how fast counters grow, and
// by how much.
func additive(e parser.Expr) bool {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return additive(n.Expr)
	case *parser.UnaryExpr:
		return additive(n.Expr)
	case *parser.Call:
		if n.Func.Name != "rate" && n.Func.Name != "irate" && n.Func.Name != "increase" {
			return false
		}
		m, ok := n.Args[0].(*parser.MatrixSelector)
		return ok && isCounter(nameOf(m.VectorSelector.(*parser.VectorSelector).LabelMatchers))
	case *parser.AggregateExpr:
		return n.Op == parser.COUNT || n.Op == parser.SUM && additive(n.Expr)
	case *parser.BinaryExpr:
		if _, number := n.RHS.(*parser.NumberLiteral); number && (n.Op == parser.MUL || n.Op == parser.DIV) {
			return additive(n.LHS)
		}
		_, number := n.LHS.(*parser.NumberLiteral)
		return number && n.Op == parser.MUL && additive(n.RHS)
	}
	return false
}

// nameOf is the name that a selector asks for; empty where it asks for several.
func nameOf(ms []*labels.Matcher) string {
	for _, m := range ms {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}
