package relabel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/emit"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// The eighteen traps of drop rules, each from pages through plan and proof to what is emitted, as
// far as it needs that road; and what verify says of a rule, written by hand, that steps into it.

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

// Without +Inf there is no quantile, and without the highest finite bucket a lower one. Buckets
// that are compared with _count stay, and jobs lose the same ones.
func TestTrap05Buckets(t *testing.T) {
	page := func(edges ...string) string {
		var b strings.Builder
		b.WriteString("# TYPE h histogram\n")
		for _, le := range edges {
			fmt.Fprintf(&b, "h_bucket{le=%q} 1\n", le)
		}
		return b.String() + "h_sum 1\nh_count 1\n"
	}
	src := pages(t, map[string]string{
		"j/1": page("0.1", "0.12", "0.15", "0.2", "1", "5", "+Inf"),
		"k/1": page("0.1", "0.12", "0.15", "0.2", "+Inf"),
	})
	quantile := `histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m]))) + h_sum + h_count`
	slo := `1 - sum(rate(h_bucket{le="0.12"}[5m])) / sum(rate(h_count[5m])) + sum(h_sum)`
	expect(t, src, plan(t, src, queries(quantile)))
	expect(t, src, plan(t, src, queries(slo), replayed),
		`j h_bucket{le="0.1"}`, `j h_bucket{le="0.15"}`, `j h_bucket{le="1.0"}`, // 0.2 is the highest that k has, so that j keeps it too
		`k h_bucket{le="0.1"}`, `k h_bucket{le="0.15"}`)
	p := plan(t, src, queries(quantile, slo), replayed, func(o *relabel.Options) { o.Propose.Risk = propose.High })
	expect(t, src, p, `j h_bucket{le="0.15"}`, `k h_bucket{le="0.15"}`)
	for _, r := range p.Rules {
		if r.QuantileError <= 1 || r.QuantileError > 2.5 || r.Risk != propose.High {
			t.Errorf("%s states an error of %g, risk %s", r.ID, r.QuantileError, r.Risk)
		}
	}
	// A sum over all buckets is a sum over all buckets.
	expect(t, src, plan(t, src, queries("sum(rate(h_bucket[5m])) + sum(h_count) + sum(h_sum)"), func(o *relabel.Options) { o.Propose.Risk = propose.High }))
	verifies(t, src, queries(slo), `{source_labels: [__name__, le], regex: 'h_bucket;0\.12', action: drop}`, verify.CheckLost)
}

// A page says le="1", Prometheus 3 stores 1.0, a query says either; and the rule works on both.
func TestTrap06SpellingOfBuckets(t *testing.T) {
	src := pages(t, map[string]string{"j/1": "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"15\"} 1\nh_bucket{le=\"30\"} 1\nh_bucket{le=\"60\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n"})
	for _, query := range []string{`h_bucket{le="30"}`, `h_bucket{le="30.0"}`, `h_bucket{le=~"30(\\.0)?"}`} {
		p := plan(t, src, queries(query, "h_sum", "h_count"))
		expect(t, src, p, `j h_bucket{le="1.0"}`, `j h_bucket{le="15.0"}`)
		for _, le := range []string{"1", "1.0", "15", "15.0"} {
			if _, kept := apply(labels.FromStrings(model.MetricNameLabel, "h_bucket", "job", "j", "le", le), p.Rules); kept {
				t.Errorf("%s: an older server keeps le=%q", query, le)
			}
		}
		for _, le := range []string{"30", "30.0", "60", "60.0", "150", "1.05", "+Inf", ""} {
			if _, kept := apply(labels.FromStrings(model.MetricNameLabel, "h_bucket", "job", "j", "le", le), p.Rules); !kept {
				t.Errorf("%s: le=%q goes", query, le)
			}
		}
	}
	verifies(t, src, queries("h_sum"), `{source_labels: [__name__, le], regex: 'h_bucket;(1|15)', action: drop}`, verify.CheckLe)
}

// Expressions are anchored, and a dot in them is any character unless it is quoted.
func TestTrap07Regexes(t *testing.T) {
	src := pages(t, map[string]string{"j/1": `
	a{code="2.0"} 1
	a{code="200"} 1
	a{code="2x0"} 1
	a{code="12.0"} 1
	{"b.c"} 1
	b_c 1
	bxc 1
	b_c_total 1
	xb_c 1
	`})
	p := plan(t, src, queries(`a{code!="2.0"}`, `b_c_total`, `xb_c`, `bxc`, `b_c`))
	expect(t, src, p, `j a{code="2.0"}`, "j b.c")
	verifies(t, src, queries(`a{code="200"}`), `{source_labels: [__name__, code], regex: 'a;2.0', action: drop}`, verify.CheckDot, verify.CheckLost)
}

// Names and values are joined before they are matched, and a label that is missing joins as
// nothing.
func TestTrap08Separator(t *testing.T) {
	src := pages(t, map[string]string{"j/1": `
	{"a;b",l="c"} 1
	a{l="b;c"} 1
	a{l="x"} 1
	{"a;b",l="x"} 1
	d{pod="p"} 1
	d 1
	`})
	expect(t, src, plan(t, src, queries(`a{l="x"}`, `{"a;b"}`, `d{pod!=""}`), replayed), `j a{l="b;c"}`, "j d")
	expect(t, src, plan(t, src, queries(`a`, `{"a;b",l="x"}`, `d{pod=""}`)), `j a;b{l="c"}`, `j d{pod="p"}`)
}

// Rules run from the top down, and labels that begin with __tmp_ are stored: ours need no order
// among those that drop, and set no such label.
func TestTrap09OrderAndTemporaryLabels(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web, "web/2": web})
	p := plan(t, src, queries(`sum by (pod) (http_requests_total)`, `latency_seconds_bucket{code="200",le="1"}`))
	if len(p.Rules) < 3 {
		t.Fatalf("too few rules to say anything: %+v", p.Rules)
	}
	want := goes(t, src, p)
	reversed := *p
	reversed.Rules = slices.Clone(p.Rules)
	slices.Reverse(reversed.Rules)
	if got := goes(t, src, &reversed); !slices.Equal(got, want) {
		t.Errorf("from the bottom up:\n%q\nwant\n%q", got, want)
	}
	for _, r := range p.Rules {
		for _, c := range r.Relabel {
			if strings.HasPrefix(c.TargetLabel, "__") || c.TargetLabel != "" && c.Replacement != "" {
				t.Errorf("%s sets the label %q to %q", r.ID, c.TargetLabel, c.Replacement)
			}
		}
	}
	err := src.Scan(t.Context(), func(s *inventory.Series) error {
		if out, kept := apply(s.Labels, p.Rules); kept {
			out.Range(func(l labels.Label) {
				if !s.Labels.Has(l.Name) {
					t.Errorf("%s becomes %s", s.Labels, out)
				}
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	verifies(t, src, queries("http_requests_total"), `{target_label: __tmp_x, replacement: y, action: replace}`, verify.CheckTemporary)
}

// keep allows one list for a whole target, and what it forgets is gone: nothing that we write is
// one, so that what is new tomorrow is kept.
func TestTrap10KeepIsAnAllowList(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web})
	p := plan(t, src, queries(`sum by (pod) (http_requests_total)`))
	for _, r := range p.Rules {
		for _, c := range r.Relabel {
			if c.Action != prom.Drop && (c.Action != prom.Replace || c.Replacement != "") {
				t.Errorf("%s: %s", r.ID, c.Action)
			}
		}
	}
	for _, job := range []string{"web", "new"} {
		for _, name := range []string{"new_total", "unused_c_total", "unused_a_total_more", "a_unused_a_total"} {
			if _, kept := apply(labels.FromStrings(model.MetricNameLabel, name, "job", job), p.Rules); !kept {
				t.Errorf("%s of %s, which nobody has seen yet, goes", name, job)
			}
		}
	}
	verifies(t, src, queries("http_requests_total"), `{source_labels: [__name__], regex: 'latency_.*', action: keep}`, verify.CheckKeep, verify.CheckLost)
}

// labelkeep and labeldrop are for every metric of a target, the name of the metric among its
// labels: a label goes from the metrics that it was proven for only.
func TestTrap11LabelsOfOneMetric(t *testing.T) {
	src := pages(t, map[string]string{"j/1": "a{pod=\"x\",uid=\"1\"} 1\na{pod=\"y\",uid=\"2\"} 1\nb{pod=\"x\",uid=\"1\"} 1\nb{pod=\"x\",uid=\"2\"} 1\n"})
	p := plan(t, src, queries("sum by (pod) (a)", "b"), replayed, high)
	expect(t, src, p)
	err := src.Scan(t.Context(), func(s *inventory.Series) error {
		out, _ := apply(s.Labels, p.Rules)
		if name := out.Get(model.MetricNameLabel); name != s.Labels.Get(model.MetricNameLabel) || out.Has("uid") != (name == "b") {
			t.Errorf("%s becomes %s", s.Labels, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	verifies(t, src, queries("b"), `{regex: 'pod|uid', action: labelkeep}`, verify.CheckName)
	verifies(t, src, queries("sum by (pod) (a)"), `{regex: uid, action: labeldrop}`, verify.CheckMerged)
}

// The server writes up, scrape_… and ALERTS itself: a rule on them does nothing but promise.
func TestTrap12WhatTheServerWrites(t *testing.T) {
	var src memory
	for _, name := range []string{"up", "scrape_duration_seconds", "scrape_samples_scraped", "ALERTS", "ALERTS_FOR_STATE", "a", "unused"} {
		src = append(src, labels.FromStrings(model.MetricNameLabel, name, "job", "j", "instance", "1"))
	}
	expect(t, src, plan(t, src, queries("a")), "j unused")
	verifies(t, src, queries("a"), `{source_labels: [__name__], regex: up, action: drop}`, verify.CheckNeverSeen)
}

// sample_limit counts what is left after relabelling: with the rules, a target passes a limit that
// it would break without them. A real server shows it.
func TestTrap13SampleLimit(t *testing.T) {
	if _, err := realprom.Find("prometheus"); err != nil {
		t.Skipf("no Prometheus to ask: %v", err)
	}
	page := strings.ReplaceAll(strings.TrimLeft(web, "\n"), "\t", "")
	src := pages(t, map[string]string{"web/1": web})
	p := plan(t, src, queries(`sum by (pod) (http_requests_total)`))
	if p.Dropped.Series == 0 {
		t.Fatal("nothing goes")
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(page))
	}))
	defer target.Close()
	address, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	job := func(name string) string {
		return fmt.Sprintf("- job_name: %s\n  sample_limit: %d\n  static_configs:\n  - targets: [%s]\n", name, p.Stored.Series-p.Dropped.Series, address.Host)
	}
	merged, _, err := emit.Merge(p, []byte("global:\n  scrape_interval: 1s\nscrape_configs:\n"+job("web")+job("untouched")))
	if err != nil {
		t.Fatal(err)
	}
	server := realpromtest.Start(t, realprom.Options{Config: string(merged)})
	// A scrape may time out on a machine that is busy, and succeeds then later.
	wait(t, server.URL(), fmt.Sprintf(`scrape_samples_post_metric_relabeling{job="web"} == %d and on () up{job="web"} == 1 and on () up{job="untouched"} == 0`, p.Stored.Series-p.Dropped.Series))
}

// wait asks until there is an answer.
func wait(t *testing.T, server, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query?query="+url.QueryEscape(query), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Data struct {
				Result []any `json:"result"`
			} `json:"data"`
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Data.Result) > 0 {
			http.DefaultClient.CloseIdleConnections()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s never holds", query)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A native histogram and its classic twins are one metric in two forms, and dashboards move from
// one to the other: while one is used, both stay.
func TestTrap14NativeHistogramPair(t *testing.T) {
	src := native{of("j", "h", "h_bucket{le=1.0}", "h_bucket{le=+Inf}", "h_sum", "h_count", "unused", "g", "g_bucket{le=+Inf}", "g_count")}
	for _, query := range []string{"histogram_quantile(0.9, sum(rate(h[5m])))", `h_bucket{le="1"}`, "rate(h_count[5m])"} {
		p := plan(t, src, queries(query))
		expect(t, src, p, "j g", `j g_bucket{le="+Inf"}`, "j g_count", "j unused")
	}
}

// native says that h and g are native histograms.
type native struct{ memory }

func (n native) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	return n.memory.Scan(ctx, func(s *inventory.Series) error {
		name := s.Labels.Get(model.MetricNameLabel)
		s.Native = name == "h" || name == "g"
		return f(s)
	})
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

// Prometheus spells source_labels and drop, the operator sourceLabels; either is what its own
// loader reads.
func TestTrap16Casing(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web})
	p := plan(t, src, queries(`sum by (pod) (http_requests_total)`, `latency_seconds_bucket{code="200",le="1"}`))
	merged, _, err := emit.Merge(p, []byte("scrape_configs:\n- job_name: web\n  static_configs:\n  - targets: [localhost:1]\n"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(string(merged), promslog.NewNopLogger())
	if err != nil {
		t.Fatalf("%v\n%s", err, merged)
	}
	var emitted []*prom.Config
	for _, c := range loaded.ScrapeConfigs {
		emitted = append(emitted, c.MetricRelabelConfigs...)
	}
	var planned []*prom.Config
	for _, r := range p.Rules {
		planned = append(planned, r.Relabel...)
	}
	same := func(a, b *prom.Config) bool {
		return a.Action == b.Action && a.Regex.String() == b.Regex.String() && slices.Equal(a.SourceLabels, b.SourceLabels) &&
			a.TargetLabel == b.TargetLabel && a.Replacement == b.Replacement &&
			(len(a.SourceLabels) < 2 || a.Separator == b.Separator)
	}
	if !slices.EqualFunc(emitted, planned, same) {
		t.Errorf("loaded from what is emitted:\n%+v\nplanned:\n%+v", emitted, planned)
	}
	var monitors bytes.Buffer
	if err := emit.ServiceMonitors(p, &monitors, emit.MonitorOptions{Monitors: map[string]emit.Monitor{"web": {
		Kind:      "ServiceMonitor",
		Namespace: "shop", Name: "web",
	}}}); err != nil {
		t.Fatal(err)
	}
	if text := monitors.String(); !strings.Contains(text, "sourceLabels") || strings.Contains(text, "source_labels") ||
		strings.Contains(text, "metric_relabel_configs") {
		t.Errorf("for the operator:\n%s", text)
	}
	// What we write passes our own check, and what the API server would drop without a word does
	// not.
	dir := t.TempDir()
	result, err := verify.Check(t.Context(), verify.Options{
		Prometheus: []string{write(t, filepath.Join(dir, "p.yml"), string(merged))}, Source: src, Now: now,
		Uses: queries(`sum by (pod) (http_requests_total)`, `latency_seconds_bucket{code="200",le="1"}`),
	})
	if err != nil || result.State != verify.OK {
		t.Errorf("our own rules: %+v, %v", result, err)
	}
	monitor := write(t, filepath.Join(dir, "m.yaml"), "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: web, namespace: shop}\nspec:\n  selector: {}\n  endpoints:\n"+
		"  - port: http\n    metricRelabelings:\n    - {source_labels: [__name__], regex: unused_a_total, action: drop}\n")
	result, err = verify.Check(t.Context(), verify.Options{Monitors: []string{monitor}, Uses: queries("http_requests_total"), Now: now})
	if err != nil || !slices.ContainsFunc(result.Findings,
		func(f verify.Finding) bool { return f.Check == verify.CheckRefused && f.Severity == verify.Broken }) {
		t.Errorf("source_labels in a ServiceMonitor: %+v, %v", result, err)
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

// Rules must be on all shards at once, or the proxy merges series that one has and the other has
// not: shards with the same jobs get the same bytes, from a plan made of all of them, which keeps
// what any of them needs.
func TestTrap18Shards(t *testing.T) {
	one, two := pages(t, map[string]string{"j/1": "a 1\nb 1\nunused 1\n"}),
		pages(t, map[string]string{"j/2": "a{code=\"500\"} 1\nc 1\nunused 1\n"})
	both := inventory.Join(one, two)
	p := plan(t, both, queries(`a{code="500"}`, "b", "c"))
	expect(t, both, p, "j a", "j unused", "j unused")
	config := func(target string) []byte {
		return fmt.Appendf(nil, "scrape_configs:\n- job_name: j\n  static_configs:\n  - targets: [%s]\n", target)
	}
	first, _, err := emit.Merge(p, config("shard-1:1"))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := emit.Merge(p, config("shard-2:1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.ReplaceAll(second, []byte("shard-2:1"), []byte("shard-1:1")); !bytes.Equal(first, got) {
		t.Errorf("one shard:\n%s\nthe other:\n%s", first, second)
	}
	bare := "scrape_configs:\n- job_name: j\n  static_configs:\n  - targets: [shard-2:1]\n"
	dir := t.TempDir()
	same := []string{write(t, filepath.Join(dir, "1.yml"), string(first)), write(t, filepath.Join(dir, "2.yml"), string(second))}
	differ := []string{same[0], write(t, filepath.Join(dir, "3.yml"), bare)}
	for _, files := range [][]string{same, differ} {
		result, err := verify.Check(t.Context(), verify.Options{Prometheus: files, Uses: queries("b"), Source: both, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if found := slices.ContainsFunc(result.Findings,
			func(f verify.Finding) bool { return f.Check == verify.CheckDiffers }); found != (files[1] == differ[1]) {
			t.Errorf("%q: %+v", files, result.Findings)
		}
	}
}
