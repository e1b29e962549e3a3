package prove

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

func play(t *testing.T, w *world, set *uses.Set, rules []propose.Rule, o ReplayOptions) *Replay {
	t.Helper()
	o.Dir = t.TempDir()
	out, err := Play(t.Context(), w, set, rules, o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left behind: %v", left, err)
	}
	if n := out.Equal + out.Rounded + out.Within + out.Empty + out.Failed + out.Different; n != out.Queries {
		t.Errorf("%d outcomes of %d queries", n, out.Queries)
	}
	return out
}

// TestPlayEqual: with rules that change nothing, every answer stays, none of them for being empty;
// recorded series are seen by what reads them.
func TestPlayEqual(t *testing.T) {
	w := api()
	var told int64
	out := play(t, w, setOf(asked...), good(t, w), ReplayOptions{Progress: func(done, _ int64) { told = done }})
	if out.Equal != int64(len(asked)) || out.Queries != int64(len(asked)) || told != out.Queries {
		t.Errorf("%+v", out)
	}
	if out.Series != int64(len(w.series)) || out.After != int64(len(w.series)-4*14) {
		t.Errorf("%+v", out)
	}
}

// TestPlayFinds what a rule breaks. Rules finds the same, from the needs; the replay knows nothing
// of them.
func TestPlayFinds(t *testing.T) {
	w := api()
	pods := ruleOf(t, w, propose.Label, "api", []string{"queue_length"}, "pod")
	for name, tc := range map[string]struct {
		rule        propose.Rule
		asked       []uses.Use
		differences int
		says        string
	}{
		"a used metric goes": {ruleOf(t, w, propose.Names, "api", []string{"http_requests_total"}, ""), asked, 3, `{code="200"}`},
		"a used bucket goes": {
			ruleOf(t, w, propose.Buckets, "api", []string{"latency_seconds_bucket"}, "le", "30.0"), asked, 1,
			"dashboard API, panel slow",
		},
		"series merge": {pods, []uses.Use{{Where: "ada", Query: `sum(queue_length)`}}, 1, "ada"},
		"a shown label goes": {
			ruleOf(t, w, propose.Label, "api", []string{"http_requests_total"}, "replica_id"),
			[]uses.Use{{Where: "ada", Query: `http_requests_total`}},
			1, "which was not there",
		},
		"something appears": {
			ruleOf(t, w, propose.Names, "api", []string{"go_threads"}, ""),
			[]uses.Use{{Where: "alert Gone", Query: `absent(go_threads{job="api"})`}},
			1, "alert Gone",
		},
		"a bucket of a quantile goes": {
			ruleOf(t, w, propose.Buckets, "api", []string{"latency_seconds_bucket"}, "le", "0.2", "0.4", "0.5", "1.0", "2.0"),
			[]uses.Use{{Where: "ada", Query: `histogram_quantile(0.5, sum by (le) (rate(latency_seconds_bucket{job="api"}[5m])))`}},
			1, "{}",
		},
		"a keep": {ruleOf(t, w, propose.Names, "api", []string{"go_threads"}, ""), []uses.Use{{
			Kind: uses.Kept, Where: "keep go_threads",
			Needs: []uses.Need{{
				Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "go_threads")},
				Labels:   uses.All,
			}},
		}}, 1, "keep go_threads"},
		"an option of a variable": {
			ruleOf(t, w, propose.Names, "edge", []string{"go_threads"}, ""),
			[]uses.Use{{Where: "dashboard", Query: `go_threads{cluster="$cluster"}`, Needs: []uses.Need{{
				Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "go_threads")},
				Labels:   uses.Labels{Names: []string{"job"}},
			}}}},
			1, "dashboard",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := setOf(tc.asked...)
			out := play(t, w, set, []propose.Rule{tc.rule}, ReplayOptions{})
			if len(out.Differences) != tc.differences || out.Different != int64(tc.differences) ||
				!strings.Contains(fmt.Sprint(out.Differences), tc.says) {
				t.Errorf("%+v", out)
			}
			if len(proveIn(t, w, set, []propose.Rule{tc.rule}).Failed) != 1 {
				t.Error("the scan does not find it")
			}
		})
	}
}

// TestPlayWithin: quantiles of buckets that were thinned move by less than the factor that the rule
// states, also where they are compared with a threshold; by more, it is a difference.
func TestPlayWithin(t *testing.T) {
	w := api()
	set := setOf(
		uses.Use{Where: "panel", Query: `histogram_quantile(0.5, sum by (job, le) (rate(latency_seconds_bucket[5m])))`},
		uses.Use{Where: "rule job:latency:p50", Records: "job:latency:p50", Query: `histogram_quantile(0.5, sum by (job, le) (rate(latency_seconds_bucket[5m])))`},
		uses.Use{Where: "alert Slow", Query: `(0.1 < job:latency:p50)`},
		uses.Use{Where: "counts", Query: `sum(rate(latency_seconds_count[5m]))`},
	)
	var rules []propose.Rule
	for _, job := range []string{"api", "edge"} {
		rules = append(rules, with(ruleOf(t, w, propose.Buckets, job, []string{"latency_seconds_bucket"}, "le", "0.2", "0.4", "1.0"),
			func(r *propose.Rule) { r.QuantileError = 5 }))
	}
	out := play(t, w, set, rules, ReplayOptions{})
	if out.Within != 2 || out.Equal != 1 || len(out.Differences) > 0 {
		t.Errorf("%+v", out)
	}
	for i := range rules {
		rules[i].QuantileError = 1.0001
	}
	if out = play(t, w, set, rules, ReplayOptions{}); out.Different != 2 {
		t.Errorf("%+v", out)
	}
}

// TestPlayCountsWhatProvesNothing: empty answers, failures and what cannot be asked are counted
// apart.
func TestPlayCountsWhatProvesNothing(t *testing.T) {
	w := api()
	out := play(t, w, setOf(
		uses.Use{Where: "a", Query: `nothing_here`},
		uses.Use{Where: "b", Query: `go_threads * on (job) go_goroutines`}, // many to many
		uses.Use{Where: "c", Query: `sum by ($group) (go_threads)`},
		uses.Use{Where: "d", Query: `topk($n, rate(http_requests_total{code=~"5..|$code"}[$interval]))`},
		uses.Use{Where: "e", Query: "go_threads[5m]"},
		uses.Use{Where: "f", Query: `"text"`},
		uses.Use{Where: "g", Query: `go_threads`},
		uses.Use{Where: "h", Query: `go_threads`},
	), nil, ReplayOptions{MaxQueries: 6})
	if out.Empty != 1 || out.Failed != 1 || out.Equal != 4 || out.Queries != 6 ||
		out.Skipped["there are more queries than may be asked"] != 1 {
		t.Errorf("%+v", out)
	}
}

// TestPlayRecordsCircles: rules that read each other in a circle, as those do that select by other
// things than names, are recorded too.
func TestPlayRecordsCircles(t *testing.T) {
	set := setOf(
		uses.Use{Where: "a", Records: "series:count", Query: `count({job="api"})`},
		uses.Use{Where: "b", Records: "all:count", Query: `count({__name__=~".+"})`},
		uses.Use{Where: "c", Records: "threads:max", Query: `max(go_threads)`},
		uses.Use{Where: "d", Query: `threads:max + 1`},
	)
	if out := play(t, api(), set, nil, ReplayOptions{}); out.Equal != 4 || len(out.Skipped) != 0 {
		t.Errorf("%+v", out)
	}
}

// TestPlaySamples: real samples are taken as they are, with stale markers and native histograms; a
// stored series of a recording rule is recorded again from what is left.
func TestPlaySamples(t *testing.T) {
	w := &world{}
	w.add(model.MetricTypeGauge, `temperature{job="a",instance="x"}`)
	w.add(model.MetricTypeHistogram, `latency{job="a",instance="x"}`)
	w.add(model.MetricTypeHistogram, `latency{job="a",instance="y"}`)
	w.add(model.MetricTypeGauge, `a:temperature:max{job="a"}`)
	w.series[0].floats = nil
	for i := range 20 {
		w.series[0].floats = append(w.series[0].floats, promql.FPoint{T: day - int64(19-i)*15_000, F: float64(i)})
	}
	w.series[0].floats[10].F = math.Float64frombits(value.StaleNaN)
	for i := 1; i < 3; i++ {
		h := &histogram.FloatHistogram{
			Schema: 1, Count: 6, Sum: 9, PositiveSpans: []histogram.Span{{Offset: 1, Length: 3}},
			PositiveBuckets: []float64{1, 2, 3},
		}
		w.series[i].floats, w.series[i].histograms = nil, []promql.HPoint{{T: day, H: h}}
	}
	x, err := load(t.Context(), w, map[string]bool{"a:temperature:max": true}, 100, 30*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.series) != 5 || x.end != day { // with up of both targets
		t.Fatalf("%d series until %d", len(x.series), x.end)
	}
	set := setOf(
		uses.Use{Where: "a", Query: `temperature[5m]`},
		uses.Use{Where: "b", Query: `histogram_quantile(0.5, rate(latency[5m]))`},
		uses.Use{Where: "c", Query: `a:temperature:max`},
		uses.Use{Where: "r", Records: "a:temperature:max", Query: `max by (job) (temperature)`},
		uses.Use{Where: "d", Query: `latency{instance="x"}`},
	)
	if out := play(t, w, set, nil, ReplayOptions{}); out.Equal != 5 {
		t.Errorf("%+v", out)
	}
	r := ruleOf(t, w, propose.Slice, "a", []string{"latency"}, "instance", "y")
	if out := play(t, w, set, []propose.Rule{r}, ReplayOptions{}); out.Equal != 4 || out.Different != 1 {
		t.Errorf("%+v", out)
	}
}

// TestContinued: continued counters advance, by whole numbers, and higher buckets of a histogram
// never by less than lower ones; the rest stays.
func TestContinued(t *testing.T) {
	w := api()
	last := map[string]float64{}
	for _, s := range w.series {
		x := sampled{labels: s.Labels, kind: s.Type, floats: s.floats}
		var points []float64
		if err := x.each(day, 10*time.Minute, func(t int64, v float64, _ *histogram.FloatHistogram) error {
			if want := int64(day - (10-len(points))*60_000); t != want {
				return fmt.Errorf("at %d, want %d", t, want)
			}
			points = append(points, v)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		step := points[1] - points[0]
		name := s.Labels.Get("__name__")
		switch counter := strings.Contains(name, "latency") || strings.HasSuffix(name, "_total"); {
		case len(points) != 11 || points[0] != s.floats[0].F || points[10] != points[0]+10*step:
			t.Errorf("%s: %v", s.Labels, points)
		case counter != (step > 0) || step != math.Floor(step):
			t.Errorf("%s advances by %v", s.Labels, step)
		}
		key := s.Labels.Get("job") + s.Labels.Get("instance")
		switch name {
		case "latency_seconds_bucket":
			if step < last[key] {
				t.Errorf("%s advances by %v, the lower one by %v", s.Labels, step, last[key])
			}
			last[key] = step
		case "latency_seconds_count":
			if step != last[key] {
				t.Errorf("%s advances by %v, its highest bucket by %v", s.Labels, step, last[key])
			}
		}
	}
}

// TestChoose: the sample keeps its bound, has something of every job, and the same nodes of each.
func TestChoose(t *testing.T) {
	sizes := map[target]int64{{"ksm", "k"}: 50_000}
	for i := range 100 {
		sizes[target{"node", fmt.Sprintf("n%03d", i)}] = 100
		sizes[target{"gpu", fmt.Sprintf("n%03d", i)}] = 50
	}
	for _, most := range []int64{0, 2, 100, 1_000, 20_000, 60_000, 1_000_000} {
		parts := choose(sizes, most)
		var sum int64
		jobs := map[string]int{}
		for t, p := range parts {
			sum += p.most
			jobs[t.job]++
		}
		if sum > most {
			t.Errorf("%d series of at most %d", sum, most)
		}
		if most >= 100 && len(jobs) != 3 {
			t.Errorf("of at most %d: jobs %v", most, jobs)
		}
		if most == 60_000 && (jobs["gpu"]-jobs["node"] > 2 || jobs["gpu"] < jobs["node"] || sum < most*9/10) {
			t.Errorf("of at most %d: jobs %v, %d series", most, jobs, sum)
		}
		if most == 1_000_000 && sum != 65_000 {
			t.Errorf("%d of 65000 series", sum)
		}
	}
}

// TestOptionsAreValues: the options of a variable are the values of a label, though uses have it as
// a selector.
func TestOptionsAreValues(t *testing.T) {
	u := uses.Use{Where: "variable $pod", Query: `queue_length{job="$job"}`, Needs: []uses.Need{{
		Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "queue_length")},
		Labels:   uses.Labels{Names: []string{"zone"}},
	}}}
	w := api()
	rule := ruleOf(t, w, propose.Slice, "api", []string{"queue_length"}, "pod", "p0", "p10") // zone z0 has another pod
	if out := play(t, w, setOf(u), []propose.Rule{rule}, ReplayOptions{}); out.Equal != 1 {
		t.Errorf("%+v", out)
	}
	rule = ruleOf(t, w, propose.Slice, "edge", []string{"queue_length"}, "zone", "z0")
	other := ruleOf(t, w, propose.Slice, "api", []string{"queue_length"}, "zone", "z0")
	if out := play(t, w, setOf(u), []propose.Rule{rule, other}, ReplayOptions{}); out.Different != 1 {
		t.Errorf("%+v", out)
	}
}

// TestQuietAlerts: of an alert that is quiet, what it looks at is compared.
func TestQuietAlerts(t *testing.T) {
	w := api()
	set := setOf(
		uses.Use{Where: "alert A", Query: `(sum by (job) (rate(http_requests_total{code="500"}[5m])) > 1e6) and on () vector(1)`},
		uses.Use{Where: "alert B", Query: `1e6 < go_threads or go_threads > go_threads * 2`},
		uses.Use{Where: "alert C", Query: `nothing_here > 1`},
	)
	if out := play(t, w, set, nil, ReplayOptions{}); out.Equal != 2 || out.Empty != 1 {
		t.Errorf("%+v", out)
	}
	rules := []propose.Rule{
		ruleOf(t, w, propose.Names, "api", []string{"go_threads"}, ""),
		ruleOf(t, w, propose.Slice, "api", []string{"http_requests_total"}, "code", "500"),
	}
	if out := play(t, w, set, rules, ReplayOptions{}); out.Different != 2 {
		t.Errorf("%+v", out)
	}
}

// TestOpenOrder: what the engine leaves open is no difference: which of equal values topk takes
// behind a binary operator, which comes in another order each time.
func TestOpenOrder(t *testing.T) {
	w := &world{}
	for i := range 40 {
		w.add(model.MetricTypeGauge, fmt.Sprintf(`m{job="a",instance="x",pod="p%d"}`, i))
		w.add(model.MetricTypeGauge, fmt.Sprintf(`n{job="a",instance="x",pod="p%d"}`, i))
	}
	for i := range w.series {
		w.series[i].floats[0].F = 7
	}
	set := setOf(uses.Use{Where: "a", Query: `topk(3, m + on (pod) n)`},
		uses.Use{Where: "b", Query: `sum(topk(2, m + on (pod) n)) + count(m)`},
		uses.Use{Where: "c", Query: `topk(3, m + on (pod) n) > 1e9`})
	if out := play(t, w, set, nil, ReplayOptions{}); out.Equal+out.Rounded != 3 || out.Rounded == 0 {
		t.Errorf("%+v", out)
	}
	r := ruleOf(t, w, propose.Slice, "a", []string{"m"}, "pod", "p7")
	if out := play(t, w, set, []propose.Rule{r}, ReplayOptions{}); out.Different != 3 {
		t.Errorf("%+v", out)
	}
}

// TestVariableNames: a variable that names metrics has the values that the needs know, and no
// others: what it cannot name may go.
func TestVariableNames(t *testing.T) {
	w := api()
	u := uses.Use{Where: "panel", Query: `sum({__name__=~"$metric",job="api"})`, Needs: []uses.Need{{
		Matchers: []*labels.Matcher{
			labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".*(?:queue_).*"), labels.MustNewMatcher(labels.MatchEqual, "job", "api"),
		},
		Labels: uses.Labels{Names: []string{}},
	}}}
	other := ruleOf(t, w, propose.Names, "api", []string{"go_threads"}, "")
	if out := play(t, w, setOf(u), []propose.Rule{other}, ReplayOptions{}); out.Equal != 1 {
		t.Errorf("what the variable cannot name: %+v", out)
	}
	own := ruleOf(t, w, propose.Names, "api", []string{"queue_length"}, "")
	if out := play(t, w, setOf(u), []propose.Rule{own}, ReplayOptions{}); out.Different != 1 {
		t.Errorf("what the variable can name: %+v", out)
	}
}

// TestExpand: variables get values where one can be guessed.
func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		`up{instance="$node:9100",job!="$job",zone!~"[[zone]]"}`: `up{instance=~".*:9100"}`,
		`rate(x{a=~"${b:regex}|c.d"}[$interval])`:                `rate(x{a=~".*|c.d"}[5m])`,
		`sum by ($g) (x)`:                            `sum by (instance) (x)`,
		`topk($n, x)`:                                `topk(5, x)`,
		`rate(x[$__rate_interval])`:                  `rate(x[4m])`,
		`label_replace(x, "a", "$1", "b", "(.*)")`:   `label_replace(x, "a", "$1", "b", "(.*)")`,
		`x{a="'$b"} + x{c='"$d'}`:                    `x{a=~"'.*"} + x{c=~"\".*"}`,
		`increase(x[$__range]) / $__range_s * $unit`: `increase(x[30m]) / 1800 * 5`,
		`x offset $ago`:                              `x offset 5s`,
		`{__name__="$metric"}`:                       `{__name__=~".*"}`,
	} {
		set := setOf(uses.Use{Where: "w", Query: text})
		got, _ := questions(set, nil, nil, time.UnixMilli(day), 30*time.Minute)
		if len(got) != 1 {
			t.Errorf("%s is %d queries", text, len(got))
		} else if got[0].text != want {
			t.Errorf("%s is asked as %+v, want %s", text, got[0], want)
		}
	}
}

// TestPlayErrors: a bad span and a source that fails are errors that say so.
func TestPlayErrors(t *testing.T) {
	w := api()
	if _, err := Play(t.Context(), w, new(uses.Set), nil, ReplayOptions{Span: time.Minute}); err == nil ||
		!strings.Contains(err.Error(), "too few samples") {
		t.Errorf("got %v", err)
	}
	if _, err := Play(t.Context(), w, new(uses.Set), nil, ReplayOptions{Dir: "/nowhere/at/all"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
