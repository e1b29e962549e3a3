package plan

import (
	"math"

	"github.com/prometheus/prometheus/promql/parser"
)

// Jump is a place of an expression whose value jumps where what it looks at passes some numbers:
// the last bit of a sum decides there.
type Jump struct {
	// Of is what it looks at.
	Of parser.Expr
	// Far is how far a value of that is from the next of those numbers.
	Far func(v float64) float64
}

// mostLost bounds how many digits % may take away: what is left of a large number is known as well
// as the number, and not as well as itself. Quotients that are changed by 2e-11 of themselves may
// lose three.
const mostLost = 1e-8

// toWhole is how far a number is from the next whole one.
func toWhole(v float64) float64 { return math.Abs(v - math.Round(v)) }

// jumps are the functions that jump at some numbers, and at no others. A date has its seconds cut
// off first, so that a whole number may be the last of a day as well as the first one. round has a
// unit (unitOf).
var jumps = map[string]func(v float64) float64{
	"ceil": toWhole, "floor": toWhole, "sgn": math.Abs,
	"day_of_month": toWhole, "day_of_week": toWhole, "day_of_year": toWhole, "days_in_month": toWhole, "hour": toWhole, "minute": toWhole,
	"month": toWhole, "year": toWhole,
	"round": func(v float64) float64 { return math.Abs(v - math.Floor(v) - 0.5) },
}

// jump is told to the frame of what a jump looks at: whoever evaluates the rest looks at it, too,
// at the steps of the query, but not at those of a subquery.
func (f *frame) jump() {
	f.loose, f.strict = true, f.strict || !f.top
}

// JumpsOf returns the places of an expression that jump; ok is false where one is not known to be
// looked at.
func JumpsOf(e parser.Expr) (out []Jump, ok bool) {
	ok = true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			far := jumps[n.Func.Name]
			switch {
			case far == nil || len(n.Args) == 0: // a date without an argument is that of the step
				return nil
			case len(n.Args) > 1:
				unit := literal(n.Args[1])
				if unit == nil || !(unit[0] > 0) {
					ok = false
					return nil
				}
				ones := far
				far = func(v float64) float64 { return ones(v/unit[0]) * unit[0] }
			}
			out = append(out, Jump{n.Args[0], far})
		case *parser.BinaryExpr:
			if n.Op == parser.MOD {
				ratio := *n
				ratio.Op = parser.DIV
				out = append(out, Jump{&ratio, func(v float64) float64 { return min(toWhole(v), mostLost*math.Abs(v-math.Trunc(v))) }})
			}
		}
		return nil
	})
	return out, ok
}
