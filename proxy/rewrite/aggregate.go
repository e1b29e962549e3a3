package rewrite

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// aggregations are fewer series: the ten largest, then all of them put together by fewer labels.
func (q *Question) aggregations(yield func(Candidate) bool) {
	if q.Expr == nil || q.Expr.Type() != parser.ValueTypeVector {
		return
	}
	if inner, ok := groupedOf(q.Expr); ok {
		q.fewer(inner, yield)
		return
	}
	e := unsorted(q.Expr)
	if single(e) {
		return
	}
	whole := tree.String(e)
	if !q.text(Aggregation, "topk(10, "+whole+")", yield) {
		return
	}
	op := putTogether(e)
	if op == "" {
		return
	}
	for _, by := range groupings(e) {
		text := op + "(" + whole + ")"
		if by != "" {
			text = op + " by (" + by + ") (" + whole + ")"
		}
		if !q.text(Aggregation, text, yield) {
			return
		}
	}
}

// single tells whether an expression has one series at most.
func single(e parser.Expr) bool {
	switch n := e.(type) {
	case *parser.AggregateExpr:
		choosesOrWrites := n.Op.IsAggregatorWithParam() && n.Op != parser.QUANTILE
		return !n.Without && len(n.Grouping) == 0 && !choosesOrWrites
	case *parser.Call:
		return slices.Contains([]string{"absent", "absent_over_time", "vector"}, n.Func.Name)
	}
	return false
}

// unsorted is an expression without what sets the order of its series: what is made of them has
// none, and an order needs all of them in one place.
func unsorted(e parser.Expr) parser.Expr {
	e = tree.Bare(e)
	if call, ok := e.(*parser.Call); ok && (call.Func.Name == "sort" || call.Func.Name == "sort_desc") && len(call.Args) == 1 {
		return unsorted(call.Args[0])
	}
	return e
}

// grouped are aggregations that stay what they are with fewer labels to group by.
var grouped = []parser.ItemType{parser.SUM, parser.AVG, parser.MIN, parser.MAX, parser.COUNT, parser.GROUP}

// groupedOf is the aggregation by labels that makes the answer's series, if one does: the
// expression itself, or that of a histogram's quantile.
func groupedOf(e parser.Expr) (*parser.AggregateExpr, bool) {
	switch n := tree.Bare(e).(type) {
	case *parser.AggregateExpr:
		return n, !n.Without && len(n.Grouping) > 0 && slices.Contains(grouped, n.Op)
	case *parser.Call:
		if n.Func.Name == "histogram_quantile" && len(n.Args) == 2 {
			return groupedOf(n.Args[1])
		}
	}
	return nil, false
}

// fewer are aggregations by fewer labels, the last ones left out first; the bounds of buckets and
// the names of metrics stay.
func (q *Question) fewer(agg *parser.AggregateExpr, yield func(Candidate) bool) {
	kept := slices.Clone(agg.Grouping)
	for range len(kept) {
		i := len(kept) - 1
		for i >= 0 && (kept[i] == labels.BucketLabel || kept[i] == model.MetricNameLabel) {
			i--
		}
		if i < 0 {
			return
		}
		kept = slices.Delete(kept, i, i+1)
		text := q.edited(func(e parser.Expr) (parser.Expr, bool) {
			own, ok := groupedOf(e)
			if ok {
				own.Grouping = slices.Clone(kept)
			}
			return e, ok
		})
		if !q.text(Aggregation, text, yield) {
			return
		}
	}
}

// usual are labels that most series of a cluster have, those that keep most apart first.
var usual = []string{"namespace", "job"}

// groupings are labels to put series together by: a bucket's bound alone where there are buckets,
// none where it is gone; else the usual ones, but for those that the query fixes, then none.
func groupings(e parser.Expr) (out []string) {
	buckets := false
	eachSelector(e, func(vs *parser.VectorSelector) {
		buckets = buckets || strings.HasSuffix(nameOf(vs.LabelMatchers), "_bucket")
	})
	if buckets && !keeps(e, labels.BucketLabel) {
		return nil
	}
	if buckets {
		return []string{labels.BucketLabel}
	}
	for _, name := range usual {
		fixed := false
		eachSelector(e, func(vs *parser.VectorSelector) {
			fixed = fixed || slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
				return m.Name == name && m.Type == labels.MatchEqual && m.Value != ""
			})
		})
		if !fixed && keeps(e, name) { // where it is fixed they all have the same
			out = append(out, name)
		}
	}
	return append(out, "")
}

// putTogether is what makes one series of several; empty where nothing is sure to mean anything.
func putTogether(e parser.Expr) string {
	if vs, ok := tree.Bare(e).(*parser.VectorSelector); ok && strings.HasSuffix(nameOf(vs.LabelMatchers), "_info") {
		return "count"
	}
	if additive(e) && !turned(e) {
		return "sum"
	}
	return ""
}
