package tree_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	promqlengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/hostile"
)

var promql = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

// TestPrintedLikePrometheus: each text is printed and laid out as Prometheus does it.
func TestPrintedLikePrometheus(t *testing.T) {
	seed, parsed := randseed.Of(t, 0), 0
	check := func(text string) {
		e, err := promql.ParseExpr(text)
		if err != nil || otherwise(e) {
			return
		}
		parsed++
		if got, want := tree.String(e), e.String(); got != want {
			t.Errorf("%.200q: printed\n%.300s\nnot\n%.300s", text, got, want)
		}
		if got, want := tree.Pretty(e), e.Pretty(0); got != want {
			t.Errorf("%.200q: laid out\n%.500s\nnot\n%.500s", text, got, want)
		}
	}
	for _, text := range []string{
		`x[(1h + min_of(step(), -5m)) * 2:(max_of(range(), 1m))] @ end() offset -(1m ^ 2)`, `x offset (+5m)`, `x @ 1.5 offset -1m`, `x[5m] smoothed @ start() offset 1h`,
		`- ( ` + strings.Repeat("aaaaaaaaaa + ", 20) + `b)`, `-{"a b "}`, `-rate((-rate((` + strings.Repeat("- x / ",
			40) + `y)[1h:5m]))[1h:])`, `--` + strings.Repeat("abs(-", 40) + "x" + strings.Repeat(")", 40),
		`x + on () group_left () y`, `x * fill_left (1) fill_right (-2) y`,
		`topk without (a, "b c") (3, ` + strings.Repeat("{a=\"b\"} or ", 20) + `x)`, `time() > bool 5`,
		`limit_ratio(-0.5, x) + quantile(0.9, y) - count_values("a\n\u00fc", z)`, `x[5m + step()] anchored offset (1m)`, `{"a.b", __name__!="c"}`, `1_000 + 0x1F - 5m + Inf`,
	} {
		before := parsed
		if check(text); parsed == before {
			t.Errorf("%s is no expression", text)
		}
	}
	for i := range uint64(1000) {
		if text := hostile.TextOf(seed + i).Text; len(text) < 2<<10 { // Prometheus' own is slow
			check(text)
		}
	}
	if parsed < 50 {
		t.Errorf("only %d texts were expressions", parsed)
	}
}

// otherwise tells whether Prometheus may print another expression: of several matchers of one label
// under absent(), or of a duration as a number.
func otherwise(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.NumberLiteral:
			back, err := promql.ParseExpr(n.String())
			found = found || n.Duration && (err != nil || back.(*parser.NumberLiteral).Val != n.Val)
		case *parser.Call:
			if !strings.HasPrefix(n.Func.Name, "absent") {
				break
			}
			if vs := tree.Selector(n.Args[0]); vs != nil {
				names := map[string]bool{}
				for _, m := range vs.LabelMatchers {
					names[m.Name] = true
				}
				found = found || len(names) < len(vs.LabelMatchers)
			}
		}
		return nil
	})
	return found
}

// TestAbsentKeepsItsLabels: what absent() says of a selector depends on the order of its matchers,
// which Prometheus' own printer sorts.
func TestAbsentKeepsItsLabels(t *testing.T) {
	engine := promqlengine.NewEngine(promqlengine.EngineOpts{
		MaxSamples: 100, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: promql,
	})
	nothing := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil })
	labelsOf := func(text string) string {
		q, err := engine.NewInstantQuery(t.Context(), nothing, nil, text, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		v, err := q.Exec(t.Context()).Vector()
		if err != nil || len(v) != 1 {
			t.Fatalf("%s: %v, %v", text, v, err)
		}
		return v[0].Metric.String()
	}
	for text, want := range map[string]string{
		`absent(up{job="a",job!="b"})`:                                `{}`,
		`absent(up{job!="b",job="a"})`:                                `{job="a"}`,
		`absent(up{job=~"a|b",job="a",x="y"})`:                        `{job="a", x="y"}`,
		`absent(up{job="a",job="a"})`:                                 `{}`,
		`absent({__name__="up",__name__!="b",job=~"a|b",job="a"})`:    `{job="a"}`,
		`absent({"up",job="a",job!="b"} @ 5 offset -1m)`:              `{}`,
		`absent((up{job="a",job!="b"} offset (1m+1s)))`:               `{}`,
		`absent_over_time(up{job=~"a|b",job="a"}[2m])`:                `{job="a"}`,
		`absent_over_time(up{job="a",job!="b"}[2m] @ 7 offset 1m)`:    `{}`,
		`absent(up{job!="b",job="a"} == absent(up{job="c",job!=""}))`: `{}`,
	} {
		e, err := promql.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, printed := range []string{text, tree.String(e), tree.Pretty(e)} {
			if got := labelsOf(printed); got != want {
				t.Errorf("%s, printed as %s: the labels %s, want %s", text, printed, got, want)
			}
		}
	}
}

// TestNumbersOfTimeAreWhole: a number that is written as a duration is printed as the same one.
func TestNumbersOfTimeAreWhole(t *testing.T) {
	for ms := range 20_000 {
		text := fmt.Sprintf("-%dms + 1y%dms", ms, ms)
		e, err := promql.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		back, err := promql.ParseExpr(tree.String(e))
		if err != nil {
			t.Fatal(err)
		}
		var was, is []float64
		for numbers, e := range map[*[]float64]parser.Expr{&was: e, &is: back} {
			parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
				if n, ok := n.(*parser.NumberLiteral); ok {
					*numbers = append(*numbers, n.Val)
				}
				return nil
			})
		}
		if !slices.Equal(was, is) {
			t.Fatalf("%s is printed as %s: %v, not %v", text, tree.String(e), is, was)
		}
	}
}

// TestPrintingIsLinear: what is printed costs a few times its own length, counted in bytes that are
// allocated, however deep it nests.
func TestPrintingIsLinear(t *testing.T) {
	effort := func(print func(parser.Expr) string, text string) (bytes, most uint64) {
		e, err := promql.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		bytes = allocated(func() { out = print(e) })
		return bytes, 12*uint64(len(text)+len(out)) + 256<<10
	}
	long := `up{a="` + strings.Repeat("x", 30<<10) + `"}`
	for _, c := range []struct {
		name string
		text func(n int) string
	}{
		{"sum", func(n int) string { return long + strings.Repeat("+up", n) }},
		{"parentheses", func(n int) string { return strings.Repeat("(", n) + long + strings.Repeat(")", n) }},
		{"calls", func(n int) string { return strings.Repeat("abs(", n) + long + strings.Repeat(")", n) }},
		{"aggregations", func(n int) string { return strings.Repeat("sum(", n) + long + strings.Repeat(")", n) }},
		{"signs", func(n int) string { return strings.Repeat("-", n) + long }},
		{"subqueries", func(n int) string { return strings.Repeat("rate(", n) + long + strings.Repeat("[5m:1m])", n) }},
		{"offset", func(n int) string { return "x offset (1" + strings.Repeat("+1", n) + ")" }},
	} {
		for name, print := range map[string]func(parser.Expr) string{"String": tree.String, "Pretty": tree.Pretty} {
			if bytes, most := effort(print, c.text(240)); bytes > most {
				t.Errorf("%s of %s: %d bytes are allocated, at most %d are expected", name, c.name, bytes, most)
			}
		}
	}
}
