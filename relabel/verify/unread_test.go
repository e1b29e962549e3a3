package verify_test

import (
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
		"another operator's":      {"kind: VMServiceScrape\nmetadata: {name: s, namespace: m}\nspec:\n  endpoints:\n  - metricRelabelConfigs:\n    - {source_labels: [__name__], regex: a_m, action: drop}", verify.NotChecked, 0},
		"no drop":                 {"kind: VMServiceScrape\nmetadata: {name: s, namespace: m}\nspec:\n  endpoints:\n  - metricRelabelConfigs:\n    - {source_labels: [a], target_label: b}", verify.OK, 0},
		"remote write":            {"kind: Prometheus\nmetadata: {name: k8s}\nspec:\n  remoteWrite:\n  - url: http://x\n    writeRelabelConfigs:\n    - " + drop, verify.NotChecked, 15},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, "m.yaml", app+c.text+"\n")
			r := check(t, verify.Options{Monitors: []string{path}, Uses: queries(t, "a_m > 0")})
			got := find(r, verify.CheckLost, "q.promql", 1)
			if r.State != c.state || (c.line > 0) != (len(got) == 1) ||
				len(got) == 1 && (got[0].RuleLine != c.line || got[0].RuleFile != path) {
				t.Error(textOf(t, r))
			}
			if c.state == verify.NotChecked && !strings.Contains(strings.Join(r.Unchecked, "\n"), path+":1") {
				t.Error(textOf(t, r))
			}
		})
	}
}

// What is not written to another server is lost for who asks that one.
func TestRemoteWrite(t *testing.T) {
	path := file(t, "prometheus.yml", `remote_write:
- url: http://mimir/api/v1/push
  write_relabel_configs:
  - {source_labels: [__name__], regex: 'a_m|up', action: drop}
scrape_configs:
- job_name: j
`)
	for _, src := range []inventory.Source{nil, series(t, "a_m pod=a", "up pod=a", "b_m pod=a")} {
		for query, want := range map[string]verify.State{
			"a_m > 0": verify.NotChecked, `a_m{job="j"}`: verify.NotChecked, "up == 0": verify.NotChecked, "b_m": verify.OK,
		} {
			r := check(t, verify.Options{Prometheus: []string{path}, Uses: queries(t, query), Source: src})
			got := find(r, verify.CheckLost, "q.promql", 1)
			if r.State != want || (want == verify.OK) != (len(got) == 0) ||
				len(got) > 0 && (got[0].Severity != verify.Doubtful || got[0].RuleLine != 4) {
				t.Errorf("%s:\n%s", query, textOf(t, r))
			}
		}
	}
}
