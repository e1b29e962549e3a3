package uses

import (
	"slices"
	"strings"
	"testing"
)

// TestNeeds has one query a row and what it needs, one selector after another.
func TestNeeds(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		// PromQL
		{`up`, `up all`},
		{`1 + 1`, ``},
		{`sum(rate(x[5m]))`, `x none`},
		{`sum by (a) (rate(x{b="1"}[5m]))`, `x{b="1"} a`},
		{`sum without (a, b) (x)`, `x all but a, b`},
		{`sum by (a) (sum without (b) (x))`, `x all but b`},
		{`count by (a) ({__name__=~"x|y"})`, `{__name__=~"x|y"} all`},
		{`count({job="x"})`, `{job="x"} all`},
		{`avg by (a) ({"my.utf8"})`, `{__name__="my.utf8"} a`},
		{`sum(topk(3, x))`, `x all`},
		{`topk(3, sum by (a) (x))`, `x a`},
		{`limitk(3, sum by (a) (x))`, `x all`},
		{`limit_ratio(0.5, x)`, `x all`},
		{`count_values("v", x)`, `x none`},
		{`count_values("v", sum by (a) (x))`, `x all`},
		{`quantile by (a) (scalar(y), x)`, `y none; x a`},
		{`a / b`, `a all; b all`},
		{`a / on (l) b`, `a l; b l`},
		{`sum(a / on (l) group_left () b)`, `a l; b l`},
		{`sum by (p) (a * on (l) group_left (g) b)`, `a all; b g, l`},
		{`sum by (p) (b * on (l) group_right (g) a)`, `b g, l; a all`},
		{`sum by (p) (a * ignoring (q) b)`, `a all but q; b all but q`},
		{`a and on (l) b`, `a all; b l`},
		{`sum by (p) (a unless on (l) b)`, `a l, p; b l, absent`},
		{`sum by (p) (a or on (l) b)`, `a all; b all`},
		{`sum by (p) (a and b)`, `a all; b all`},
		{`sum by (q) (a and ignoring (q) b)`, `a all; b all but q`},
		{`sum(a + on (l) fill(0) b)`, `a all; b all`},
		{`absent(x{a="1"})`, `x{a="1"} none, absent`},
		{`absent_over_time(x[5m]) or vector(0)`, `x none, absent`},
		{`sum by (a) (label_replace(x, "a", "$1", "b", "(.*)"))`, `x all`},
		{`sum(max_over_time((sum by (a) (rate(x[5m])))[1h:1m]))`, `x a`},
		{`sum(max_over_time(abs(x)[1h:1m]))`, `x none`},
		{`info(x)`, `x all; target_info all`},
		{`info(x, {__name__="build_info", v="1"})`, `x all; build_info all`},
		{`info(x, {__name__!="target_info"})`, `x all; {__name__!="target_info",__name__=~".+_info"} all`},
		{`sum by (a) (x > 3)`, `x a`},
		{`sum(x offset 5m) / sum(x @ end())`, `x none`},
		{`sum(rate(x[5m] smoothed))`, `x none`},
		{`sum(-x)`, `x none`},
		// buckets
		{`histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))`, `x_bucket le, quantile`},
		{`histogram_quantile(0.9, rate(x_bucket[5m]))`, `x_bucket all, quantile`},
		{`histogram_quantile(0.9, sum without (pod) (2 * rate(x_bucket[5m])))`, `x_bucket all but pod, quantile`},
		{`histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m]) * -1))`, `x_bucket le`},
		{`histogram_quantile(0.9, sum by (le) (rate(x_bucket{le!="5"}[5m])))`, `x_bucket{le!="5"} le`},
		{`histogram_quantile(0.9, sum by (le) (max_over_time(rate(x_bucket[5m])[1h:])))`, `x_bucket le`},
		{`histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m]) > 0))`, `x_bucket le`},
		{`histogram_quantile(0.9, max by (le) (rate(x_bucket[5m])))`, `x_bucket le`},
		{`sum by (a) (histogram_quantile(0.9, x_bucket))`, `x_bucket all, quantile`},
		{`histogram_quantile(scalar(y), x_bucket)`, `y none; x_bucket all, quantile`},
		{`sum(rate(x_bucket[5m]))`, `x_bucket none`},
		{`sum by (le) (rate(x_bucket[5m]))`, `x_bucket le`},
		{`histogram_fraction(0, 1, sum by (le) (x_bucket))`, `x_bucket le`},
		// MetricsQL
		{`rate(x)`, `x all`},
		{`rate(x{a="1"}[5m]) keep_metric_names`, `x{a="1"} all`},
		{`with (f = {a="1"}) sum(rate(x{f}))`, `x{a="1"} all`},
		{`sum(x{a="1" or b="2"})`, `x{a="1"} all; x{b="2"} all`},
		{`x{a="1"} default 0`, `x{a="1"} all`},
		{`topk_avg(3, x, "other=rest")`, `x all`},
		// variables
		{`x{a="$v"}`, `x{a=~".*"} all`},
		{`x{a=~"$v-.*|b"}`, `x{a=~".*"} all`},
		{`x{a!~"${v:regex}"}`, `x{a=~".*"} all`},
		{`x{a="pre[[v]]post"}`, `x{a=~"pre(?:.*)post"} all`},
		{`sum by ($g) (x)`, `x all`},
		{`sum by (a, $g) (x)`, `x all`},
		{`sum without ($g) (x)`, `x all`},
		{`sum(a * on ($g) b)`, `a all; b all`},
		{`sum(rate(x[$__rate_interval]))`, `x none`},
		{`sum(rate(x[${range}m] offset $o))`, `x none`},
		{`sum(rate(x[${__range_s}s:$step]))`, `x none`},
		{`sum(x) * $__interval_ms / $__range_s`, `x none`},
		{`topk($n, sum by (a) (x))`, `x a`},
		{`sum(node_${what}_bytes)`, `{__name__=~"node_(?:.*)_bytes"} all`},
		{`sum({__name__="$m", a="1"})`, `{__name__=~".*",a="1"} all`},
		{`sum($m{a="1"})`, `{__name__=~".*",a="1"} all`},
		{`sum(x{$l="1"})`, `x all`},
		{`sum(x{$filters})`, `x all`},
		{`sum(x{a="1", $filters})`, `x{a="1"} all`},
		{`sum(x{a=${v:doublequote}})`, `x{a=~".*"} none`},
		{`label_replace(x, "a", "$1", "b", "(.*)")`, `x all`},
		{`$query`, ``},
	} {
		needs, _ := Needs(c.query)
		if got := strings.Join(told(needs), "; "); got != c.want {
			t.Errorf("%s\nneeds %s\nnot   %s", c.query, got, c.want)
		}
	}
}

// told is what the table above says of needs.
func told(needs []Need) []string {
	out := show(needs)
	for i := range out {
		out[i] = strings.Replace(out[i], " needs ", " ", 1)
	}
	return out
}

// TestTextual holds the last resort against texts that no parser reads.
func TestTextual(t *testing.T) {
	for _, c := range []struct {
		query string
		keeps []string
		not   []string
	}{
		{`sum(rate(foo_total{a="b"}[5m])`, []string{"foo_total", "a", "b"}, []string{"foo"}},
		{`foo and {__name__=~"bar_.*"} )`, []string{"foo", "bar_1"}, []string{"baz"}},
		{`{__name__!="x"} )`, []string{"anything"}, nil},
		{`{"my.metric", a="b"} )`, []string{"my.metric"}, nil},
		{`$f(rate(foo[5m]))`, []string{"foo"}, []string{"bar"}},
		{`rate(foo_$x[5m]))`, []string{"foo_bar"}, []string{"bar"}},
		{strings.Repeat("-", 100_000) + "foo", []string{"foo"}, []string{"bar"}},
		{strings.Repeat("(", 10_000) + "foo", []string{"foo"}, []string{"bar"}},
	} {
		needs, warning := Needs(c.query)
		if warning == "" {
			t.Errorf("%.100s has no warning", c.query)
		}
		any := func(name string) bool { return slices.ContainsFunc(needs, func(n Need) bool { return n.named(name) }) }
		for _, name := range c.keeps {
			if !any(name) {
				t.Errorf("%.100s does not keep %s: %v", c.query, name, show(needs))
			}
		}
		for _, name := range c.not {
			if any(name) {
				t.Errorf("%.100s keeps %s: %v", c.query, name, show(needs))
			}
		}
		for _, n := range needs {
			if !n.Reads("whatever") || n.Quantile {
				t.Errorf("%.100s: %v does not need all labels", c.query, show([]Need{n}))
			}
		}
	}
}
