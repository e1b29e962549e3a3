package cost

import (
	"math"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// Values gives how many values a label has at most, if that is known.
type Values func(label string) (int64, bool)

// Sent is how many series so many shards send at most for an expression that they evaluate as far
// as they can: each side of a join by itself, of an aggregation its groups, counted once for all
// shards, and of what is chosen each shard's own. What an aggregation of aggregations, or of a
// join, comes to is worked out of what was sent.
func Sent(expr parser.Expr, shards int64, series Series, values Values) int64 {
	return int64(min(sent{shards, series, values}.of(expr), maxHeld))
}

type sent struct {
	shards int64
	series Series
	values Values
}

func (s sent) of(node parser.Node) float64 {
	switch n := node.(type) {
	case *parser.VectorSelector:
		many, _ := s.series(n)
		return float64(min(max(many, 0), maxSeries))
	case *parser.AggregateExpr:
		return s.aggregate(n)
	case *parser.Call:
		switch n.Func.Name {
		case "vector", "time", "pi":
			return 1
		case "absent", "absent_over_time", "scalar":
			return max(1, s.inner(n.Args[0]))
		case "info": // the other one selects labels
			return s.of(n.Args[0])
		}
	}
	many := float64(0)
	for child := range parser.ChildrenIter(node) {
		many += s.of(child)
	}
	return many
}

// inner is what is sent of an expression of which shards cannot evaluate what is made; 0 where they
// can.
func (s sent) inner(e parser.Expr) float64 {
	if tree.Aggregates(e) || joins(e) {
		return s.of(e)
	}
	return 0
}

// joins tells whether an expression has two sides with series.
func joins(n parser.Node) bool {
	if b, ok := n.(*parser.BinaryExpr); ok && b.LHS.Type() == parser.ValueTypeVector && b.RHS.Type() == parser.ValueTypeVector {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if joins(child) {
			return true
		}
	}
	return false
}

// aggregate is the groups of an aggregation, and how many are chosen of each.
func (s sent) aggregate(n *parser.AggregateExpr) float64 {
	in, groups := s.of(n.Expr), float64(1)
	if n.Without {
		groups = in
	}
	for _, name := range n.Grouping {
		if n.Without {
			break
		}
		many, ok := s.values(name)
		if !ok {
			groups = in
			break
		}
		groups *= float64(max(many, 1))
	}
	switch n.Op {
	case parser.SUM, parser.MIN, parser.MAX, parser.COUNT, parser.AVG, parser.GROUP:
	case parser.TOPK, parser.BOTTOMK:
		k, ok := tree.Bare(n.Param).(*parser.NumberLiteral)
		if !ok || math.IsNaN(k.Val) {
			return in
		}
		groups *= max(k.Val, 0) * float64(max(s.shards, 1))
	default: // which need all
		return in
	}
	return max(min(in, groups), s.inner(n.Expr))
}
