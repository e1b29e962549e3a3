package server

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// An @ in the parameter of an aggregate is none to Prometheus' engine: it does not look there for
// what start() and end() are, nor for what is the same at all steps. Each step has a parameter of
// its own.
func TestExactByNamePinnedParameters(t *testing.T) {
	apart := []string{"foo{node=\"a\"} +1\nbar{node=\"a\"} 1\nbar{node=\"c\"} 7", "foo{node=\"b\"} +2\nbar{node=\"b\"} 3\nbar{node=\"d\"} 20"}
	cases := []exactNamed{
		{"a minimum at the start", apart, `quantile(scalar(min(foo @ start())) / 100, bar)`, "*"},
		{"a minimum at the end", apart, `quantile(scalar(min(foo @ end())) / 100, bar)`, "*"},
		{"a minimum at a time", apart, `quantile(scalar(min(foo @ AT)) / 100, bar)`, "*"},
		{"a minimum at a time that is out of sight", apart, `quantile(scalar(min(foo @ EARLY)) / 100, bar)`, "*"},
		{"a rate with an offset", apart, `quantile(scalar(sum(increase(foo[2m] @ start() offset 1m))) / 100, bar)`, "*"},
		{"of what is the same at all steps", apart, `quantile(scalar(max(foo @ end())) / 100, sum by (node) (bar @ end()))`, "*"},
		{"a subquery at the start", apart, `quantile(scalar(max_over_time(sum(foo)[2m:30s] @ start())) / 1000, bar)`, "*"},
		{"a subquery at a time", apart, `quantile(scalar(max_over_time(sum(foo)[2m:30s] @ AT)) / 1000, bar)`, "*"},
		{"a minimum at the start of a subquery", apart, `quantile(scalar(max_over_time(min(foo @ start())[2m:30s])) / 100, bar)`, "*"},
		{"in a subquery", apart, `max_over_time(quantile(scalar(min(foo @ start())) / 100, bar)[2m:30s])`, "*"},
		{"in a subquery, at a time", apart, `max_over_time(quantile(scalar(min(foo @ AT)) / 100, bar)[2m:30s])`, "*"},
		{"topk", apart, `topk(scalar(min(foo @ end())) - 64, bar)`, "*"},
		{"the parameter of a parameter", apart, `quantile(scalar(quantile(scalar(min(foo @ start())) / 100, foo)) / 100, bar)`, "*"},
		{"a subquery at the start, of what shards say side by side", apart, `quantile(scalar(max(max_over_time(sum by (node) (foo)[2m:30s] @ start()))) / 1000, bar)`, "*"},
		{"timestamps of a selector in parentheses", apart, `quantile(scalar(max(timestamp((foo)))) / AT, bar)`, "*"},
		{"the range of a selector in parentheses", apart, `quantile(scalar(sum(increase((foo[2m])))) / 100, bar)`, "*"},
		{"a subquery in parentheses", apart, `quantile(scalar(sum(max_over_time((foo[2m:30s])))) / 100, bar)`, "*"},
		{"a sum in parentheses", apart, `quantile(scalar((sum((foo)))) / 100, bar)`, "*"},
		{"not pinned", apart, `quantile(scalar(min(foo)) / 100, bar)`, "*"},
		{"a constant", apart, `quantile(start() / 1e10, sum by (node) (bar))`, "*"},
	}
	shards := exactShards(cases)
	for name, keys := range map[string]string{"without": "", "with": "    shard_by: [node]\n"} {
		t.Run(name+" shard_by", func(t *testing.T) {
			h := exactTable(t, 1, false, keys, shards...)
			h.pinned(t, cases)
			if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"] == 0 {
				t.Errorf("nothing was asked of shards: %v", h.tally.modes)
			}
		})
	}
}

// The same where one shard could answer a part of the query over other times than the query's.
func TestExactByNamePinnedParametersOfOneShard(t *testing.T) {
	apart := []string{"foo{node=\"a\"} +1\nbar{node=\"a\"} 1\nbar{node=\"c\"} 7\nbar{node=\"d\"} 20"}
	const sum = `(quantile(scalar(min(foo{cluster="jaguar"} @ AT)) / 100, bar{cluster="jaguar"}) + on () sum(baz))`
	const plain = `(sum(foo{cluster="jaguar"}) + on () sum(baz))`
	cases := []exactNamed{
		{"itself", apart, sum, "*"},
		{"in a subquery", apart, `max_over_time(` + sum + `[2m:30s])`, "*"},
		{"of another step", apart, `sum_over_time(` + sum + `[2m:19s])`, "*"},
		{"with an offset", apart, `sum_over_time(` + sum + `[1m:15s] offset 1m)`, "*"},
		{"at the end", apart, strings.ReplaceAll(`max_over_time(`+sum+`[2m:30s])`, "AT", "end()"), "*"},
		{"without a parameter", apart, `max_over_time(` + plain + `[2m:30s])`, "*"},
	}
	w := newTable()
	w.table(t, &exactGroup{
		name: "jaguar", labels: labels.FromStrings("cluster", "jaguar"), replicaLabels: []string{"prometheus_replica"}, heartbeat: "up",
	}, 1, exactShards(cases)[0])
	rest := ""
	for i := range cases {
		rest += exactNames.ReplaceAllString("baz{node=\"x\"} 1\n", "${1}_"+string(rune('0'+i)))
	}
	w.table(t, &exactGroup{
		name: "ocelot", labels: labels.FromStrings("cluster", "ocelot"), replicaLabels: []string{"prometheus_replica"}, heartbeat: "up",
	}, 1, rest)
	h := (&exactHarness{t: t, w: w, tally: &exactTally{modes: map[string]int{}}}).serve()
	h.pinned(t, cases)
	if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"] == 0 {
		t.Errorf("nothing was asked of shards: %v", h.tally.modes)
	}
}

// pinned asks them at several times.
func (h *exactHarness) pinned(t *testing.T, cases []exactNamed) {
	times := strings.NewReplacer("AT", stamp(h.w.start.Add(15*time.Minute)), "EARLY", stamp(h.w.start.Add(5*time.Minute)))
	for _, c := range cases {
		c.query = times.Replace(c.query)
		for _, end := range []time.Duration{17*time.Minute + 3*time.Second, 19 * time.Minute} {
			t.Run(c.name, func(t *testing.T) { h.named(t, c, h.w.start.Add(end), false) })
		}
	}
}
