package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestCountValuesAtManyStepsIsNotForShards: a series of each value at each step, of each of a
// million series, fills a server; what shards do without such goes on to run there, and so does
// count_values at one time.
func TestCountValuesAtManyStepsIsNotForShards(t *testing.T) {
	ranged := func(text string, steps int) *endpoint.Request {
		return rangeQuery(text, time.Duration(steps-1)*time.Second, time.Second)
	}
	for _, tc := range []struct {
		name  string
		req   *endpoint.Request
		heavy bool
	}{
		{"a table of versions", instantQuery(`count_values("version", build_info)`), false},
		{"a table of versions by cluster, sorted", instantQuery(`sort_desc(count_values by (cluster) ("version", build_info))`), false},
		{"two steps", ranged(`count_values("v", g)`, 2), false},
		{"a panel of versions", ranged(`count_values("version", build_info)`, 361), true},
		{"all labels, many steps", ranged(`count_values without (zzz) ("v", g + 1)`, 11_000), true},
		{"of a sum", ranged(`count_values("v", sum(g))`, 11_000), true},
		{"under an aggregation", ranged(`sum(count_values without (zzz) ("v", g))`, 601), true},
		{"under an operator", ranged(`up * on () group_left (v) count_values("v", g)`, 601), true},
		{"in a subquery", instantQuery(`count_over_time(count_values("v", time() + 0*(up{job="exp0"} @ end()))[219998s:1s])`), true},
		{"in a parameter", ranged(`topk(scalar(count_values("v", g)), up)`, 601), true},
		{"labels of whatever is on top", ranged(`c * on () group_left (i) topk(1, g)`, 601), true},
		{"labels of whatever is equal", ranged(`(g == time()) * on () group_right (i) c`, 601), true},
		{"labels of what is on top of each pod", ranged(`sum by (node) (c * on (namespace, pod) group_left (node) topk by (namespace, pod) (1, max by (namespace, pod, node) (kube_pod_info{node!=""})))`, 601), false},
		{"labels of a build", ranged(`c * on () group_left (version) build_info`, 601), false},
		{"no labels", ranged(`c * on () group_left () topk(1, g)`, 601), false},
		{"no count_values", ranged(`label_replace(up, "x", "$1", "instance", "(.*):.*")`, 11_000), false},
	} {
		d, err := Decide(tc.req, testLimits(), testGroup, now)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		why := ""
		if d.Heavy != nil {
			why = d.Heavy(d.Expr)
		}
		if (why != "") != tc.heavy || tc.heavy && !strings.Contains(why, "count_values may make a series") &&
			!strings.Contains(why, "may copy other labels at each of 601 steps") {
			t.Errorf("%s: not for shards because %q, want %t", tc.name, why, tc.heavy)
		}
		if !tc.heavy {
			continue
		}
		// The part itself does not say at how many steps it is evaluated, and what it counts is for
		// shards.
		parser.Inspect(d.Expr, func(n parser.Node, _ []parser.Node) error {
			if b, ok := n.(*parser.BinaryExpr); ok && CopiesChosen(b) && d.Heavy(b) == "" {
				t.Errorf("%s: %s may be sent", tc.name, b)
			}
			if a, ok := n.(*parser.AggregateExpr); ok && a.Op == parser.COUNT_VALUES {
				if d.Heavy(a) == "" {
					t.Errorf("%s: %s may be sent", tc.name, a)
				}
				if why := d.Heavy(a.Expr); why != "" {
					t.Errorf("%s: %s may not be sent: %s", tc.name, a.Expr, why)
				}
			}
			return nil
		})
	}
}

// TestMadeSeriesAreBounded: what is held of series that are made at steps, and how often what
// stands around them goes past them.
func TestMadeSeriesAreBounded(t *testing.T) {
	const text = `sum(count_values("v", g))`
	counted := &parser.AggregateExpr{Op: parser.COUNT_VALUES, PosRange: posrange.PositionRange{Start: 4, End: 24}}
	var few MadeSeries
	for range 20 {
		if n, err := few.Add(counted, Row{Labels: 30, Points: 361, Held: 2, Visits: 361}, text); err != nil || n != 30+2*(361*16+384) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	until := func(r Row) (n int, err error) {
		var s MadeSeries
		for ; err == nil && n < 1_000_000; n++ {
			_, err = s.Add(counted, r, text)
		}
		return n, err
	}
	n, err := until(Row{Labels: 30, Points: 11_000, Held: 1})
	if e := refusal(t, err); e.Bound != BoundLabelBytes || n != 128<<20/(30+5000*16+384)+1 || !strings.Contains(e.Message, "count_values at 1:5 makes a series of each value that it meets at 11000 steps") || e.Advice == "" {
		t.Errorf("%d: %s %s", n, e.Bound, e.Message)
	}
	n, err = until(Row{Labels: 30, Points: 220_000, Held: 1, Visits: 500 * 220_000})
	if e := refusal(t, err); e.Bound != BoundMaxPoints || n != 3 || !strings.Contains(e.Message, "1320000000 times") {
		t.Errorf("%d: %s %s", n, e.Bound, e.Message)
	}
}
