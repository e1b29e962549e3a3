package verify_test

import (
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// server is a source of what is stored behind rules in force.
type server struct{ memory }

func (server) BehindRules() bool { return true }

// What rules in force take is not among what is stored: of a new query for it the stored series of
// the same metric say nothing. Where a rule still takes some of the metric, it is not in force.
func TestBehindRulesInForce(t *testing.T) {
	const slice = "- {source_labels: [__name__, mode], regex: 'cpu_total;(user|system|iowait)', action: drop}"
	for name, c := range map[string]struct {
		rules, query string
		stored       []string
		state        verify.State
		text         string
	}{
		"a value": {
			slice, `sum(rate(cpu_total{mode="iowait"}[5m])) or cpu_total{mode="idle"}`,
			[]string{"cpu_total mode=idle"},
			verify.Faulty, `of cpu_total{mode="iowait"}`,
		},
		"one of several": {
			slice, `cpu_total{mode=~"idle|iowait"}`,
			[]string{"cpu_total mode=idle"},
			verify.Faulty, `loses mode="iowait"`,
		},
		"any": {
			slice, "sum by (mode) (cpu_total)",
			[]string{"cpu_total mode=idle"},
			verify.OK, "may lose",
		},
		"what stays": {
			slice, `cpu_total{mode="idle"}`,
			[]string{"cpu_total mode=idle"},
			verify.OK, "ok: 0 errors, 0 warnings",
		},
		"a bucket": {
			"- {source_labels: [__name__, le], regex: 'h_bucket;(1|2)(\\.0)?', action: drop}", `h_bucket{le=~"2|3"}`,
			[]string{"h_bucket le=3.0"},
			verify.Faulty, `le="2.0"`,
		},
		"a label": {
			"- {action: replace, source_labels: [__name__], regex: m, target_label: uid, replacement: ''}", "sum by (uid) (m)",
			[]string{"m a=1"},
			verify.Faulty, "needs label uid of m",
		},
		"not in force": {
			slice, `cpu_total{mode=~"idle|iowait"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=user"},
			verify.OK, `warning: loses mode="iowait" of cpu_total{mode=~"idle|iowait"}, if this job has it`,
		},
		"extended, one value": {
			slice, `cpu_total{mode="iowait"} or cpu_total{mode="idle"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=user", "cpu_total mode=iowait job=k"},
			verify.OK, `warning: loses mode="iowait" of cpu_total{mode="iowait"}`,
		},
		"extended, a value that stays": {
			slice, `cpu_total{mode=~"idle|nice"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=user"},
			verify.OK, "ok: 0 errors, 0 warnings",
		},
		"extended, any value": {
			slice, `cpu_total{mode!="user"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=user"},
			verify.OK, "ok: 0 errors, 0 warnings",
		},
		"and seen to be lost": {
			slice, `cpu_total{mode=~"idle|iowait"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=iowait"},
			verify.Faulty, "loses 1 stored series",
		},
	} {
		o := verify.Options{Prometheus: []string{withRules(t, c.rules)}, Uses: queries(t, c.query), Source: server{series(t, c.stored...)}}
		for _, src := range []inventory.Source{o.Source, inventory.Join(o.Source, series(t, "other a=1"))} {
			o.Source = src
			r := check(t, o)
			if text := textOf(t, r); r.State != c.state || !strings.Contains(text, c.text) {
				t.Errorf("%s:\n%s", name, text)
			}
		}
	}
}

// besideOther is a configuration with the rules in job j, and none in job k.
func besideOther(t *testing.T, rules string) []string {
	t.Helper()
	return []string{file(t, "prometheus.yml",
		"scrape_configs:\n  - job_name: k\n  - job_name: j\n    metric_relabel_configs:\n"+indent(rules, "      "))}
}

// What other jobs have is not what the rules of this one take: of what a query selects in other
// jobs alone it loses at most what nobody knows to be there, and nothing by rules that do not speak
// of the metric.
func TestBehindRulesOfOtherJobs(t *testing.T) {
	const (
		lists = "- {source_labels: [__name__], regex: '(container_memory|other)', action: drop}"
		all   = "- {source_labels: [__name__], regex: 'container_.*', action: drop}"
		keep  = "- {source_labels: [__name__], regex: 'mine|more', action: keep}"
		pod   = "- {regex: pod, action: labeldrop}"
		clear = "- {action: replace, source_labels: [__name__], regex: m, target_label: pod, replacement: ''}"
		slice = "- {source_labels: [__name__, mode], regex: 'cpu;(user|iowait)', action: drop}"
	)
	for name, c := range map[string]struct {
		rules, query string
		stored       []string
		warnings     int
		broken       bool
	}{
		"by name":                      {lists, `container_memory{job=~"j|k"}`, []string{"container_memory job=k", "mine a=1"}, 1, false},
		"by a beginning":               {all, `container_memory{job=~"j|k"}`, []string{"container_memory job=k", "mine a=1"}, 1, false},
		"a list of what stays":         {keep, "container_memory", []string{"container_memory job=k", "mine a=1"}, 0, false},
		"one that this job has":        {keep, "mine", []string{"mine job=k", "mine a=1"}, 0, false},
		"by name, and nobody has it":   {lists, `container_memory{job=~"j|k"}`, []string{"mine job=k", "mine a=1"}, 0, true},
		"a label of the metric":        {clear, `sum by (pod) (m{job=~"j|k"})`, []string{"m job=k pod=a", "mine a=1"}, 1, false},
		"a label that others have":     {pod, "sum by (pod) (m)", []string{"m job=k pod=a", "m a=1"}, 0, false},
		"a named one that others have": {clear, "sum by (pod) (m)", []string{"m job=k pod=a", "m a=1"}, 1, false},
		"a label that nobody has":      {pod, "sum by (pod) (m)", []string{"m job=k", "m a=1"}, 0, true},
		"a label of this job alone":    {pod, `sum by (pod) (m{job="j"})`, []string{"m job=k pod=a", "m a=1"}, 0, true},
		"a label of both jobs":         {pod, `sum by (pod) (m{job=~"j|k"})`, []string{"m job=k pod=a", "m a=1"}, 0, false},
		"a named one of this job":      {clear, `sum by (pod) (m{job="j"})`, []string{"m job=k pod=a", "m a=1"}, 0, true},
		"a label of a third job":       {pod, `sum by (pod) (m{job=~"j|k"})`, []string{"m job=i pod=a", "m job=k", "m a=1"}, 0, true},
		"a value of what it has":       {slice, `cpu{job=~"j|k",mode="user"}`, []string{"cpu job=k mode=user", "cpu mode=idle"}, 0, true},
		"a value of what it has not":   {slice, `cpu{job=~"j|k",mode="user"}`, []string{"cpu job=k mode=user", "mine a=1"}, 1, false},
	} {
		o := verify.Options{Prometheus: besideOther(t, c.rules), Uses: queries(t, c.query), Source: server{series(t, c.stored...)}}
		r, warnings := check(t, o), 0
		for _, f := range r.Findings {
			if f.Severity == verify.Doubtful && f.Check == verify.CheckLost {
				warnings++
			}
		}
		if warnings != c.warnings || (r.State == verify.Faulty) != c.broken {
			t.Errorf("%s:\n%s", name, textOf(t, r))
		}
	}
}

// Of a job without pages nothing is known but what the rules say, whatever other jobs have: a label
// that a rule takes there is lost.
func TestLabelsOfJobsWithoutPages(t *testing.T) {
	const clear = "- {action: replace, source_labels: [__name__], regex: m, target_label: pod, replacement: ''}"
	r := check(t, verify.Options{
		Prometheus: besideOther(t, clear), Uses: queries(t, `sum by (pod) (m{job=~"j|k"})`), Source: series(t, "m job=k pod=a"),
	})
	if text := textOf(t, r); r.State != verify.Faulty || !strings.Contains(text, "needs label pod of m") ||
		strings.Contains(text, "if this job has it") {
		t.Error(text)
	}
}
