package prove

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a source in memory.
type world struct {
	series []stored
	// scans is how often it was read.
	scans int
}

type stored struct {
	inventory.Series
	floats     []promql.FPoint
	histograms []promql.HPoint
}

var _ inventory.Sampled = (*world)(nil)

func (w *world) String() string { return "the world" }

func (w *world) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	w.scans++
	for i := range w.series {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s := w.series[i].Series
		if err := f(&s); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Samples(ctx context.Context, _ time.Duration, keep func(labels.Labels) bool,
	f func(*inventory.Series, []promql.FPoint, []promql.HPoint) error,
) error {
	for i := range w.series {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s := w.series[i]
		if !keep(s.Labels) {
			continue
		}
		if err := f(&s.Series, slices.Clone(s.floats), slices.Clone(s.histograms)); err != nil {
			return err
		}
	}
	return nil
}

// day is when the samples of worlds are of, in ms.
const day = 1_700_000_000_000

// add adds a series, as `name{a="b"}`, with a value that is its own.
func (w *world) add(kind model.MetricType, selector string) {
	name, rest, _ := strings.Cut(selector, "{")
	b := labels.NewBuilder(labels.EmptyLabels())
	b.Set(model.MetricNameLabel, name)
	for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			v, err := strconv.Unquote(v)
			if err != nil {
				panic(selector)
			}
			b.Set(strings.TrimSpace(k), v)
		}
	}
	w.series = append(w.series, stored{
		Series: inventory.Series{Labels: b.Labels(), Type: kind, Interval: 30 * time.Second},
		floats: []promql.FPoint{{T: day, F: float64(len(w.series)) + 0.25}},
	})
}

// api is two jobs of two targets each: requests, latencies by le, a gauge by pod, and things that
// nobody looks at.
func api() *world {
	w := &world{}
	for _, job := range []string{"api", "edge"} {
		for _, instance := range []string{"n1:80", "n2:80"} {
			on := fmt.Sprintf("job=%q,instance=%q", job, instance)
			for _, code := range []string{"200", "404", "500"} {
				w.add(model.MetricTypeCounter, fmt.Sprintf("http_requests_total{%s,code=%q,replica_id=%q}", on, code, instance))
			}
			for _, le := range []string{"0.1", "0.2", "0.4", "0.5", "1.0", "2.0", "5.0", "10.0", "30.0", "+Inf"} {
				w.add(model.MetricTypeHistogram, fmt.Sprintf("latency_seconds_bucket{%s,le=%q}", on, le))
			}
			w.add(model.MetricTypeHistogram, fmt.Sprintf("latency_seconds_count{%s}", on))
			w.add(model.MetricTypeHistogram, fmt.Sprintf("latency_seconds_sum{%s}", on))
			for pod := range 3 {
				w.add(model.MetricTypeGauge, fmt.Sprintf("queue_length{%s,pod=\"p%d\",zone=\"z%d\"}", on, pod, pod%2))
				w.add(model.MetricTypeGauge, fmt.Sprintf("queue_length{%s,pod=\"p%d\"}", on, pod+10))
			}
			w.add(model.MetricTypeGauge, fmt.Sprintf("go_threads{%s}", on))
			w.add(model.MetricTypeGauge, fmt.Sprintf("go_goroutines{%s}", on))
			w.add(model.MetricTypeGauge, fmt.Sprintf("up{%s}", on))
		}
	}
	return w
}

// asked are the queries of the world's people.
var asked = []uses.Use{
	{Kind: uses.Dashboard, Where: "dashboard API, panel errors", Query: `sum by (code) (rate(http_requests_total{job="api"}[$__rate_interval]))`},
	{
		Kind: uses.Rule, Where: "rule code:http_requests:rate5m", Query: `sum by (job, code) (rate(http_requests_total[5m]))`,
		Records: "code:http_requests:rate5m", RuleLabels: map[string]string{"kind": "sum"},
	},
	{Kind: uses.Rule, Where: "alert ManyErrors", Alerts: true, Query: `code:http_requests:rate5m{code="500",kind="sum"} > 0.01`},
	{Kind: uses.Dashboard, Where: "dashboard API, panel slow", Query: `sum(rate(latency_seconds_bucket{le="30.0",cluster="c1"}[5m])) / sum(rate(latency_seconds_count[5m]))`},
	{Kind: uses.Logged, Where: "ada", Query: `sum by (job) (queue_length{zone=~"$zone",pod!="p10",pod!="p11",pod!="p12"})`},
}

func setOf(list ...uses.Use) *uses.Set {
	set := new(uses.Set)
	for i := range list {
		u := list[i]
		set.Add(&u)
	}
	return set
}

// collect is the inventory of the world with an index that has seen it.
func collect(t testing.TB, w *world, set *uses.Set) (*inventory.Inventory, *uses.Index) {
	t.Helper()
	inv, err := inventory.Collect(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	return inv, set.Index(uses.External, inv.Known())
}

// ruleOf is a rule with its configs and what it saves of the world.
func ruleOf(t testing.TB, w *world, kind propose.Kind, job string, metrics []string, label string, values ...string) propose.Rule {
	t.Helper()
	r := propose.Rule{
		ID: fmt.Sprintf("%s/%s/%s%s", job, kind, strings.Join(metrics, "+"), label), Kind: kind, Job: job, Metrics: metrics,
		Label: label, Values: values,
	}
	var err error
	if r.Relabel, err = propose.Configs(kind, metrics, label, values); err != nil {
		t.Fatal(err)
	}
	r.Saves = claim(w, &r)
	return r
}

// claim counts what a rule is planned to take.
func claim(w *world, r *propose.Rule) propose.Saving {
	var n int64
	for _, s := range w.series {
		if r.Kind == propose.Label || s.Labels.Get("job") != r.Job || !slices.Contains(r.Metrics, s.Labels.Get("__name__")) {
			continue
		}
		if r.Kind == propose.Names || slices.Contains(r.Values, s.Labels.Get(r.Label)) {
			n++
		}
	}
	return propose.Save(n, float64(n)/30)
}

// good are rules that change no answer.
func good(t testing.TB, w *world) []propose.Rule {
	var out []propose.Rule
	for _, job := range []string{"api", "edge"} {
		out = append(out,
			ruleOf(t, w, propose.Names, job, []string{"go_goroutines", "go_threads", "latency_seconds_sum"}, ""),
			ruleOf(t, w, propose.Slice, job, []string{"queue_length"}, "pod", "p10", "p11", "p12"),
			ruleOf(t, w, propose.Buckets, job, []string{"latency_seconds_bucket"}, "le", "0.1", "0.2", "0.4", "0.5", "1.0", "2.0", "5.0",
				"10.0"),
			ruleOf(t, w, propose.Label, job, []string{"http_requests_total"}, "replica_id"),
		)
	}
	return out
}
