package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// memory is a source of given series.
type memory []labels.Labels

func (m memory) String() string { return "memory" }

func (m memory) Scan(_ context.Context, f func(*inventory.Series) error) error {
	for _, ls := range m {
		if err := f(&inventory.Series{Labels: ls}); err != nil {
			return err
		}
	}
	return nil
}

func series(t testing.TB, texts ...string) memory {
	t.Helper()
	var out memory
	for _, text := range texts {
		pairs := strings.Fields(text)
		b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, pairs[0], model.JobLabel, "j"))
		for _, p := range pairs[1:] {
			name, value, ok := strings.Cut(p, "=")
			if !ok {
				t.Fatalf("%q", p)
			}
			b.Set(name, value)
		}
		out = append(out, b.Labels())
	}
	return out
}

// Trap 7 where it hurts, F3, and labels that are read.
func TestStoredSeriesDecide(t *testing.T) {
	for name, c := range map[string]struct {
		rules, query string
		series       []string
		check        string
		severity     verify.Severity // empty where nothing is found
		text         string
		count        int64
	}{
		"an unescaped dot that takes more": {
			"- {source_labels: [__name__, code], regex: 'm;2.0', action: drop}", "",
			[]string{"m code=2.0", "m code=200", "m code=210", "m code=201"},
			verify.CheckDot, verify.Broken, "takes 2 stored series that it does not name", 2,
		},
		"an unescaped dot that takes no more": {"- {source_labels: [__name__, code], regex: 'm;2.0', action: drop}", "", []string{"m code=2.0", "m code=201"}, verify.CheckDot, verify.Doubtful, "names 2.0", 0},
		"series that become one": {
			"- {regex: pod, action: labeldrop}", "",
			[]string{"m pod=a", "m pod=b", "m pod=c", "m pod=d node=x"},
			verify.CheckMerged, verify.Broken, "2 stored series become equal",
			2,
		},
		"series that stay apart": {
			"- {regex: pod, action: labeldrop}", "sum by (node) (m)",
			[]string{"m pod=a node=a", "m pod=b node=b"},
			verify.CheckMerged, "", "", 0,
		},
		"a label that is read":            {"- {regex: pod, action: labeldrop}", "sum by (pod) (m)", []string{"m pod=a node=a", "m pod=b node=b", "n pod=b"}, verify.CheckLost, verify.Broken, "needs label pod of m, which the rule takes from 2 stored series", 2},
		"some of many":                    {"- {source_labels: [__name__, pod], regex: 'm;', action: drop}", "sum(m)", []string{"m pod=a", "m node=a", "m node=b"}, verify.CheckLost, verify.Broken, "loses 2 stored series of m", 2},
		"none of them":                    {"- {source_labels: [__name__, pod], regex: 'm;', action: drop}", `sum(m{pod!=""})`, []string{"m pod=a", "m node=a", "m node=b"}, verify.CheckLost, "", "", 0},
		"a doubt that is none":            {"- {source_labels: [__name__, pod], regex: 'm;', action: drop}", "sum(m)", []string{"m pod=a", "m pod=b"}, verify.CheckLost, "", "", 0},
		"up stays":                        {"- {source_labels: [__name__], regex: 'up.*', action: drop}", "up == 0", []string{"up instance=a"}, verify.CheckLost, "", "", 0},
		"a query of today without series": {"- {source_labels: [__name__], regex: 'm|n', action: drop}", "n > 0", []string{"o pod=a"}, verify.CheckLost, verify.Broken, "loses all series of n", 0},
		"fewer buckets":                   {`- {source_labels: [__name__, le], regex: 'h_bucket;1\.0', action: drop}`, "histogram_quantile(0.5, sum by (le) (rate(h_bucket[5m])))", []string{"h_bucket le=1.0", "h_bucket le=+Inf"}, verify.CheckLost, verify.Doubtful, "fewer buckets", 1},
		"without +Inf":                    {`- {source_labels: [__name__, le], regex: 'h_bucket;\+Inf', action: drop}`, "histogram_quantile(0.5, sum by (le) (rate(h_bucket[5m])))", []string{"h_bucket le=1.0", "h_bucket le=+Inf"}, verify.CheckLost, verify.Broken, "loses 1 stored series", 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := withRules(t, c.rules)
			o := verify.Options{Prometheus: []string{path}, Source: series(t, c.series...)}
			if c.query != "" {
				o.Uses = queries(t, c.query)
			}
			r := check(t, o)
			var got []verify.Finding
			for _, f := range r.Findings {
				if f.Check == c.check && (c.count == 0 || f.Series > 0) {
					got = append(got, f)
				}
			}
			switch {
			case c.severity == "" && len(got) > 0,
				c.severity != "" && (len(got) != 1 || got[0].Severity != c.severity || got[0].Series != c.count ||
					!strings.Contains(got[0].Text, c.text)):
				t.Errorf("%+v\n%s", got, textOf(t, r))
			}
			if r.Series != int64(len(c.series)) {
				t.Errorf("%d series", r.Series)
			}
		})
	}
}

// The rule that is blamed is the one that takes the label, not the first that changes something.
func TestBlame(t *testing.T) {
	path := withRules(t, "- {source_labels: [node], target_label: machine}\n- {regex: pod, action: labeldrop}")
	for _, src := range []inventory.Source{nil, series(t, "m pod=a node=x", "m pod=b node=x")} {
		r := check(t, verify.Options{Prometheus: []string{path}, Uses: queries(t, "sum by (pod) (m)"), Source: src})
		for _, f := range r.Findings {
			if f.RuleLine != 5 {
				t.Error(textOf(t, r))
			}
		}
		if want := map[bool]int{true: 1, false: 2}[src == nil]; len(r.Findings) != want {
			t.Error(textOf(t, r))
		}
	}
}

// A monitor's rules are for the series of its own job, under whatever name that goes.
func TestMonitorsJob(t *testing.T) {
	path := file(t, "m.yaml", "kind: ServiceMonitor\nmetadata: {name: kube-apiserver, namespace: monitoring}\nspec:\n  endpoints:\n    - metricRelabelings:\n        - {sourceLabels: [__name__], regex: m, action: drop}\n")
	for name, c := range map[string]struct {
		jobs  map[string]string
		label string
		want  int64
	}{
		"its name":                   {nil, "kube-apiserver", 1},
		"namespace and name":         {nil, "monitoring/kube-apiserver", 1},
		"as told":                    {map[string]string{"monitoring/kube-apiserver": "apiserver"}, "apiserver", 1},
		"what nobody else has":       {nil, "apiserver", 1},
		"told, and another job's":    {map[string]string{"monitoring/kube-apiserver": "apiserver"}, "node", 1},
		"what a prometheus.yml says": {nil, "j", 0},
	} {
		o := verify.Options{Monitors: []string{path}, Jobs: c.jobs, Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: other, action: drop}")}, Uses: queries(t, "m"), Source: series(t, "m job="+c.label, "n")}
		var lost int64
		r := check(t, o)
		for _, f := range r.Findings {
			if f.Check == verify.CheckLost {
				lost += f.Series
			}
		}
		if lost != c.want {
			t.Errorf("%s: %d\n%s", name, lost, textOf(t, r))
		}
	}
}

// Against a second reckoning by relabel.ProcessBuilder alone: whatever the rules, the series that
// each query loses are counted right.
func TestCountsAreRight(t *testing.T) {
	seed := randseed.Of(t, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	for round := range 300 {
		var rules strings.Builder
		for range 1 + rng.IntN(4) {
			switch rng.IntN(6) {
			case 0, 1:
				fmt.Fprintf(&rules, "- {source_labels: [__name__], regex: '%s', action: %s}\n", pick("a", "b|c", "a|h_.*", "[bc]", "(a|b|c|h_bucket)"), pick("drop", "drop", "drop", "keep"))
			case 2:
				fmt.Fprintf(&rules, "- {source_labels: [__name__, le], regex: 'h_bucket;(%s)', action: drop}\n", pick("1", `1(\.0)?`, `\+Inf|0.5`, "0.5"))
			case 3:
				fmt.Fprintf(&rules, "- {source_labels: [pod, __name__], regex: '%s', action: drop}\n", pick(";a", "x;.*", "(x|y);(a|b)"))
			case 4:
				fmt.Fprintf(&rules, "- {source_labels: [__name__], regex: '%s', target_label: pod, replacement: '%s'}\n", pick("a", "a|b"), pick("", "z"))
			case 5:
				fmt.Fprintf(&rules, "- {regex: '%s', action: labeldrop}\n", pick("pod", "node", "p.*|node"))
			}
		}
		var stored []string
		for range rng.IntN(30) {
			s := pick("a", "b", "c", "h_bucket", "up")
			if s == "h_bucket" {
				s += " le=" + pick("1.0", "0.5", "+Inf")
			}
			for _, l := range []string{"pod", "node"} {
				if v := pick("", "x", "y"); v != "" {
					s += " " + l + "=" + v
				}
			}
			stored = append(stored, s)
		}
		var texts []string
		for range 1 + rng.IntN(4) {
			texts = append(texts, pick(`a`, `sum by (pod) (b{pod!="z"})`, `count({__name__=~"[abc]"})`, `h_bucket{le=~"1(\\.0)?"}`,
				`sum(c{node="x"})`, `sum(rate(h_bucket[5m]))`, `absent(c{pod="y"})`, `up`))
		}
		set := queries(t, texts...)
		src := series(t, stored...)
		path := withRules(t, rules.String())
		r := check(t, verify.Options{Prometheus: []string{path}, Uses: set, Source: src})

		var configs []*relabel.Config
		if err := yaml.Unmarshal([]byte(rules.String()), &configs); err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, ls := range src {
			ls.Range(func(l labels.Label) { known[ls.Get(model.MetricNameLabel)+" "+l.Name] = true })
		}
		for line, u := range set.Uses {
			want := map[string]bool{}
			for _, ls := range src {
				if ls.Get(model.MetricNameLabel) == "up" {
					continue
				}
				for _, n := range u.Needs {
					if !slices.ContainsFunc(n.Matchers, func(m *labels.Matcher) bool {
						v := ls.Get(m.Name)
						return !m.Matches(v) && (v != "" || m.Name == model.MetricNameLabel ||
							known[ls.Get(model.MetricNameLabel)+" "+m.Name])
					}) {
						lb := labels.NewBuilder(ls)
						for _, c := range configs {
							if err := c.Validate(model.UTF8Validation); err != nil {
								t.Fatal(err)
							}
						}
						kept := relabel.ProcessBuilder(lb, configs...)
						lost := !kept
						ls.Range(func(l labels.Label) { lost = lost || lb.Get(l.Name) != l.Value && n.Reads(l.Name) })
						if lost {
							want[ls.String()] = true
						}
					}
				}
			}
			got := slices.ContainsFunc(r.Findings,
				func(f verify.Finding) bool { return f.File == "q.promql" && f.Line == line+1 && f.Series > 0 })
			if got != (len(want) > 0) {
				t.Fatalf("seed %d round %d: %s loses %d series, found: %v\nrules\n%s\nseries %s\n%s", seed, round, u.Query, len(want), got, rules.String(), strings.Join(stored, "\n"), textOf(t, r))
			}
		}
	}
}

type broken struct{}

func (broken) String() string { return "broken" }

func (broken) Scan(context.Context, func(*inventory.Series) error) error {
	return errors.New("page x:3 does not parse")
}

// An inventory that cannot be read is no answer at all.
func TestBrokenSource(t *testing.T) {
	_, err := verify.Check(context.Background(),
		verify.Options{Prometheus: []string{withRules(t, "- {regex: pod, action: labeldrop}")}, Source: broken{}})
	if err == nil || !strings.Contains(err.Error(), "broken: page x:3") {
		t.Error(err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	_, err := verify.Check(ctx, verify.Options{
		Prometheus: []string{withRules(t, "- {regex: pod, action: labeldrop}")},
		Source:     series(t, "m"),
	})
	if err == nil || !strings.Contains(err.Error(), "enough") {
		t.Error(err)
	}
}
