package evaluation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

var grammar = parser.NewParser(parser.Options{EnableExperimentalFunctions: true, ExperimentalDurationExpr: true})

// given is a parser that hands over a tree that is there.
type given struct {
	parser.Parser
	expr parser.Expr
}

func (g given) ParseExpr(string) (parser.Expr, error) { return g.expr, nil }

// evaluate runs an expression over steps of a second on behalf of a turn, nil for none.
func evaluate(t testing.TB, ctx context.Context, turn *Turn, text string, steps int, from storage.Queryable) error {
	t.Helper()
	expr, err := grammar.ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	turn.Watch(expr)
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50e6, Timeout: time.Hour, Parser: given{grammar, expr}, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60000 },
	})
	if from == nil {
		from = storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil })
	}
	start := time.Unix(1e9, 0)
	qry, err := engine.NewRangeQuery(ctx, from, nil, text, start, start.Add(time.Duration(steps-1)*time.Second), time.Second)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer qry.Close()
	return qry.Exec(ctx).Err
}

// counted replaces a function by one that counts its calls until the test ends.
func counted(t *testing.T, name string, each func(n int)) *int {
	before, n := promql.FunctionCalls[name], new(int)
	promql.FunctionCalls[name] = func(v []promql.Vector, m promql.Matrix, args parser.Expressions,
		enh *promql.EvalNodeHelper,
	) (promql.Vector, annotations.Annotations) {
		out, notes := before(v, m, args, enh) // what looks is in there
		*n++
		each(*n)
		return out, notes
	}
	t.Cleanup(func() { promql.FunctionCalls[name] = before })
	return n
}

// callOf writes a call of a function: over the range vector, or over what changes with each step.
func callOf(name string, fn *parser.Function, ranged string) string {
	args := make([]string, 0, len(fn.ArgTypes))
	for i, typ := range fn.ArgTypes {
		if fn.Variadic != 0 && i == len(fn.ArgTypes)-1 && i > 0 {
			break
		}
		switch typ {
		case parser.ValueTypeMatrix:
			args = append(args, ranged)
		case parser.ValueTypeVector:
			args = append(args, "vector(time())")
		case parser.ValueTypeScalar:
			args = append(args, map[bool]string{true: "time()", false: "0.5"}[len(fn.ArgTypes) == 1])
		case parser.ValueTypeString:
			args = append(args, `"x"`)
		}
	}
	return name + "(" + strings.Join(args, ", ") + ")"
}

// TestEvaluationsStop: one series, minutes of work without a look of the engine's own. Once its
// context has ended, each function is called a few times more.
func TestEvaluationsStop(t *testing.T) {
	const steps, points, before = 4000, 500, 100
	tried := 0
	for name, fn := range parser.Functions {
		if promql.FunctionCalls[name] == nil || len(fn.ArgTypes) == 0 && name != "time" {
			continue
		}
		text := callOf(name, fn, "vector(time())[500s:1s]")
		if strings.Contains(text, "timestamp(") { // it is asked for no series
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancelCause(t.Context())
			calls := counted(t, name, func(n int) {
				if n == before {
					leave(qerr.ErrClientLeft)
				}
			})
			turn, err := NewGate(2, nil).Begin(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			defer turn.End()
			err = evaluate(t, ctx, turn, text, steps, nil)
			if *calls < before {
				t.Skipf("%s is evaluated once for all steps", text)
			}
			var engines promql.ErrQueryCanceled // by its own look, once for each step of what has no range
			if most := before + workBetweenLooks/workOfCall + 1; *calls > most ||
				!errors.Is(err, qerr.ErrClientLeft) && !errors.As(err, &engines) {
				t.Errorf("%s: %d calls, at most %d are due; %v", text, *calls, most, err)
			}
			if strings.Contains(text, "[") {
				if most := before + workBetweenLooks/points + 2; *calls > most {
					t.Errorf("%s over %d points: %d calls, at most %d are due", text, points, *calls, most)
				}
			}
		})
	}
	if tried < 60 {
		t.Errorf("only %d functions were tried", tried)
	}
}

// TestOthersAreCalledStraightThrough: an evaluation without a turn is none of ours, and its tree is
// as it was.
func TestOthersAreCalledStraightThrough(t *testing.T) {
	n := counted(t, "rate", func(int) {})
	if err := evaluate(t, t.Context(), nil, "rate(vector(1)[5m:1s])", 50, nil); err != nil || *n != 50 {
		t.Errorf("%d calls, %v", *n, err)
	}
}

// TestTreesAreWatchedThroughAndThrough: calls in subqueries, in parentheses, behind @ and beside
// labels' functions, each evaluated to its end.
func TestTreesAreWatchedThroughAndThrough(t *testing.T) {
	for _, text := range []string{
		"max_over_time((sum(rate(vector(1)[5m:1s])))[10s:1s])",
		"label_replace(abs(max_over_time(vector(3)[10s:1s] @ 999999999)), \"a\", \"b\", \"\", \"\")",
		"(-(abs((vector(1)))) + on() group_left() sum(ceil(vector(2))))",
		"quantile_over_time(scalar(vector(0.5)), vector(time())[1m:1s])",
		"round(vector(1.5)) > bool time()",
	} {
		expr, err := grammar.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		printed := expr.String()
		turn, err := NewGate(2, nil).Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		turn.Watch(expr)
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if c, ok := n.(*parser.Call); ok {
				if s, ok := c.Args[:len(c.Args)+1][len(c.Args)].(*seat); !ok || s.turn != turn {
					t.Errorf("%s: %s is not watched", text, c)
				}
			}
			return nil
		})
		if expr.String() != printed {
			t.Errorf("%s became %s", printed, expr)
		}
		if err := evaluate(t, t.Context(), turn, text, 100, nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		turn.End()
	}
}
