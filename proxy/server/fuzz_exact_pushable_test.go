package server

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// pushed counts the aggregations of a query that shards could run, and those that they did run.
// Could is by looks alone: one of the distributive aggregations over a per-series expression that
// several shards hold, all of them with one replica or with such as agree all the time, and that no
// boundary in time crosses. It is careful: what it leaves out may be pushed too. Did is by what the
// shards were sent: the aggregation itself, not what is below it, and nothing of it was read raw
// after all.
func (w *exactWorld) pushed(e parser.Expr, seen *exactSeen) (could, did int) {
	if w.strange || w.kind == exactMoving {
		return 0, 0
	}
	sent := map[string]bool{}
	for _, c := range seen.calls {
		if part, err := exactParser.ParseExpr(c.query); err == nil {
			parser.Inspect(part, func(n parser.Node, _ []parser.Node) error {
				if a, ok := n.(*parser.AggregateExpr); ok {
					sent[w.unowned(a)] = true
				}
				return nil
			})
		}
	}
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
		s := exactPerSeries(a.Expr)
		if s == nil || w.engine.units && a.Expr != parser.Expr(s) || !w.spread(s) {
			return nil
		}
		could++
		text := matchersText(s.LabelMatchers)
		if sent[w.unowned(a)] && !slices.ContainsFunc(seen.selected,
			func(r raw.Selected) bool { return matchersText(r.Matchers) == text }) {
			did++
		}
		return nil
	})
	return could, did
}

// unowned is an aggregation as text, as shards are sent it: without matchers on labels of groups
// and replicas. An average is sent as a sum and a count.
func (w *exactWorld) unowned(a *parser.AggregateExpr) string {
	e, err := exactParser.ParseExpr(a.String())
	if err != nil {
		return a.String()
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			n.LabelMatchers = slices.DeleteFunc(slices.Clone(n.LabelMatchers), func(m *labels.Matcher) bool {
				return slices.ContainsFunc(w.groups,
					func(g *exactGroup) bool { return g.labels.Has(m.Name) || slices.Contains(g.replicaLabels, m.Name) })
			})
		case *parser.AggregateExpr:
			if n.Op == parser.AVG {
				n.Op = parser.SUM
			}
		}
		return nil
	})
	return e.String()
}

// exactPerSeries is the selector of an expression each series of which follows from one stored
// series; nil where it is none.
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
			if len(s.replicas) > 1 && (w.kind != exactAgreeing ||
				s.unproven(s.replicas[0], w.start.UnixMilli(), w.start.Add(w.length).UnixMilli()) != "") {
				return false
			}
			legs++
		}
	}
	return legs > 1
}
