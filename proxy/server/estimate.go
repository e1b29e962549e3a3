package server

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// pointsPerSeries is how many points of one series the engine holds at most at a time: one for each
// step, and those of a subquery under it, whose steps cover its range before each of them, at the
// interval where they have no step. Subqueries of subqueries are what policy bounds; the deepest
// count decides here.
func pointsPerSeries(e parser.Expr, n int64, step, interval time.Duration) int64 {
	most := n
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		sub, ok := node.(*parser.SubqueryExpr)
		if !ok {
			return nil
		}
		inner := sub.Step
		if inner <= 0 {
			inner = interval
		}
		cover := (n-1)*step.Milliseconds() + sub.Range.Milliseconds() // a Duration overflows with 292 years
		for _, above := range path {
			if outer, ok := above.(*parser.SubqueryExpr); ok {
				cover += outer.Range.Milliseconds()
			}
		}
		most = max(most, cover/max(inner.Milliseconds(), 1)+1)
		return nil
	})
	return most
}

// workPerSeries is what the engine has to do with one series of what it reads, in samples: about
// one for each step of each operation. What works on labels is some hundred times dearer.
func workPerSeries(e parser.Expr, steps int64) int {
	operations, onLabels := 1, 0
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			operations++
			if n.Func.Name == "label_replace" || n.Func.Name == "label_join" || n.Func.Name == "info" {
				onLabels += workOnLabels
			}
		case *parser.AggregateExpr, *parser.BinaryExpr:
			operations++
		}
		return nil
	})
	return int(min(steps, math.MaxInt32))*min(operations, maxOperations) + onLabels
}

const (
	// workOnLabels is what label_replace does to one series, in samples.
	workOnLabels = 100
	// maxOperations is how many operations count: a long chain works on few series in most of its
	// parts.
	maxOperations = 8
)

// heldPerSeries is what the engine holds for each series that it reads, beside the series itself,
// in bytes: its points, once more where a further operation makes others of them, and what stands
// around both. An aggregation of all into one makes nothing for each.
func heldPerSeries(e parser.Expr, points int64) int64 {
	copies := int64(1)
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		if _, ok := n.(*parser.VectorSelector); !ok {
			return nil
		}
		operations := 0
		for i := len(path) - 1; i >= 0; i-- {
			switch above := path[i].(type) {
			case *parser.AggregateExpr:
				if len(above.Grouping) == 0 && !above.Without && above.Op != parser.TOPK && above.Op != parser.BOTTOMK &&
					above.Op != parser.LIMITK && above.Op != parser.LIMIT_RATIO {
					i = 0
					continue
				}
				operations++
			case *parser.Call, *parser.BinaryExpr:
				operations++
			case *parser.MatrixSelector:
				operations-- // its function reads what is stored, point by point
			}
		}
		if operations > 0 {
			copies = 2
		}
		return nil
	})
	return copies * (sampleBytes*points + engineSeriesBytes)
}

// heldByConstants is what the engine holds for what is made of no series: numbers, time and
// functions of them have a point for each step.
func heldByConstants(e parser.Expr, points int64) int64 {
	n := int64(0)
	parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
		switch node.(type) {
		case *parser.NumberLiteral, *parser.Call:
			n++
		}
		return nil
	})
	if held := n * points * sampleBytes; held >= smallConstants {
		return held
	}
	return 0
}

const (
	// sampleBytes is what the engine holds for one sample of a result, by its own accounting in
	// samples.
	sampleBytes = 16
	// engineSeriesBytes is what it holds for a series of a result beside its points: labels,
	// headers of slices, entries of maps.
	engineSeriesBytes = 384
	// smallConstants is what is not worth counting.
	smallConstants = 64 << 10
)
