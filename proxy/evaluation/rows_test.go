package evaluation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/proxy/policy"
)

// counting evaluates a text at steps of a second, told of what count_values makes, and returns the
// answer.
func counting(t *testing.T, text string, steps int, tell func(parser.Expr, policy.Row) error) *promql.Result {
	t.Helper()
	expr, err := grammar.ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if tell != nil {
		turn, err := NewGate(1, nil).Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer turn.End()
		turn.Watch(expr)
		turn.Rows(expr, Grid{Steps: int64(steps), Step: 1000, Interval: 60_000}, tell)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50e6, Timeout: time.Hour, Parser: given{grammar, expr}, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
	})
	from := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil })
	start := time.Unix(1e9, 0)
	qry, err := engine.NewRangeQuery(context.Background(), from, nil, text, start, start.Add(time.Duration(steps-1)*time.Second),
		time.Second)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	t.Cleanup(qry.Close)
	return qry.Exec(t.Context())
}

// TestRowsOfCountValues: as many series are told of as count_values makes, with room for as many
// points, and the answer stays the same.
func TestRowsOfCountValues(t *testing.T) {
	const two = `(label_replace(vector(time()), "a", "1", "", "") or label_replace(vector(time() % 10), "a", "2", "", ""))`
	for _, tc := range []struct {
		text   string
		rows   int
		points int64
		held   int64
		visits int64
	}{
		{`count_values("v", vector(time()))`, 300, 300, 1, 0},
		{`count_values("v", vector(1))`, 1, 300, 1, 0},
		{`count_values("v", vector(NaN))`, 1, 300, 1, 0},
		{`count_values("v", vector(time() % 7))`, 7, 300, 1, 0},
		{`count_values("v", ` + two + `)`, 310, 300, 1, 0},
		{`count_values by (a) ("v", ` + two + `)`, 310, 300, 1, 0},
		{`count_values without (b) ("v", ` + two + ` * 0)`, 2, 300, 1, 0},
		{`count_values without (a) ("v", ` + two + ` * 0)`, 1, 300, 1, 0},
		{`count_values by (a) ("a", ` + two + `)`, 310, 300, 1, 0},
		{`count_values("v", vector(time() % 7)) + 0 + 0`, 7, 300, 2, 600},
		{`sum by (v) (count_values("v", vector(time() % 7)))`, 7, 300, 2, 300},
	} {
		plain := counting(t, tc.text, 300, nil)
		rows := 0
		told := counting(t, tc.text, 300, func(_ parser.Expr, r policy.Row) error {
			if rows++; r.Points != tc.points || r.Held != tc.held || r.Visits != tc.visits || r.Labels < numberBytes {
				t.Errorf("%s: %+v", tc.text, r)
			}
			return nil
		})
		if plain.Err != nil || told.Err != nil || plain.String() != told.String() {
			t.Errorf("%s: without and with being told\n%.300s\n%.300s", tc.text, plain, told)
		}
		if m, err := told.Matrix(); err != nil || rows != tc.rows || len(m) > rows {
			t.Errorf("%s: told of %d series, want %d; the answer has %d", tc.text, rows, tc.rows, len(m))
		}
	}
}

// TestRowsInSubqueries: the steps are those of the subquery, and a refusal ends the evaluation
// before count_values is evaluated.
func TestRowsInSubqueries(t *testing.T) {
	no := errors.New("too many")
	for text, points := range map[string]int64{
		`count_over_time(count_values("v", vector(time()))[20000s:1s])`:                      20_010,
		`max_over_time(sum(count_over_time(count_values("v", vector(time()))[1h:1s]))[1h:])`: 7210,
		`count_over_time(count_values("v", vector(time()))[1h:step()])`:                      3610,
	} {
		rows := 0
		res := counting(t, text, 10, func(_ parser.Expr, r policy.Row) error {
			if rows++; r.Points != points || r.Visits == 0 {
				t.Errorf("%s: %+v, want %d points", text, r, points)
			}
			if rows == 100 {
				return no
			}
			return nil
		})
		if !errors.Is(res.Err, no) || rows != 100 {
			t.Errorf("%s: %v after %d", text, res.Err, rows)
		}
	}
}

// TestRowsOfJoins: a join makes one series of each of its own and each set of labels that it
// copies; the first of each is what any operator makes.
func TestRowsOfJoins(t *testing.T) {
	series := func(label string, n int, when string) string {
		var all []string
		for i := range n {
			one := fmt.Sprintf(`label_replace(vector(1), %q, "%d", "", "")`, label, i)
			if when != "" {
				one = fmt.Sprintf("(%s and on () (vector(time() %% %d) == %d))", one, n, i)
			}
			all = append(all, one)
		}
		return "(" + strings.Join(all, " or ") + ")"
	}
	many, turns, all := series("a", 5, ""), series("w", 7, "by turns"), series("a", 5, "by turns")
	for _, tc := range []struct {
		text string
		rows int
		// pairs are how many times two series meet beyond the first time of each.
		pairs int64
	}{
		{many + " * on () group_left (w) " + turns, 5 * 6, 5 * 6},
		{turns + " * on () group_right (w) " + many, 5 * 6, 5 * 6},
		{many + " * ignoring (a, w) group_left (w) " + turns, 5 * 6, 5 * 6},
		{many + " * on () group_left () " + turns, 0, 5 * 6},
		{many + " * on (a) group_left (w) " + all, 0, 0}, // each meets its own
		{many + " * on () group_left (w) vector(1)", 0, 0},
	} {
		plain, rows, pairs := counting(t, tc.text, 70, nil), 0, int64(0)
		told := counting(t, tc.text, 70, func(of parser.Expr, r policy.Row) error {
			if pairs += r.Pairs; r.Pairs > 0 {
				if r.Labels < 4 {
					t.Errorf("%s: %+v", tc.text, r)
				}
				return nil
			}
			if rows++; r.Points != 70 {
				t.Errorf("%s: %+v", tc.text, r)
			}
			return nil
		})
		if pairs != tc.pairs {
			t.Errorf("%s: told of %d pairs, want %d", tc.text, pairs, tc.pairs)
		}
		if plain.Err != nil || told.Err != nil || plain.String() != told.String() {
			t.Errorf("%s: without and with being told\n%.300s\n%.300s", tc.text, plain, told)
		}
		if m, err := told.Matrix(); err != nil || rows != tc.rows || tc.rows > 0 && len(m) != 5+rows {
			t.Errorf("%s: told of %d series, want %d; the answer has %d", tc.text, rows, tc.rows, len(m))
		}
	}
}
