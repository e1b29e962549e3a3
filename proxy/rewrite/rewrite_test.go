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
