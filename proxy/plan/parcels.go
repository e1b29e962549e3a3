package plan

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
)

// Where no replica of a shard is whole, or the servers are in another state in which nothing can be
// trusted to them, series are read and put together here, and an aggregate over more than
// max_series was refused. But the grammar of what shards may evaluate by themselves holds for any
// division of the series by a label: an aggregate whose inside is such is evaluated here over one
// parcel after another, each the series of some targets, and what the parcels give is folded as the
// answers of shards are. Series without the label are a parcel of their own, so nothing has to be
// asked about them.

// ParcelLabel is the label by whose values series are divided into parcels: all series of a target
// are in one parcel, and so is what its scrapes say of them.
const ParcelLabel = model.InstanceLabel

// Read is what one selector of a leaf reads: the shards that may hold its series, in a window of
// milliseconds, both ends inclusive.
type Read struct {
	Legs        []Leg
	From, Until int64
}

// parcelled makes a leaf of e that is evaluated here in parcels, since why keeps shards from it. It
// is nil where e is no aggregate that can be put together from them, or where something else than a
// state of the servers keeps it here.
func (p *planner) parcelled(e parser.Expr, f frame, why string) *Leaf {
	agg, ok := tree.Bare(e).(*parser.AggregateExpr)
	if !p.q.Parcels || p.q.Raw != "" || !p.cause.Parcels() {
		return nil
	}
	if ok && !says(tree.String(agg), agg) {
		return nil
	}
	if !ok || joins(agg) || !f.top && usesFrame(e) || p.delayed && (keepsName(agg) || p.outlivesNames(agg)) {
		return nil
	}
	fin, l := pushes(agg, key{
		known: true, stored: []string{ParcelLabel}, together: true, units: p.v.top.TypeAndUnitLabels(),
		nodes: p.nodes,
	})
	if l.why != "" || fin.again {
		return nil
	}
	leaf := &Leaf{
		Mode: ModeParcels, Grid: f.grid, Range: f.rng, Strict: f.strict, Near: besideZero(f.near, agg), Loose: f.loose,
		Fold: fin.fold, Folds: true, Expr: agg, At: agg.PositionRange(), Text: tree.String(agg), Why: why, Cause: p.cause,
	}
	var use []int
	impossible := false
	selectors(agg, func(vs *parser.VectorSelector) {
		r := p.read(vs)
		use = append(use, r.nth)
		leaf.Reads = append(leaf.Reads, Read{r.legs, r.window.From, r.window.Until})
		for _, l := range r.legs {
			impossible = impossible || l.Shard.Thanos() || slices.Contains(Owned(l.Shard.Group), ParcelLabel)
		}
	})
	if leaf.Uses = [][]int{use}; impossible {
		return nil
	}
	if leaf.Fold == merge.FoldAvg && p.delayed {
		return nil // what is averaged is evaluated by itself, and would lose its names too early
	}
	p.fetches = true
	if !p.q.NoExplain {
		why += "; series are read and evaluated here, those of some targets at a time"
		leaf.Node = &Node{Mode: ModeParcels, Expr: tree.String(agg), Why: why}
	}
	return leaf
}

// Divides tells whether the series of a target may be divided by another label too, those that lack
// it being together: the parts may then be evaluated apart as targets are. units is whether the
// shards take type and unit for parts of a metric's name.
func (l *Leaf) Divides(label string, units bool) bool {
	agg, ok := tree.Bare(l.Expr).(*parser.AggregateExpr)
	if !ok || label == ParcelLabel || label == model.MetricNameLabel || schema.IsMetadataLabel(label) {
		return false
	}
	for _, r := range l.Reads {
		for _, leg := range r.Legs {
			if slices.Contains(Owned(leg.Shard.Group), label) {
				return false
			}
		}
	}
	_, local := pushes(agg, key{known: true, stored: []string{ParcelLabel, label}, together: true, units: units})
	return local.why == ""
}

// joins tells whether an expression matches series with series but for sets of them. Such a join
// fails where one side has two that match the same; without any of the other side in its parcel it
// would not.
func joins(e parser.Node) bool {
	if b, ok := e.(*parser.BinaryExpr); ok && !b.Op.IsSetOperator() &&
		b.LHS.Type() == parser.ValueTypeVector && b.RHS.Type() == parser.ValueTypeVector {
		return true
	}
	for child := range parser.ChildrenIter(e) {
		if joins(child) {
			return true
		}
	}
	return false
}

// Parcel is what is evaluated for a parcel of the leaf: inner over its series, and outer over a
// table of what that gave, which stands for leaf 0 in it. Outer is nil where inner is all; of an
// average inner is what is averaged, so that it is evaluated once, and outer its sums and counts.
// Both are used up by an evaluation, which changes them. The positions in inner are those in Text.
func (l *Leaf) Parcel() (inner, outer parser.Expr, err error) {
	if inner, err = tree.Parser.ParseExpr(l.Text); err != nil || l.Fold != merge.FoldAvg {
		return inner, nil, err
	}
	agg, ok := tree.Bare(inner).(*parser.AggregateExpr)
	if !ok {
		return nil, nil, fmt.Errorf("no average: %s", l.Text)
	}
	inner, agg.Expr = agg.Expr, &parser.VectorSelector{LabelMatchers: []*labels.Matcher{leafMatcher(0)}}
	text, ok := sumAndCount(tree.String(agg))
	if !ok {
		return nil, nil, fmt.Errorf("no average: %s", agg)
	}
	outer, err = tree.Parser.ParseExpr(text)
	return inner, outer, err
}

// sumAndCount is an average as sums and counts, told apart by a label. It is one query for both, so
// that both are of the same samples.
func sumAndCount(text string) (string, bool) {
	both, err := tree.Parser.ParseExpr(text)
	if err != nil {
		return "", false
	}
	agg, ok := tree.Bare(both).(*parser.AggregateExpr)
	if !ok {
		return "", false
	}
	agg.Op = parser.SUM
	sum := tree.String(agg)
	if !says(sum, agg) {
		return "", false
	}
	agg.Op = parser.COUNT
	const parts = `label_replace(%s, %q, "sum", "", "") or label_replace(%s, %q, "count", "", "")`
	return fmt.Sprintf(parts, sum, merge.PartLabel, tree.String(agg), merge.PartLabel), true
}
