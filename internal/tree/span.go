package tree

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// Countless is the number of steps of a subquery whose range or step cannot be computed: policy
// lets no more pass.
const Countless = 220_000

// Span is where a node is evaluated: at how many steps, and over how many milliseconds from the
// first to the last.
type Span struct{ Steps, Cover int64 }

// Over is the span of a query: so many steps, of so many milliseconds each.
func Over(steps, step int64) Span { return Span{max(steps, 1), max(steps-1, 0) * step} }

// Times are what computed durations in an expression are computed of, in milliseconds: the step and
// the length of the query, and the step of a subquery that has none.
type Times struct{ Step, Width, Interval int64 }

// TimesOf are those of a query at so many steps, of so many milliseconds each.
func TimesOf(steps, step, interval int64) Times {
	return Times{step, Over(steps, step).Cover, interval}
}

// Inside is where the inside of a subquery is evaluated that stands in s, and how many points each
// evaluation around it looks at.
func (s Span) Inside(n *parser.SubqueryExpr, t Times) (in Span, each int64) {
	width, ok := t.Of(n.Range, n.RangeExpr)
	step, also := t.Of(n.Step, n.StepExpr)
	if !ok || !also {
		return Span{Countless, s.Cover}, Countless
	}
	if step <= 0 {
		step = max(t.Interval, 1)
	}
	cover := s.Cover + width
	return Span{cover/step + 1, cover}, width/step + 1
}

// Of is a duration in milliseconds: the literal, or the value of the expression, which may be nil.
// It is false where that is none that Prometheus takes.
func (t Times) Of(literal time.Duration, expr *parser.DurationExpr) (int64, bool) {
	if expr == nil {
		return literal.Milliseconds(), true
	}
	v := Seconds(expr, float64(t.Step)/1000, float64(t.Width)/1000)
	if !(v > 0 && v < math.MaxInt64/1e9) { // NaN neither
		return 0, false
	}
	return int64(v * 1000), true
}

// Seconds computes a duration expression, as Prometheus' engine does before it evaluates a query,
// of the query's step and length in seconds. NaN stands for every error.
func Seconds(e parser.Expr, step, width float64) float64 {
	switch n := e.(type) {
	case *parser.NumberLiteral:
		return n.Val
	case *parser.DurationExpr:
		var a, b float64
		if n.LHS != nil {
			a = Seconds(n.LHS, step, width)
		}
		if n.RHS != nil {
			b = Seconds(n.RHS, step, width)
		}
		switch n.Op {
		case parser.STEP:
			return step
		case parser.RANGE:
			return width
		case parser.MIN_OF:
			return math.Min(a, b)
		case parser.MAX_OF:
			return math.Max(a, b)
		case parser.ADD:
			return a + b
		case parser.SUB:
			return a - b
		case parser.MUL:
			return a * b
		case parser.DIV:
			return a / b // by zero: infinite or NaN, which is no duration
		case parser.MOD:
			return math.Mod(a, b)
		case parser.POW:
			return math.Pow(a, b)
		}
	}
	return math.NaN()
}
