package plan

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
)

// What may run on each of several shards is a small grammar: an expression of which every result
// comes from series of one shard, so that the shards' answers side by side are the answer. It is
// judged here on Prometheus' own syntax tree, with nothing known of the data. Everything that is
// not in the grammar is evaluated in the proxy.

// byItself are the functions whose every result comes from one series of their vector argument. Not
// among them: absent and absent_over_time (each shard without the series would say 1), scalar (it
// counts series), the sorts (order is global), vector and those without arguments (they would come
// once from each shard), info (it reads series that its argument does not show), and the histogram
// functions, which gather the buckets of classic histograms.
var byItself = func() map[string]bool {
	out := map[string]bool{}
	for _, name := range strings.Fields(`
		abs acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max clamp_min cos cosh count_over_time days_in_month day_of_month
		day_of_week day_of_year deg delta deriv double_exponential_smoothing exp first_over_time floor histogram_avg histogram_count histogram_stddev
		histogram_stdvar histogram_sum hour idelta increase irate last_over_time ln log10 log2 mad_over_time max_over_time min_over_time minute month
		predict_linear present_over_time quantile_over_time rad rate resets round sgn sin sinh sqrt start_timestamp stddev_over_time stdvar_over_time
		sum_over_time tan tanh timestamp ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time year`) {
		out[name] = true
	}
	return out
}()

// byBuckets are the functions that gather the buckets of one classic histogram: series that differ
// in le alone.
var byBuckets = map[string]bool{"histogram_quantile": true, "histogram_fraction": true, "histogram_quantiles": true}

// locality says whether an expression may run on each shard by itself, and what is known of its
// results then.
type locality struct {
	// why it may not; empty where it may.
	why string
	// distinct: series of different shards cannot become equal, whatever the data. Where they
	// could, the reference fails with a duplicate label set.
	distinct bool
	// keyed: the labels that tell shards apart are on the results as they are on the stored series.
	keyed bool
	// full: no result lacks one of them, so that results which are keyed stay distinct whatever
	// else they lose.
	full bool
	// filled are selectors of which one must not hold series without those labels, or two shards'
	// results could match each other.
	filled []guard
}

// no is what is not local. Most of what is pushed was found not to be local first, so the reason is
// put together from texts that are there.
func no(why string) locality { return locality{why: why} }

// constant tells whether an expression reads no series.
func constant(n parser.Node) bool {
	switch n := n.(type) {
	case *parser.VectorSelector:
		return false
	case *parser.Call:
		if n.Func.Name == "info" {
			return false
		}
	}
	for child := range parser.ChildrenIter(n) {
		if !constant(child) {
			return false
		}
	}
	return true
}

// nodes remembers what is asked about each node for each of those around it. nil remembers nothing.
type nodes struct {
	constants map[parser.Node]bool
	types     map[parser.Node]parser.ValueType
	named     map[parser.Node]bool // of one query units is always the same
}

func newNodes() *nodes {
	return &nodes{constants: map[parser.Node]bool{}, types: map[parser.Node]parser.ValueType{}, named: map[parser.Node]bool{}}
}

// constant is constant(n).
func (m *nodes) constant(n parser.Node) bool {
	if m == nil {
		return constant(n)
	}
	known, ok := m.constants[n]
	if ok {
		return known
	}
	known = true
	switch n := n.(type) {
	case *parser.VectorSelector:
		known = false
	case *parser.Call:
		known = n.Func.Name != "info"
	}
	for child := range parser.ChildrenIter(n) {
		if !known {
			break
		}
		known = m.constant(child)
	}
	m.constants[n] = known
	return known
}

// typeOf is e.Type().
func (m *nodes) typeOf(e parser.Expr) parser.ValueType {
	b, ok := tree.Bare(e).(*parser.BinaryExpr)
	if m == nil || !ok {
		return e.Type()
	}
	t, ok := m.types[b]
	if !ok {
		if t = parser.ValueTypeVector; m.typeOf(b.LHS) == parser.ValueTypeScalar && m.typeOf(b.RHS) == parser.ValueTypeScalar {
			t = parser.ValueTypeScalar
		}
		m.types[b] = t
	}
	return t
}

// selectors calls f for each selector in an expression, in the order of the text but for the
// parameters of aggregates, which come last.
func selectors(n parser.Node, f func(*parser.VectorSelector)) {
	if vs, ok := n.(*parser.VectorSelector); ok {
		f(vs)
	}
	for child := range parser.ChildrenIter(n) {
		selectors(child, f)
	}
}

// oneName tells whether every selector names one metric, so that a function that drops names makes
// no two series equal. Where type and unit go with the name, they must be named too.
func (m *nodes) oneName(n parser.Node, units bool) bool {
	if m != nil {
		if known, ok := m.named[n]; ok {
			return known
		}
	}
	ok := true
	if vs, is := n.(*parser.VectorSelector); is {
		fixed := func(name string) bool {
			return slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
				return m.Name == name && m.Type == labels.MatchEqual && (m.Value != "" || name != model.MetricNameLabel)
			})
		}
		ok = fixed(model.MetricNameLabel) && (!units || fixed(model.MetricTypeLabel) && fixed(model.MetricUnitLabel))
	}
	for child := range parser.ChildrenIter(n) {
		ok = ok && m.oneName(child, units)
	}
	if m != nil {
		m.named[n] = ok
	}
	return ok
}

// local judges an expression for the shards that k speaks of.
func local(e parser.Expr, k key) locality {
	switch n := e.(type) {
	case *parser.VectorSelector:
		if k.several && takesAlerts(n.LabelMatchers) {
			return no("several shards may evaluate the same alert, and hold equal series of it")
		}
		return locality{distinct: true, keyed: true, full: k.known && !lacking(e, k)}
	case *parser.MatrixSelector:
		if l := local(n.VectorSelector, k); l.why != "" {
			return l
		}
		return locality{distinct: true, keyed: true, full: k.known && !lacking(e, k)}
	case *parser.ParenExpr:
		return local(n.Expr, k)
	case *parser.StepInvariantExpr:
		return local(n.Expr, k)
	case *parser.SubqueryExpr:
		return operand(n.Expr, k, "a subquery")
	case *parser.UnaryExpr:
		return unnamed(operand(n.Expr, k, "a sign"), n.Expr, k)
	case *parser.Call:
		return localCall(n, k)
	case *parser.AggregateExpr:
		return localAggregate(n, k)
	case *parser.BinaryExpr:
		return localBinary(n, k)
	}
	return no(parser.DocumentedType(e.Type()) + " is not in the grammar of what shards may run")
}

// alertNames are the series that a server writes of the alerts that it evaluates itself.
var alertNames = []string{"ALERTS", "ALERTS_FOR_STATE"}

// AlertSeries tells whether a server writes series of this name of the alerts that it evaluates.
// Those come from no target: where the shards of a group evaluate the same rules, such as a
// watchdog, each has the same series, which are one in a server that holds everything.
func AlertSeries(name string) bool { return slices.Contains(alertNames, name) }

// takesAlerts tells whether a selector that says something of the metric's name, or of the labels
// that only they have, takes such series.
func takesAlerts(ms []*labels.Matcher) bool {
	said := false
	for _, m := range ms {
		switch m.Name {
		case model.MetricNameLabel:
			if !slices.ContainsFunc(alertNames, m.Matches) {
				return false
			}
			// It names one, or takes no other name.
			names := m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp && slices.ContainsFunc(m.SetMatches(), AlertSeries)
			said = said || names || !m.Matches("up")
		case "alertname", "alertstate":
			said = said || !m.Matches("")
		}
	}
	return said
}

// operand judges an expression that what stands above it, of the name given, changes or chooses
// from. Series of two shards that become equal in it fail in the reference, and from above nobody
// can see whether they did; so they must not be able to.
func operand(e parser.Expr, k key, above string) locality {
	l := local(e, k)
	switch {
	case l.why != "" || l.distinct:
	case !k.known || !l.keyed:
		return no("series of two shards could become equal under " + above + ", which must fail")
	default:
		l.fill(e, k)
	}
	return l
}

// fill has it asked that no result of e, whose locality l is and which is keyed, lacks a label that
// tells shards apart.
func (l *locality) fill(e parser.Expr, k key) {
	if !l.full {
		l.filled = append(l.filled, guardOf(e, k)...)
	}
	l.distinct, l.full = true, true
}

// unnamed is l after the metric's name was dropped.
func unnamed(l locality, e parser.Expr, k key) locality {
	l.distinct = l.full || l.distinct && k.nodes.oneName(e, k.units)
	return l
}

func localCall(c *parser.Call, k key) locality {
	name := c.Func.Name
	var arg parser.Expr
	for i, a := range c.Args {
		switch {
		case k.nodes.constant(a):
		case arg != nil:
			return no(name + " takes several arguments that select series")
		default:
			arg = c.Args[i]
		}
	}
	if arg == nil {
		return no(name + " selects nothing and would come once from each shard")
	}
	if t := k.nodes.typeOf(arg); t != parser.ValueTypeVector && t != parser.ValueTypeMatrix {
		return no("an argument of " + name + " is a scalar that depends on series")
	}
	switch {
	case byItself[name]:
		return unnamed(operand(arg, k, name), arg, k)
	case name == "label_replace" || name == "label_join":
		return set(operand(arg, k, name), c.Args[1], k)
	case byBuckets[name]:
		l := local(arg, k)
		if l.why != "" {
			return l
		}
		if !k.known || !l.keyed || slices.Contains(k.names(), labels.BucketLabel) {
			return no(name + " joins buckets, which may lie on different shards")
		}
		l.fill(arg, k)
		if name == "histogram_quantiles" {
			return set(l, c.Args[1], k)
		}
		return l
	}
	return no(name + " looks at all series together")
}

// set is l after the label that the argument names was set, to what is not known.
func set(l locality, label parser.Expr, k key) locality {
	if s, ok := tree.Bare(label).(*parser.StringLiteral); !ok || slices.Contains(k.names(), s.Val) {
		l.keyed, l.full = false, false
	}
	l.distinct = l.full
	return l
}

func localAggregate(a *parser.AggregateExpr, k key) locality {
	if a.Param != nil && !k.nodes.constant(a.Param) {
		return no("the parameter of " + a.Op.String() + " selects series")
	}
	l := local(a.Expr, k)
	switch {
	case l.why != "":
		return l
	case !k.known:
		return no(a.Op.String() + " joins series of several shards")
	case !l.keyed || !k.kept(a.Grouping, !a.Without):
		return no(a.Op.String() + " does not keep the labels that tell the shards apart")
	}
	if a.Op == parser.COUNT_VALUES {
		if s, ok := tree.Bare(a.Param).(*parser.StringLiteral); !ok || slices.Contains(k.names(), s.Val) {
			return no("count_values sets a label that tells the shards apart")
		}
	}
	l.fill(a.Expr, k)
	return l
}

func localBinary(b *parser.BinaryExpr, k key) locality {
	switch lc, rc := k.nodes.constant(b.LHS), k.nodes.constant(b.RHS); {
	case rc && k.nodes.typeOf(b.RHS) == parser.ValueTypeScalar && k.nodes.typeOf(b.LHS) == parser.ValueTypeVector:
		return withScalar(b, b.LHS, k)
	case lc && k.nodes.typeOf(b.LHS) == parser.ValueTypeScalar && k.nodes.typeOf(b.RHS) == parser.ValueTypeVector:
		return withScalar(b, b.RHS, k)
	case lc || rc:
		return no("one side of " + b.Op.String() + " is a constant vector and would come once from each shard")
	case k.nodes.typeOf(b.LHS) != parser.ValueTypeVector || k.nodes.typeOf(b.RHS) != parser.ValueTypeVector:
		return no("one side of " + b.Op.String() + " is a scalar that depends on series")
	}
	l, r := operand(b.LHS, k, b.Op.String()), operand(b.RHS, k, b.Op.String())
	switch {
	case l.why != "":
		return l
	case r.why != "":
		return r
	case !k.known:
		return no("the two sides of " + b.Op.String() + " may lie on different shards")
	case b.VectorMatching == nil || b.VectorMatching.FillValues.LHS != nil || b.VectorMatching.FillValues.RHS != nil:
		return no("fill makes up a side of " + b.Op.String() + ", which each shard would do for itself")
	case !l.keyed || !r.keyed || !k.kept(b.VectorMatching.MatchingLabels, b.VectorMatching.On):
		return no(b.Op.String() + " does not match on the labels that tell the shards apart")
	}
	for _, name := range k.names() {
		if slices.Contains(b.VectorMatching.Include, name) {
			return no(b.Op.String() + " takes a label that tells the shards apart from its other side")
		}
	}
	out := locality{distinct: true, keyed: true, full: true, filled: append(l.filled, r.filled...)}
	switch b.Op {
	case parser.LAND, parser.LOR, parser.LUNLESS:
		// Series of two shards can match only where both lack a label that shards are told apart
		// by, so one side without such series is enough.
		switch left, right := guardOf(b.LHS, k), guardOf(b.RHS, k); {
		case l.full || r.full:
		case len(right) < len(left):
			out.filled = append(out.filled, right...)
			r.full = true
		default:
			out.filled = append(out.filled, left...)
			l.full = true
		}
		switch b.Op {
		case parser.LOR:
			out.full = l.full && r.full
		case parser.LUNLESS:
			out.full = l.full
		}
		return out
	}
	// Here the reference also fails where the side of which one series is taken has two that match
	// the same, whether or not the other side has one that matches. Without series of that side
	// that lack such a label, these two are on one shard, and no two shards' series match.
	one, side := r, b.RHS
	if b.VectorMatching.Card == parser.CardOneToMany {
		one, side = l, b.LHS
	}
	if !one.full {
		out.filled = append(out.filled, guardOf(side, k)...)
	}
	return out
}

// withScalar judges an operator between vector and a constant. A filter keeps the names.
func withScalar(b *parser.BinaryExpr, vector parser.Expr, k key) locality {
	l := operand(vector, k, b.Op.String())
	if l.why == "" && b.Op.IsComparisonOperator() && !b.ReturnBool {
		return l
	}
	return unnamed(l, vector, k)
}

// finish is how an aggregate over several shards is put together: by folding partial results, or by
// evaluating it once more over them.
type finish struct {
	fold  merge.FoldOp
	again bool // topk and bottomk: of each shard's k, the k
}

// pushable are the aggregates that are run on the shards and finished in the proxy.
var pushable = map[parser.ItemType]finish{
	parser.SUM:          {fold: merge.FoldSum},
	parser.COUNT:        {fold: merge.FoldCount},
	parser.MIN:          {fold: merge.FoldMin},
	parser.MAX:          {fold: merge.FoldMax},
	parser.GROUP:        {fold: merge.FoldGroup},
	parser.AVG:          {fold: merge.FoldAvg},
	parser.COUNT_VALUES: {fold: merge.FoldCount},
	parser.TOPK:         {again: true},
	parser.BOTTOMK:      {again: true},
}

// pushes judges an aggregate whose inside runs on each shard.
func pushes(a *parser.AggregateExpr, k key) (finish, locality) {
	f, ok := pushable[a.Op]
	if !ok {
		return f, no(a.Op.String() + " cannot be put together from the shards' own results")
	}
	switch p := tree.Bare(a.Param).(type) {
	case nil, *parser.NumberLiteral, *parser.StringLiteral:
	default:
		return f, no("the parameter of " + a.Op.String() + " is " + p.String() + ", not a literal")
	}
	l := local(a.Expr, k)
	if l.why == "" && !l.distinct {
		return f, no("series of two shards could become equal under " + a.Op.String() + ", which must fail")
	}
	return f, l
}
