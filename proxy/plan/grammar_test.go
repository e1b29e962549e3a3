package plan

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// What may run on each shard, and what not, without and with labels that tell shards apart.
func TestGrammar(t *testing.T) {
	byNode := key{known: true, stored: []string{"node"}}
	for _, c := range []struct {
		expr string
		k    key
		want string // local, or the beginning of why not
		push string // pushed, or the beginning of why not; empty for what is no aggregate
	}{
		{`up`, key{}, "local", ""},
		{`up offset 5m`, key{}, "local", ""},
		{`up @ end()`, key{}, "local", ""},
		{`rate(up[5m])`, key{}, "local", ""},
		{`-up`, key{}, "local", ""},
		{`up * 2 > bool 1`, key{}, "local", ""},
		{`time() - up`, key{}, "local", ""},
		{`max_over_time(rate(up[1m])[1h:1m])`, key{}, "local", ""},
		{`timestamp(up)`, key{}, "local", ""},
		{`predict_linear(up[1h], 3600)`, key{}, "local", ""},
		{`histogram_count(h)`, key{}, "local", ""},
		{`label_replace(up, "a", "$1", "b", "(.*)")`, key{}, "local", ""},
		{`absent(up)`, key{}, "absent looks at all series together", ""},
		{`absent_over_time(up[5m])`, key{}, "absent_over_time looks at all", ""},
		{`sort(up)`, key{}, "sort looks at all", ""},
		{`vector(1)`, key{}, "vector selects nothing", ""},
		{`up or vector(0)`, key{}, "one side of or is a constant vector", ""},
		{`scalar(up)`, key{}, "scalar looks at all", ""},
		{`up > scalar(down)`, key{}, "one side of > is a scalar that depends on series", ""},
		{`clamp_max(up, scalar(down))`, key{}, "clamp_max takes several arguments", ""},
		{`a / b`, key{}, "the two sides of / may lie on different shards", ""},
		{`histogram_quantile(0.9, b_bucket)`, key{}, "histogram_quantile joins buckets", ""},
		{`info(up)`, key{}, "info looks at all", ""},

		{`sum(up)`, key{}, "sum joins series", "pushed"},
		{`avg by (job) (rate(up[5m]))`, key{}, "avg joins series", "pushed"},
		{`max without (job) (up > 5)`, key{}, "max joins series", "pushed"},
		{`count_values("v", up)`, key{}, "count_values joins", "pushed"},
		{`topk(3, up)`, key{}, "topk joins", "pushed"},
		{`topk(scalar(up), up)`, key{}, "the parameter of topk selects", "the parameter of topk is"},
		{`topk(1 + 1, up)`, key{}, "topk joins", "the parameter of topk is 1 + 1, not a literal"},
		{`quantile(0.5, up)`, key{}, "quantile joins", "quantile cannot be put together"},
		{`stddev(up)`, key{}, "stddev joins", "stddev cannot be put together"},
		{`limitk(3, up)`, key{}, "limitk joins", "limitk cannot be put together"},
		{`sum(sum by (a) (up))`, key{}, "sum joins", "sum joins series"},
		{`sum(a / b)`, key{}, "the two sides of /", "the two sides of /"},
		{`sum(absent(up))`, key{}, "absent looks", "absent looks"},
		{`sum(label_replace(up, "a", "$1", "b", "(.*)"))`, key{}, "sum joins", "series of two shards could become equal"},
		{`sum(rate({__name__=~"a|b"}[5m]))`, key{}, "sum joins", "series of two shards could become equal"},
		{`sum({__name__=~"a|b"})`, key{}, "sum joins", "pushed"},

		{`rate({__name__=~"a|b"}[5m])`, key{}, "local", ""},
		{`rate({__name__=~"a|b"}[5m]) > 1`, key{}, "series of two shards could become equal under >", ""},
		{`-rate({__name__=~"a|b"}[5m])`, key{}, "series of two shards could become equal under a sign", ""},
		{`abs(label_replace(up, "a", "", "", ""))`, key{}, "series of two shards could become equal under abs", ""},
		{`max_over_time((-{__name__=~"a|b"})[1h:1m])`, key{}, "series of two shards could become equal under a subquery", ""},
		{`sum(label_replace(up, "a", "", "", "") > 1)`, key{}, "series of two shards", "series of two shards could become equal under >"},
		{`-({__name__=~"a|b"} > 1)`, key{}, "local", ""},
		{`sum({__name__=~"a|b"} > 1)`, key{}, "sum joins", "pushed"},
		{`sum({__name__=~"a|b"} > bool 1)`, key{}, "sum joins", "series of two shards could become equal"},
		{`sum(rate(up[5m]))`, key{units: true}, "sum joins", "series of two shards could become equal"},
		{`sum(up)`, key{units: true}, "sum joins", "pushed"},
		{`sum(rate(up{__type__="counter",__unit__=""}[5m]))`, key{units: true}, "sum joins", "pushed"},
		{`sum(rate(up{node!=""}[5m]))`, key{known: true, stored: []string{"node"}, units: true}, "sum does not", "pushed"},

		{`ALERTS`, key{}, "local", ""},
		{`ALERTS`, key{several: true}, "several shards may evaluate the same alert", ""},
		{`count_over_time(ALERTS_FOR_STATE[1h])`, key{known: true, several: true}, "several shards may evaluate the same alert", ""},
		{`sum({__name__=~"ALERTS.*"})`, key{several: true}, "several shards may evaluate", "several shards may evaluate"},
		{`count({alertname="Watchdog"})`, key{several: true}, "several shards may evaluate", "several shards may evaluate"},
		{
			`count by (node) (ALERTS{node!=""})`,
			key{known: true, several: true, stored: []string{"node"}},
			"several shards may", "several shards may",
		},
		{`sum(kube_alerts{alertname!=""})`, key{several: true}, "sum joins series", "pushed"},
		{`sum({job="a",__name__!=""})`, key{several: true}, "sum joins series", "pushed"},

		{`rate({__name__=~"a|b"}[5m]) > 1`, byNode, "local", ""},
		{`-{__name__=~"a|b"} and on (node) c`, byNode, "local", ""},
		{`label_replace(up, "node", "", "", "") > 1`, byNode, "series of two shards could become equal under >", ""},
		{`count(histogram_quantiles(b, "node", 0.5))`, byNode, "count does not keep", "series of two shards could become equal"},
		{`count(histogram_quantiles(b, "q", 0.5))`, byNode, "count does not keep", "pushed"},
		{`max by (node) (histogram_quantiles(b, "node", 0.5))`, byNode, "max does not keep", "series of two shards could become equal"},
		{`histogram_quantile(0.5, b)`, key{known: true, stored: []string{"le"}}, "histogram_quantile joins buckets", ""},
		{`a / on (node) b`, byNode, "local", ""},
		{`a / ignoring (job) b`, byNode, "local", ""},
		{`a / b`, byNode, "local", ""},
		{`a / ignoring (node) b`, byNode, "/ does not match on the labels", ""},
		{`a * on (job) group_left b`, byNode, "* does not match on the labels", ""},
		{`a * on (node) group_left (job) b`, byNode, "local", ""},
		{`a unless on (node) b`, byNode, "local", ""},
		{`sum by (node) (up)`, byNode, "local", ""},
		{`sum without (job) (up)`, byNode, "local", ""},
		{`sum by (job) (up)`, byNode, "sum does not keep the labels", "pushed"},
		{`quantile by (node) (0.5, up)`, byNode, "local", ""},
		{`count(count by (node) (up))`, byNode, "count does not keep", "pushed"},
		{`sum(a / on (node) b)`, byNode, "sum does not keep", "pushed"},
		{`histogram_quantile(0.9, sum by (node, le) (rate(b[5m])))`, byNode, "local", ""},
		{`sum by (node) (label_replace(up, "node", "x", "", ""))`, byNode, "sum does not keep", "series of two shards could become equal"},
		{`count_values by (node) ("node", up)`, byNode, "count_values sets a label", "pushed"},
		{`a + fill(0) b`, byNode, "fill makes up a side of +", ""},
	} {
		e, err := tree.Parser.ParseExpr(c.expr)
		if err != nil {
			t.Fatalf("%s: %v", c.expr, err)
		}
		got := local(e, c.k).why
		if got == "" {
			got = "local"
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.expr, got, c.want)
		}
		agg, ok := e.(*parser.AggregateExpr)
		if !ok || c.push == "" {
			continue
		}
		_, l := pushes(agg, c.k)
		got = l.why
		if got == "" {
			got = "pushed"
		}
		if !strings.HasPrefix(got, c.push) {
			t.Errorf("%s: %s, want %s", c.expr, got, c.push)
		}
	}
}

// Every function is known to the grammar, one way or the other: a new one of Prometheus must be
// looked at before it runs on shards.
func TestEveryFunctionIsJudged(t *testing.T) {
	together := map[string]bool{}
	for _, name := range strings.Fields(`absent absent_over_time end histogram_fraction histogram_quantile histogram_quantiles info label_join label_replace
		max_of min_of pi range scalar sort sort_by_label sort_by_label_desc sort_desc start step time vector`) {
		together[name] = true
	}
	for name := range parser.Functions {
		if byItself[name] == together[name] {
			t.Errorf("%s must be in exactly one of the lists", name)
		}
	}
	for name := range byItself {
		if parser.Functions[name] == nil {
			t.Errorf("there is no function %s", name)
		}
	}
}

// Guards are asked only where the selectors' own matchers do not say that the label is there.
func TestGuards(t *testing.T) {
	k := key{known: true, stored: []string{"node"}}
	for expr, want := range map[string]int{
		`a / on (node) b`:                           1,
		`a{node!=""} / on (node) b`:                 1, // two of b that lack it, on two shards, must fail, whatever a has
		`a / on (node) b{node="x"}`:                 0,
		`sum by (node) (up)`:                        1,
		`sum by (node) (up{node=~"n.+"})`:           0,
		`sum by (node) (a / on (node) b)`:           1,
		`a / on (node) group_right b{node!=""}`:     1,
		`a{node!=""} / on (node) group_right b`:     0,
		`a{node!=""} and on (node) b`:               0,
		`a and on (node) b{node!=""}`:               0,
		`a unless on (node) b`:                      1,
		`-{__name__=~"a|b"} > 1`:                    1,
		`-{__name__=~"a|b",node!=""} > 1`:           0,
		`up`:                                        0,
		`histogram_quantile(0.9, b)`:                1,
		`max by (node) (sum by (node, job) (up))`:   1,
		`a{node="x"} / on (node) (b / on (node) c)`: 1,
	} {
		e, err := tree.Parser.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		l := local(e, k)
		if l.why != "" || len(l.filled) != want {
			t.Errorf("%s: %q, %d guards, want %d", expr, l.why, len(l.filled), want)
		}
	}
}
