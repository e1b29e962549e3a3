package evaluation

import (
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	// workBetweenLooks is how many samples may be worked on between two looks: some 50 to 800
	// microseconds, by the function.
	workBetweenLooks = 8 << 10
	// workOfCall is what a call costs beside its samples, and workOfHistogram what a native
	// histogram does, in samples.
	workOfCall, workOfHistogram = 32, 16
)

// seat stands behind the arguments of a call, where the slice has room and nobody else looks: the
// functions are given the arguments as they are in the tree, and nothing else that tells one
// evaluation from another.
type seat struct {
	parser.Expr
	turn *Turn
}

// Watch makes the functions of the expression look on behalf of the turn. No other evaluation may
// share the expression.
func (t *Turn) Watch(expr parser.Expr) {
	if t == nil {
		return
	}
	s := &seat{turn: t}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if c, ok := n.(*parser.Call); ok {
			args := make(parser.Expressions, len(c.Args)+1)
			copy(args, c.Args)
			args[len(c.Args)] = s
			c.Args = args[:len(c.Args)]
		}
		return nil
	})
}

// init wraps the functions before any engine of the process can be at work: the engine reads the
// map without a lock.
func init() {
	for name, call := range promql.FunctionCalls {
		if call != nil { // label_replace, label_join and info are part of the engine
			promql.FunctionCalls[name] = watched(call)
		}
	}
}

func watched(call promql.FunctionCall) promql.FunctionCall {
	return func(vectors []promql.Vector, matrix promql.Matrix, args parser.Expressions, enh *promql.EvalNodeHelper) (promql.Vector,
		annotations.Annotations,
	) {
		if n := len(args); n < cap(args) {
			if s, ok := args[: n+1 : n+1][n].(*seat); ok {
				s.turn.call(vectors, matrix)
			}
		}
		return call(vectors, matrix, args, enh)
	}
}

// call counts one call. It panics with the error that ends the evaluation, which is how functions
// of the engine fail.
func (t *Turn) call(vectors []promql.Vector, matrix promql.Matrix) {
	work := workOfCall
	for i := range matrix {
		work += len(matrix[i].Floats) + workOfHistogram*len(matrix[i].Histograms)
	}
	for i := range vectors {
		work += len(vectors[i])
	}
	if err := t.Work(work); err != nil {
		panic(err)
	}
}
