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

// TestSpan: a subquery is evaluated over its own range before the first step, at its own step.
func TestSpan(t *testing.T) {
	for _, tc := range []struct {
		query       string
		steps, step int64
		in          Span
		each        int64
	}{
		{`max_over_time(x[1h:1m])`, 1, 0, Span{61, 3_600_000}, 61},
		{`max_over_time(x[1h:])`, 1, 0, Span{241, 3_600_000}, 241},
		{`max_over_time(x[1h:1m])`, 241, 15_000, Span{121, 7_200_000}, 61},
		{`max_over_time(x[1h:step()])`, 241, 15_000, Span{481, 7_200_000}, 241},
		{`max_over_time(x[(1m * 90):(10s + 5s)])`, 241, 15_000, Span{601, 9_000_000}, 361},
		{`max_over_time(x[(1h - 1m):(min_of(1m, step() * 3))])`, 241, 15_000, Span{159, 7_140_000}, 79},
		{`max_over_time(x[1h:(step() - 15s)])`, 241, 15_000, Span{Countless, 3_600_000}, Countless},
		{`max_over_time(x[(1h / (step() - 15s)):1m])`, 241, 15_000, Span{Countless, 3_600_000}, Countless},
		{`max_over_time(x[(range() + 0s):1m])`, 1, 0, Span{Countless, 0}, Countless},
	} {
		p := parser.NewParser(parser.Options{ExperimentalDurationExpr: true})
		e, err := p.ParseExpr(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		sub := e.(*parser.Call).Args[0].(*parser.SubqueryExpr)
		if in, each := Over(tc.steps, tc.step).Inside(sub, TimesOf(tc.steps, tc.step, 15_000)); in != tc.in || each != tc.each {
			t.Errorf("%s at %d steps: %v, %d each, want %v, %d", tc.query, tc.steps, in, each, tc.in, tc.each)
		}
	}
}
