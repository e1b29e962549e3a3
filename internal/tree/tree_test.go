package tree

import (
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestBare: what is inside all parentheses and notes, in any order, is the very node; what is
// inside of anything else is not looked for.
func TestBare(t *testing.T) {
	in := &parser.NumberLiteral{Val: 1}
	for i, e := range []parser.Expr{
		in,
		&parser.ParenExpr{Expr: in},
		&parser.StepInvariantExpr{Expr: in},
		&parser.ParenExpr{Expr: &parser.StepInvariantExpr{Expr: &parser.ParenExpr{Expr: &parser.ParenExpr{Expr: in}}}},
	} {
		if got := Bare(e); got != parser.Expr(in) {
			t.Errorf("%d: %v", i, got)
		}
	}
	signed := &parser.UnaryExpr{Op: parser.SUB, Expr: &parser.ParenExpr{Expr: in}}
	if got := Bare(&parser.ParenExpr{Expr: signed}); got != parser.Expr(signed) {
		t.Errorf("a sign is gone: %v", got)
	}
	if Bare(nil) != nil {
		t.Error("of nothing there is something")
	}
}
