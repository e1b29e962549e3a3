package plan

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// leaf makes a leaf of e, or says why it cannot be one.
func (p *planner) leaf(e parser.Expr, f frame, root bool) (*Leaf, string) {
	leaf, why := p.asked(e, f, root)
	if leaf == nil {
		leaf = p.parcelled(e, f, why)
	}
	return leaf, why
}

// asked makes a leaf of e that shards answer, or says why it cannot be one.
func (p *planner) asked(e parser.Expr, f frame, root bool) (*Leaf, string) {
	if t := p.nodes.typeOf(e); t != parser.ValueTypeVector && !root {
		return nil, ""
	}
	legs, window, info := p.reach(e)
	if info && p.shards > 1 {
		return nil, "info() reads series that the text does not show"
	}
	if len(legs) == 0 {
		return nil, "no shard can hold its series"
	}
	if root && p.q.Ordered && len(legs) == 1 && reorders(e, legs[0].Shard) {
		return nil, "the labels of group " + legs[0].Shard.Group.Name + " have part in the order of its series"
	}
	leaf := &Leaf{Grid: f.grid, Range: f.rng, Strict: f.strict, Near: f.near, Loose: f.loose}
	switch {
	case len(legs) == 1 && !p.q.NoPass && (root || p.q.Raw == ""):
		leaf.Mode = ModePass
	case p.q.Raw != "":
		return nil, p.q.Raw
	case e.Type() != parser.ValueTypeVector:
		return nil, "its series may be on several shards"
	}
	// of which answers alone can be had
	finished := p.q.Heavy != nil && !slices.ContainsFunc(legs, func(l Leg) bool { return !l.Shard.Thanos() })
	if _, bare := tree.Bare(e).(*parser.VectorSelector); bare && !root && f.grid.Len() > 1 && !finished {
		return nil, "its series are fetched, which is cheaper than their values at each step"
	}
	if !f.top && usesFrame(e) {
		return nil, "start(), end(), step() and range() mean the whole query's"
	}
	end := root || leaf.Mode == ModePush
	if leaf.Mode == "" {
		k := p.key(legs)
		l := local(e, k)
		leaf.Mode = ModeSplice
		if agg, ok := tree.Bare(e).(*parser.AggregateExpr); ok && l.why != "" {
			var f finish
			if f, l = pushes(agg, k); l.why == "" && f.again {
				return nil, "the shards' own " + agg.Op.String() + " are joined here"
			}
			leaf.Mode, leaf.Fold, leaf.Folds = ModePush, f.fold, true
			if p.outlivesNames(agg) {
				return nil, "the shards drop metric names only at the end of a query, and what is grouped by them is put together before"
			}
			end = root || !keepsName(agg)
			e = agg
			leaf.Near = besideZero(leaf.Near, agg)
		}
		if l.why != "" {
			return nil, l.why
		}
		leaf.Distinct = l.distinct
		p.guard(leaf, l.filled, legs)
	}
	if p.delayed && !end {
		return nil, "the shards drop metric names only at the end of a query, and this is not the end"
	}
	return p.complete(leaf, e, legs, window)
}

// reorders tells whether labels that the shard does not store would be set on its answer.
func reorders(e parser.Expr, s *shard.Shard) bool {
	if s.Thanos() || s.Group.Labels.IsEmpty() {
		return false
	}
	set, _ := carried(e, s.Group)
	return len(set) > 0
}

// again makes a leaf of what the shards themselves choose by topk or bottomk, of which the same is
// chosen once more here.
func (p *planner) again(agg *parser.AggregateExpr, f frame) *Leaf {
	legs, window, _ := p.reach(agg)
	if len(legs) < 2 || p.delayed || !f.top && usesFrame(agg) {
		return nil
	}
	fin, l := pushes(agg, p.key(legs))
	if l.why != "" || !fin.again {
		return nil
	}
	leaf := &Leaf{Mode: ModePush, Grid: f.grid, Range: f.rng}
	p.guard(leaf, l.filled, legs)
	if leaf, _ = p.complete(leaf, agg, legs, window); leaf != nil {
		own := *agg // whose argument is changed
		leaf.Expr = &own
	}
	return leaf
}

// key is what tells the shards of the legs apart.
func (p *planner) key(legs []Leg) key {
	k := keyOf(legs)
	k.units, k.nodes = p.v.top.TypeAndUnitLabels(), p.nodes
	return k
}

// guard adds the questions of which the leaf depends, each once.
func (p *planner) guard(leaf *Leaf, guards []guard, legs []Leg) {
	for _, g := range guards {
		w := p.read(g.selector).window
		for _, leg := range legs {
			if sent, ok := Strip(leg.Shard.Group, g.matchers); ok {
				if g := (Guard{leg.Shard, Selector(Filled(sent)), w.From, w.Until}); !slices.Contains(leaf.Guards, g) {
					leaf.Guards = append(leaf.Guards, g)
				}
			}
		}
	}
}

// keepsName tells whether an aggregate's results may have a metric name.
func keepsName(a *parser.AggregateExpr) bool {
	switch a.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		return true
	}
	return !a.Without && slices.Contains(a.Grouping, model.MetricNameLabel)
}

// outlivesNames tells whether an aggregate groups by parts of a metric's name that what it is made
// of has dropped, so that each of its groups would lose them at the end of a shard's own query:
// groups of several shards look the same then. There is a selector alone that has dropped none.
func (p *planner) outlivesNames(a *parser.AggregateExpr) bool {
	if _, bare := tree.Bare(a.Expr).(*parser.VectorSelector); bare || !p.delayed {
		return false
	}
	units := p.v.top.TypeAndUnitLabels()
	if a.Without {
		return units && !(slices.Contains(a.Grouping, model.MetricTypeLabel) && slices.Contains(a.Grouping, model.MetricUnitLabel))
	}
	return slices.ContainsFunc(a.Grouping, func(name string) bool {
		return name == model.MetricNameLabel || units && (name == model.MetricTypeLabel || name == model.MetricUnitLabel)
	})
}

// usesFrame tells whether an expression means something else when it is sent as a query of its own
// over other times.
func usesFrame(n parser.Node) bool {
	uses := false
	switch n := n.(type) {
	case *parser.VectorSelector:
		uses = n.StartOrEnd != 0 || n.OriginalOffsetExpr != nil
	case *parser.MatrixSelector:
		uses = n.RangeExpr != nil
	case *parser.SubqueryExpr:
		uses = n.StartOrEnd != 0 || n.RangeExpr != nil || n.StepExpr != nil || n.OriginalOffsetExpr != nil
	case *parser.Call:
		switch n.Func.Name {
		case "start", "end", "step", "range":
			uses = true
		}
	}
	for child := range parser.ChildrenIter(n) {
		uses = uses || usesFrame(child)
	}
	return uses
}

// reason says why a leaf runs where it does.
func reason(l *Leaf) string {
	switch {
	case l.Mode == ModePass:
		return "one shard holds all its series"
	case l.Mode == ModeSplice:
		return "each result comes from series of one shard, so the shards' answers side by side are the answer"
	case l.Folds:
		return "each shard aggregates what it holds; the partial results are put together here"
	}
	return "each shard chooses among what it holds; of these it is chosen once more here"
}
