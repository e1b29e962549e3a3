package server

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
)

// pushable tells, by looks alone, whether a query has a part that the shards could aggregate: one of the distributive aggregations over a per-series
// expression that several shards hold, all of them with one replica or with such as agree all the time, and that no boundary in time crosses. It is careful: what it
// leaves out may be pushed too.
func (w *exactWorld) pushable(q exactQuestion) bool {
	if w.strange || w.kind == exactMoving {
		return false
	}
	e, err := exactParser.ParseExpr(q.query)
	if err != nil {
		return false
	}
	found := false
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		a, ok := n.(*parser.AggregateExpr)
		if !ok || !slices.Contains([]parser.ItemType{parser.SUM, parser.COUNT, parser.MIN, parser.MAX, parser.GROUP, parser.AVG}, a.Op) {
			return nil
		}
		for _, above := range path {
			if _, ok := above.(*parser.SubqueryExpr); ok {
				return nil
			}
		}
		if s := exactPerSeries(a.Expr); s != nil && w.spread(s) {
			found = true
		}
		return nil
	})
	return found
}

// exactPerSeries is the selector of an expression each series of which follows from one stored series; nil where it is none.
func exactPerSeries(e parser.Expr) *parser.VectorSelector {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return exactPerSeries(e.Expr)
	case *parser.VectorSelector:
		if e.Timestamp != nil || e.StartOrEnd != 0 || e.OriginalOffset != 0 || e.OriginalOffsetExpr != nil {
			return nil
		}
		return e
	case *parser.Call:
		if len(e.Args) != 1 || e.Func.Name == "absent_over_time" {
			return nil
		}
		if m, ok := e.Args[0].(*parser.MatrixSelector); ok && m.RangeExpr == nil {
			return exactPerSeries(m.VectorSelector)
		}
	}
	return nil
}

// spread tells whether several shards can hold series of the selector, every one of them whole.
func (w *exactWorld) spread(vs *parser.VectorSelector) bool {
	legs := 0
	for _, g := range w.groups {
		can := true
		for _, m := range vs.LabelMatchers {
			if g.labels.Has(m.Name) || slices.Contains(g.replicaLabels, m.Name) {
				can = can && m.Matches(g.labels.Get(m.Name))
			}
		}
		if !can {
			continue
		}
		for _, s := range g.shards {
			if len(s.replicas) > 1 && (w.kind != exactAgreeing || s.unproven(s.replicas[0], w.start.UnixMilli(), w.start.Add(w.length).UnixMilli()) != "") {
				return false
			}
			legs++
		}
	}
	return legs > 1
}
