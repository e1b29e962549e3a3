package soak

import (
	"github.com/prometheus/prometheus/promql/parser"
)

// spelt is an expression that knows its text: rules ask for it at every evaluation.
type spelt struct {
	parser.Expr
	text string
}

func (s spelt) String() string { return s.text }

// remembering parses each expression once: rules hand their text to the engine at every evaluation,
// and reading it takes longer than working it out. The engine leaves in a tree what it has found,
// which must be forgotten. Two sorts of trees it changes for good, and these are parsed each time:
// it wraps parts that are the same at every step, and puts its result in place of a subquery.
type remembering struct {
	parser.Parser
	trees map[string]*tree
}

// tree is an expression and its selectors.
type tree struct {
	expr      parser.Expr
	selectors []*parser.VectorSelector
	again     bool // it must be parsed again each time
}

func remember() *remembering {
	return &remembering{parser.NewParser(parser.Options{}), map[string]*tree{}}
}

// ParseExpr is the parser's, of which one tree is in use at a time.
func (r *remembering) ParseExpr(text string) (parser.Expr, error) {
	if t := r.trees[text]; t != nil && !t.spoilt() {
		for _, s := range t.selectors {
			s.Series, s.UnexpandedSeriesSet = nil, nil
		}
		return t.expr, nil
	}
	expr, err := r.Parser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	t := &tree{expr: expr}
	if old := r.trees[text]; old != nil {
		t.again = old.again
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			t.selectors = append(t.selectors, n)
		case *parser.SubqueryExpr:
			t.again = true
		}
		return nil
	})
	r.trees[text] = t
	return expr, nil
}

// spoilt says whether the engine has wrapped a part of the tree.
func (t *tree) spoilt() bool {
	if t.again {
		return true
	}
	parser.Inspect(t.expr, func(n parser.Node, _ []parser.Node) error {
		if _, ok := n.(*parser.StepInvariantExpr); ok {
			t.again = true
		}
		return nil
	})
	return t.again
}
