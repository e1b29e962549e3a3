package cost

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestLearned: more is believed at once, less as time goes by, and nothing that is no number.
func TestLearned(t *testing.T) {
	var l Learned
	p, now := PrintOf("a"), time.Unix(1_790_000_000, 0)
	if _, ok := l.Look(p); ok {
		t.Error("what nobody has learned is known")
	}
	for _, tc := range []struct {
		after        time.Duration
		series, want float64
	}{
		{0, 100, 100},
		{time.Second, 300, 300},
		{0, 100, 300},
		{HalfLife, 100, 200},
		{HalfLife, 100, 150},
		{-HalfLife, 100, 150}, // a clock that was set back
		{100 * HalfLife, 100, 100},
		{0, math.NaN(), 100},
		{0, math.Inf(1), 100},
		{0, -1, 100},
	} {
		now = now.Add(tc.after)
		l.Learn(p, Shown{Series: tc.series}, now)
		if got, ok := l.Look(p); !ok || math.Abs(got.Series-tc.want) > 1e-6 {
			t.Errorf("after %s and %v: %v series (%v), want %v", tc.after, tc.series, got.Series, ok, tc.want)
		}
	}
}

// TestLearnedIsBounded: what was used longest ago is forgotten.
func TestLearnedIsBounded(t *testing.T) {
	var l Learned
	now := time.Unix(1_790_000_000, 0)
	for i := range MaxLearned + 100 {
		l.Learn(PrintOf(fmt.Sprint(i)), Shown{Series: float64(i)}, now)
		_, _ = l.Look(PrintOf("0"))
	}
	if n := len(l.seen); n != MaxLearned || l.used.Len() != n {
		t.Errorf("%d are remembered, want %d", n, MaxLearned)
	}
	for text, want := range map[string]bool{"0": true, "1": false, "100": false, fmt.Sprint(MaxLearned): true} {
		if _, ok := l.Look(PrintOf(text)); ok != want {
			t.Errorf("%s is remembered: %v", text, ok)
		}
	}
}

// TestShapes: texts share a shape if they differ in the values of labels alone, of which they have
// about as many.
func TestShapes(t *testing.T) {
	shape := func(text string) Print {
		t.Helper()
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		return PrintOfShape(expr, nil, "query")
	}
	const one = `sum by (job) (rate(x_total{node="a"}[5m])) > 2`
	for same, one := range map[string]string{
		`sum by (job) (rate(x_total{node="b"}[5m])) > 2`: one,
		`sum by (job)(rate(x_total{node="c"}[5m]))>2.0`:  one,
		`x{a=~"n1|n2|n3|n4"}`:                            `x{a=~"n[5-7]"}`,
		`x{a=~"gpu-1.*"}`:                                `x{a=~"gpu-2.+"}`,
		`x{a=~"n7"}`:                                     `x{a=~"n8"}`,
		`x{a=~".*7"}`:                                    `x{a=~".*8"}`,
	} {
		if shape(same) != shape(one) {
			t.Errorf("%s has another shape than %s", same, one)
		}
	}
	seen := map[Print]string{}
	for _, text := range []string{
		one, `sum by (job) (rate(x_total{node="a"}[5m])) > 3`, `sum by (job) (rate(x_total{node="a"}[5m])) >= 2`,
		`sum by (pod) (rate(x_total{node="a"}[5m])) > 2`, `sum without (job) (rate(x_total{node="a"}[5m])) > 2`,
		`max by (job) (rate(x_total{node="a"}[5m])) > 2`, `sum by (job) (irate(x_total{node="a"}[5m])) > 2`,
		`sum by (job) (rate(x_total{node="a"}[6m])) > 2`, `sum by (job) (rate(y_total{node="a"}[5m])) > 2`,
		`sum by (job) (rate(x_total{node!="a"}[5m])) > 2`, `sum by (job) (rate(x_total{pod="a"}[5m])) > 2`,
		`sum by (job) (rate(x_total{node="a"}[5m] offset 1h)) > 2`, `sum by (job) (rate(x_total{node="a"}[5m])) > bool 2`,
		`x`, `-x`, `x @ 100`, `x @ 200`, `x @ end()`, `x[1h:1m] offset 1d`, `count_values("a", x)`, `count_values("b", x)`,
		`x + y`, `y + x`, `x + (y)`, `x + on (a) y`, `x + ignoring (a) y`, `x + on (a) group_left () y`,
		`x + on (a) group_right () y`,
		`x + on (a) group_left (b) y`, `x[1h:]`,
		`x[1h:1m]`, `x[2h:1m]`, `x[1h]`, `x{a=""}`, `x{a="n7"}`, `x{a!=""}`, `x{a!="n7"}`, `x{a=~"n7"}`, `x{a=~"n7|n8"}`,
		`x{a=~"n7|n8|n9"}`, `x{a=~".+"}`, `x{a=~"n.+"}`, `x{a=~".*n"}`, `x{a!~".+"}`, `x{a!~"n7"}`,
	} {
		p := shape(text)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have one shape", text, other)
		}
		seen[p] = text
	}
	if PrintOf("ab", "c") == PrintOf("a", "bc") {
		t.Error("words run into one another")
	}
}

// TestSent: how many series shards send for an expression.
func TestSent(t *testing.T) {
	series := func(vs *parser.VectorSelector) (int64, int64) {
		return map[string]int64{"a": 1000, "b": 30}[vs.Name], 0
	}
	values := func(label string) (int64, bool) {
		n, ok := map[string]int64{"job": 4, "node": 100}[label]
		return n, ok
	}
	for text, want := range map[string]int64{
		"a": 1000, "rate(a[5m])": 1000, "a[5m]": 1000, "-(a)": 1000, "sum(a)": 1, "sum by (job) (a)": 4, "sum by (job, node) (a)": 400,
		"sum by (job, node) (b)": 30, "sum by (pod) (a)": 1000, "sum without (job) (a)": 1000, "topk(3, a)": 6, "topk by (job) (3, a)": 24,
		"topk(5000, a)": 1000, "topk(scalar(b), a)": 1000, "count_values(\"v\", a)": 1000, "limit_ratio(0.5, a)": 1000,
		"a + b": 1030, "a > 2": 1000, "sum(a) / sum(b)": 2, "a and b": 1030, "a or b": 1030, "absent(a)": 1, "scalar(a) * b": 31,
		"histogram_quantile(0.9, sum by (node) (rate(a[5m])))": 100, "max_over_time(sum by (job) (a)[1h:1m])": 4, "vector(1)": 1, "1": 0,
		"quantile by (job) (0.5, a)": 1000, "max(sum by (job) (a))": 4,
		"max(a + b)": 1030, "scalar(sum by (job) (a))": 4,
	} {
		expr, err := parser.NewParser(parser.Options{EnableExperimentalFunctions: true}).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Sent(expr, 2, series, values); got != want {
			t.Errorf("%s: %d series, want %d", text, got, want)
		}
	}
}
