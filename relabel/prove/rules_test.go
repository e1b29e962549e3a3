package prove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

func proveIn(t *testing.T, w *world, set *uses.Set, rules []propose.Rule) Proof {
	t.Helper()
	inv, index := collect(t, w, set)
	proof, err := Rules(t.Context(), w, inv, index, rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// TestRulesPass: what nothing uses may go, each count is right, and one scan is enough.
func TestRulesPass(t *testing.T) {
	w := api()
	inv, index := collect(t, w, setOf(asked...))
	w.scans = 0
	var told int64
	proof, err := Rules(t.Context(), w, inv, index, good(t, w), func(n int64) { told = n })
	if err != nil {
		t.Fatal(err)
	}
	if len(proof.Failed) > 0 {
		t.Fatalf("%+v", proof.Failed)
	}
	if n := int64(len(w.series)); proof.Series != n || told != n {
		t.Errorf("%d series, %d told, of %d", proof.Series, told, n)
	}
	// Of each of 4 targets: 3 metrics, 3 of 6 queues, 8 of 10 buckets go, and 3 series lose a
	// label.
	if proof.Dropped != 4*(3+3+8) || proof.Changed != 4*3 {
		t.Errorf("%d go and %d change", proof.Dropped, proof.Changed)
	}
	if got := proof.Rules["api/buckets/latency_seconds_bucketle"]; got != propose.Save(16, 16./30) ||
		got.MemoryBytes != 16*propose.BytesPerSeries {
		t.Errorf("buckets save %+v", got)
	}
	if w.scans != 1 {
		t.Errorf("%d scans", w.scans)
	}
	names := ""
	for _, s := range proof.Steps {
		names += s.Name + " "
		if s.Checked == 0 {
			t.Errorf("nothing was looked at for %s", s.Name)
		}
	}
	if names != "exact collisions uses twice savings " {
		t.Errorf("steps %s", names)
	}
}

// with changes a rule.
func with(r propose.Rule, f func(*propose.Rule)) propose.Rule { f(&r); return r }

func config(t *testing.T, action relabel.Action, source, regex, target, replacement string) *relabel.Config {
	t.Helper()
	c := relabel.DefaultRelabelConfig
	c.Action, c.TargetLabel, c.Regex = action, target, relabel.MustNewRegexp(regex)
	if replacement != "-" {
		c.Replacement = replacement
	}
	for s := range strings.FieldsSeq(source) {
		c.SourceLabels = append(c.SourceLabels, model.LabelName(s))
	}
	if err := c.Validate(model.UTF8Validation); err != nil {
		t.Fatal(err)
	}
	return &c
}

// TestRulesFail: each way in which a rule can be wrong is found, and said.
func TestRulesFail(t *testing.T) {
	w := api()
	threads := ruleOf(t, w, propose.Names, "api", []string{"go_threads"}, "")
	label := ruleOf(t, w, propose.Label, "api", []string{"http_requests_total"}, "replica_id")
	slice := ruleOf(t, w, propose.Slice, "api", []string{"queue_length"}, "pod", "p10")
	for name, tc := range map[string]struct {
		rules  []propose.Rule
		asked  []uses.Use
		says   string // the reason of one of the rules
		shows  string // in its examples
		passes bool
	}{
		"a used metric": {
			rules: []propose.Rule{ruleOf(t, w, propose.Names, "api", []string{"go_threads", "http_requests_total"}, "")},
			says:  "it takes series that are used: dashboard API, panel errors", shows: "http_requests_total",
		},
		"a used metric, of another job": { // the panel is about the job api, the recording rule about all
			rules: []propose.Rule{ruleOf(t, w, propose.Names, "edge", []string{"http_requests_total"}, "")},
			says:  "rule code:http_requests:rate5m",
		},
		"the bucket that a burn rate needs": {
			rules: []propose.Rule{ruleOf(t, w, propose.Buckets, "api", []string{"latency_seconds_bucket"}, "le", "0.1", "30.0")},
			says:  "it takes series that are used: dashboard API, panel slow", shows: `le="30.0"`,
		},
		"a slice that is used": {
			rules: []propose.Rule{ruleOf(t, w, propose.Slice, "api", []string{"queue_length"}, "pod", "p1", "p10")}, says: "ada asks for",
			shows: `pod="p1"`,
		},
		"a slice of series without the label": {
			rules: []propose.Rule{ruleOf(t, w, propose.Slice, "api", []string{"queue_length"}, "zone", "")}, passes: true,
			asked: []uses.Use{{Where: "ada", Query: `queue_length{zone!=""}`}},
		},
		"an unescaped dot": { // trap 7
			rules: []propose.Rule{with(threads, func(r *propose.Rule) {
				r.Relabel = []*relabel.Config{config(t, relabel.Drop, "__name__", "go_t.*|go_goroutine.", "", "-")}
			})},
			says: "it takes series that it was not planned to take", shows: "go_goroutines",
		},
		"an expression that misses": {
			rules: []propose.Rule{with(threads, func(r *propose.Rule) {
				r.Relabel = []*relabel.Config{config(t, relabel.Drop, "__name__", "threads", "", "-")}
			})},
			says: "it leaves series that it was planned to take", shows: "go_threads",
		},
		"integer buckets as pages write them": { // trap 6
			rules: []propose.Rule{with(ruleOf(t, w, propose.Buckets, "api", []string{"latency_seconds_bucket"}, "le", "0.5", "2.0"),
				func(r *propose.Rule) {
					r.Relabel = []*relabel.Config{config(t, relabel.Drop, "__name__ le", `latency_seconds_bucket;(0\.5|2)`, "", "-")}
				})},
			says: "it leaves series that it was planned to take", shows: `le="2.0"`,
		},
		"claims too much": {
			rules: []propose.Rule{with(threads, func(r *propose.Rule) { r.Saves.Series++ })}, says: "it claims to save 3 series",
		},
		"claims too many samples": {
			rules: []propose.Rule{with(threads, func(r *propose.Rule) { r.Saves.SamplesPerSecond *= 1.01 })},
			says:  "it claims to save 0.06733",
		},
		"a label that a query shows": {
			rules: []propose.Rule{ruleOf(t, w, propose.Label, "api", []string{"http_requests_total"}, "code")}, says: "its label code is used: dashboard API, panel errors",
		},
		"a label that a matcher is on": {
			rules: []propose.Rule{ruleOf(t, w, propose.Label, "api", []string{"queue_length"}, "zone")},
			says:  "its label zone is used: ada",
		},
		"a label that a matcher of another job is on": {
			rules: []propose.Rule{label}, asked: []uses.Use{{Where: "ada", Query: `sum(http_requests_total{job="edge",replica_id="n1:80"})`}}, passes: true,
		},
		"a label that tells series apart": { // F3
			rules: []propose.Rule{ruleOf(t, w, propose.Label, "api", []string{"queue_length"}, "pod")},
			asked: []uses.Use{{Where: "ada", Query: `sum(queue_length)`}},
			says:  "without pod, 10 series of queue_length become one with another",
			shows: `zone="z0"} become {__name__="queue_length", instance="n1:80", job="api", zone="z0"}`,
		},
		"a label drop for all metrics": {
			rules: []propose.Rule{with(label, func(r *propose.Rule) {
				r.Relabel = []*relabel.Config{{
					Action: relabel.LabelDrop, Regex: relabel.MustNewRegexp("replica_id|pod"), Separator: ";",
					Replacement: "$1",
				}}
			})},
			says: "it changes series that it was not planned to change", shows: "queue_length",
		},
		"a label that stays for the rest of the chain": { // trap 9
			rules: []propose.Rule{with(label, func(r *propose.Rule) {
				r.Relabel = append([]*relabel.Config{config(t, relabel.Replace, "__name__", "go_.*", "__tmp_x", "1")}, r.Relabel...)
			})},
			says: "it changes series that it was not planned to change", shows: "go_threads",
		},
		"order": { // a rule above takes the label by which it knows its series
			rules: []propose.Rule{ruleOf(t, w, propose.Label, "api", []string{"queue_length"}, "pod"), slice},
			asked: []uses.Use{{Where: "ada", Query: `sum(queue_length{pod!="p10"})`}},
			says:  "the rules above it change series so that it does not take them",
		},
		"twice": { // what loses its zone is what the rule above takes, the next time
			rules: []propose.Rule{
				ruleOf(t, w, propose.Slice, "api", []string{"queue_length"}, "zone", ""),
				ruleOf(t, w, propose.Label, "api", []string{"queue_length"}, "zone"),
			},
			asked: asked[:1], says: `run twice it does more than run once: {__name__="queue_length", instance="n1:80", job="api", pod="p0"} becomes nothing`, shows: `zone="z0"`,
		},
		"up": {
			rules: []propose.Rule{ruleOf(t, w, propose.Names, "api", []string{"go_threads", "up"}, "")},
			says:  "up never passes metric_relabel_configs",
		},
		"a need that waits": {
			rules: []propose.Rule{threads}, asked: []uses.Use{{Where: "alert Stuck", Query: `go_threads{state="stuck",job="worker"} > 0`}},
			says: "go_threads is asked for series that are not there now: alert Stuck",
		},
		"a need of another job's metrics without a name": {
			rules: []propose.Rule{threads}, asked: []uses.Use{{Where: "cardinality", Query: `count({__name__=~".+",job="edge"})`}},
			passes: true,
		},
		"a need without a name": { // trap 1
			rules: []propose.Rule{threads}, asked: []uses.Use{{Where: "cardinality", Query: `count({job="api"})`}},
			says: "it takes series that are used: cardinality",
		},
		"absent": { // trap 2
			rules: []propose.Rule{threads}, asked: []uses.Use{{Where: "alert Gone", Query: `absent(go_threads{job="api"})`}},
			says: "it takes series that are used: alert Gone",
		},
		"no configs": {
			rules: []propose.Rule{with(threads, func(r *propose.Rule) { r.Relabel = nil })}, says: "it has no relabel configs",
		},
		"configs that Prometheus does not load": {
			rules: []propose.Rule{with(threads, func(r *propose.Rule) { r.Relabel = []*relabel.Config{{}} })},
			says:  "relabel action cannot be empty",
		},
		"+Inf": {
			rules: []propose.Rule{ruleOf(t, w, propose.Buckets, "api", []string{"latency_seconds_bucket"}, "le", "0.5", "+Inf")},
			asked: []uses.Use{{Where: "x", Query: `latency_seconds_bucket{le="30.0"}`}},
			says:  "it takes the bucket +Inf",
		},
		"the highest": {
			rules: []propose.Rule{ruleOf(t, w, propose.Buckets, "api", []string{"latency_seconds_bucket"}, "le", "30.0")},
			asked: []uses.Use{{Where: "x", Query: `latency_seconds_bucket{le="0.1"}`}},
			says:  "it takes the highest finite bucket, 30.0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := tc.asked
			if list == nil {
				list = asked
			}
			proof := proveIn(t, w, setOf(list...), tc.rules)
			if tc.passes {
				if len(proof.Failed) > 0 {
					t.Fatalf("refused: %+v", proof.Failed)
				}
				return
			}
			var got propose.Refusal
			for _, f := range proof.Failed {
				if strings.Contains(f.Reason, tc.says) {
					got = f
				}
			}
			if tc.says == "" || got.Reason == "" {
				t.Fatalf("got %+v, want %q", proof.Failed, tc.says)
			}
			if !strings.Contains(strings.Join(got.Examples, "\n"), tc.shows) || len(got.Examples) > examplesAtMost {
				t.Errorf("shows %q, want %q", got.Examples, tc.shows)
			}
		})
	}
}

// TestOneMetricFails: the refusal names the metrics that fail, and no others, so that the rest of
// the rule can be tried again.
func TestOneMetricFails(t *testing.T) {
	w := api()
	r := ruleOf(t, w, propose.Names, "api", []string{"go_goroutines", "go_threads", "http_requests_total", "queue_length"}, "")
	got := proveIn(t, w, setOf(asked...), []propose.Rule{r}).Failed[r.ID]
	if strings.Join(got.Metrics, " ") != "http_requests_total queue_length" {
		t.Errorf("%+v", got)
	}
	r = ruleOf(t, w, propose.Label, "api", []string{"http_requests_total", "queue_length"}, "pod")
	if got = proveIn(t, w, setOf(asked[0]), []propose.Rule{r}).Failed[r.ID]; strings.Join(got.Metrics, " ") != "queue_length" {
		t.Errorf("%+v", got)
	}
}

// TestCollisionShowsBoth: the refusal shows real label sets and what to do instead, and a source
// that has a series twice is no collision.
func TestCollisionShowsBoth(t *testing.T) {
	w := &world{}
	w.add(model.MetricTypeCounter, `m_total{job="a",pod="x"}`)
	w.add(model.MetricTypeCounter, `m_total{job="a",pod="y"}`)
	r := ruleOf(t, w, propose.Label, "a", []string{"m_total"}, "pod")
	proof := proveIn(t, w, new(uses.Set), []propose.Rule{r})
	got := proof.Failed[r.ID]
	if want := `{__name__="m_total", job="a", pod="x"} and {__name__="m_total", job="a", pod="y"} become {__name__="m_total", job="a"}`; len(got.Examples) != 1 || got.Examples[0] != want {
		t.Errorf("shows %q", got.Examples)
	}
	if !strings.Contains(got.Instead, "sum without (pod) (m_total)") || !strings.Contains(got.Reason, "2 series") {
		t.Errorf("%+v", got)
	}
	// One of them lacks the label: it stays what it is, and the other one becomes it.
	w = &world{}
	w.add(model.MetricTypeCounter, `m_total{job="a",pod="x"}`)
	w.add(model.MetricTypeCounter, `m_total{job="a"}`)
	if proof = proveIn(t, w, new(uses.Set), []propose.Rule{r}); len(proof.Failed[r.ID].Examples) != 1 {
		t.Errorf("%+v", proof.Failed)
	}
	w = &world{}
	w.add(model.MetricTypeCounter, `m_total{job="a",pod="x"}`)
	w.add(model.MetricTypeCounter, `m_total{job="a",pod="x"}`)
	if proof = proveIn(t, w, new(uses.Set), []propose.Rule{r}); len(proof.Failed) > 0 {
		t.Errorf("%+v", proof.Failed)
	}
}

// TestQuantileBuckets: buckets that only quantiles are made of go within the factor that the rule
// states, and not otherwise.
func TestQuantileBuckets(t *testing.T) {
	w := api()
	set := setOf(uses.Use{Where: "panel", Query: `histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket[5m])))`})
	thin := func(job string, factor float64, values ...string) propose.Rule {
		return with(ruleOf(t, w, propose.Buckets, job, []string{"latency_seconds_bucket"}, "le", values...),
			func(r *propose.Rule) { r.QuantileError, r.Risk = factor, propose.High })
	}
	for name, tc := range map[string]struct {
		rules []propose.Rule
		says  string
	}{
		"within": {
			[]propose.Rule{thin("api", 2.5, "0.4", "2.0"), thin("edge", 2.5, "0.4", "2.0")},
			"from 1 to 5 is more than the factor 2.5",
		},
		"wide enough":       {[]propose.Rule{thin("api", 5, "0.4", "2.0"), thin("edge", 5, "0.4", "2.0")}, ""},
		"no factor":         {[]propose.Rule{thin("api", 0, "0.4"), thin("edge", 0, "0.4")}, "it takes series that are used: panel"},
		"the lowest":        {[]propose.Rule{thin("api", 5, "0.1"), thin("edge", 5, "0.1")}, "it takes the lowest bucket, 0.1"},
		"one job only":      {[]propose.Rule{thin("api", 5, "0.4")}, "it takes the bucket 0.4, and the job edge keeps it"},
		"the highest":       {[]propose.Rule{thin("api", 5, "30.0"), thin("edge", 5, "30.0")}, "it takes the highest finite bucket"},
		"wide as they were": {[]propose.Rule{thin("api", 2.5, "0.4"), thin("edge", 2.5, "0.4")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := proveIn(t, w, set, tc.rules).Failed[tc.rules[0].ID].Reason
			if tc.says == "" && got != "" || !strings.Contains(got, tc.says) {
				t.Errorf("got %q, want %q", got, tc.says)
			}
		})
	}
}

// TestRulesErrors: what keeps the proof from being made is an error.
func TestRulesErrors(t *testing.T) {
	w := api()
	inv, index := collect(t, w, new(uses.Set))
	r := ruleOf(t, w, propose.Names, "api", []string{"go_threads"}, "")
	if _, err := Rules(t.Context(), w, inv, index, []propose.Rule{r, r}, nil); err == nil ||
		!strings.Contains(err.Error(), "two rules are called") {
		t.Errorf("got %v", err)
	}
	label := ruleOf(t, w, propose.Label, "api", []string{"queue_length"}, "pod")
	if _, err := Rules(t.Context(), &growing{world: w}, inv, index, []propose.Rule{label}, nil); err == nil ||
		!strings.Contains(err.Error(), "holds still") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := Rules(ctx, w, inv, index, []propose.Rule{r}, nil); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// growing has one series more each time.
type growing struct{ *world }

func (g *growing) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	err := g.world.Scan(ctx, f)
	g.world.add(model.MetricTypeGauge, fmt.Sprintf(`new{n="%d"}`, len(g.world.series)))
	return err
}
