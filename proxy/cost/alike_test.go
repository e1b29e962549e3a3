package cost

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/tree"
)

// groups is how many series of a query's result, over all steps, have the same labels at most.
func groups(t *testing.T, engine *promql.Engine, stored storage.Queryable, query string, l Labels) int64 {
	t.Helper()
	end := time.Unix(1_790_000_000, 0)
	q, err := engine.NewRangeQuery(t.Context(), stored, nil, query, end.Add(-5*time.Minute), end, 15*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	res := q.Exec(t.Context())
	m, err := res.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	by, most := map[string]int64{}, int64(0)
	for _, s := range m {
		b := labels.NewBuilder(s.Metric)
		if l.Without {
			b.Del(l.Names...)
		} else {
			b.Keep(l.Names...)
		}
		key := b.Labels().String()
		by[key]++
		most = max(most, by[key])
	}
	return most
}

// TestAlike compares how many series of a result are reckoned to be alike by labels with how many
// of the engine's are: never fewer, and where a case says so no more.
func TestAlike(t *testing.T) {
	end := time.Unix(1_790_000_000, 0)
	const pods = 300 // on a hundred nodes
	stored := head(t, pods, 5, end.Add(-20*time.Minute), end)
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1 << 30, Timeout: time.Minute, NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
		Parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true}),
	})
	steps, some := 21., math.Inf(1)
	countless := [4]float64{some, some, some, some}
	for _, tc := range []struct {
		query string
		most  [4]float64 // by each of the labels below
	}{
		{"x_total", [4]float64{3, 1, pods, pods}},
		{"topk by (node) (1, x_total)", [4]float64{3, 1, pods, pods}},
		{"max by (node) (topk by (node) (1, x_total))", [4]float64{3, pods, pods, pods}},
		{"max without (pod) (x_total)", [4]float64{3, pods, pods, pods}},
		{"(-x_total)", [4]float64{3, 1, pods, pods}},
		{"rate(x_total[1m])", [4]float64{3, 1, pods, pods}},
		{"max_over_time((x_total > 7)[1m:])", [4]float64{3, 1, pods, pods}},
		{"x_total > 100", [4]float64{3, 1, pods, pods}},
		{"2 * x_total", [4]float64{3, 1, pods, pods}},
		{"vector(1) or x_total or x_total * 2", [4]float64{7, 3, 2*pods + 1, 2*pods + 1}},
		{"x_total and on (node) topk(1, x_total)", [4]float64{3, 1, pods, pods}},
		{"x_total * on (node, pod) x_total", [4]float64{3, 1, pods, pods}},
		{`x_total * on (node) group_left (up) label_replace(max by (node) (x_total), "up", "1", "", "")`, [4]float64{3, 1, pods, pods}},
		{`x_total * on (node) group_left (p) label_replace(topk by (node) (1, x_total), "p", "$1", "pod", "(.*)")`, countless},
		{"topk(1, x_total) * on () group_right () x_total", [4]float64{3, 1, pods, pods}},
		{`label_replace(x_total, "node", "a", "", "")`, [4]float64{pods, 1, pods, pods}},
		{`label_join(x_total, "pod", "-", "node", "pod")`, [4]float64{3, pods, pods, pods}},
		{`info(x_total, {x="y"})`, [4]float64{pods, pods, pods, pods}},
		{`histogram_quantile(0.9, label_replace(x_total, "le", "1", "", ""))`, [4]float64{3, 1, pods, pods}},
		{`histogram_quantiles(native, "q", 0.5, 0.9)`, [4]float64{10, 2, 2 * pods, 10}},
		{`count_values("v", x_total)`, countless},
		{"absent(nope)", [4]float64{1, 1, 1, 1}},
		{"vector(time())", [4]float64{1, 1, 1, 1}},
	} {
		for i, l := range []Labels{{Names: []string{"node"}}, {Names: []string{"pod"}}, {}, {true, []string{"__name__", "node", "pod"}}} {
			e := estimate{
				times:  tree.TimesOf(int64(steps), 15_000, 60_000),
				series: func(*parser.VectorSelector) (int64, int64) { return pods, 0 },
				alike: func(vs *parser.VectorSelector, l Labels) int64 {
					return groups(t, engine, stored, vs.String(), l)
				},
			}
			got, least := e.same(parsed(t, tc.query), l), groups(t, engine, stored, tc.query, l)
			if got < float64(least) || got != tc.most[i] {
				t.Errorf("%s: %v series are reckoned to be alike by %v, want %v; they are %d", tc.query, got, l, tc.most[i], least)
			}
		}
	}
}

// TestMeets: what a series of a join meets is the same one where nothing is chosen, or as many as
// there are alike by what the join looks at, and no more than steps.
func TestMeets(t *testing.T) {
	alike := map[string]int64{"{false [job]}": 700, "{false [job pod]}": 2, "{true [__name__ pod]}": 30, "{true [__name__]}": 4}
	for query, want := range map[string]float64{
		"a * on (job) group_left () b":                                       1,
		"a * on (job) group_left () topk(1, b)":                              700,
		"a * on (pod, job) group_left () topk(1, b)":                         2,
		"topk(1, b) * on (pod, job) group_right () a":                        2,
		"a * ignoring (pod) group_left () topk(1, b)":                        30,
		"a * ignoring () group_left () topk(1, b)":                           1, // of one metric each is another
		`a * ignoring () group_left () topk(1, {job="b"})`:                   4,
		"a * on () group_left () topk(1, b)":                                 900,
		"a * on (job) group_left () max by (job) (topk(1, b))":               700,
		"a * on (job) group_left () max by (pod) (topk(1, b))":               900,
		"a * on (job, x) group_left () max by (job) (b > 1)":                 700,
		`a * on (job) group_left () label_replace(b > 1, "job", "", "", "")`: 900,
		`a * on (job) group_left () count_values("job", b)`:                  1000,
	} {
		e := estimate{series: floats(900), alike: func(_ *parser.VectorSelector, l Labels) int64 {
			n, ok := alike[fmt.Sprint(l)]
			if !ok {
				t.Errorf("%s: alike by %v?", query, l)
			}
			return n
		}}
		b, ok := parsed(t, query).(*parser.BinaryExpr)
		if !ok {
			t.Fatal(query)
		}
		if got := e.meets(b, tree.Over(1000, 1)); got != want {
			t.Errorf("%s: meets %v, want %v", query, got, want)
		}
		if got := e.meets(b, tree.Over(1, 0)); got != 1 {
			t.Errorf("%s: meets %v at one step", query, got)
		}
		e.alike = nil // not known
		if got := e.meets(b, tree.Over(1000, 1)); got < want || got > 1 && got != 1000 {
			t.Errorf("%s: meets %v where it is not known how many are alike", query, got)
		}
	}
}
