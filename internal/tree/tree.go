// Package tree looks at PromQL's expressions as those see them who judge, plan or describe a query.
package tree

import "github.com/prometheus/prometheus/promql/parser"

// Parser reads all syntax that a server may have switched on; one that has not says so itself.
var Parser = parser.NewParser(parser.Options{
	EnableExperimentalFunctions:  true,
	ExperimentalDurationExpr:     true,
	EnableExtendedRangeSelectors: true,
	EnableBinopFillModifiers:     true,
})

// LeafLabel is the label of the matcher by which a selector of Spillway's own stands for what
// shards have answered. No caller may write it.
const LeafLabel = "__spillway_leaf__"

// Bare is an expression without what stands around it and changes nothing: parentheses, and the
// engine's note that it is the same at all steps.
func Bare(e parser.Expr) parser.Expr {
	for {
		switch n := e.(type) {
		case *parser.ParenExpr:
			e = n.Expr
		case *parser.StepInvariantExpr:
			e = n.Expr
		default:
			return e
		}
	}
}

// Selector is the selector that absent() takes its labels from where e is its argument, or nil.
func Selector(e parser.Expr) *parser.VectorSelector {
	switch n := Bare(e).(type) {
	case *parser.VectorSelector:
		return n
	case *parser.MatrixSelector:
		vs, _ := n.VectorSelector.(*parser.VectorSelector)
		return vs
	}
	return nil
}

// Aggregates tells whether an expression has an aggregation.
func Aggregates(n parser.Node) bool {
	if _, ok := n.(*parser.AggregateExpr); ok {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if Aggregates(child) {
			return true
		}
	}
	return false
}

// Text is what a string argument says; other arguments say nothing.
func Text(e parser.Expr) string {
	if s, ok := Bare(e).(*parser.StringLiteral); ok {
		return s.Val
	}
	return ""
}
