package cost

import (
	"math"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// Values gives how many values a label has at most, if that is known.
type Values func(label string) (int64, bool)

// Sent is how many series shards send at most for an expression that they evaluate as far as they
// can: each side of a join by itself, of an aggregation its groups. They are counted as those of
// all shards together.
func Sent(expr parser.Expr, series Series, values Values) int64 {
	return int64(min(sent{series, values}.of(expr), maxHeld))
}

type sent struct {
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
		case "absent", "absent_over_time", "scalar", "vector", "time", "pi":
			return 1
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
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK:
		k, ok := tree.Bare(n.Param).(*parser.NumberLiteral)
		if !ok || math.IsNaN(k.Val) {
			return in
		}
		groups *= max(k.Val, 0)
	case parser.LIMIT_RATIO, parser.COUNT_VALUES, parser.QUANTILE:
		if !sole(n.Op) {
			return in
		}
	}
	return min(in, groups)
}
