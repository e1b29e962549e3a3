package server

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

// exactTable is a world written by hand: what each shard holds, a series a line with its value, NaN
// and Inf included. A value h3 is the third of a run of native histograms, +2 a counter that grows
// by 2 each scrape. keys is what the group's configuration says of how series are spread.
func exactTable(t *testing.T, replicas int, labelled bool, keys string, shards ...string) *exactHarness {
	t.Helper()
	w := newTable()
	if replicas > 1 {
		w.kind = exactAgreeing
	}
	g := &exactGroup{name: "jaguar", replicaLabels: []string{"prometheus_replica"}, heartbeat: "up", keys: keys}
	if labelled {
		g.labels = labels.FromStrings("cluster", "jaguar")
	}
	w.table(t, g, replicas, shards...)
	return (&exactHarness{t: t, w: w, tally: &exactTally{modes: map[string]int{}}}).serve()
}

func newTable() *exactWorld {
	w := &exactWorld{kind: exactSingle, length: 25 * time.Minute, every: 15 * time.Second} // five full buckets of the heartbeat
	w.start = exactStart(time.Now(), w.length)
	return w
}

// table is one more group of the world, with what each of its shards holds.
func (w *exactWorld) table(t *testing.T, g *exactGroup, replicas int, shards ...string) {
	t.Helper()
	w.groups = append(w.groups, g)
	for si, text := range shards {
		s := &exactShard{group: g, name: fmt.Sprintf("%s[%d]", g.name, si)}
		text += fmt.Sprintf("up{job=\"x\",instance=\"i%d\",node=\"%c%d\"} 1", si, g.name[0], si)
		for ri := range replicas {
			r := &exactReplica{external: labels.FromStrings("prometheus_replica", string(rune('a'+ri)))}
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				line = strings.TrimSpace(line)
				at := strings.LastIndexByte(line, ' ')
				lbls, err := exactParser.ParseMetric(line[:at])
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				series := storedSeries{lbls: lbls}
				for i := range int64(w.length / w.every) {
					p := point{t: w.start.UnixMilli() + i*w.every.Milliseconds() + int64(ri)*3700}
					switch v := line[at+1:]; v[0] {
					case 'h':
						p.h = tsdbutil.GenerateTestHistogram(i + number64(t, v[1:]))
					case '+':
						p.f = float64(i * number64(t, v[1:]))
					default:
						if p.f, err = strconv.ParseFloat(v, 64); err != nil {
							t.Fatalf("%s: %v", line, err)
						}
					}
					series.points = append(series.points, p)
				}
				r.series = append(r.series, series)
			}
			r.index(g)
			s.replicas = append(s.replicas, r)
		}
		g.shards = append(g.shards, s)
	}
}

func number64(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The questions that proxies of this kind are known to answer wrongly, each by name, over shards
// whose values show it.
func TestExactByName(t *testing.T) {
	cases := []exactNamed{
		{"a filter on a maximum is not a filter on each shard's", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `max(foo) < 10`, ``},
		{"the same with the smaller one last", []string{`foo{node="a"} 20`, `foo{node="b"} 5`}, `max(foo) < 10`, ``},
		{"a maximum times a negative number", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `max(foo) * -1`, `{} -20`},
		{"a minimum times a negative number", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `-min(foo)`, `{} -5`},
		{"a number minus a maximum", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `10 - max(foo)`, `{} -10`},
		{
			"a sum as a label",
			[]string{`foo{node="a"} 0.1`, `foo{node="b"} 0.7`, "foo{node=\"c\"} 0.2\nfoo{node=\"d\"} 0.3"},
			`count_values("v", sum(foo))`, "*",
		},
		{
			"an average as a label",
			[]string{`foo{node="a"} 0.1`, `foo{node="b"} 0.7`, "foo{node=\"c\"} 0.2\nfoo{node=\"d\"} 0.3"},
			`count_values("v", avg(foo / 3))`, "*",
		},
		{"a sum plus a number", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `sum(foo) + 1`, `{} 26`},
		{"a sum compared", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `sum(foo) > bool 20`, `{} 1`},
		{"a count filtered", []string{"foo{node=\"a\"} 5\nfoo{node=\"c\"} 5", `foo{node="b"} 20`}, `count(foo) == 3`, `{} 3`},
		{"a filter below the aggregation", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `sum(foo > 10)`, `{} 20`},
		{
			"an average of unequal shards",
			[]string{"foo{node=\"a\"} 1\nfoo{node=\"b\"} 2\nfoo{node=\"c\"} 3", `foo{node="d"} 10`},
			`avg(foo)`, `{} 4`,
		},
		{"an average by a label that both have", []string{
			"foo{node=\"a\",j=\"x\"} 1\nfoo{node=\"b\",j=\"x\"} 2\nfoo{node=\"c\",j=\"y\"} 3",
			`foo{node="d",j="x"} 9`,
		}, `avg by (j) (foo)`, "{j=\"x\"} 4\n{j=\"y\"} 3"},
		{
			"an average of averages",
			[]string{"foo{node=\"a\",j=\"x\"} 1\nfoo{node=\"b\",j=\"x\"} 2", `foo{node="d",j="x"} 9`},
			`avg(avg by (j) (foo))`, "{} 4",
		},
		{
			"count by",
			[]string{"foo{node=\"a\",j=\"x\"} 1\nfoo{node=\"b\",j=\"y\"} 2", `foo{node="d",j="x"} 9`},
			`count by (j) (foo)`,
			"{j=\"x\"} 2\n{j=\"y\"} 1",
		},
		{
			"a count of counts",
			[]string{"foo{node=\"a\",j=\"x\"} 1\nfoo{node=\"b\",j=\"y\"} 2", `foo{node="d",j="x"} 9`},
			`count(count by (j) (foo))`, "{} 2",
		},
		{
			"a sum of counts",
			[]string{"foo{node=\"a\",j=\"x\"} 1\nfoo{node=\"b\",j=\"y\"} 2", `foo{node="d",j="x"} 9`},
			`sum(count by (j) (foo))`, "{} 3",
		},
		{"a maximum of sums", []string{`foo{node="a",j="x"} 5`, `foo{node="b",j="x"} 20`}, `max(sum by (j) (foo))`, "{} 25"},
		{"a group", []string{`foo{node="a",j="x"} 5`, `foo{node="b",j="x"} 20`}, `group by (j) (foo)`, "{j=\"x\"} 1"},
		{"absent where one shard has it", []string{`foo{node="a"} 5`, `bar{node="b"} 20`}, `absent(foo)`, ``},
		{"absent where none has it", []string{`foo{node="a"} 5`, `bar{node="b"} 20`}, `absent(baz{x="y"})`, `{x="y"} 1`},
		{"absent_over_time where one shard has it", []string{`foo{node="a"} 5`, `bar{node="b"} 20`}, `absent_over_time(foo[5m])`, ``},
		{"absent of a sum that only one shard has", []string{`foo{node="a"} 5`, `bar{node="b"} 20`}, `absent(sum(foo))`, ``},
		{"a join across shards", []string{`foo{node="a",x="1"} 5`, `bar{node="a"} 20`}, `foo * on (node) bar`, `{node="a"} 100`},
		{
			"a join with group_left across shards",
			[]string{"foo{node=\"a\",x=\"1\"} 5\nfoo{node=\"a\",x=\"2\"} 6", `bar{node="a",r="z"} 20`},
			`foo * on (node) group_left (r) bar`, "{node=\"a\", r=\"z\", x=\"1\"} 100\n{node=\"a\", r=\"z\", x=\"2\"} 120",
		},
		{"unless across shards", []string{`foo{node="a"} 5`, `bar{node="a"} 20`}, `foo unless on (node) bar`, ``},
		{"and across shards", []string{`foo{node="a"} 5`, `bar{node="a"} 20`}, `foo and on (node) bar`, `{__name__="foo", node="a"} 5`},
		{"or across shards", []string{`foo{node="a"} 5`, `bar{node="a"} 20`}, `foo or on (node) bar`, `{__name__="foo", node="a"} 5`},
		{
			"many partners on two shards",
			[]string{`foo{node="a",x="1"} 5`, "foo{node=\"a\",x=\"2\"} 5\nbar{node=\"a\"} 20"},
			`foo * on (node) bar`, `error`,
		},
		{
			"or vector(0)",
			[]string{`foo{node="a"} 5`, `foo{node="b"} 20`},
			`foo or vector(0)`,
			"{__name__=\"foo\", node=\"a\"} 5\n{__name__=\"foo\", node=\"b\"} 20\n{} 0",
		},
		{"sum or vector(0)", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `sum(foo) or vector(0)`, "{} 25"},
		{"sum of nothing or vector(0)", []string{`foo{node="a"} 5`, `foo{node="b"} 20`}, `sum(nothing) or vector(0)`, "{} 0"},
		{"a sum with vector(0) on one shard's part", []string{`foo{node="a"} 5`, `bar{node="b"} 20`}, `sum(foo or vector(1))`, "{} 6"},
		{
			"topk",
			[]string{"foo{node=\"a\"} 5\nfoo{node=\"c\"} 7", "foo{node=\"b\"} 20\nfoo{node=\"d\"} 6"},
			`topk(2, foo)`,
			"{__name__=\"foo\", node=\"b\"} 20\n{__name__=\"foo\", node=\"c\"} 7",
		},
		{
			"bottomk by",
			[]string{
				"foo{node=\"a\",j=\"x\"} 5\nfoo{node=\"c\",j=\"y\"} 7",
				"foo{node=\"b\",j=\"x\"} 20\nfoo{node=\"d\",j=\"y\"} 6",
			},
			`bottomk by (j) (1, foo)`,
			"{__name__=\"foo\", j=\"x\", node=\"a\"} 5\n{__name__=\"foo\", j=\"y\", node=\"d\"} 6",
		},
		{
			"quantile",
			[]string{"foo{node=\"a\"} 1\nfoo{node=\"c\"} 2\nfoo{node=\"e\"} 3", "foo{node=\"b\"} 10"},
			`quantile(0.5, foo)`,
			"{} 2.5",
		},
		{"stddev", []string{"foo{node=\"a\"} 1\nfoo{node=\"c\"} 1", "foo{node=\"b\"} 4\nfoo{node=\"d\"} 4"}, `stddev(foo)`, "{} 1.5"},
		{
			"count_values",
			[]string{"foo{node=\"a\"} 1\nfoo{node=\"c\"} 2", "foo{node=\"b\"} 1"},
			`count_values("v", foo)`,
			"{v=\"1\"} 2\n{v=\"2\"} 1",
		},
		{"histogram_quantile of buckets", []string{"b_bucket{node=\"a\",le=\"1\"} +10\nb_bucket{node=\"a\",le=\"2\"} +10\nb_bucket{node=\"a\",le=\"+Inf\"} +10", "b_bucket{node=\"b\",le=\"1\"} +0\nb_bucket{node=\"b\",le=\"2\"} +10\nb_bucket{node=\"b\",le=\"+Inf\"} +10"}, `histogram_quantile(0.5, sum by (le) (rate(b_bucket[5m])))`, "{} 1"},
		{
			"histogram_quantile of native histograms",
			[]string{`h{node="a"} h1`, `h{node="b"} h5`},
			`histogram_quantile(0.9, sum(rate(h[5m])))`, "*",
		},
		{"a sum of native histograms", []string{`h{node="a"} h1`, `h{node="b"} h5`}, `sum(h)`, "*"},
		{"an average of native histograms", []string{"h{node=\"a\"} h1\nh{node=\"c\"} h9", `h{node="b"} h5`}, `avg(h)`, "*"},
		{"a sum of numbers and histograms", []string{`h{node="a"} h1`, `h{node="b"} 5`}, `sum(h)`, "*"},
		{"an average of numbers and histograms by", []string{
			"h{node=\"a\",j=\"x\"} h1\nh{node=\"c\",j=\"y\"} 2",
			"h{node=\"b\",j=\"x\"} 5\nh{node=\"d\",j=\"y\"} 4",
		}, `avg by (j) (h)`, "*"},
		{"a maximum of numbers and histograms", []string{`h{node="a"} h1`, `h{node="b"} 5`}, `max(h)`, "*"},
		{"a count of numbers and histograms", []string{`h{node="a"} h1`, `h{node="b"} 5`}, `count(h)`, "{} 2"},
		{"a pushed sum with an offset", []string{`foo{node="a"} +1`, `foo{node="b"} +2`}, `sum(foo offset 5m)`, "*"},
		{
			"a pushed rate with an offset",
			[]string{`foo{node="a"} +1`, `foo{node="b"} +2`},
			`sum(rate(foo[3m] offset 2m)) / sum(rate(foo[3m]))`, "*",
		},
		{"a pushed sum at the end", []string{`foo{node="a"} +1`, `foo{node="b"} +2`}, `sum(foo @ end())`, "*"},
		{"a pushed sum at the start", []string{`foo{node="a"} +1`, `foo{node="b"} +2`}, `sum(foo @ start()) + sum(foo)`, "*"},
		{"a subquery of a sum", []string{`foo{node="a"} +1`, `foo{node="b"} +2`}, `max_over_time(sum(foo)[5m:30s])`, "*"},
		{"the query's step in a subquery", []string{`foo{node="a"} +1`, `foo{node="b"} +2`}, `max_over_time(sum(count_over_time(foo[step() + 1m]))[5m:30s])`, "*"},
		{
			"the query's start in a subquery",
			[]string{`foo{node="a"} +1`, `foo{node="b"} +2`},
			`max_over_time(sum(foo @ start())[5m:30s])`,
			"*",
		},
		{"NaN in a maximum", []string{`foo{node="a"} NaN`, `foo{node="b"} 5`}, `max(foo)`, "{} 5"},
		{"NaN in a minimum", []string{`foo{node="a"} 5`, `foo{node="b"} NaN`}, `min(foo)`, "{} 5"},
		{"NaN alone in a maximum", []string{`foo{node="a"} NaN`, `foo{node="b"} NaN`}, `max(foo)`, "{} NaN"},
		{"NaN in a sum", []string{`foo{node="a"} NaN`, `foo{node="b"} 5`}, `sum(foo)`, "{} NaN"},
		{"Inf in a maximum", []string{`foo{node="a"} Inf`, `foo{node="b"} 5`}, `max(foo)`, "{} +Inf"},
		{"Inf in a minimum", []string{`foo{node="a"} 5`, `foo{node="b"} -Inf`}, `min(foo)`, "{} -Inf"},
		{"Inf against Inf in a sum", []string{`foo{node="a"} Inf`, `foo{node="b"} -Inf`}, `sum(foo)`, "{} NaN"},
		{"an average with Inf", []string{`foo{node="a"} Inf`, `foo{node="b"} 1`}, `avg(foo)`, "{} +Inf"},
		{"an average near overflow", []string{`foo{node="a"} 1.7e308`, `foo{node="b"} 1.7e308`}, `avg(foo)`, "*"},
		{"-0 then 0 in a maximum", []string{`foo{node="a"} -0`, `foo{node="b"} 0`}, `max(foo)`, "*"},
		{"0 then -0 in a maximum", []string{`foo{node="a"} 0`, `foo{node="b"} -0`}, `max(foo)`, "*"},
		{"-0 then 0 in a minimum", []string{`foo{node="a"} -0`, `foo{node="b"} 0`}, `min(foo)`, "*"},
		{"0 then -0 in a minimum, the other way round", []string{`foo{node="b"} -0`, `foo{node="a"} 0`}, `min(foo)`, "*"},
		{"-0 in a sum", []string{`foo{node="a"} -0`, `foo{node="b"} -0`}, `sum(foo)`, "*"},
		{"division by a zero of either sign", []string{`foo{node="a"} -0`, `foo{node="b"} 0`}, `1 / max(foo)`, "*"},
		{
			"a sum that cancels out over the shards",
			[]string{`foo{node="a"} 1e16`, `foo{node="b"} 1`, `foo{node="c"} -1e16`},
			`sum(foo)`,
			"{} 1",
		},
		{
			"a sum that cancels out within one",
			[]string{"foo{node=\"a\"} 1e16\nfoo{node=\"b\"} 1\nfoo{node=\"c\"} -1e16", `foo{node="d"} 1`},
			`sum(foo)`, "{} 2",
		},
		{
			"an average that cancels out",
			[]string{`foo{node="a"} 1e16`, `foo{node="b"} 1`, `foo{node="c"} -1e16`, `foo{node="d"} 1`},
			`avg(foo)`, "{} 0.5",
		},
		{
			"a difference of sums that cancels out",
			[]string{`foo{node="a"} 0.1`, `foo{node="b"} 0.2`, `foo{node="c"} 0.3`},
			`sum(foo) - sum(foo)`, "{} 0",
		},
		{
			"a duplicate that only the union shows",
			[]string{`foo{node="a"} 1`, `foo{node="b"} 2`},
			`label_replace(foo, "node", "x", "", "")`,
			"error",
		},
		{"two names that become one", []string{`foo{node="a"} +1`, `bar{node="a"} +2`}, `rate({__name__=~"foo|bar"}[5m])`, "error"},
		{
			"two names that become one below a sum",
			[]string{`foo{node="a"} +1`, `bar{node="a"} +2`},
			`sum(rate({__name__=~"foo|bar"}[5m]))`,
			"error",
		},
		{
			"two names that become one below a negation",
			[]string{`foo{node="a"} 1`, `bar{node="a"} 2`},
			`count(-{__name__=~"foo|bar"})`,
			"error",
		},
		{
			"two names that become one above a threshold",
			[]string{`foo{node="a"} +1`, `bar{node="a"} +2`},
			`rate({__name__=~"foo|bar"}[5m]) > 0.1`, "error",
		},
		{"two names that become one, of which one is filtered out", []string{`foo{node="a"} 1`, `bar{node="a"} 2`}, `abs({__name__=~"foo|bar"}) < 2`, "error"},
		{"the same below a sum", []string{`foo{node="a"} 1`, `bar{node="a"} 2`}, `sum(abs({__name__=~"foo|bar"}) < 2)`, "error"},
		{"the same in a subquery", []string{`foo{node="a"} 1`, `bar{node="a"} 2`}, `max_over_time((abs({__name__=~"foo|bar"}) < 2)[2m:30s])`, "error"},
		{"the same of a negation", []string{`foo{node="a"} 1`, `bar{node="a"} 2`}, `-{__name__=~"foo|bar"} == -1`, "error"},
		{"two names of which a filter leaves one, then negated", []string{`foo{node="a"} 1`, `bar{node="a"} 2`}, `-({__name__=~"foo|bar"} == 1)`, `{node="a"} -1`},
		{
			"a label replaced, then a filter",
			[]string{`foo{node="a"} 1`, `foo{node="b"} 2`},
			`label_replace(foo, "node", "x", "", "") > 1`,
			"error",
		},
		{
			"the same below a sum of it",
			[]string{`foo{node="a"} 1`, `foo{node="b"} 2`},
			`sum(label_replace(foo, "node", "x", "", "") > 1)`,
			"error",
		},
		{
			"a sum times a number, compared",
			[]string{"foo{node=\"a\"} 0.1\nfoo{node=\"b\"} 0.2", `foo{node="c"} 0.3`},
			`sum(foo) * 10 > bool 6`, "*",
		},
		{
			"a sum compared with a fraction",
			[]string{"foo{node=\"a\"} 0.1\nfoo{node=\"b\"} 0.2", `foo{node="c"} 0.3`},
			`sum(foo) > bool (6 / 10)`, "*",
		},
		{
			"a maximum of a sum, compared",
			[]string{"foo{node=\"a\"} 0.1\nfoo{node=\"b\"} 0.2", `foo{node="c"} 0.3`},
			`max(sum(foo)) > bool 0.6`, "*",
		},
		{
			"a magnitude of a sum, compared",
			[]string{"foo{node=\"a\"} 0.1\nfoo{node=\"b\"} 0.2", `foo{node="c"} 0.3`},
			`abs(sum(foo)) > bool 0.6`, "*",
		},
		{
			"a sum or a default, compared",
			[]string{"foo{node=\"a\"} 0.1\nfoo{node=\"b\"} 0.2", `foo{node="c"} 0.3`},
			`(sum(foo) or vector(1)) > bool 0.6`, "*",
		},
		{"two sums compared", []string{
			"foo{node=\"a\"} 0.1\nbar{node=\"a\"} 0.1\nbar{node=\"b\"} 0.2",
			"foo{node=\"b\"} 0.2\nfoo{node=\"c\"} 0.3\nbar{node=\"c\"} 0.3",
		}, `sum(foo) < sum(bar)`, "*"},
		{"two sums compared the other way", []string{
			"foo{node=\"a\"} 0.1\nbar{node=\"a\"} 0.1\nbar{node=\"b\"} 0.2",
			"foo{node=\"b\"} 0.2\nfoo{node=\"c\"} 0.3\nbar{node=\"c\"} 0.3",
		}, `sum(foo) > bool sum(bar)`, "*"},
		{"a ratio of sums compared", []string{
			"foo{node=\"a\"} 0.1\nbar{node=\"a\"} 0.1\nbar{node=\"b\"} 0.2",
			"foo{node=\"b\"} 0.2\nfoo{node=\"c\"} 0.3\nbar{node=\"c\"} 0.3",
		}, `sum(foo) / sum(bar) >= bool 1`, "*"},
		{"two sums that are far apart", []string{
			"foo{node=\"a\"} 0.1\nbar{node=\"a\"} 0.1\nbar{node=\"b\"} 0.2",
			"foo{node=\"b\"} 0.5\nbar{node=\"c\"} 0.7",
		}, `sum(foo) < sum(bar)`, "*"},
		{"scalar of one series in all", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `scalar(foo)`, "scalar NaN"},
		{"scalar of a sum", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `scalar(sum(foo)) + 1`, "scalar 4"},
		{"grouping by the group's label", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `sum by (cluster) (foo)`, "*"},
		{"grouping without the group's label", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `sum without (cluster, node) (foo)`, "{} 3"},
		{"a matcher on the group's label", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `sum(foo{cluster!="jaguar"})`, "*"},
		{"no such group", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `count(foo{cluster="nowhere"}) or sum(foo)`, "{} 3"},
		{"timestamps", []string{`foo{node="a"} 1`, `foo{node="b"} 2`}, `max(timestamp(foo)) - min(timestamp(foo))`, "*"},
		{
			"limit_ratio",
			[]string{"foo{node=\"a\"} 1\nfoo{node=\"c\"} 1\nfoo{node=\"e\"} 1", "foo{node=\"b\"} 2\nfoo{node=\"d\"} 2"},
			`limit_ratio(0.5, foo)`, "*",
		},
		{
			"limitk",
			[]string{"foo{node=\"b\"} 1\nfoo{node=\"d\"} 1", "foo{node=\"a\"} 2\nfoo{node=\"c\"} 2"},
			`limitk(2, foo)`,
			"{__name__=\"foo\", node=\"a\"} 2\n{__name__=\"foo\", node=\"b\"} 1",
		},
		{"sorted", []string{"foo{node=\"a\"} 1\nfoo{node=\"b\"} 4", "foo{node=\"c\"} 3\nfoo{node=\"d\"} 2"}, `sort(foo)`, "*"},
		{"a sum in a sort", []string{
			"foo{node=\"a\",j=\"x\"} 1\nfoo{node=\"b\",j=\"y\"} 4",
			"foo{node=\"c\",j=\"x\"} 3\nfoo{node=\"d\",j=\"z\"} 2",
		}, `sort_desc(sum by (j) (foo))`, "*"},
	}
	shards := exactShards(cases)
	for _, world := range []struct {
		name     string
		replicas int
		labelled bool
	}{{"agreeing replicas", 2, false}, {"one replica in a group with a label", 1, true}} {
		t.Run(world.name, func(t *testing.T) {
			h := exactTable(t, world.replicas, world.labelled, "", shards...)
			end := h.w.start.Add(17*time.Minute + 3*time.Second)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { h.named(t, c, end, !world.labelled) })
			}
			if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"] < len(cases)/2 {
				t.Errorf("only %d of %d questions, each asked twice, ran as push", h.tally.modes["push"], len(cases))
			}
		})
	}
}

// The same where shard_by says what tells the shards apart, and some series lack it.
func TestExactByNameSharded(t *testing.T) {
	foobar := []string{"foo{node=\"a\"} 5\nbar{node=\"a\"} 2\nbar{x=\"1\"} 7", "foo{node=\"b\"} 5\nbar{node=\"b\"} 2\nbar{x=\"2\"} 7"}
	full := []string{"foo{node=\"a\"} 5\nbar{node=\"a\"} 2", "foo{node=\"b\"} 6\nbar{node=\"b\"} 2"}
	buckets := []string{
		"b_bucket{node=\"a\",le=\"1\"} 5\nb_bucket{node=\"a\",le=\"+Inf\"} 8",
		"b_bucket{node=\"b\",le=\"1\"} 5\nb_bucket{node=\"b\",le=\"+Inf\"} 8",
	}
	cases := []exactNamed{
		{"a join whose right side lacks the label on two shards", foobar, `foo * on (node) bar`, "error"},
		{"the same with group_left", foobar, `foo{node!=""} * on (node) group_left bar`, "error"},
		{"the same with group_right", foobar, `bar * on (node) group_right foo{node!=""}`, "error"},
		{"the same below a sum", foobar, `sum(foo * on (node) group_left bar)`, "error"},
		{"a join whose left side lacks it and matches nothing", foobar, `bar * on (node) foo`, "{node=\"a\"} 10\n{node=\"b\"} 10"},
		{"a join on the label", full, `foo * on (node) bar`, "{node=\"a\"} 10\n{node=\"b\"} 12"},
		{"a sum of a join on the label", full, `sum(foo * on (node) group_left bar)`, "{} 22"},
		{"names that become one beside a join", []string{"foo{x=\"1\"} 1\nbaz{node=\"a\"} 1", "bar{x=\"1\"} 2\nbaz{node=\"b\"} 1"}, `-{__name__=~"foo|bar"} and on (node) baz{node!=""}`, "error"},
		{"a label replaced beside a join", []string{"foo{x=\"1\"} 1\nbaz{node=\"a\"} 1", "foo{x=\"2\"} 2\nbaz{node=\"b\"} 1"}, `label_replace(foo, "x", "z", "", "") and on (node) baz{node!=""}`, "error"},
		{
			"names that become one on nodes of their own",
			[]string{"foo{node=\"a\"} 1\nbar{node=\"c\"} 3", "bar{node=\"b\"} 2"},
			`-{__name__=~"foo|bar"} < -1`, "{node=\"b\"} -2\n{node=\"c\"} -3",
		},
		{"quantiles that set the label", buckets, `count(histogram_quantiles(b_bucket, "node", 0.5))`, "error"},
		{"quantiles that set another", buckets, `count(histogram_quantiles(b_bucket, "q", 0.5))`, "{} 2"},
	}
	h := exactTable(t, 1, false, "    shard_by: [node]\n", exactShards(cases)...)
	end := h.w.start.Add(17*time.Minute + 3*time.Second)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { h.named(t, c, end, true) })
	}
	if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"]+h.tally.modes["splice"] < 6 {
		t.Errorf("only %v of the questions that shards can answer were answered by them", h.tally.modes)
	}
}

// A group without labels, as that of what a ruler recorded is, takes part in every query, and what
// joins is put together here. By the names that it says to have it is left out.
func TestExactByNameWithNames(t *testing.T) {
	shards := []string{
		"foo{node=\"a\"} 5\nbar{node=\"a\"} 2\nnode:own{node=\"a\"} 1",
		"foo{node=\"b\"} 6\nbar{node=\"b\"} 2\nnode:own{node=\"b\"} 2",
	}
	const recorded = "cluster:foo{cluster=\"jaguar\"} 11\nALERTS{cluster=\"jaguar\",alertname=\"x\"} 1"
	cases := []exactNamed{
		{"a join", nil, `foo * on (node) bar`, "{node=\"a\"} 10\n{node=\"b\"} 12"},
		{"a sum of a join", nil, `sum by (cluster) (foo * on (node) group_left bar)`, "{cluster=\"jaguar\"} 22"},
		{"a join of what shards recorded", nil, `node:own * on (node) foo`, "{node=\"a\"} 5\n{node=\"b\"} 12"},
		{"one of several names", nil, `sum({__name__=~"foo|bar"})`, "{} 15"},
		{"what was recorded", nil, `cluster:foo`, "{__name__=\"cluster:foo\", cluster=\"jaguar\"} 11"},
		{"what was recorded beside what was not", nil, `sum by (cluster) (foo) - on (cluster) cluster:foo`, "{cluster=\"jaguar\"} 0"},
		{"recorded or not", nil, `count({__name__=~"foo|cluster:foo"})`, "{} 3"},
		{"names that a pattern selects", nil, `count({__name__=~"(foo|cluster).*"})`, "{} 3"},
		{"everything but a name", nil, `count({__name__!="up",node="a"})`, "{} 3"},
		{"a name that is nowhere", nil, `absent(nowhere{x="y"})`, "{x=\"y\"} 1"},
		{"a name and none", nil, `count({__name__=~"foo|",node!=""})`, "{} 2"},
		{"names that exclude each other", nil, `{__name__="foo",__name__=~"bar|cluster:foo"}`, ""},
		{"a heartbeat of both", nil, `count(up)`, "{} 3"},
	}
	roads := map[string]map[string]string{} // by what is declared and by case: what each shard was asked
	for name, keys := range map[string]string{
		"without": "", "with": "    names: [ALERTS, \"cluster:.+\", up]\n",
		"broken": "    names: [ALERTS, up]\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newTable()
			w.table(t, &exactGroup{
				name: "jaguar", labels: labels.FromStrings("cluster", "jaguar"),
				replicaLabels: []string{"prometheus_replica"}, heartbeat: "up", keys: "    shard_by: [node]\n",
			}, 1, shards[0]+"\n",
				shards[1]+"\n")
			w.table(t, &exactGroup{name: "rules", replicaLabels: []string{"prometheus_replica"}, keys: keys}, 1, recorded+"\n")
			h := (&exactHarness{t: t, w: w, tally: &exactTally{modes: map[string]int{}}}).serve()
			road := map[string]string{}
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					end := w.start.Add(17*time.Minute + 3*time.Second)
					h.named(t, c, end, true)
					h.ref.seen()
					if _, err := h.proxy(exactQuestion{query: c.query, start: end, end: end}); err != nil {
						t.Fatal(err)
					}
					seen := h.ref.seen()
					var calls []string
					for _, call := range seen.calls {
						calls = append(calls, call.shard+" "+call.query)
					}
					slices.Sort(calls)
					road[c.name] = fmt.Sprintf("%q %d", calls, len(seen.selected))
				})
			}
			roads[name] = road
		})
	}
	for name, want := range map[string]string{
		"a join":                         `["jaguar[0] foo * on (node) bar" "jaguar[1] foo * on (node) bar"] 0`,
		"a sum of a join":                `["jaguar[0] sum by (cluster) (foo * on (node) group_left bar)" "jaguar[1] sum by (cluster) (foo * on (node) group_left bar)"] 0`,
		"a join of what shards recorded": `["jaguar[0] node:own * on (node) foo" "jaguar[1] node:own * on (node) foo"] 0`,
		"what was recorded":              `["jaguar[0] cluster:foo" "jaguar[1] cluster:foo" "rules[0] cluster:foo"] 0`,
		"names that a pattern selects":   roads["without"]["names that a pattern selects"],
		"a heartbeat of both":            roads["without"]["a heartbeat of both"],
	} {
		if got := roads["with"][name]; got != want {
			t.Errorf("%s with names: the shards were asked %s, want %s", name, got, want)
		}
	}
	if with, without := roads["with"]["a join"], roads["without"]["a join"]; with == without {
		t.Errorf("a join runs the same without names: %s", without)
	}
	if !maps.Equal(roads["broken"], roads["without"]) {
		t.Errorf("names that a server does not keep to change something:\n%v\n%v", roads["broken"], roads["without"])
	}
}

// Where type and unit are parts of a metric's name, series of one name may become equal when they
// lose it.
func TestExactByNameTyped(t *testing.T) {
	was := exactFeatures
	t.Cleanup(func() { exactFeatures = was })
	exactFeatures = append(slices.Clone(was), "type-and-unit-labels")
	typed := []string{`foo{job="x",__type__="gauge"} +1`, `foo{job="x",__type__="counter"} +2`}
	apart := []string{`foo{job="x",__type__="counter",__unit__="s"} 1`, `foo{job="y",__type__="counter",__unit__="s"} 2`}
	cases := []exactNamed{
		{"a sum of rates", typed, `sum(rate(foo[5m]))`, "error"},
		{"a count of products", typed, `count(foo * 2)`, "error"},
		{"a count of negations", typed, `count(-foo)`, "error"},
		{"a maximum of magnitudes", typed, `max(abs(foo))`, "error"},
		{"a count of the series themselves", typed, `count(foo)`, "{} 2"},
		{"one type of two", typed, `count(-foo{__type__="gauge",__unit__=""})`, "{} 1"},
		{"one type and unit", apart, `sum(abs(foo{__type__="counter",__unit__="s"}))`, "{} 3"},
	}
	h := exactTable(t, 1, false, "", exactShards(cases)...)
	h.ref.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: exactParser, EnableTypeAndUnitLabels: true,
	})
	end := h.w.start.Add(17*time.Minute + 3*time.Second)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { h.named(t, c, end, true) })
	}
	if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"] < 6 {
		t.Errorf("only %v of the questions that name type and unit, or drop no name, were pushed", h.tally.modes)
	}
}

// Where engines know start timestamps, those of what is no selector are nothing at all.
func TestExactByNameStarts(t *testing.T) {
	was := exactFeatures
	t.Cleanup(func() { exactFeatures = was })
	exactFeatures = append(slices.Clone(was), "use-start-timestamps")
	apart := []string{`foo{job="x"} 1`, `foo{job="y"} 2`}
	cases := []exactNamed{
		{"of a sum", apart, `start_timestamp(sum without () (foo))`, ""},
		{"of a sum in parentheses", apart, `start_timestamp((sum without () (foo)))`, ""},
		{"of a product", apart, `start_timestamp(foo * 2)`, ""},
		{"counted", apart, `count(start_timestamp(max by (job) (foo)))`, ""},
		{"of a selector", apart, `start_timestamp(foo)`, "*"},
	}
	h := exactTable(t, 1, false, "", exactShards(cases)...)
	h.ref.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: exactParser, UseStartTimestamps: true,
	})
	end := h.w.start.Add(17*time.Minute + 3*time.Second)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { h.named(t, c, end, true) })
	}
	if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"]+h.tally.modes["splice"] == 0 {
		t.Errorf("nothing was asked of shards: %v", h.tally.modes)
	}
}

// exactShards gives each case metrics of its own and puts all of them in the same shards.
func exactShards(cases []exactNamed) []string {
	shards := make([]string, 4)
	for i := range cases {
		own := func(text string) string { return exactNames.ReplaceAllString(text, fmt.Sprintf("${1}_%d", i)) }
		for si, text := range cases[i].shards {
			shards[si] += own(text) + "\n"
		}
		cases[i].query, cases[i].want = own(cases[i].query), own(cases[i].want)
	}
	return shards
}

// exactNamed is a question with its answer.
type exactNamed struct {
	name   string
	shards []string
	query  string
	want   string // series and values, at an instant; empty is nothing, * is whatever the reference says
}

// exactNames are the metrics of the cases.
var exactNames = regexp.MustCompile(`\b(foo|bar|baz|h|b_bucket|nothing)\b`)

// named asks at an instant and over a range.
func (h *exactHarness) named(t *testing.T, c exactNamed, end time.Time, written bool) {
	for _, q := range []exactQuestion{
		{query: c.query, start: end, end: end},
		{query: c.query, start: end.Add(-4 * time.Minute), end: end, step: 37 * time.Second},
	} {
		v := h.check(q)
		h.tally.modes[v.mode]++
		if v.failed {
			t.Errorf("%s (step %s, ran as %s): %s", c.query, q.step, v.mode, v.text)
			continue
		}
		if c.want == "*" || q.step > 0 || !written {
			continue
		}
		got, err := h.proxy(q)
		if err != nil {
			t.Fatal(err)
		}
		if text := exactText(got); text != c.want {
			t.Errorf("%s (ran as %s):\n%s\nwant\n%s", c.query, v.mode, text, c.want)
		}
	}
}

// exactText is an instant answer as the table above writes it.
func exactText(r exactReply) string {
	if r.answer == nil {
		return "error"
	}
	var lines []string
	for _, key := range r.answer.order {
		for _, v := range r.answer.series[key] {
			name := key
			if r.answer.kind == "scalar" {
				name = "scalar"
			}
			lines = append(lines, name+" "+v.text)
		}
	}
	if r.answer.kind == "vector" {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}
