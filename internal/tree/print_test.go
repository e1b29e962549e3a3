package tree_test

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

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
		if err != nil {
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
