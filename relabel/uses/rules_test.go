package uses

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRules(t *testing.T) {
	dir := folder(t, "a.yaml", `groups:
  - name: g
    rules:
      - record: job:up:sum
        expr: sum by (job) (up)
      - alert: Down
        expr: |-
          job:up:sum
          < 1
        annotations:
          summary: '{{ with query "sum(first_metric)" }}{{ . | first | value }}{{ end }} and {{ $value }}'
          description: |-
            {{ range query (printf "second{job='%s'} > %g" $labels.job $value) }}{{ .Labels.x }}{{ end }}
          dashboard: '{{ $q := printf "third" }}{{ query $q | first | value }}'
          fixed: 'query this yourself'
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: r}
spec:
  groups:
    - name: h
      rules:
        - {record: x, expr: 1}
        - {alert: Up, expr: vector(1)}
---
apiVersion: v1
kind: ConfigMap
data:
  rules.yaml: |
    groups:
      - name: in
        rules:
          - alert: Inside
            expr: inner > 0
  other: hello
---
apiVersion: v1
kind: Service
spec: {}
`, "mimir.yml", "namespace:\n  - name: g\n    rules:\n      - alert: M\n        expr: mimir_metric\n",
		"grafana.yaml", "apiVersion: 1\ngroups:\n  - name: g\n    rules:\n      - title: Managed\n        data:\n          - refId: A\n            datasourceUid: prom\n            model: {expr: managed > 1}\n",
		"tests/a_test.yaml", "rule_files: [a.yaml]\ntests:\n  - promql_expr_test: [{expr: up}]\n")
	set := new(Set)
	if err := Rules(set, dir); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir),
		`a.yaml:5 rule job:up:sum | sum by (job) (up) | up job`,
		"a.yaml:8 alert Down | job:up:sum\n< 1 | job:up:sum all",
		`a.yaml:11 alert Down, annotation summary | sum(first_metric) | first_metric none`,
		`a.yaml:13 alert Down, annotation description | second{job='${template}'} > 1 | second{job=~".*"} all`,
		`a.yaml:14 alert Down, annotation dashboard | third | third all`,
		`a.yaml:24 rule x | 1 | `,
		`a.yaml:25 alert Up | vector(1) | `,
		`a.yaml:35 alert Inside | inner > 0 | inner all`,
		`grafana.yaml:9 alert Managed | managed > 1 | managed all`,
		`mimir.yml:5 alert M | mimir_metric | mimir_metric all`,
	)
	if !set.Recorded()["job:up:sum"] || !set.Recorded()["x"] || set.Recorded()["Down"] {
		t.Errorf("recorded: %v", set.Recorded())
	}
}

func TestRuleErrors(t *testing.T) {
	for text, want := range map[string]string{
		"groups:\n- name: g\n  rules:\n  - alert: A\n": "f.yaml:4: a rule of group g has no expr",
		"groups:\n- name: g\n  rules:\n  - expr: up\n": "f.yaml:4: a rule of group g is neither a record nor an alert",
		"panels:\n  - expr: x\n":                       "f.yaml:1: an expr is in this document, but no groups of rules",
		"groups:\n\t- x":                               "f.yaml: line 2",
	} {
		err := Rules(new(Set), folder(t, "f.yaml", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestKeep(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	dir := folder(t, "keep.yaml", `# what we keep
- match: node_nvme_*
  owner: storage
  reason: wear
- match: 'x{a="1"}'
  owner: ada
  reason: paper
  expires: 2026-11-21
  labels: [b, a]
- match: y
  owner: bob
  reason: gone
  expires: 2026-11-20
`)
	set := new(Set)
	if err := Keep(set, dir+"/keep.yaml", now); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir),
		`keep.yaml:2 keep node_nvme_* | {__name__=~"node_nvme_.*"} | {__name__=~"node_nvme_.*"} all`,
		`keep.yaml:5 keep x{a="1"} | x{a="1"} | x{a="1"} a, b`)
	expect(t, "warnings", set.Warnings, dir+"/keep.yaml:10: the keep of y by bob expired on 2026-11-20 and keeps nothing any more: renew it or take it out")
	for text, want := range map[string]string{
		"- match: x\n  reason: r":                                   "keep.yaml:1: the keep of x has no owner",
		"- {match: a, owner: o, reason: r}\n- match: x\n  owner: o": "keep.yaml:2: the keep of x has no reason",
		"- owner: o\n  reason: r":                                   "keep.yaml:1: match is missing",
		"- match: x\n  owner: o\n  reason: r\n  expire: never":      `keep.yaml:1: the field "expire" is none of`,
		"- match: x{a=\n  owner: o\n  reason: r":                    "keep.yaml:1: match x{a= is no selector",
		"- match: x\n  owner: o\n  reason: r\n  expires: soon":      "keep.yaml:1: expires of the keep of x is no date",
		"match: x": "keep.yaml:1: this must be a list",
	} {
		err := Keep(new(Set), folder(t, "keep.yaml", text)+"/keep.yaml", now)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestFile(t *testing.T) {
	dir := folder(t, "q.promql", "# queries\nup # all of them\n\nsum by ($by) ( \\\n  x{a=\"#\"}) # end\n")
	set := new(Set)
	if err := File(set, dir+"/q.promql"); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir), `q.promql:2 q.promql, line 2 | up | up all`, `q.promql:4 q.promql, line 4 | sum by ($by) (  x{a="#"}) | x{a="#"} all`)
}

// TestExperiment reads the queries of the datasource for experiments: each of them is understood.
func TestExperiment(t *testing.T) {
	set := new(Set)
	if err := File(set, "../testdata/experiment.promql"); err != nil {
		t.Fatal(err)
	}
	if len(set.Warnings) > 0 || len(set.Uses) < 70 {
		t.Errorf("%d queries, warnings %q", len(set.Uses), set.Warnings)
	}
	for _, u := range set.Uses {
		for _, n := range u.Needs {
			if _, exact := n.Name(); !exact {
				t.Errorf("%s: %s names no metric", u.Place(), u.Query)
			}
		}
	}
}

// TestCost reads the queries of the bill: each of them is understood, and without them the phase
// Running is used by nothing.
func TestCost(t *testing.T) {
	set := new(Set)
	if err := File(set, "../testdata/cost.promql"); err != nil {
		t.Fatal(err)
	}
	if len(set.Warnings) > 0 || len(set.Uses) < 20 {
		t.Errorf("%d queries, warnings %q", len(set.Uses), set.Warnings)
	}
	for _, series := range []string{
		`kube_pod_status_phase{job="kube-state-metrics",phase="Running"}`,
		`kube_pod_container_resource_requests{job="kube-state-metrics",resource=~"cpu|memory"}`,
	} {
		if !slices.ContainsFunc(set.Uses, func(u *Use) bool { return strings.Contains(u.Query, strings.TrimSuffix(series, "}")) }) {
			t.Errorf("nothing uses %s", series)
		}
	}
}

func TestAutoscalers(t *testing.T) {
	dir := folder(t, "hpa.yaml", `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: prod}
spec:
  metrics:
    - {type: Resource, resource: {name: cpu}}
    - type: Pods
      pods:
        metric: {name: http_requests_per_second}
    - type: External
      external:
        metric: {name: s0-prometheus}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: worker}
spec:
  triggers:
    - {type: cron, metadata: {}}
    - type: prometheus
      metadata:
        query: sum(queue_depth{queue="a"})
---
apiVersion: apps/v1
kind: Deployment
`, "adapter.yaml", `apiVersion: v1
kind: ConfigMap
data:
  config.yaml: |
    rules:
      - seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
        metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
      - seriesQuery: '{__name__=~"^container_.*"}'
        seriesFilters: [{isNot: _total$}]
        metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,a="1"}) by (<<.GroupBy>>)'
    resourceRules:
      cpu:
        containerQuery: sum by (<<.GroupBy>>) (rate(container_cpu_usage_seconds_total{container!="",<<.LabelMatchers>>}[3m]))
`)
	set := new(Set)
	if err := Autoscalers(set, dir); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir),
		`adapter.yaml:6 prometheus-adapter, series http_requests_total{namespace!="",pod!=""} | http_requests_total{namespace!="",pod!=""} | http_requests_total{namespace!="",pod!=""} all`,
		`adapter.yaml:7 prometheus-adapter, query of http_requests_total{namespace!="",pod!=""} | sum(rate(http_requests_total{}[2m])) by (pod) | http_requests_total all`,
		`adapter.yaml:8 prometheus-adapter, series {__name__!~".*(?:_total$).*",__name__=~"^container_.*"} | {__name__!~".*(?:_total$).*",__name__=~"^container_.*"} | {__name__!~".*(?:_total$).*",__name__=~"^container_.*"} all`,
		`adapter.yaml:10 prometheus-adapter, query of {__name__!~".*(?:_total$).*",__name__=~"^container_.*"} |  | {__name__!~".*(?:_total$).*",__name__=~".*",__name__=~"^container_.*",a="1"} all`,
		`adapter.yaml:13 prometheus-adapter, cpu, containerQuery | sum by (pod) (rate(container_cpu_usage_seconds_total{container!="",}[3m])) | container_cpu_usage_seconds_total{container!=""} all`,
		`hpa.yaml:9 autoscaler prod/web, metric http_requests_per_second |  | {__name__=~"http_requests(_total|_seconds_total|_seconds)?|container_http_requests(_total|_seconds_total|_seconds)?|http_requests_per_second"} all`,
		`hpa.yaml:22 ScaledObject worker, trigger 2 | sum(queue_depth{queue="a"}) | queue_depth{queue="a"} none`,
	)
	if len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], "offers every metric") {
		t.Errorf("warnings: %q", set.Warnings)
	}
}

// TestAdapterDefaults: the default rules of prometheus-adapter cut a part off both ends of a name.
func TestAdapterDefaults(t *testing.T) {
	const hpa = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: {metrics: [{type: Pods, pods: {metric: {name: %s}}}]}\n"
	for name, metrics := range map[string]string{
		"cpu_usage":              "container_cpu_usage_seconds_total container_cpu_usage_total container_cpu_usage cpu_usage",
		"cpu_usage_per_second":   "container_cpu_usage_seconds_total cpu_usage_per_second",
		"container_memory_bytes": "container_memory_bytes container_memory_bytes_total !container_container_memory_bytes",
		"requests":               "requests_total !other_requests_total",
	} {
		set := new(Set)
		if err := Autoscalers(set, folder(t, "hpa.yaml", fmt.Sprintf(hpa, name))); err != nil {
			t.Fatal(err)
		}
		for _, metric := range strings.Fields(metrics) {
			metric, not := strings.CutPrefix(metric, "!")
			if set.keeps(metric) == not {
				t.Errorf("%s: %s is kept: %v", name, metric, !not)
			}
		}
	}
	for values, warns := range map[string]bool{
		"rules: {default: true}\n":                                           true,
		"rules: {default: false, custom: [{seriesQuery: a}]}\n":              false,
		"rules: {custom: [{seriesQuery: a}]}\n":                              true,
		"rules: {custom: [], existing: '', external: []}\n":                  true,
		"groups: [{name: g, rules: [{alert: A, expr: up > 0}]}]\n":           false,
		"rules: {custom: 1}\n":                                               false,
		"defaultRules: {create: true, rules: {etcd: true, general: true}}\n": false,
	} {
		set := new(Set)
		if err := Rules(set, folder(t, "v.yaml", values, "r.yaml", "groups: [{name: g, rules: [{alert: A, expr: up > 0}]}]\n")); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(set.Warnings, "\n"), "default rules"); got != warns {
			t.Errorf("%s: warnings %q", values, set.Warnings)
		}
	}
}

// TestRulesMustBeLists: something else in the place of a list is not read as no rules.
func TestRulesMustBeLists(t *testing.T) {
	for text, want := range map[string]string{
		"groups: 7\n":         "a.yaml:1: groups must be a list",
		"groups: {name: g}\n": "a.yaml:1: groups must be a list",
		"groups:\n  - name: g\n    rules: {a: b}\n": "a.yaml:3: rules must be a list",
	} {
		if err := Rules(new(Set), folder(t, "a.yaml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// TestLinksOfAlerts: what the links in an alert's texts ask is used, and so is what they ask in any
// other document.
func TestLinksOfAlerts(t *testing.T) {
	for text, want := range map[string]string{
		"http://p/graph?g0.expr=sum%28used_a%29":                                                                "used_a",
		"see http://p/graph?g0.expr=sum(used_a)&g1.expr=used_b&g0.tab=1 for more":                               "used_a used_b",
		"[graph](http://p/graph?g0.expr=sum%28used_a%29+%3E+1) and text":                                        "used_a",
		"[graph](http://p/graph?g0.expr=sum(used_a))":                                                           "used_a",
		"http://p/graph?g0.expr=used_a%7Bnode%3D%22{{ $labels.node }}%22%7D":                                    "used_a",
		"http://p/graph?g0.expr=used_a{node=\"{{ $labels.node }}\"} > 1 ":                                       "used_a",
		"http://vm/vmui/#/?g0.expr=sum(used_a":                                                                  "used_a",
		"http://p/graph?g0.expr={{ $x | urlquery }}":                                                            "",
		"http://g/explore?left={\"queries\":[{\"expr\":\"sum(used_a{a=\\\"b\\\"})\"}]}":                         "used_a",
		"http://g/explore?panes=%7B%22a%22:%7B%22queries%22:%5B%7B%22expr%22:%22sum(used_a)%22%7D%5D%7D%7D&x=1": "used_a",
		"http://g/explore/metrics/trail?metric=used_a&var-ds=x":                                                 "used_a",
		"http://g/a/grafana-metricsdrilldown-app/drilldown?from=1&metric=used_a":                                "used_a",
		"http://p/api/v1/query?query=sum(used_a)":                                                               "used_a",
		"http://p/api/v1/query?query={{ $x }}":                                                                  "",
		"http://shop/explore?metric=unused and \"expr\" unused":                                                 "",
		"the unused metric, g0.expression=unused":                                                               "",
	} {
		rule := "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up == 0\n    annotations:\n      d: " + jsonText(text) + "\n"
		holds(t, text, "f.yaml", rule, want)
		if !strings.Contains(text, "{{ $x }}") {
			holds(t, text, "f.yaml", object("X", "spec: {u: "+jsonText(text)+"}\n"), want)
		}
	}
}

// TestTemplateQueries: a query that a template puts together is one text.
func TestTemplateQueries(t *testing.T) {
	for template, want := range map[string]string{
		`{{ range query (print "m50_" $labels.code "_total") }}{{ end }}`:                         `m50_${template}_total`,
		`{{ with query (print "m51" "_a_total") }}{{ . | first | value }}{{ end }}`:               `m51_a_total`,
		`{{ printf "Total %v" (printf "sum(m_total{j=%q})" $labels.j | query | first | value) }}`: `sum(m_total{j="${template}"})`,
		`{{ print (print "m_total" | query | first | value) }}`:                                   `m_total`,
		`{{ query (printf "sum(%[1]s{x=%[2]q}) / count(%[1]s)" "a_total" $x) }}`:                  `sum(a_total{x="${template}"}) / count(a_total)`,
		`{{ print "m" .Labels.x | query }}`:                                                       `m${template}`,
		`{{ query (println "sum(a)" "/" $x) }}`:                                                   `sum(a) / ${template}; sum(a)`,
		`{{ query (printf "%s_total{a=%q} > %g" "m" $labels.a $value) }}`:                         `m_total{a="${template}"} > 1`,
		`{{ "a" | print "m_" | query }}`:                                                          `a; m_${template}`,
		`{{ $labels.a | printf "m_%s" | query }}`:                                                 `m_${template}`,
		`{{ query (printf "%s_total" (print "a" (print "b_" (index $l "c")))) }}`:                 `ab_${template}_total; c`,
		`{{ print (query "a" | first | value) " of " (query "b_total" | first | value) }}`:        `a; b_total`,
		`{{ $q := print "m_" $labels.a }}{{ query $q }}`:                                          `m_${template}`,
		`{{ $f := "m_%s" }}{{ query (printf $f $labels.a) }}`:                                     `m_${template}`,
		`{{ query (print $a $b }}{{ "m" }}`:                                                       `m`,
		`{{ query "m" }}{{ query (print (print "a" | toUpper) "_b") }}{{ print "not" $q }}`:       `m; ${template}_b`,
		`{{ query (print "m_" (`:                                                                  `m_${template}`,
		`{{ query (print "m_" (print "a" (index`:                                                  `m_a${template}`,
		`{{ query ` + strings.Repeat(`(print "m_" `, 300) + strings.Repeat(`)`, 300) + `}}`:       "m_" + strings.Repeat("; m_", 299),
	} {
		if got := strings.Join(templateQueries(template), "; "); got != want {
			t.Errorf("%s: %s, want %s", template, got, want)
		}
	}
}
