package uses

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// demand is what the node above can see of a node's result.
//
// The invariant, for a label that is in no Need.Labels of a metric and in none of its matchers: let
// it be taken from all series of the metric (or of one job of it), with no two of them becoming
// one. Then every node's result has the same elements as before, one for one, with equal values,
// that agree in all labels of the node's demand; and elements that differed still differ, also
// without the metric's name. So a node may pass a smaller demand to its operands only where it
// would not notice any other difference between them: not by the labels it shows, not by the pairs
// it makes, not by their order, not by an error about equal elements.
type demand struct {
	labels Labels
	// quantile says that all that is above, up to a histogram_quantile, treats each bucket alone;
	// see Need.Quantile.
	quantile bool
	absent   bool
	// ordered says that the order of the elements counts, which follows from all labels of all
	// series below.
	ordered bool
	// digits says that values become labels by count_values: then the last digit of a sum counts,
	// which follows from the order of what is added.
	digits bool
}

func (d demand) of(l Labels) demand {
	return demand{labels: l, absent: d.absent, ordered: d.ordered, digits: d.digits}
}

// analysis collects the needs of one query.
type analysis struct {
	needs []Need
	marks marks // the variables of the query that have no value
}

// analyse returns the needs of an expression that parsed.
func analyse(expr parser.Expr, variables marks) []Need {
	a := analysis{marks: variables}
	a.visit(expr, demand{labels: All})
	return a.needs
}

// only is the set of these labels; all of them where one is not known.
func (a *analysis) only(names []string) Labels {
	if a.unclear(names) {
		return All
	}
	return some(names...)
}

// except is all labels but these; all of them where one is not known.
func (a *analysis) except(names []string) Labels {
	if a.unclear(names) {
		return All
	}
	return allBut(names...)
}

func (a *analysis) unclear(names []string) bool { return slices.ContainsFunc(names, a.marks.in) }

func (a *analysis) visit(e parser.Expr, d demand) {
	switch n := e.(type) {
	case *parser.ParenExpr:
		a.visit(n.Expr, d)
	case *parser.StepInvariantExpr:
		a.visit(n.Expr, d)
	case *parser.UnaryExpr:
		a.visit(n.Expr, d.of(d.labels))
	case *parser.VectorSelector:
		a.selector(n, d)
	case *parser.MatrixSelector:
		a.visit(n.VectorSelector, d)
	case *parser.SubqueryExpr:
		// Its points are put together by their labels over time, which is finer than the same at
		// one instant only for or, and or asks for everything.
		a.visit(n.Expr, d.of(d.labels))
	case *parser.AggregateExpr:
		a.aggregation(n, d)
	case *parser.BinaryExpr:
		a.binary(n, d)
	case *parser.Call:
		a.call(n, d)
	case *parser.NumberLiteral, *parser.StringLiteral, *parser.DurationExpr, nil:
	default: // whatever comes: all of everything below
		for child := range parser.ChildrenIter(e) {
			if c, ok := child.(parser.Expr); ok {
				a.visit(c, d.of(All))
			}
		}
	}
}

func (a *analysis) selector(n *parser.VectorSelector, d demand) {
	need := Need{Matchers: make([]*labels.Matcher, 0, len(n.LabelMatchers)), Labels: d.labels, Quantile: d.quantile, Absent: d.absent}
	unclear := false
	for _, m := range n.LabelMatchers {
		if a.marks.in(m.Name) { // a matcher on whatever label: it excludes nothing, and reads that label
			unclear = true
			continue
		}
		need.Matchers = append(need.Matchers, a.marks.matcher(m))
	}
	// Under a name that is not exact, series of several metrics may become equal where the name is
	// dropped, and a variable may stand for any label.
	if _, exact := need.Name(); !exact || unclear || d.ordered {
		need.Labels = All
	}
	if unclear || slices.ContainsFunc(need.Matchers, func(m *labels.Matcher) bool { return m.Name == labels.BucketLabel }) {
		need.Quantile = false
	}
	a.needs = append(a.needs, need)
}

func (a *analysis) aggregation(n *parser.AggregateExpr, d demand) {
	if n.Param != nil {
		a.visit(n.Param, d.of(Labels{}))
	}
	inner := d.of(All)
	switch n.Op {
	case parser.SUM, parser.AVG, parser.COUNT, parser.MIN, parser.MAX, parser.GROUP, parser.STDDEV, parser.STDVAR, parser.COUNT_VALUES,
		parser.QUANTILE:
		inner.labels = a.only(n.Grouping)
		if n.Without {
			inner.labels = a.except(n.Grouping)
		}
	case parser.LIMITK:
		inner.ordered = true
	default:
		// limit_ratio chooses by a hash of the labels. topk and bottomk choose by order where
		// values are equal: so they do not share what is above, but of what is aggregated below
		// them the order may change, and with it the choice among equal values, which is nobody's
		// promise (a restart of the server changes it too).
	}
	switch n.Op {
	case parser.COUNT_VALUES:
		inner.digits = true
	case parser.SUM, parser.AVG, parser.STDDEV, parser.STDVAR:
		inner.ordered = inner.ordered || d.digits
	}
	if n.Op == parser.SUM || n.Op == parser.AVG {
		inner.quantile = d.quantile && slices.Contains(n.Grouping, labels.BucketLabel) != n.Without
	}
	a.visit(n.Expr, inner)
}

func (a *analysis) binary(n *parser.BinaryExpr, d demand) {
	m := n.VectorMatching
	left, right := n.LHS.Type(), n.RHS.Type()
	if m == nil || left != parser.ValueTypeVector || right != parser.ValueTypeVector {
		inner := d.of(d.labels)
		inner.quantile = d.quantile && scales(n)
		for _, side := range []parser.Expr{n.LHS, n.RHS} {
			if side.Type() == parser.ValueTypeVector {
				a.visit(side, inner)
			} else {
				a.visit(side, d.of(Labels{}))
			}
		}
		return
	}
	// match is what tells elements with and without a partner apart.
	match := a.except(m.MatchingLabels)
	if m.On {
		match = a.only(m.MatchingLabels)
		if match.Has(model.MetricNameLabel) { // then pairs may differ in nothing but a name that is dropped later
			match = All
		}
	}
	l, r := d.of(match), d.of(match)
	switch {
	case n.Op == parser.LOR:
		// Elements of different metrics come together here. What one loses may make it equal to
		// another as soon as the name is dropped, at once or at another time in a subquery.
		l.labels, r.labels = All, All
	case n.Op == parser.LAND:
		l.labels = l.labels.Or(d.labels)
	case n.Op == parser.LUNLESS:
		l.labels = l.labels.Or(d.labels)
		r.absent = true
	case m.FillValues.LHS != nil || m.FillValues.RHS != nil:
		l.labels, r.labels = All, All
	case m.Card == parser.CardManyToOne:
		l.labels, r.labels = a.grouped(m, match, d)
	case m.Card == parser.CardOneToMany:
		r.labels, l.labels = a.grouped(m, match, d)
	}
	a.visit(n.LHS, l)
	a.visit(n.RHS, r)
}

// grouped is what the many side and the one side of group_left or group_right need.
func (a *analysis) grouped(m *parser.VectorMatching, match Labels, d demand) (many, one Labels) {
	if len(m.Include) > 0 { // a label of the one side takes the place of one that tells elements of the many side apart
		return All, match.Or(a.only(m.Include))
	}
	return match.Or(d.labels), match
}

// scales tells whether the operation multiplies or shifts each bucket alike, so that their order
// stays.
func scales(n *parser.BinaryExpr) bool {
	number := func(e parser.Expr) (float64, bool) {
		for {
			switch x := e.(type) {
			case *parser.ParenExpr:
				e = x.Expr
			case *parser.NumberLiteral:
				return x.Val, true
			default:
				return 0, false
			}
		}
	}
	right, onRight := number(n.RHS)
	left, onLeft := number(n.LHS)
	switch n.Op {
	case parser.ADD:
		return onLeft || onRight
	case parser.SUB:
		return onRight
	case parser.MUL:
		return onLeft && left > 0 || onRight && right > 0
	case parser.DIV:
		return onRight && right > 0
	}
	return false
}

func (a *analysis) call(n *parser.Call, d demand) {
	inner := d.of(All)
	switch how := functions[n.Func.Name]; {
	case n.Func.Name == "info":
		a.info(n, d)
		return
	case n.Func.Name == "histogram_quantile":
		inner.quantile = true
	case n.Func.Name == "absent" || n.Func.Name == "absent_over_time":
		inner = demand{absent: true}
	case n.Func.Name == "scalar":
		inner.labels = Labels{}
	case how == perSeries || how == perBucket:
		inner.labels = d.labels
		inner.quantile = d.quantile && how == perBucket && overSelector(n)
	}
	for _, arg := range n.Args {
		switch arg.Type() {
		case parser.ValueTypeVector, parser.ValueTypeMatrix:
			a.visit(arg, inner)
		default:
			a.visit(arg, d.of(Labels{}))
		}
	}
}

// overSelector tells whether the function's argument is a range of a selector, not of a subquery.
func overSelector(n *parser.Call) bool {
	if len(n.Args) != 1 {
		return false
	}
	e := n.Args[0]
	for {
		switch x := e.(type) {
		case *parser.ParenExpr:
			e = x.Expr
		case *parser.StepInvariantExpr:
			e = x.Expr
		case *parser.MatrixSelector:
			return true
		default:
			return false
		}
	}
}

// info adds labels of info series to its first argument: both are needed whole. Without a name, the
// second argument means target_info, with names that are only excluded all that end in _info. Other
// matchers of it choose labels and are left out here: more is kept.
func (a *analysis) info(n *parser.Call, d demand) {
	a.visit(n.Args[0], d.of(All))
	need := Need{Labels: All, Absent: d.absent}
	positive := false
	if len(n.Args) > 1 {
		if s, ok := n.Args[1].(*parser.VectorSelector); ok {
			for _, m := range s.LabelMatchers {
				if isName(m) {
					need.Matchers = append(need.Matchers, a.marks.matcher(m))
					positive = positive || m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp
				}
			}
		}
	}
	switch {
	case positive:
	case len(need.Matchers) > 0:
		need.Matchers = append(need.Matchers, labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+_info"))
	default:
		need.Matchers = append(need.Matchers, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "target_info"))
	}
	a.needs = append(a.needs, need)
}

func isName(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel }

// how a function treats its vector.
type how int

const (
	whole     how = iota // it may look at labels or at several series together
	perSeries            // each series alone, and its labels but the name stay
	perBucket            // and larger stays larger, so that buckets of a histogram stay one
)

// functions are those that treat each series alone. What is not listed needs all labels.
var functions = func() map[string]how {
	m := map[string]how{"rate": perBucket, "increase": perBucket, "irate": perBucket, "delta": perBucket}
	for _, name := range []string{
		"abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "clamp", "clamp_max", "clamp_min", "cos", "cosh", "deg", "exp",
		"floor", "ln", "log10", "log2", "rad", "round", "sgn",
		"sin", "sinh", "sqrt", "tan", "tanh", "timestamp", "start_timestamp", "sort", "sort_desc",
		"day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year",
		"avg_over_time", "changes", "count_over_time", "deriv", "double_exponential_smoothing", "first_over_time", "idelta",
		"last_over_time", "mad_over_time", "max_over_time",
		"min_over_time", "predict_linear", "present_over_time", "quantile_over_time", "resets", "stddev_over_time", "stdvar_over_time",
		"sum_over_time",
		"ts_of_first_over_time", "ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time",
		"histogram_avg", "histogram_count", "histogram_stddev", "histogram_stdvar", "histogram_sum",
	} {
		m[name] = perSeries
	}
	return m
}()
