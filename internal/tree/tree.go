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

// Text is what a string argument says; other arguments say nothing.
func Text(e parser.Expr) string {
	if s, ok := Bare(e).(*parser.StringLiteral); ok {
		return s.Val
	}
	return ""
}
