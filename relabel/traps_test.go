package relabel_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// The eighteen traps of drop rules, each from pages through plan and proof to what is emitted, as
// far as it needs that road; and what verify says of a rule, written by hand, that steps into it.
// Here are those of what is used; the other files are of rules, of histograms and of servers.

// verifies holds a rule that somebody wrote, for every job of the source, against uses, and wants
// these findings among the result's.
func verifies(t *testing.T, src inventory.Source, set *uses.Set, rule string, want ...string) {
	t.Helper()
	jobs := map[string]bool{}
	text := "scrape_configs:\n"
	err := src.Scan(t.Context(), func(s *inventory.Series) error {
		if job := s.Labels.Get(model.JobLabel); !jobs[job] {
			jobs[strings.Clone(job)] = true
			text += fmt.Sprintf("- job_name: %s\n  static_configs:\n  - targets: [localhost:1]\n  metric_relabel_configs:\n  - %s\n", job, rule)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := verify.Check(t.Context(), verify.Options{Prometheus: []string{write(t, filepath.Join(t.TempDir(), "prometheus.yml"),
		text)}, Uses: set, Source: src, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range want {
		if !slices.ContainsFunc(result.Findings, func(f verify.Finding) bool { return f.Check == check }) {
			t.Errorf("verify finds nothing of kind %q in %s: %+v, unchecked %q", check, rule, result.Findings, result.Unchecked)
		}
	}
}

// Nameless selectors keep what they match, whatever asks for it: a federate's match[] and a remote
// write's keep list are selectors like any other.
func TestTrap01NamelessSelectors(t *testing.T) {
	src := pages(t, map[string]string{
		"node/1": "node_cpu 1\nnode_load 1\nother 1\n", "etcd/1": "etcd_a 1\netcd_b 1\n",
		"web/1": "web_a{tier=\"x\"} 1\nweb_a{tier=\"y\"} 1\nweb_b 1\n",
	})
	for _, test := range []struct {
		query string
		goes  []string
	}{
		{`{__name__=~"node_.*"}`, []string{
			"etcd etcd_a", "etcd etcd_b", "node other", `web web_a{tier="x"}`, `web web_a{tier="y"}`,
			"web web_b",
		}},
		{`count({job="etcd"})`, []string{
			"node node_cpu", "node node_load", "node other", `web web_a{tier="x"}`, `web web_a{tier="y"}`,
			"web web_b",
		}},
		{`{__name__=~".+"}`, nil},
		{`count by (__name__) ({__name__!=""})`, nil},
		{
			`{job=~"node|etcd",__name__!~"other|etcd_.*"}`,
			[]string{"etcd etcd_a", "etcd etcd_b", "node other", `web web_a{tier="x"}`, `web web_a{tier="y"}`, "web web_b"},
		},
		// No stored series of the others has the label: it may come with a trouble or from
		// elsewhere.
		{`{tier="x"}`, []string{`web web_a{tier="y"}`}},
	} {
		t.Run(test.query, func(t *testing.T) { expect(t, src, plan(t, src, queries(test.query)), test.goes...) })
	}
	p := plan(t, src, queries(`{__name__=~".+"}`))
	if !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "every metric") }) {
		t.Errorf("nobody says why nothing goes: %q", p.Warnings)
	}
}

// absent fires when its series go, unless shows what it hid, or shows less: each side is used.
func TestTrap02Absent(t *testing.T) {
	src := pages(t, map[string]string{"j/1": "a 1\nb 1\nc 1\nd 1\ne 1\nunused 1\nf{code=\"200\"} 1\nf{code=\"500\"} 1\n"})
	p := plan(t, src, queries("absent(a)", "absent_over_time(b[5m])", "c unless d", "vector(1) or e", `absent(f{code="500"})`), replayed)
	expect(t, src, p, "j unused", `j f{code="200"}`)
	// What is absent today waits for the day on which it is there, and the day after.
	p = plan(t, src, queries(`absent(f{code="404"})`, `a`))
	if gone := goes(t, src, p); slices.ContainsFunc(gone, func(s string) bool { return strings.HasPrefix(s, "j f{") }) {
		t.Errorf("goes: %q", gone)
	}
	verifies(t, src, queries("absent(a)"), `{source_labels: [__name__], regex: a, action: drop}`, verify.CheckLost)
}

// What a recording rule reads is used, through any number of rules; what it records never passes
// metric_relabel_configs.
func TestTrap03RecordingChains(t *testing.T) {
	rules := write(t, filepath.Join(t.TempDir(), "rules.yaml"), `groups:
- name: g
  rules:
  - record: level1
    expr: sum by (job) (rate(a_total[5m]))
  - record: level2
    expr: sum(level1)
  - alert: High
    expr: level2 > 1
`)
	set := new(uses.Set)
	if err := uses.Rules(set, rules); err != nil {
		t.Fatal(err)
	}
	p := plan(t, pages(t, map[string]string{"j/1": "a_total 1\nunused 1\n", "fed/1": "level2 1\nlevel1 1\n"}), set)
	for _, r := range p.Rules {
		if slices.Contains(r.Metrics, "a_total") || slices.Contains(r.Metrics, "level1") || slices.Contains(r.Metrics, "level2") {
			t.Errorf("%s takes %q", r.ID, r.Metrics)
		}
	}
	if len(p.Rules) != 1 || !slices.Equal(p.Rules[0].Metrics, []string{"unused"}) {
		t.Errorf("rules %+v", p.Rules)
	}
}

// Variables are resolved where they can be, and what stays unresolved keeps all that it could be.
func TestTrap04TemplateVariables(t *testing.T) {
	src := pages(t, map[string]string{"j/1": `
	variable_source{node="a"} 1
	result_source 1
	by_regex_cpu 1
	by_regex_load 1
	choice_a 1
	choice_b 1
	choice_c 1
	matched{node="a"} 1
	matched{node="b"} 1
	annotated 1
	open_cpu_total 1
	open_mem_total 1
	unused 1
	`})
	dashboard := map[string]any{
		"title": "D", "schemaVersion": 39,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "node", "type": "query", "query": "label_values(variable_source, node)"},
			map[string]any{
				"name": "q", "type": "query",
				"query": map[string]any{"query": "query_result(topk(3, result_source))", "refId": "x"},
			},
			map[string]any{"name": "m", "type": "query", "query": "metrics(by_regex_.*)"},
			map[string]any{
				"name": "metric", "type": "custom", "query": "choice_a,choice_b",
				"options": []any{map[string]any{"value": "choice_a"}, map[string]any{"value": "choice_b"}},
			},
			map[string]any{"name": "open", "type": "textbox", "query": ""},
		}},
		"annotations": map[string]any{"list": []any{map[string]any{"name": "A", "enable": true, "expr": "annotated > 0"}}},
		"panels": []any{
			map[string]any{
				"title": "by name", "type": "timeseries",
				"targets": []any{map[string]any{"expr": "rate($metric[$__rate_interval])"}},
			},
			map[string]any{
				"title": "by regex", "type": "timeseries", "repeat": "node",
				"targets": []any{map[string]any{"expr": `matched{node=~"${node:regex}"}`}},
			},
			map[string]any{"title": "part of a name", "type": "timeseries", "targets": []any{map[string]any{"expr": "open_${open}_total"}}},
		},
	}
	text, err := json.Marshal(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	set := new(uses.Set)
	if err := uses.Dashboards(set, filepath.Dir(write(t, filepath.Join(t.TempDir(), "d.json"), string(text)))); err != nil {
		t.Fatal(err)
	}
	expect(t, src, plan(t, src, set, replayed), "j choice_c", "j unused")
}

// of makes series of text: `name{a=b}`.
func of(job string, series ...string) memory {
	var out memory
	for _, text := range series {
		name, rest, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
		b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name, "job", job))
		for pair := range strings.SplitSeq(rest, ",") {
			if label, value, ok := strings.Cut(pair, "="); ok {
				b.Set(label, value)
			}
		}
		out = append(out, b.Labels())
	}
	return out
}

// What is asked once a quarter is used when the window is a quarter; with a shorter one it takes a
// keep, which says whose it is, why, and until when.
func TestTrap15Seasons(t *testing.T) {
	src := pages(t, map[string]string{"j/1": "daily 1\nquarterly_a 1\nquarterly_b 1\nunused 1\n"})
	line := func(age time.Duration, query, metric string) string {
		text, err := json.Marshal(map[string]any{
			"v": 1, "time": now.Add(-age).Format(time.RFC3339Nano), "user": "ada", "endpoint": "query",
			"query": query, "metrics": []string{metric}, "verdict": "pass",
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	}
	const day = 24 * time.Hour
	lines := line(80*day, "sum(quarterly_a)", "quarterly_a") + line(80*day, "quarterly_b", "quarterly_b")
	for d := 79; d > 0; d-- {
		lines += line(time.Duration(d)*day, "daily", "daily")
	}
	log := write(t, filepath.Join(t.TempDir(), "usage.jsonl"), lines)
	keep := write(t, filepath.Join(t.TempDir(), "keep.yaml"), "- match: 'quarterly_a'\n  owner: finance\n  reason: the quarterly report\n  expires: 2027-01-31\n"+
		"- match: 'quarterly_b'\n  owner: finance\n  reason: the report of last year\n  expires: 2026-01-31\n")
	read := func(window time.Duration, keeps bool) *uses.Set {
		set := new(uses.Set)
		if err := uses.Log(t.Context(), set, log, uses.LogOptions{Window: window, Now: now}); err != nil {
			t.Fatal(err)
		}
		if keeps {
			if err := uses.Keep(set, keep, now); err != nil {
				t.Fatal(err)
			}
		}
		return set
	}
	window := func(d time.Duration) func(*relabel.Options) { return func(o *relabel.Options) { o.Propose.Window = d } }
	expect(t, src, plan(t, src, read(90*day, false), window(90*day)), "j unused")
	expect(t, src, plan(t, src, read(30*day, false), window(30*day)), "j quarterly_a", "j quarterly_b", "j unused")
	p := plan(t, src, read(30*day, true), window(30*day))
	expect(t, src, p, "j quarterly_b", "j unused") // a keep that has expired keeps nothing, and says so
	if !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "quarterly_b") }) {
		t.Errorf("no warning of the keep that has expired: %q", p.Warnings)
	}
	if !strings.Contains(p.Rules[0].Evidence.Text, "30 days") {
		t.Errorf("the evidence does not say how far back was looked: %s", p.Rules[0].Evidence.Text)
	}
}

// Two jobs may scrape the same series, as k3s' kubelet does with the API server's: a use of one job
// keeps that job's only, a use without a job both, and buckets go from both alike.
func TestTrap17ScrapedTwice(t *testing.T) {
	page := "apiserver_total 1\napiserver_inflight 1\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 1\nh_bucket{le=\"3\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n"
	src := pages(t, map[string]string{"apiserver/1": page, "kubelet/1": page})
	p := plan(t, src, queries(`apiserver_total{job="apiserver"}`, "apiserver_inflight", `h_bucket{job="apiserver",le="1"}`,
		`h_bucket{job="kubelet",le="2"}`, "h_count", "h_sum"), replayed)
	expect(t, src, p, "kubelet apiserver_total")
	p = plan(t, src, queries("apiserver_total", "apiserver_inflight", `h_bucket{le="1"}`, "h_count", "h_sum"))
	expect(t, src, p, `apiserver h_bucket{le="2.0"}`, `kubelet h_bucket{le="2.0"}`)
}
