package relabel_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/emit"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

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
