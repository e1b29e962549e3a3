package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

const app = `apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: app, namespace: m}
spec:
  scrapeClass: slim
  selector: {matchLabels: {app: app}}
  endpoints: [{port: x}]
---
`

// What stands beside ServiceMonitors drops, too.
func TestRulesBesideMonitors(t *testing.T) {
	const drop = "{sourceLabels: [__name__], regex: a_m, action: drop}"
	for name, c := range map[string]struct {
		text  string
		state verify.State
		line  int
	}{
		"a probe":                 {"kind: Probe\nmetadata: {name: bb, namespace: m}\nspec:\n  jobName: bb\n  metricRelabelings:\n  - " + drop, verify.Faulty, 14},
		"a scrape class":          {"kind: Prometheus\nmetadata: {name: k8s, namespace: m}\nspec:\n  scrapeClasses:\n  - name: slim\n    metricRelabelings:\n    - " + drop, verify.Faulty, 15},
		"another scrape class":    {"kind: Prometheus\nmetadata: {name: k8s, namespace: m}\nspec:\n  scrapeClasses:\n  - name: other\n    default: true\n    metricRelabelings:\n    - " + drop, verify.OK, 0},
		"additional jobs":         {"kind: Secret\nmetadata: {name: s, namespace: m}\nstringData:\n  p.yaml: |\n    - job_name: j\n      metric_relabel_configs:\n      - {source_labels: [__name__], regex: a_m, action: drop}", verify.Faulty, 15},
		"additional jobs, packed": {"kind: Secret\nmetadata: {name: s, namespace: m}\ndata:\n  p.yaml: LSBqb2JfbmFtZTogagogIG1ldHJpY19yZWxhYmVsX2NvbmZpZ3M6CiAgLSB7c291cmNlX2xhYmVsczogW19fbmFtZV9fXSwgcmVnZXg6IGFfbSwgYWN0aW9uOiBkcm9wfQo=", verify.Faulty, 12},
		"a collector": {
			"kind: ConfigMap\nmetadata: {name: otel, namespace: m}\ndata:\n  relay: |\n    receivers:\n      prometheus/b:\n        config:\n          scrape_configs:\n" +
				"          - job_name: j\n            metric_relabel_configs:\n            - {source_labels: [__name__], regex: a_m, action: drop}",
			verify.Faulty, 19,
		},
		"a collector's dollars": {
			"kind: ConfigMap\nmetadata: {name: otel, namespace: m}\ndata:\n  relay: |\n    receivers:\n      prometheus:\n        config:\n          scrape_configs:\n" +
				"          - job_name: j\n            metric_relabel_configs:\n            - {source_labels: [__name__], regex: (a)_m, target_label: x, replacement: $$1}\n" +
				"            - {source_labels: [x], regex: a, action: drop}",
			verify.OK, 20, // a warning: it is not the only job
		},
		"a collector's variables": {
			"kind: ConfigMap\nmetadata: {name: otel, namespace: m}\ndata:\n  relay: |\n    receivers:\n      prometheus:\n        config:\n          scrape_configs:\n" +
				"          - job_name: j\n            metric_relabel_configs:\n            - {source_labels: [__name__], regex: '${env:DROP}', action: drop}",
			verify.NotChecked, 0,
		},
		"an operator's collector, as a text": {
			"kind: OpenTelemetryCollector\nmetadata: {name: otel, namespace: m}\nspec:\n  config: |\n    receivers:\n      prometheus:\n        config:\n          scrape_configs:\n" +
				"          - job_name: j\n            metric_relabel_configs:\n            - {source_labels: [__name__], regex: a_m, action: drop}",
			verify.Faulty, 19,
		},
		"an operator's collector": {
			"kind: OpenTelemetryCollector\nmetadata: {name: otel, namespace: m}\nspec:\n  config:\n    receivers:\n      prometheus:\n        config:\n          scrape_configs:\n" +
				"          - job_name: j\n            metric_relabel_configs:\n            - {source_labels: [__name__], regex: a_m, action: drop}",
			verify.Faulty, 19,
		},
		"another agent": {
			"kind: ConfigMap\nmetadata: {name: agent, namespace: m}\ndata:\n  agent.yaml: |\n    metrics:\n      configs:\n      - name: default\n        scrape_configs:\n" +
				"        - job_name: j\n          metric_relabel_configs:\n          - {source_labels: [__name__], regex: a_m, action: drop}",
			verify.Faulty, 19,
		},
		"another operator's":      {"kind: VMServiceScrape\nmetadata: {name: s, namespace: m}\nspec:\n  endpoints:\n  - metricRelabelConfigs:\n    - {source_labels: [__name__], regex: a_m, action: drop}", verify.NotChecked, 0},
		"no drop":                 {"kind: VMServiceScrape\nmetadata: {name: s, namespace: m}\nspec:\n  endpoints:\n  - metricRelabelConfigs:\n    - {source_labels: [a], target_label: b}", verify.OK, 0},
		"texts about scrape jobs": {"kind: ConfigMap\nmetadata: {name: s, namespace: m}\ndata:\n  NOTES.md: |\n    - Give each job_name its metric_relabel_configs.\n    - Else nothing is dropped.", verify.OK, 0},
		"classes of two servers":  {"kind: Prometheus\nmetadata: {name: k8s, namespace: m}\n---\nkind: Prometheus\nmetadata: {name: tenant, namespace: m}\nspec:\n  scrapeClasses:\n  - name: slim\n    metricRelabelings:\n    - " + drop, verify.NotChecked, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, "m.yaml", app+c.text+"\n")
			r := check(t, verify.Options{Monitors: []string{path}, Uses: queries(t, "a_m > 0")})
			got := find(r, verify.CheckLost, "q.promql", 1)
			if r.State != c.state || (c.line > 0) != (len(got) == 1) ||
				len(got) == 1 && (got[0].RuleLine != c.line || got[0].RuleFile != path) {
				t.Error(textOf(t, r))
			}
			why := strings.Join(r.Unchecked, "\n")
			told := strings.Contains(why, path+":1") || strings.Contains(why, "1 scrape classes of 2 servers")
			if c.state == verify.NotChecked && !told {
				t.Error(textOf(t, r))
			}
		})
	}
}

// The label job of a collector's series is job_name with one $ for two; one that a variable makes
// may be any, and then a loss is one only if it is that of the query.
func TestCollectorJobs(t *testing.T) {
	for _, c := range []struct {
		job, query string
		severity   verify.Severity
	}{
		{"a$$b", `a_m{job="a$b"}`, verify.Broken},
		{"a$$b", `a_m{job="prod"}`, ""},
		{"${env:JOB}", `a_m{job="prod"}`, verify.Doubtful},
		{"${env:JOB}", `a_m`, verify.Broken},
		{"${env:JOB}", `b_m{job="prod"}`, ""},
		{"a', static_configs: [{targets: [x], labels: {job: '${env:JOB}'}}], scheme: 'http", `a_m{job="prod"}`, verify.Doubtful},
		{"a', static_configs: [{targets: [x], labels: {job: 'p$$'}}], scheme: 'http", `a_m{job="p$"}`, verify.Broken},
	} {
		path := file(t, "m.yaml", "kind: OpenTelemetryCollector\nspec:\n  config:\n    receivers:\n      prometheus:\n        config:\n          scrape_configs:\n"+
			"          - {job_name: '"+c.job+"', metric_relabel_configs: [{source_labels: [__name__], regex: a_m, action: drop}]}\n")
		r := check(t, verify.Options{Monitors: []string{path}, Uses: queries(t, c.query)})
		got := find(r, verify.CheckLost, "q.promql", 1)
		if (c.severity == "") != (len(got) == 0) || len(got) > 0 && got[0].Severity != c.severity || len(r.Unchecked) > 0 {
			t.Errorf("%s, %s:\n%s", c.job, c.query, textOf(t, r))
		}
		if c.severity == verify.Doubtful && (len(got) == 0 || !strings.Contains(got[0].Text, "which is not known, since it has a variable of the collector")) {
			t.Errorf("%s, %s:\n%s", c.job, c.query, textOf(t, r))
		}
	}
}

// What is not written to another server is lost for who asks that one: a note, with the first of
// those that lose something.
func TestRemoteWrite(t *testing.T) {
	prometheus := file(t, "prometheus.yml", `remote_write:
- url: http://mimir/api/v1/push
  write_relabel_configs:
  - {source_labels: [__name__], regex: 'a_m|up', action: drop}
scrape_configs:
- job_name: j
`)
	operator := file(t, "m.yaml", app+`kind: Prometheus
metadata: {name: k8s}
spec:
  remoteWrite:
  - url: http://mimir/api/v1/push
    writeRelabelConfigs:
    - {sourceLabels: [__name__], regex: 'a_m|up', action: drop}
`)
	for _, o := range []verify.Options{{Prometheus: []string{prometheus}}, {Monitors: []string{operator}}} {
		for _, src := range []inventory.Source{nil, series(t, "a_m pod=a", "up pod=a", "b_m pod=a")} {
			for query, lost := range map[string]bool{"a_m > 0": true, `a_m{job="j"}`: true, "up == 0": true, "b_m": false} {
				if o.Monitors != nil && strings.Contains(query, "job=") {
					continue // its job is another one
				}
				o.Uses, o.Source = queries(t, query), src
				r := check(t, o)
				note := strings.Contains(strings.Join(r.Warnings, "\n"), "remote write to http://mimir/api/v1/push does not send all that is selected at one place, such as q.promql:1")
				rule := fmt.Sprintf("[rule %s]", map[bool]string{true: prometheus + ":4", false: operator + ":15"}[o.Prometheus != nil])
				named := strings.Contains(strings.Join(r.Warnings, "\n"), rule)
				if r.State != verify.OK || len(r.Findings) > 0 || note != lost || named != lost {
					t.Errorf("%s:\n%s", query, textOf(t, r))
				}
			}
		}
	}
}
