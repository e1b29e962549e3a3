package tree

import "github.com/prometheus/prometheus/promql/parser"

// Countless is the number of steps of a subquery whose range or step is an expression: policy lets
// no more pass.
const Countless = 220_000

// Span is where a node is evaluated: at how many steps, and over how many milliseconds from the
// first to the last.
type Span struct{ Steps, Cover int64 }

// Over is the span of a query: so many steps, of so many milliseconds each.
func Over(steps, step int64) Span { return Span{max(steps, 1), max(steps-1, 0) * step} }

// Inside is where the inside of a subquery is evaluated that stands in s, and how many points each
// evaluation around it looks at. The interval, in milliseconds, is the step of one that has none.
func (s Span) Inside(n *parser.SubqueryExpr, interval int64) (in Span, each int64) {
	if n.RangeExpr != nil || n.StepExpr != nil {
		return Span{Countless, s.Cover}, Countless
	}
	step := n.Step.Milliseconds()
	if step <= 0 {
		step = max(interval, 1)
	}
	cover := s.Cover + n.Range.Milliseconds()
	return Span{cover/step + 1, cover}, n.Range.Milliseconds()/step + 1
}
