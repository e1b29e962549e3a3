package relabel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/model/relabel"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// memory is a source that holds its series.
type memory []labels.Labels

func (memory) String() string { return "memory" }

func (m memory) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	for _, ls := range m {
		if err := f(&inventory.Series{Labels: ls, Interval: 30 * time.Second}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// pages writes pages, named JOB/INSTANCE, into a folder, and opens it.
func pages(t *testing.T, texts map[string]string) inventory.Source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		write(t, filepath.Join(dir, filepath.FromSlash(name)+".prom"), strings.ReplaceAll(strings.TrimLeft(text, "\n"), "\t", ""))
	}
	src, err := inventory.Pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// queries are uses of each query.
func queries(texts ...string) *uses.Set {
	set := new(uses.Set)
	for i, text := range texts {
		set.Add(&uses.Use{Kind: "file", File: "queries", Line: i + 1, Where: fmt.Sprintf("query %d", i+1), Query: text})
	}
	return set
}

// replayed asks every query before and after.
func replayed(o *relabel.Options) { o.Replay = true }

// plan makes one, at the largest risk that changes no answer.
func plan(t *testing.T, src inventory.Source, set *uses.Set, change ...func(*relabel.Options)) *relabel.Plan {
	t.Helper()
	o := relabel.Options{Source: src, Uses: set, Owner: "observability", Now: now, ReplayOptions: prove.ReplayOptions{Dir: t.TempDir()}}
	for _, f := range change {
		f(&o)
	}
	p, err := relabel.Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Proof.Failed) > 0 {
		t.Fatalf("rules are in the plan that did not pass: %+v", p.Proof.Failed)
	}
	if r := p.Proof.Replay; r != nil && len(r.Differences) > 0 {
		t.Fatalf("answers change: %+v", r.Differences)
	}
	return p
}

// goes are the series that the plan's rules drop, without job and instance, each as PromQL writes
// it, sorted.
func goes(t *testing.T, src inventory.Source, p *relabel.Plan) []string {
	t.Helper()
	var out []string
	err := src.Scan(t.Context(), func(s *inventory.Series) error {
		if _, kept := apply(s.Labels, p.Rules); !kept {
			b := labels.NewBuilder(s.Labels)
			b.Del(model.InstanceLabel)
			out = append(out, text(b.Labels()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// text is a series as `JOB name{labels}`.
func text(ls labels.Labels) string {
	b := labels.NewBuilder(ls)
	b.Del(model.MetricNameLabel, model.JobLabel)
	rest := b.Labels().String()
	if rest == "{}" {
		rest = ""
	}
	return ls.Get(model.JobLabel) + " " + ls.Get(model.MetricNameLabel) + rest
}

func apply(ls labels.Labels, rules []propose.Rule) (labels.Labels, bool) {
	b := labels.NewBuilder(ls)
	for _, r := range rules {
		if r.Job == ls.Get(model.JobLabel) && !prom.ProcessBuilder(b, r.Relabel...) {
			return labels.EmptyLabels(), false
		}
	}
	return b.Labels(), true
}

// expect says which series must go, and that no others do.
func expect(t *testing.T, src inventory.Source, p *relabel.Plan, want ...string) {
	t.Helper()
	got := goes(t, src, p)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("these series go:\n%s\nwant:\n%s\nrefused: %+v", strings.Join(got, "\n"), strings.Join(want, "\n"), p.Refused)
	}
}

// high also takes labels.
func high(o *relabel.Options) { o.Propose.Risk = propose.High }

const web = `
	# TYPE http_requests_total counter
	http_requests_total{code="200",pod="a",uid="1"} 10
	http_requests_total{code="500",pod="a",uid="1"} 1
	http_requests_total{code="200",pod="b",uid="2"} 20
	# TYPE latency_seconds histogram
	latency_seconds_bucket{code="200",le="0.1"} 1
	latency_seconds_bucket{code="200",le="1"} 2
	latency_seconds_bucket{code="200",le="30"} 3
	latency_seconds_bucket{code="200",le="60"} 3
	latency_seconds_bucket{code="200",le="+Inf"} 3
	latency_seconds_bucket{code="500",le="0.1"} 1
	latency_seconds_bucket{code="500",le="1"} 2
	latency_seconds_bucket{code="500",le="30"} 3
	latency_seconds_bucket{code="500",le="60"} 3
	latency_seconds_bucket{code="500",le="+Inf"} 3
	latency_seconds_sum{code="200"} 4
	latency_seconds_sum{code="500"} 4
	latency_seconds_count{code="200"} 3
	latency_seconds_count{code="500"} 3
	# TYPE unused_a_total counter
	unused_a_total 1
	unused_b_total 1
	`

func TestMake(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web, "web/2": web})
	set := queries(`sum by (pod) (http_requests_total)`, `sum(rate(latency_seconds_bucket{code="200",le=~"30(\\.0)?"}[5m])) / sum(rate(latency_seconds_count[5m]))`)
	steps := map[string]bool{}
	p := plan(t, src, set, replayed, high, func(o *relabel.Options) { o.Progress = func(step string, _, _ int64) { steps[step] = true } })
	for _, step := range []string{"inventory", "uses", "proof"} {
		if !steps[step] {
			t.Errorf("no progress of %s", step)
		}
	}
	var ids []string
	for _, r := range p.Rules {
		ids = append(ids, r.ID)
	}
	// Slice and buckets overlap: 10 of code 500 and 4 of 0.1 and 1.0 by two, of which 4 are of code
	// 500.
	if want := []string{
		"web/slice/code/1", "web/buckets/1", "web/names/1",
		"web/label/uid",
	}; !slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(want))) {
		t.Errorf("rules %q, want %q", ids, want)
	}
	gone := goes(t, src, p)
	if p.Dropped.Series != int64(len(gone)) || p.Proof.Dropped != p.Dropped.Series || p.Stored.Series != 38 || len(p.Jobs) != 1 ||
		p.Jobs[0].Dropped != p.Dropped {
		t.Errorf("dropped %+v, proof %d, stored %+v, really %d, jobs %+v", p.Dropped, p.Proof.Dropped, p.Stored, len(gone), p.Jobs)
	}
	if top := p.Jobs[0].Top[0]; top != (relabel.Metric{Name: "latency_seconds_bucket", Series: 20, Dropped: 14, Uses: 1}) {
		t.Errorf("the largest metric is %+v", top)
	}
	if p.Inputs.Uses["file"] != 2 || p.Inputs.Risk != "high" || p.Made != now || p.Owner != "observability" {
		t.Errorf("inputs %+v, made %s, owner %s", p.Inputs, p.Made, p.Owner)
	}
}

func TestMakeTwiceIsTheSameBytes(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web, "db/1": web})
	var texts [2]bytes.Buffer
	for i := range texts {
		if err := plan(t, src, queries(`sum by (pod) (http_requests_total)`,
			`latency_seconds_bucket{le="1"}`)).Write(&texts[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0].Bytes(), texts[1].Bytes()) {
		t.Errorf("%s\nand\n%s", &texts[0], &texts[1])
	}
}

func TestMakeRefuses(t *testing.T) {
	full := memory{labels.FromStrings(model.MetricNameLabel, "a", "job", "j")}
	failing := errors.New("page is torn")
	for _, test := range []struct {
		name string
		o    relabel.Options
		want error
	}{
		{"no source", relabel.Options{Uses: queries("a")}, relabel.ErrNoSeries},
		{"no series", relabel.Options{Source: memory{}, Uses: queries("a")}, relabel.ErrNoSeries},
		{"no set", relabel.Options{Source: full}, relabel.ErrNoUses},
		{"no uses", relabel.Options{Source: full, Uses: new(uses.Set)}, relabel.ErrNoUses},
		{"uses of nothing", relabel.Options{Source: full, Uses: queries("1 + 1")}, relabel.ErrNoUses},
		{"a source that fails", relabel.Options{Source: broken{full, failing}, Uses: queries("a")}, failing},
	} {
		t.Run(test.name, func(t *testing.T) {
			if p, err := relabel.Make(t.Context(), test.o); !errors.Is(err, test.want) || p != nil {
				t.Errorf("%v, %v; want %v", p, err, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failing)
	if _, err := relabel.Make(ctx, relabel.Options{Source: full, Uses: queries("a")}); !errors.Is(err, failing) {
		t.Errorf("cancelled: %v", err)
	}
	grows := &growing{}
	if _, err := relabel.Make(t.Context(), relabel.Options{Source: grows, Uses: queries("a")}); err == nil ||
		!strings.Contains(err.Error(), "holds still") {
		t.Errorf("a source that changes: %v", err)
	}
}

type broken struct {
	memory
	err error
}

func (b broken) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	return errors.Join(b.memory.Scan(ctx, f), b.err)
}

// growing has one series more each time.
type growing struct{ n int }

func (*growing) String() string { return "growing" }

func (g *growing) Scan(_ context.Context, f func(*inventory.Series) error) error {
	g.n++
	for i := range g.n {
		if err := f(&inventory.Series{Labels: labels.FromStrings(model.MetricNameLabel, "a", "i", fmt.Sprint(i), "job", "j")}); err != nil {
			return err
		}
	}
	return nil
}

// TestCollisionIsRefused: of two metrics that could lose a label, one would lose series with it.
// That one is refused with the series and what to do instead; the other loses its label.
func TestCollisionIsRefused(t *testing.T) {
	src := pages(t, map[string]string{"j/1": `
	requests_total{code="200",pod="a",uid="1"} 1
	requests_total{code="200",pod="b",uid="2"} 1
	errors_total{code="200",pod="a",uid="1"} 1
	errors_total{code="500",pod="a",uid="2"} 1
	errors_total{code="500",pod="a",uid="3"} 1
	`})
	p := plan(t, src, queries("sum by (pod) (requests_total)", "sum by (code) (errors_total)"), replayed, high)
	var rule *propose.Rule
	for i := range p.Rules {
		if p.Rules[i].Kind == propose.Label && p.Rules[i].Label == "uid" {
			rule = &p.Rules[i]
		}
	}
	if rule == nil || !slices.Equal(rule.Metrics, []string{"requests_total"}) {
		t.Errorf("rules %+v, want one that takes uid from requests_total only", p.Rules)
	}
	i := slices.IndexFunc(p.Refused, func(r propose.Refusal) bool { return r.Kind == propose.Label && r.Label == "uid" })
	if i < 0 {
		t.Fatalf("refused: %+v", p.Refused)
	}
	r := p.Refused[i]
	if !slices.Equal(r.Metrics, []string{"errors_total"}) || len(r.Examples) == 0 || !strings.Contains(r.Examples[0], `uid="2"`) ||
		!strings.Contains(r.Examples[0], `uid="3"`) {
		t.Errorf("refusal %+v lacks the colliding series", r)
	}
	if !strings.Contains(r.Instead, `sum without (uid) (rate(errors_total{job="j"}[5m]))`) || !strings.Contains(r.Instead, "without: [uid]") {
		t.Errorf("instead: %s", r.Instead)
	}
}

// TestWorlds holds what is proposed against what is proven, on random series and queries: two
// programs by two hands must agree on every series. All that the proof may refuse is labels.
func TestWorlds(t *testing.T) {
	const seed = 6
	kinds := map[propose.Kind]int{}
	for i := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, i))
		src, texts := world(r)
		o := relabel.Options{Source: src, Uses: queries(texts...), Now: now, Propose: propose.Options{
			Risk: []propose.Risk{propose.Medium, propose.High}[r.IntN(2)], MinSaving: int64(r.IntN(4)),
			Exempt: [][]string{nil, nil, {"k"}}[r.IntN(3)],
		}}
		p, err := relabel.Make(t.Context(), o)
		if err != nil && !errors.Is(err, relabel.ErrNoUses) {
			t.Fatalf("seed %d, world %d: %v\n%s", seed, i, err, strings.Join(texts, "\n"))
		}
		if err != nil {
			continue
		}
		for _, refusal := range p.Refused {
			if refusal.Kind != propose.Label && !strings.HasPrefix(refusal.Reason, "it needs the risk") &&
				!strings.HasPrefix(refusal.Reason, "a use of this name selects no series") {
				t.Errorf("seed %d, world %d: refused %+v\n%s", seed, i, refusal, strings.Join(texts, "\n"))
			}
		}
		for _, r := range p.Rules {
			kinds[r.Kind]++
		}
		if gone := goes(t, src, p); p.Dropped.Series != int64(len(gone)) {
			t.Errorf("seed %d, world %d: %d series go, the plan says %d", seed, i, len(gone), p.Dropped.Series)
		}
		var text bytes.Buffer
		if err := p.Write(&text); err != nil {
			t.Fatal(err)
		}
		back, err := relabel.Read(&text)
		if err != nil {
			t.Fatalf("seed %d, world %d: %v", seed, i, err)
		}
		d, err := relabel.Diff(t.Context(), p, back, src)
		if err != nil || !d.Empty() || d.Series != int64(len(src)) {
			t.Errorf("seed %d, world %d: a plan and the same, read: %+v, %v", seed, i, d, err)
		}
	}
	t.Logf("rules: %v", kinds)
	for _, kind := range []propose.Kind{propose.Names, propose.Slice, propose.Buckets, propose.Label} {
		if kinds[kind] == 0 {
			t.Errorf("no rule of kind %s in all worlds", kind)
		}
	}
}

// world is a random fleet with two jobs, and what is asked of it.
func world(r *rand.Rand) (memory, []string) {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	seen := map[string]bool{}
	var src memory
	for range 30 + r.IntN(150) {
		name := pick("a_total", "a_bytes", "b_seconds_bucket", "b_seconds_sum", "c;d", "日本")
		b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name, "job", pick("j", "k"), "instance", pick("1", "2")))
		for _, label := range []string{"code", "pod", "uid"} {
			b.Set(label, pick("", "200", "500", "x;y", "1"))
		}
		if strings.HasSuffix(name, "_bucket") {
			b.Set("le", pick("0.1", "0.2", "0.25", "0.5", "1.0", "+Inf"))
		}
		if ls := b.Labels(); !seen[ls.String()] {
			seen[ls.String()] = true
			src = append(src, ls)
		}
	}
	var texts []string
	for range 1 + r.IntN(4) {
		matcher := fmt.Sprintf("%s%s%q", pick("code", "pod", "job"), pick("=", "!="), pick("200", "500", "", "j"))
		texts = append(texts, pick(
			fmt.Sprintf(`sum by (pod) (rate(a_total{%s}[5m]))`, matcher), fmt.Sprintf(`a_bytes{%s}`, matcher), `max by (code) (a_bytes)`,
			`histogram_quantile(0.9, sum by (le) (rate(b_seconds_bucket[5m])))`, `b_seconds_bucket{le="0.5"}`, `b_seconds_bucket{le="1",code!="200"}`,
			fmt.Sprintf(`count({"c;d",%s})`, matcher), `{"日本"} unless a_bytes`, `absent(b_seconds_sum)`, `scalar(vector(1))`,
		))
	}
	return src, texts
}

// TestScaledByUnknown: an autoscaler whose metric is stored under no name that is known is told
// first, until what makes the metric is given; one of another system is a warning.
func TestScaledByUnknown(t *testing.T) {
	const hpa = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: {metrics: [{type: X, %s: {metric: {name: %s}}}]}\n"
	const adapter = "rules:\n  - seriesQuery: 'http_server_handled'\n    name: {as: http_requests_rate}\n    metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m]))\n"
	const keep = "- {match: http_server_handled, owner: web, reason: scales}\n- {match: http_requests_rate, owner: web, reason: scales}\n"
	src := pages(t, map[string]string{"j/i": "http_server_handled 1\nhttp_requests_total 1\nb 1\n"})
	for name, c := range map[string]struct{ kind, metric, adapter, keep, alarm, warning string }{
		"pods":            {"pods", "http_requests_rate", "", "", "autoscaler web, metric http_requests_rate", ""},
		"an object":       {"object", "http_requests_rate", "", "", "autoscaler web, metric http_requests_rate", ""},
		"outside":         {"external", "http_requests_rate", "", "", "", "autoscaler web, metric http_requests_rate"},
		"stored":          {"pods", "http_requests_per_second", "", "", "", ""},
		"with an adapter": {"pods", "http_requests_rate", adapter, "", "", ""},
		"named to keep":   {"pods", "http_requests_rate", "", keep, "", ""},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "hpa.yaml"), fmt.Sprintf(hpa, c.kind, c.metric))
		if c.adapter != "" {
			write(t, filepath.Join(dir, "adapter.yaml"), c.adapter)
		}
		set := queries("b")
		if err := uses.Autoscalers(set, dir); err != nil {
			t.Fatal(err)
		}
		if c.keep != "" {
			if err := uses.Keep(set, write(t, filepath.Join(t.TempDir(), "keep.yaml"), c.keep), now); err != nil {
				t.Fatal(err)
			}
		}
		p := plan(t, src, set)
		said := func(list []string) string {
			return strings.Join(slices.DeleteFunc(slices.Clone(list), func(s string) bool {
				return !strings.Contains(s, "stored under no name that is known")
			}), "\n")
		}
		for _, one := range []struct{ what, got, want string }{
			{"alarms", said(p.Alarms), c.alarm}, {"warnings", said(p.Warnings), c.warning},
		} {
			if (one.got == "") != (one.want == "") || !strings.Contains(one.got, one.want) {
				t.Errorf("%s: %s %q, want %q", name, one.what, one.got, one.want)
			}
		}
	}
}
