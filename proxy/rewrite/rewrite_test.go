package rewrite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

var promql = parser.NewParser(parser.Options{
	ExperimentalDurationExpr: true, EnableExperimentalFunctions: true, EnableBinopFillModifiers: true,
})

const hour = int64(time.Hour / time.Millisecond)

// asked is a range query over so long, at that step; an instant one where the step is 0.
func asked(t testing.TB, bound, query string, over, step time.Duration) Question {
	t.Helper()
	r := &endpoint.Request{ID: endpoint.Query, Query: query, Time: endpoint.At(1000 * hour)}
	if step > 0 {
		r = &endpoint.Request{
			ID: endpoint.QueryRange, Query: query, Start: endpoint.At(1000*hour - over.Milliseconds()), End: endpoint.At(1000 * hour),
			Step: step,
		}
	}
	e, err := promql.ParseExpr(query)
	if err != nil {
		t.Fatal(err)
	}
	return Question{Request: r, Expr: e, Bound: bound, Parser: promql}
}

// candidates are all of a question, in their order.
func candidates(q Question) (out []Candidate) {
	if !q.parsed() {
		return nil
	}
	for _, w := range q.ways() {
		for c := range w {
			out = append(out, c)
		}
	}
	return out
}

// TestCandidates: what is proposed of each kind, in which order.
func TestCandidates(t *testing.T) {
	for _, tc := range []struct {
		name  string
		q     Question
		first string // what the first candidate says
		some  []string
	}{
		{
			name: "too many points", q: asked(t, policy.BoundMaxPoints, "up", 6*time.Hour, time.Second), first: "step=2s",
			some: []string{"step=30m", "the last 3h of this range"},
		},
		{
			name: "too long a range", q: asked(t, policy.BoundMaxRange, "sum(rate(x[5m]))", 60*24*time.Hour, time.Hour),
			first: "the last 31d of this range", some: []string{"the last 1w of this range"},
		},
		{
			name: "too long a range in brackets", q: asked(t, policy.BoundMaxRange, "rate(x[60d]) / rate(y[60d])", 0, 0),
			first: "rate(x[31d]) / rate(y[31d])", some: []string{"rate(x[5m]) / rate(y[5m])"},
		},
		{
			name: "a subquery's step", q: asked(t, policy.BoundMaxShardBytes, "max_over_time(rate(x[5m])[1h:15s])", 0, 0),
			first: "max_over_time(rate(x[5m])[1h:30s])", some: []string{"max_over_time(rate(x[5m])[30m:15s])"},
		},
		{
			name: "series", q: asked(t, policy.BoundMaxSeries, `rate(http_requests_total{code="500"}[5m])`, 0, 0),
			first: `topk(10, rate(http_requests_total{code="500"}[5m]))`,
			some: []string{
				`sum by (namespace) (rate(http_requests_total{code="500"}[5m]))`,
				`sum(rate(http_requests_total{code="500"}[5m]))`,
			},
		},
		{
			name: "series of an info metric", q: asked(t, policy.BoundMaxSeries, `kube_pod_info{namespace="a"}`, 0, 0),
			first: `topk(10, kube_pod_info{namespace="a"})`,
			some:  []string{`count by (job) (kube_pod_info{namespace="a"})`, `count(kube_pod_info{namespace="a"})`},
		},
		{
			name: "series of buckets", q: asked(t, policy.BoundMaxSeries, `rate(x_bucket[5m])`, 0, 0),
			first: `topk(10, rate(x_bucket[5m]))`, some: []string{`sum by (le) (rate(x_bucket[5m]))`},
		},
		{
			name: "groups", q: asked(t, policy.BoundMaxSeries, `sum by (namespace, pod) (x)`, 0, 0), first: `sum by (namespace) (x)`,
			some: []string{`sum(x)`},
		},
		{
			name:  "groups below a quantile keep the buckets",
			q:     asked(t, policy.BoundMaxSeries, `histogram_quantile(0.9, sum by (le, pod) (rate(x_bucket[5m])))`, 0, 0),
			first: `histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))`,
		},
		{
			name: "without", q: asked(t, policy.BoundMaxSeries, `sum without (pod) (x)`, 0, 0), first: `topk(10, sum without (pod) (x))`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var texts []string
			for _, c := range candidates(tc.q) {
				texts = append(texts, Words(tc.q.Request, c.Request))
			}
			if len(texts) == 0 || texts[0] != tc.first {
				t.Fatalf("the first candidate is not %s: %s", tc.first, strings.Join(texts, "\n"))
			}
			for _, s := range tc.some {
				if !slices.Contains(texts, s) {
					t.Errorf("no candidate is %s: %s", s, strings.Join(texts, "\n"))
				}
			}
		})
	}
}

// TestNames: names and values are those that may be told, and go where they fit.
func TestNames(t *testing.T) {
	q := asked(t, policy.BoundUnselective, `sum(rate({le!="",job=~".+"}[5m]))`, 0, 0)
	q.Metrics = slices.Values([]string{"a_bucket", "a_gauge", "über_total"})
	want := []string{`sum(rate(a_bucket{job=~".+",le!=""}[5m]))`, `sum(rate({__name__="über_total",job=~".+",le!=""}[5m]))`}
	got := candidates(q)
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i, c := range got {
		e, err := promql.ParseExpr(want[i])
		if err != nil {
			t.Fatal(err)
		}
		got, err := promql.ParseExpr(c.Request.Query)
		if err != nil || tree.String(got) != tree.String(e) && !sameSelectors(got, e) {
			t.Errorf("%s, %v; want %s", c.Request.Query, err, want[i])
		}
	}
	q = Question{
		Request: &endpoint.Request{ID: endpoint.Federate, Match: []string{`{le!=""}`, "up"}}, Bound: policy.BoundUnselective,
		Parser: promql, Metrics: slices.Values([]string{"a_bucket"}),
	}
	if c := candidates(q); len(c) != 1 || !slices.Equal(c[0].Request.Match, []string{`a_bucket{le!=""}`, "up"}) {
		t.Errorf("%v", c)
	}
	if q.Request.Match[0] != `{le!=""}` {
		t.Error("the request was changed")
	}
}

// ranges are the texts of all ranges in brackets that are shorter than 33d.
func ranges(format string) (out []string) {
	for _, d := range []string{"31d", "30d", "2w", "1w", "3d", "2d", "1d", "12h", "6h", "3h", "1h", "30m", "15m", "5m"} {
		out = append(out, fmt.Sprintf(format, d))
	}
	return out
}

// TestMeaning: what the text would not say of itself is not proposed.
func TestMeaning(t *testing.T) {
	pairs := []Pair{{"pod", "a"}, {"job", `j"r`}}
	metrics := []string{"m_total", "m"}
	for _, tc := range []struct {
		name, bound, query string
		over               time.Duration // of a range query at a step of 15s; 0 is an instant one
		kind               Kind
		want               []string
	}{
		{
			"a matcher", policy.BoundMaxSeries,
			`rate(x{pod=~"a.*"}[5m])`,
			0, Matcher,
			[]string{`rate(x{pod="a"}[5m])`, `rate(x{job="j\"r",pod=~"a.*"}[5m])`},
		},
		{
			"a value that is not among those asked for", policy.BoundMaxSeries,
			`x{pod=~"b.*"}`,
			0, Matcher,
			[]string{`x{job="j\"r",pod=~"b.*"}`},
		},
		{"a part of what is selected", policy.BoundMaxSeriesTouched, `count(x)`, 0, Matcher, []string{
			`count(x{pod="a"})`, `count(x{job="j\"r"})`,
		}},
		{"a label that one side has fixed", policy.BoundMaxSeries, `x * on (pod) y{pod="b"}`, 0, Matcher, nil},
		{
			"joined by the label", policy.BoundMaxSeries,
			`x * on (pod) group_left (node) y`,
			0, Matcher,
			[]string{`x{pod="a"} * on (pod) group_left (node) y{pod="a"}`},
		},
		{
			"joined without the label", policy.BoundMaxSeries,
			`x * ignoring (pod) group_left () y`,
			0, Matcher,
			[]string{`x{job="j\"r"} * ignoring (pod) group_left () y{job="j\"r"}`},
		},
		{
			"joined after the label is gone", policy.BoundMaxSeries,
			`sum by (job) (x) / sum by (job) (y)`,
			0, Matcher,
			[]string{`sum by (job) (x{job="j\"r"}) / sum by (job) (y{job="j\"r"})`},
		},
		{"a part of all", policy.BoundMaxSeries, `x / on () group_left () sum(x)`, 0, Matcher, nil},
		{"a part of a number", policy.BoundMaxSeries, `x / scalar(sum(x))`, 0, Matcher, nil},
		{"both", policy.BoundMaxSeries, `x and on (pod) y`, 0, Matcher, []string{`x{pod="a"} and on (pod) y{pod="a"}`}},
		{"unless", policy.BoundMaxSeries, `x unless on (pod, job) y`, 0, Matcher, nil},
		{"or", policy.BoundMaxSeries, `x or y`, 0, Matcher, nil},
		{"absent", policy.BoundMaxSeries, `absent(x)`, 0, Matcher, nil},
		{"absent over a time", policy.BoundMaxSeries, `absent_over_time(x[1h])`, 0, Matcher, nil},
		{
			"a label that is written", policy.BoundMaxSeries,
			`label_replace(x, "pod", "$1", "job", "(.*)")`,
			0, Matcher,
			[]string{`label_replace(x{job="j\"r"}, "pod", "$1", "job", "(.*)")`},
		},
		{
			"values that become the label", policy.BoundMaxSeries,
			`count_values("pod", x)`,
			0, Matcher,
			[]string{`count_values("pod", x{job="j\"r"})`},
		},
		{"info", policy.BoundMaxSeries, `info(x)`, 0, Matcher, nil},

		{"ranges that differ", policy.BoundMaxRange, `rate(x[60d]) / rate(x[1h])`, 0, Range, nil},
		{"ranges that would be the same", policy.BoundMaxRange, `rate(x[60d]) - rate(x[31d])`, 0, Range, nil},
		{"absent in a range", policy.BoundMaxRange, `absent_over_time(x[60d])`, 0, Range, nil},
		{"a sum by its range", policy.BoundMaxRange, `sum_over_time(x[60d]) / 345600`, 0, Range, nil},
		{"a sum by its range in steps", policy.BoundMaxRange, `sum(count_over_time(x[60d])) / (60 * 24 * 60)`, 0, Range, nil},
		{"a sum by a number on the left", policy.BoundMaxRange, `100 * (1 - increase(x_total[60d]) / 1e6)`, 0, Range, nil},
		{"a sum beside another vector", policy.BoundMaxRange, `changes(x[60d]) / y`, 0, Range, nil},
		{"a sum by a number that is computed", policy.BoundMaxRange, `resets(x[60d]) / vector(60)`, 0, Range, nil},
		{"a sum that has a ceiling", policy.BoundMaxRange, `clamp_max(increase(x_total[60d]), 1000)`, 0, Range, nil},
		{"a sum of a subquery", policy.BoundMaxRange, `sum_over_time(x[60d:1h]) * 3600`, 0, Range, nil},
		{"a rate by its range in seconds", policy.BoundMaxRange, `rate(x_total[60d]) * 5184000`, 0, Range, nil},
		{"a rate by its range in days", policy.BoundMaxRange, `60 * sum(avg_over_time(x[60d]))`, 0, Range, nil},
		{"a rate by a product", policy.BoundMaxRange, `rate(x_total[60d]) * (60 * 86400)`, 0, Range, nil},
		{
			"a rate in another unit", policy.BoundMaxRange, `rate(x_total[33d]) * 8`, 0, Range,
			ranges("rate(x_total[%s]) * 8"),
		},
		{
			"two sums of the same range", policy.BoundMaxRange, `sum(increase(x_total[33d])) / sum(increase(y_total[33d]))`, 0, Range,
			ranges("sum(increase(x_total[%[1]s])) / sum(increase(y_total[%[1]s]))"),
		},
		{"more than in a range", policy.BoundMaxRange, `increase(x[60d]) > 100`, 0, Range, nil},
		{"a subquery's range, not below four of its steps nor of the range in it", policy.BoundMaxShardBytes, `avg_over_time(rate(x[1h])[1d:1h])`, 0, Range, []string{
			`avg_over_time(rate(x[1h])[12h:1h])`, `avg_over_time(rate(x[1h])[6h:1h])`,
		}},
		{"no range is too short for what is scraped", policy.BoundMaxShardBytes, `rate(x[10m])`, 0, Range, []string{`rate(x[5m])`}},

		{
			"a subquery's step", policy.BoundMaxShardBytes,
			`max_over_time(x[1h:5m])`,
			0, Step,
			[]string{`max_over_time(x[1h:10m])`, `max_over_time(x[1h:15m])`},
		},
		{"below an absence", policy.BoundMaxShardBytes, `absent(max_over_time(x[1h:5m]))`, 0, Step, nil},
		{"filled where there is none", policy.BoundMaxShardBytes, `max_over_time(x[1h:5m]) + on (pod) fill (0) y`, 0, Step, nil},
		{"filled on one side", policy.BoundMaxRange, `rate(x[60d]) + on (pod) fill_right (0) rate(y[60d])`, 0, Range, nil},
		{"how many steps there are", policy.BoundMaxShardBytes, `count_over_time(x[1h:5m])`, 0, Step, nil},
		{"what is left of the others", policy.BoundMaxShardBytes, `x unless max_over_time(x[1h:5m])`, 0, Step, nil},
		{"the last of them", policy.BoundMaxShardBytes, `last_over_time(x[1h:5m])`, 0, Step, nil},
		{"what they sum up to", policy.BoundMaxShardBytes, `sum_over_time(x[1h:5m])`, 0, Step, nil},

		{"a step as a number", policy.BoundMaxPoints, `increase(x_total[1m]) / step()`, time.Hour, Step, nil},
		{"a range as a number", policy.BoundMaxSamples, `sum(increase(x_total[1h])) / range()`, time.Hour, Window, nil},
		{"the start as a number", policy.BoundMaxSamples, `x and on () vector(time()) > start() + 60`, time.Hour, Window, nil},
		{"the end as a number", policy.BoundMaxSamples, `(end() - time()) * x`, time.Hour, Step, nil},
		{"in what a function is given", policy.BoundMaxSamples, `clamp_max(x, step())`, time.Hour, Window, nil},
		{"a step beside a range in brackets", policy.BoundMaxRange, `rate(x_total[60d]) * step()`, time.Hour, Range, nil},
		{"a step beside that of a subquery", policy.BoundMaxShardBytes, `max_over_time(x[1h:5m]) * step()`, time.Hour, Step, nil},
		{
			"the time of each moment", policy.BoundMaxSamples, `time() - x`, 6 * time.Minute, Window,
			[]string{`the last 5m of this range`, `the last 1m of this range`},
		},

		{"the start of the range", policy.BoundMaxSamples, `x @ start()`, time.Hour, Window, nil},
		{"a subquery at the start of the range", policy.BoundMaxSamples, `max_over_time(x[1h:1m] @ start())`, time.Hour, Window, nil},
		{"how long the range is", policy.BoundMaxSamples, `rate(x[range()])`, time.Hour, Window, nil},
		{"how long a step is", policy.BoundMaxSamples, `rate(x[step()])`, time.Hour, Step, nil},
		{"the end of the range", policy.BoundMaxSamples, `x @ end()`, time.Minute, Step, nil}, // it has four steps
		{
			"the end of a longer range", policy.BoundMaxSamples,
			`x @ end()`,
			6 * time.Minute, Window,
			[]string{`the last 5m of this range`, `the last 1m of this range`},
		},

		{"a gauge is not added up", policy.BoundMaxSeries, `x_bytes`, 0, Aggregation, []string{`topk(10, x_bytes)`}},
		{
			"a ratio is not added up", policy.BoundMaxSeries,
			`rate(x_total[5m]) / rate(y_total[5m])`,
			0, Aggregation,
			[]string{`topk(10, rate(x_total[5m]) / rate(y_total[5m]))`},
		},
		{"bytes as bits are", policy.BoundMaxSeries, `8 * rate(x_total[5m])`, 0, Aggregation, []string{
			`topk(10, 8 * rate(x_total[5m]))`, `sum by (namespace) (8 * rate(x_total[5m]))`,
			`sum by (job) (8 * rate(x_total[5m]))`, `sum(8 * rate(x_total[5m]))`,
		}},
		{"a sum without labels is", policy.BoundMaxSeries, `sum without (pod, job) (rate(x_total[5m]))`, 0, Aggregation, []string{
			`topk(10, sum without (pod, job) (rate(x_total[5m])))`, `sum by (namespace) (sum without (pod, job) (rate(x_total[5m])))`,
			`sum(sum without (pod, job) (rate(x_total[5m])))`,
		}},
		{
			"buckets keep their bounds", policy.BoundMaxSeries,
			`rate(x_bucket[5m])`,
			0, Aggregation,
			[]string{`topk(10, rate(x_bucket[5m]))`, `sum by (le) (rate(x_bucket[5m]))`},
		},
		{
			"a quantile is not added up", policy.BoundMaxSeries,
			`histogram_quantile(0.9, rate(x_bucket[5m]))`,
			0, Aggregation,
			[]string{`topk(10, histogram_quantile(0.9, rate(x_bucket[5m])))`},
		},
		{
			"a sum over bounds of buckets has none", policy.BoundMaxSeries, `sum without (le) (rate(x_bucket[5m]))`, 0, Aggregation,
			[]string{`topk(10, sum without (le) (rate(x_bucket[5m])))`},
		},
		{
			"how far groups are apart", policy.BoundMaxSeries, `stddev by (namespace, pod) (x)`, 0, Aggregation,
			[]string{`topk(10, stddev by (namespace, pod) (x))`},
		},
		{"how far all are apart", policy.BoundMaxSeries, `stdvar(x)`, 0, Aggregation, nil},
		{"nothing to choose from", policy.BoundMaxSeries, `absent(x)`, 0, Aggregation, nil},
		{"nor over a time", policy.BoundMaxSeries, `absent_over_time(x[1h])`, 0, Aggregation, nil},
		{"nor of a number", policy.BoundMaxSeries, `vector(scalar(sum(x)))`, 0, Aggregation, nil},
		{
			"what is left of the others is not added up", policy.BoundMaxSeries, `count without (pod) (x unless y)`, 0, Aggregation,
			[]string{`topk(10, count without (pod) (x unless y))`},
		},
		{
			"names stay", policy.BoundMaxSeries,
			`count by (__name__, pod) ({job="a"})`,
			0, Aggregation,
			[]string{`count by (__name__) ({job="a"})`},
		},

		{
			"one metric", policy.BoundUnselective,
			`count({pod!=""})`,
			0, Metric,
			[]string{`count(m_total{pod!=""})`, `count(m{pod!=""})`},
		},
		{"the rate of a gauge", policy.BoundUnselective, `rate({pod!=""}[5m])`, 0, Metric, []string{`rate(m_total{pod!=""}[5m])`}},
		{"the slope of a counter", policy.BoundUnselective, `deriv({pod!=""}[5m])`, 0, Metric, []string{`deriv(m{pod!=""}[5m])`}},
		{"two selectors", policy.BoundUnselective, `{pod!=""} / on (pod) {job!=""}`, 0, Metric, nil},
		{"the names themselves", policy.BoundUnselective, `count by (__name__) ({pod!=""})`, 0, Metric, nil},
		{"what is absent", policy.BoundUnselective, `absent({pod!=""})`, 0, Metric, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			step := time.Duration(0)
			if tc.over > 0 {
				step = 15 * time.Second
			}
			q := asked(t, tc.bound, tc.query, tc.over, step)
			q.Pairs, q.Metrics = slices.Values(pairs), slices.Values(metrics)
			var got []string
			for _, c := range candidates(q) {
				if c.Kind == tc.kind {
					got = append(got, Words(q.Request, c.Request))
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// TestMoments: the moments of a shorter window and of a longer step are among those of the request.
func TestMoments(t *testing.T) {
	for _, step := range []time.Duration{7 * time.Second, 15 * time.Second, 1500 * time.Millisecond, time.Hour, 100 * time.Minute} {
		q := asked(t, policy.BoundMaxPoints, "up", 9*24*time.Hour+time.Minute, step)
		found := candidates(q)
		if len(found) < 5 {
			t.Errorf("%s: %d candidates", step, len(found))
		}
		was := q.Request
		for _, c := range found {
			r := c.Request
			if (r.Start.Ms-was.Start.Ms)%step.Milliseconds() != 0 || r.Step%step != 0 || r.End != was.End ||
				r.Start.Ms < was.Start.Ms || r.Start.Ms > r.End.Ms {
				t.Errorf("%s: from %d every %s is %s", step, r.Start.Ms-was.Start.Ms, r.Step, Words(was, r))
			}
		}
	}
}

// TestWords: what differs is said once.
func TestWords(t *testing.T) {
	was := asked(t, policy.BoundMaxPoints, "up", 6*time.Hour, 15*time.Second).Request
	is := Shorter(was, 3*time.Hour)
	if got := Words(was, is); got != "the last 3h of this range" {
		t.Error(got)
	}
	is.Step = time.Minute
	if got := Words(was, is); got != "the last 3h of this range with step=1m" {
		t.Error(got)
	}
	is.Query = "topk(10, up)"
	if got := Words(was, is); got != "topk(10, up) over the last 3h of this range with step=1m" {
		t.Error(got)
	}
	is = was.Clone()
	is.Match = []string{"a", "b"}
	if got := Words(was, is); got != "match[]=a match[]=b" {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{
		30 * day: "30d", 31*day - 6*time.Hour: "31d", 3*time.Hour - 15*time.Second: "3h", 100 * time.Minute: "1h40m",
	} {
		if got := said(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}

func sameSelectors(a, b parser.Expr) bool {
	sorted := func(e parser.Expr) (out []string) {
		eachSelector(e, func(vs *parser.VectorSelector) {
			var ms []string
			for _, m := range vs.LabelMatchers {
				ms = append(ms, m.String())
			}
			slices.Sort(ms)
			out = append(out, strings.Join(ms, ","))
		})
		return out
	}
	return slices.Equal(sorted(a), sorted(b))
}

// linear estimates so many series for each selector, at each step so many samples, by the window.
type linear struct {
	series, most int64
	cheap        bool
	asked        int
}

func (m *linear) Estimate(r *endpoint.Request) (Cost, bool) {
	m.asked++
	steps := int64(1)
	if r.Step > 0 {
		steps = (r.End.Ms-r.Start.Ms)/r.Step.Milliseconds() + 1
	}
	series := m.series
	if strings.HasPrefix(r.Query, "topk") {
		series = min(10, series)
	}
	c := Cost{Series: series, Samples: series * steps, Bytes: series * steps, Cheap: m.cheap}
	return c, c.Samples <= m.most
}

var errRefused = errors.New("refused")

// TestPropose: the candidate that keeps most and fits is proposed; one that was tried and failed is
// not; what cannot be tried is said to be estimated.
func TestPropose(t *testing.T) {
	q := func() Question { return asked(t, policy.BoundMaxSamples, "x", 6*time.Hour, 15*time.Second) }
	refuses := func(context.Context, *endpoint.Request) (Took, error) { return Took{}, errRefused }
	took := Took{Series: 3, Samples: 33, Time: 11 * time.Millisecond, Whole: true, Results: 3}
	says := func(t Took) Try { return func(context.Context, *endpoint.Request) (Took, error) { return t, nil } }
	cut, empty := took, took
	cut.Whole, empty.Results = false, 0
	answers := func(context.Context, *endpoint.Request) (Took, error) { return took, nil }
	for _, tc := range []struct {
		name string
		by   *linear
		try  Try
		want string
	}{
		{"tried", &linear{10, 10_000, true, 0}, answers, "try step=30s (tried: 3 series, 33 samples in 11ms)"},
		{"only estimated", &linear{10, 10_000, false, 0}, answers, "try step=30s (estimated at 10 series, 7210 samples)"},
		{"nobody tries", &linear{10, 5000, true, 0}, nil, "try step=1m (estimated at 10 series, 3610 samples)"},
		{"the first ones fail", &linear{10, 10_000, true, 0}, func(_ context.Context, r *endpoint.Request) (Took, error) {
			if r.Step < 2*time.Minute {
				return Took{}, errRefused
			}
			return took, nil
		}, "try step=2m (tried: 3 series, 33 samples in 11ms)"},
		{"all are cut", &linear{10, 10_000, true, 0}, says(cut), ""},
		{"all are empty, whatever shards sent", &linear{10, 10_000, true, 0}, says(empty), ""},
		{"the first one is empty", &linear{10, 10_000, true, 0}, func(_ context.Context, r *endpoint.Request) (Took, error) {
			if r.Step == 30*time.Second {
				return empty, nil
			}
			return took, nil
		}, "try step=1m (tried: 3 series, 33 samples in 11ms)"},
		{"all fail", &linear{10, 10_000, true, 0}, refuses, ""},
		{"nothing fits", &linear{10, 1, true, 0}, answers, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tries := 0
			try := tc.try
			if try != nil {
				try = func(ctx context.Context, r *endpoint.Request) (Took, error) { tries++; return tc.try(ctx, r) }
			}
			p, ok := Propose(t.Context(), q(), tc.by, try)
			got := ""
			if ok {
				got = p.Sentence(q().Request, 0)
			}
			if got != tc.want || tries > MaxTries || tc.by.asked > MaxCandidates+1 {
				t.Errorf("%q with %d tries and %d estimates, want %q", got, tries, tc.by.asked, tc.want)
			}
		})
	}
}

// TestProposeEnds: when whoever asks has left, nothing more is estimated or tried, and nothing
// proposed.
func TestProposeEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	by := &linear{10, 10_000, true, 0}
	tries := 0
	p, ok := Propose(ctx, asked(t, policy.BoundMaxSamples, "x", 6*time.Hour, 15*time.Second), by,
		func(context.Context, *endpoint.Request) (Took, error) {
			tries++
			cancel()
			return Took{}, context.Cause(ctx)
		})
	if ok || tries != 1 || by.asked > 3 {
		t.Errorf("%v after %d tries and %d estimates", p, tries, by.asked)
	}
}

// TestLongTexts: of what would take long nothing is made.
func TestLongTexts(t *testing.T) {
	q := asked(t, policy.BoundMaxSeries, "x + "+strings.Repeat("1 + ", MaxText/4)+"1", 0, 0)
	if n := len(candidates(q)); n != 0 {
		t.Errorf("%d candidates", n)
	}
	for _, b := range policy.Bounds() {
		if Helps(b) != slices.Contains([]string{
			policy.BoundMaxPoints, policy.BoundMaxRange, policy.BoundMaxSamples, policy.BoundMaxResponseBytes, policy.BoundMaxShardBytes,
			policy.BoundMaxSeries, policy.BoundUnselective, policy.BoundMaxSeriesTouched,
		}, b) {
			t.Errorf("Helps(%s) is %v", b, Helps(b))
		}
	}
}

// FuzzPropose: whatever was refused, what is proposed can be parsed, is not what was asked, is not
// heavier by the estimator, and is found within bounds.
func FuzzPropose(f *testing.F) {
	for _, s := range []string{
		"up", `sum by (a, b) (rate(x{y=~"z.*"}[5m]))`, `histogram_quantile(0.9, sum by (le, pod) (rate(x_bucket[5m])))`,
		`{le!=""}`, `max_over_time(x[1h:15s] @ end()) + on (a) group_left (b) -y offset 5m`, `count_values("v", x) and topk(3, z)`,
		`label_replace(x, "a", "$1", "b", "(.*)")`, `info(x, {__name__="target_info"})`, `absent(x{a="b"}) or vector(1)`, `x[5m]`,
		`1`, `"s"`,
		`rate(x[2 * 1h])`, `{"a.b", "c.d"=~"e"}`, `(x)`, `sum(x) / ignoring (a) sum(y) > bool 1`,
	} {
		f.Add(s, uint8(len(s)), int64(6*hour), int64(15_000))
	}
	bounds := policy.Bounds()
	f.Fuzz(func(t *testing.T, query string, n uint8, over, step int64) {
		e, err := promql.ParseExpr(query)
		if err != nil || over <= 0 || step <= 0 {
			return
		}
		r := &endpoint.Request{
			ID: endpoint.QueryRange, Query: query, Start: endpoint.At(0), End: endpoint.At(over),
			Step: time.Duration(min(step, over, 1<<40)) * time.Millisecond,
		}
		q := Question{
			Request: r, Expr: e, Bound: bounds[int(n)%len(bounds)], Parser: promql, Metrics: slices.Values([]string{"x_bucket", `a b`}),
			Pairs: slices.Values([]Pair{{"job", "a"}, {"über", `"\`}}),
		}
		before := fmt.Sprintf("%v %s", *r, tree.String(e))
		for _, c := range candidates(q) {
			if c.Request.Equal(r) {
				t.Fatalf("%s: what was asked is proposed", query)
			}
			if _, err := promql.ParseExpr(c.Request.Query); err != nil {
				t.Fatalf("%s becomes %s: %v", query, c.Request.Query, err)
			}
		}
		by := &linear{series: 1000, most: 100_000, cheap: n%2 == 0}
		refused, _ := by.Estimate(r)
		tries := 0
		p, ok := Propose(t.Context(), q, by, func(context.Context, *endpoint.Request) (Took, error) {
			if tries++; n%3 == 0 {
				return Took{}, errRefused
			}
			return Took{Series: 1, Samples: 1, Whole: true, Results: 1}, nil
		})
		if tries > MaxTries || by.asked > MaxCandidates+2 {
			t.Fatalf("%s: %d tries, %d estimates", query, tries, by.asked)
		}
		if ok && (p.Cost.Samples > refused.Samples || p.Cost.Series > refused.Series) {
			t.Fatalf("%s: %s is heavier: %v, it was %v", query, p.Request.Query, p.Cost, refused)
		}
		if after := fmt.Sprintf("%v %s", *r, tree.String(e)); after != before {
			t.Fatalf("the question was changed from %s to %s", before, after)
		}
	})
}
