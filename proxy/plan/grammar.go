package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/merge"
)

// What may run on each of several shards is a small grammar: an expression of which every result comes from series of one shard, so that the shards'
// answers side by side are the answer. It is judged here on Prometheus' own syntax tree, with nothing known of the data. Everything that is not in the
// grammar is evaluated in the proxy.

// byItself are the functions whose every result comes from one series of their vector argument. Not among them: absent and absent_over_time (each shard
// without the series would say 1), scalar (it counts series), the sorts (order is global), vector and those without arguments (they would come once from
// each shard), info (it reads series that its argument does not show), and the histogram functions, which gather the buckets of classic histograms.
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

// byBuckets are the functions that gather the buckets of one classic histogram: series that differ in le alone.
var byBuckets = map[string]bool{"histogram_quantile": true, "histogram_fraction": true, "histogram_quantiles": true}

// locality says whether an expression may run on each shard by itself, and what is known of its results then.
type locality struct {
	// why it may not; empty where it may.
	why string
	// distinct: series of different shards cannot become equal, whatever the data. Where they could, the reference fails with a duplicate label set.
	distinct bool
	// keyed: the labels that tell shards apart are on the results as they are on the stored series.
	keyed bool
	// filled are selectors of which one must not hold series without those labels, or two shards' results could match each other.
	filled []guard
}

func no(format string, args ...any) locality { return locality{why: fmt.Sprintf(format, args...)} }

// constant tells whether an expression reads no series.
func constant(e parser.Node) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			found = true
		case *parser.Call:
			found = found || n.Func.Name == "info"
		}
		return nil
	})
	return !found
}

// oneName tells whether every selector names one metric, so that a function that drops names makes no two series equal.
func oneName(e parser.Node) bool {
	ok := true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, is := n.(*parser.VectorSelector); is {
			ok = ok && slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
				return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && m.Value != ""
			})
		}
		return nil
	})
	return ok
}

// local judges an expression for the shards that k speaks of.
func local(e parser.Expr, k key) locality {
	switch n := e.(type) {
	case *parser.VectorSelector, *parser.MatrixSelector:
		return locality{distinct: true, keyed: true}
	case *parser.ParenExpr:
		return local(n.Expr, k)
	case *parser.StepInvariantExpr:
		return local(n.Expr, k)
	case *parser.SubqueryExpr:
		return local(n.Expr, k)
	case *parser.UnaryExpr:
		return unnamed(local(n.Expr, k), n.Expr)
	case *parser.Call:
		return localCall(n, k)
	case *parser.AggregateExpr:
		return localAggregate(n, k)
	case *parser.BinaryExpr:
		return localBinary(n, k)
	}
	return no("%s is not in the grammar of what shards may run", parser.DocumentedType(e.Type()))
}

// unnamed is l after the metric's name was dropped.
func unnamed(l locality, e parser.Expr) locality {
	l.distinct = l.distinct && oneName(e)
	return l
}

func localCall(c *parser.Call, k key) locality {
	name := c.Func.Name
	var arg parser.Expr
	for i, a := range c.Args {
		switch {
		case constant(a):
		case arg != nil:
			return no("%s takes several arguments that select series", name)
		default:
			arg = c.Args[i]
		}
	}
	if arg == nil {
		return no("%s selects nothing and would come once from each shard", name)
	}
	if t := arg.Type(); t != parser.ValueTypeVector && t != parser.ValueTypeMatrix {
		return no("an argument of %s is a scalar that depends on series", name)
	}
	switch {
	case byItself[name]:
		return unnamed(local(arg, k), arg)
	case name == "label_replace" || name == "label_join":
		l := local(arg, k)
		l.distinct = false
		if s, ok := unwrap(c.Args[1]).(*parser.StringLiteral); !ok || slices.Contains(k.names(), s.Val) {
			l.keyed = false
		}
		return l
	case byBuckets[name]:
		l := local(arg, k)
		if l.why != "" {
			return l
		}
		if !k.known || !l.keyed {
			return no("%s joins buckets, which may lie on different shards", name)
		}
		l.filled = append(l.filled, guardOf(arg, k)...)
		l.distinct = l.distinct && oneName(arg)
		return l
	}
	return no("%s looks at all series together", name)
}

func localAggregate(a *parser.AggregateExpr, k key) locality {
	if a.Param != nil && !constant(a.Param) {
		return no("the parameter of %s selects series", a.Op)
	}
	l := local(a.Expr, k)
	switch {
	case l.why != "":
		return l
	case !k.known:
		return no("%s joins series of several shards", a.Op)
	case !l.keyed || !k.kept(a.Grouping, !a.Without):
		return no("%s does not keep the labels that tell the shards apart", a.Op)
	}
	if a.Op == parser.COUNT_VALUES {
		if s, ok := unwrap(a.Param).(*parser.StringLiteral); !ok || slices.Contains(k.names(), s.Val) {
			return no("count_values sets a label that tells the shards apart")
		}
	}
	l.filled = append(l.filled, guardOf(a.Expr, k)...)
	l.distinct = true
	return l
}

func localBinary(b *parser.BinaryExpr, k key) locality {
	switch lc, rc := constant(b.LHS), constant(b.RHS); {
	case rc && b.RHS.Type() == parser.ValueTypeScalar && b.LHS.Type() == parser.ValueTypeVector:
		return unnamed(local(b.LHS, k), b.LHS)
	case lc && b.LHS.Type() == parser.ValueTypeScalar && b.RHS.Type() == parser.ValueTypeVector:
		return unnamed(local(b.RHS, k), b.RHS)
	case lc || rc:
		return no("one side of %s is a constant vector and would come once from each shard", b.Op)
	case b.LHS.Type() != parser.ValueTypeVector || b.RHS.Type() != parser.ValueTypeVector:
		return no("one side of %s is a scalar that depends on series", b.Op)
	}
	l, r := local(b.LHS, k), local(b.RHS, k)
	switch {
	case l.why != "":
		return l
	case r.why != "":
		return r
	case !k.known:
		return no("the two sides of %s may lie on different shards", b.Op)
	case b.VectorMatching == nil || b.VectorMatching.FillValues.LHS != nil || b.VectorMatching.FillValues.RHS != nil:
		return no("fill makes up a side of %s, which each shard would do for itself", b.Op)
	case !l.keyed || !r.keyed || !k.kept(b.VectorMatching.MatchingLabels, b.VectorMatching.On):
		return no("%s does not match on the labels that tell the shards apart", b.Op)
	}
	for _, name := range k.names() {
		if slices.Contains(b.VectorMatching.Include, name) {
			return no("%s takes a label that tells the shards apart from its other side", b.Op)
		}
	}
	// Series of two shards can match only where both lack a label that shards are told apart by, so one side without such series is enough.
	out := locality{distinct: true, keyed: true, filled: append(l.filled, r.filled...)}
	left, right := guardOf(b.LHS, k), guardOf(b.RHS, k)
	if len(right) < len(left) {
		left = right
	}
	out.filled = append(out.filled, left...)
	return out
}

// finish is how an aggregate over several shards is put together: by folding partial results, or by evaluating it once more over them.
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
		return f, no("%s cannot be put together from the shards' own results", a.Op)
	}
	switch p := unwrap(a.Param).(type) {
	case nil, *parser.NumberLiteral, *parser.StringLiteral:
	default:
		return f, no("the parameter of %s is %s, not a literal", a.Op, p)
	}
	l := local(a.Expr, k)
	if l.why == "" && !l.distinct {
		return f, no("series of two shards could become equal under %s, which must fail", a.Op)
	}
	return f, l
}
