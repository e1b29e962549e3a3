package uses

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// flags are what reads a folder, each for another kind.
var flags = map[string]func(*Set, string) error{"dashboards": Dashboards, "rules": Rules, "autoscalers": Autoscalers}

// zipped is a text as binaryData and gzipJson hold it.
func zipped(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// object is a Kubernetes object with the rest below its name.
func object(kind, rest string) string {
	return "apiVersion: example.com/v1\nkind: " + kind + "\nmetadata: {name: n}\n" + rest
}

// under puts YAML below a key.
func under(key, text string, by int) string {
	pad := "\n" + strings.Repeat(" ", by)
	return key + ":" + pad + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", pad) + "\n"
}

// keeps tells whether the set keeps the metric by its name.
func (s *Set) keeps(name string) bool {
	return slices.ContainsFunc(s.Uses, func(u *Use) bool {
		return slices.ContainsFunc(u.Needs, func(n Need) bool { return n.named(name) && !n.everything() })
	})
}

// holds holds each flag to the metrics, split at spaces, that a document asks for, whatever else is
// in it.
func holds(t *testing.T, name, file, text, metrics string) {
	t.Helper()
	for flag, read := range flags {
		set := new(Set)
		if err := read(set, folder(t, file, text)); err != nil {
			t.Errorf("%s behind --%s: %v\n%s", name, flag, err, text)
			continue
		}
		for _, metric := range strings.Fields(metrics) {
			if !set.keeps(metric) {
				t.Errorf("%s behind --%s: nothing keeps %s\n%s\n%s", name, flag, metric, strings.Join(set.lines(""), "\n"), text)
			}
		}
		if set.keeps("unused") {
			t.Errorf("%s behind --%s keeps anything:\n%s", name, flag, strings.Join(set.lines(""), "\n"))
		}
	}
}

// TestObjectsInObjects: what an object's kind tells is read wherever the object stands.
func TestObjectsInObjects(t *testing.T) {
	const board = `{"title": "B", "schemaVersion": 39, "panels": [{"title": "P", "targets": [{"expr": "used_metric"}]}]}`
	const rules = "groups: [{name: g, rules: [{alert: A, expr: 'used_metric > 1'}]}]\n"
	for name, c := range map[string]struct{ text, metrics string }{
		"a packed dashboard": {object("GrafanaDashboard", "spec: {gzipJson: "+zipped(board)+"}\n"), "used_metric"},
		"a Secret":           {object("Secret", "data: {r.yaml: "+base64.StdEncoding.EncodeToString([]byte(rules))+"}\n"), "used_metric"},
		"an HPA": {
			object("HorizontalPodAutoscaler", "spec: {metrics: [{type: Pods, pods: {metric: {name: used_metric}}}]}\n"),
			"used_metric",
		},
		"a Canary": {
			object("Canary", "spec: {provider: istio, analysis: {metrics: [{name: request-success-rate}]}}\n"),
			"istio_requests_total",
		},
		"Pyrra's": {
			object("ServiceLevelObjective", "spec: {indicator: {ratio: {errors: {metric: 'used_metric{code=~\"5..\"}'}, total: {metric: used_total}}}}\n"),
			"used_metric used_total",
		},
		"Pyrra's without a name": {
			"apiVersion: example.com/v1\nkind: ServiceLevelObjective\nspec: {indicator: {ratio: {total: {metric: used_total}}}}\n",
			"used_total",
		},
		"a PrometheusRule": {object("PrometheusRule", "spec: {"+strings.TrimSpace(rules)+"}\n"), "used_metric"},
	} {
		items := "- " + strings.ReplaceAll(strings.TrimRight(c.text, "\n"), "\n", "\n  ") + "\n"
		for _, around := range []string{
			object("HelmRelease", under("spec", under("values", under("extraObjects", items, 2), 2), 2)),
			"apiVersion: template.openshift.io/v1\nkind: Template\nmetadata: {name: n}\n" + under("objects", items, 0),
			object("Object", under("spec", under("forProvider", under("manifest", c.text, 2), 2), 2)),
			object("Application", "spec: {source: {helm: {values: "+jsonText(under("extraObjects", items, 2))+"}}}\n"),
		} {
			holds(t, name, "f.yaml", around, c.metrics)
		}
	}
	for text, want := range map[string]string{
		object("GrafanaDashboard", "spec: {url: 'https://example.com/d.json'}\n"):                             "is not in this file",
		object("PrometheusServiceLevel", "spec: {service: s, slos: [{name: a, sli: {plugin: {id: x/y}}}]}\n"): "made by the plugin x/y",
	} {
		set := new(Set)
		text = object("HelmRelease", under("spec", "extra:\n- "+strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "), 2))
		if err := Dashboards(set, folder(t, "f.yaml", text)); err == nil {
			err = set.Unmade()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q\n%s", err, want, text)
			}
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q\n%s", err, want, text)
		}
	}
	// what only names an object is none
	names := object("X", "spec: {target: {apiVersion: grafana.integreatly.org/v1beta1, kind: GrafanaDashboard, name: d}}\n")
	if err := Dashboards(new(Set), folder(t, "f.yaml", names)); err != nil {
		t.Errorf("a name of an object: %v", err)
	}
}

// jsonText is a text in quotes.
func jsonText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// TestScalesAnywhere: what autoscalers scale by is read in their annotations, in the values of
// charts and beside anything else.
func TestScalesAnywhere(t *testing.T) {
	const adapter = "rules:\n  custom:\n  - seriesQuery: 'used_metric{pod!=\"\"}'\n    metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)\n"
	const stack = "kube-prometheus-stack:\n  extra:\n    r:\n      groups: [{name: g, rules: [{alert: A, expr: 'used_rule > 1'}]}]\n"
	for name, c := range map[string]struct{ text, metrics string }{
		"an annotation with a query": {object("HorizontalPodAutoscaler", "spec: {maxReplicas: 3}\n") + "---\n" +
			strings.Replace(object("HorizontalPodAutoscaler", "spec: {maxReplicas: 2}\n"), "{name: n}",
				"{name: h, annotations: {metric-config.external.rps.prometheus/query: 'scalar(sum(rate(used_metric{a=\"b\"}[1m])))'}}", 1), "used_metric"},
		"an annotation with a name": {strings.Replace(object("HorizontalPodAutoscaler", "spec: {maxReplicas: 2}\n"), "{name: n}",
			"{name: h, annotations: {metric-config.external.prometheus-query.prometheus/eps: used_metric, metric-config.external.prometheus-query.prometheus/interval: 30s}}", 1), "used_metric"},
		"an annotation of ScaledObject": {strings.Replace(object("ScaledObject", "spec: {triggers: [{type: prometheus, metadata: {query: used_other}}]}\n"), "{name: n}",
			"{name: h, annotations: {metric-config.external.rps.prometheus/query: used_metric}}", 1), "used_metric used_other"},
		"autoscaling/v1": {strings.Replace(object("HorizontalPodAutoscaler", "spec: {maxReplicas: 3}\n"), "{name: n}",
			"{name: h, annotations: {autoscaling.alpha.kubernetes.io/metrics: '[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"used_metric\"}}]'}}", 1), "used_metric"},
		"a template of metrics": {
			object("HelmRelease", "spec: {values: {autoscalingTemplate: [{type: Pods, pods: {metric: {name: used_metric}}}]}}\n"),
			"used_metric",
		},
		"Karmada": {
			object("FederatedHPA", "spec: {metrics: [{type: Pods, pods: {metric: {name: used_metric}}}]}\n"),
			"used_metric",
		},
		"resources of the chart": {"rules:\n  default: false\n  resource:\n    cpu:\n      containerQuery: sum by (<<.GroupBy>>) (rate(used_metric{<<.LabelMatchers>>}[3m]))\n" +
			"      nodeQuery: sum by (<<.GroupBy>>) (used_node{<<.LabelMatchers>>})\n", "used_metric used_node"},
		"an object of values": {
			object("Application", "spec: {source: {helm: {valuesObject: {rules: {custom: [{seriesQuery: used_metric, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}]}}}}}\n"),
			"used_metric",
		},
		"beside rules": {
			object("Application", "spec: {source: {helm: {values: "+jsonText(stack+under("prometheus-adapter", adapter, 2))+"}}}\n"),
			"used_rule used_metric",
		},
		"beside queries": {
			under("prometheus-adapter", adapter, 2) + "slo: {query: 'sum(rate(used_other[5m]))'}\n",
			"used_metric used_other",
		},
	} {
		holds(t, name, "f.yaml", c.text, c.metrics)
	}
	// rules in the values of a chart are to be rendered, and beside an adapter they are too
	text := stack + under("prometheus-adapter", adapter, 2)
	for _, flag := range []string{"dashboards", "rules"} {
		if err := flags[flag](new(Set), folder(t, "f.yaml", text)); err == nil || !strings.Contains(err.Error(), "in this document") {
			t.Errorf("rules in values, behind --%s: %v", flag, err)
		}
	}
}

// TestPerses: dashboards of Perses, as files and as objects, with what their variables match.
func TestPerses(t *testing.T) {
	const spec = `{"variables":[{"kind":"ListVariable","spec":{"name":"job","plugin":{"kind":"PrometheusLabelValuesVariable","spec":{"labelName":"job","matchers":["used_bare","used_with{a=\"b\"}"]}}}},` +
		`{"kind":"ListVariable","spec":{"name":"q","plugin":{"kind":"PrometheusPromQLVariable","spec":{"expr":"used_expr"}}}}],` +
		`"panels":{"a":{"kind":"Panel","spec":{"queries":[{"kind":"TimeSeriesQuery","spec":{"plugin":{"kind":"PrometheusTimeSeriesQuery","spec":{"query":"sum(rate(used_metric{job=~\"$job\"}[$__rate_interval]))"}}}}]}}}}`
	for name, text := range map[string]string{
		"a file":          `{"kind":"Dashboard","metadata":{"name":"n","project":"p"},"spec":` + spec + `}`,
		"PersesDashboard": object("PersesDashboard", "spec: {config: "+spec+"}\n"),
		"a ConfigMap":     object("ConfigMap", "data: {d.json: "+jsonText(`{"kind":"Dashboard","metadata":{"name":"n"},"spec":`+spec+`}`)+"}\n"),
	} {
		holds(t, name, "f.yaml", text, "used_metric used_bare used_with used_expr")
	}
}

// TestRulesBesideOthers: a document may have several lists of groups, and more than rules.
func TestRulesBesideOthers(t *testing.T) {
	for name, c := range map[string]struct{ text, metrics string }{
		"Mimir's, the first group is empty": {
			"a:\n- {name: a, rules: [{alert: A, expr: 'used_a > 1'}]}\nb:\n- {name: empty}\n- {name: b, rules: [{alert: B, expr: 'used_metric > 1'}]}\n",
			"used_a used_metric",
		},
		"groups and a query": {
			"groups: [{name: g, rules: [{alert: A, expr: 'used_a > 1'}]}]\nslo: {query: 'sum(rate(used_metric[5m]))'}\n",
			"used_a used_metric",
		},
		"groups and a spec": {
			"groups: [{name: g, rules: [{alert: A, expr: 'used_a > 1'}]}]\nspec: {query: 'sum(rate(used_metric[5m]))'}\n",
			"used_a used_metric",
		},
		"groups and a template": {"groups: [{name: g, rules: [{alert: A, expr: 'used_metric > 1'}]}]\nextra: {query: '{{ x }}'}\n", "used_metric"},
		"a group without rules": {"rules: []\nslo: {query: 'sum(rate(used_metric[5m]))'}\n", "used_metric"},
		"groups deep in a chart": {
			object("HelmRelease", "spec: {values: {x: {groups: [{name: empty}, {name: g, rules: [{alert: A, expr: 'used_metric > 1'}]}]}}}\n"),
			"used_metric",
		},
	} {
		for _, flag := range []string{"rules", "autoscalers"} {
			set := new(Set)
			if err := flags[flag](set, folder(t, "f.yaml", c.text)); err != nil {
				t.Errorf("%s behind --%s: %v", name, flag, err)
			}
			for _, metric := range strings.Fields(c.metrics) {
				if !set.keeps(metric) {
					t.Errorf("%s behind --%s: nothing keeps %s\n%s", name, flag, metric, strings.Join(set.lines(""), "\n"))
				}
			}
		}
	}
}

// TestKeysAndTexts: a query's own key below queries, lists of scrape configurations in texts, and
// objects that say little of themselves.
func TestKeysAndTexts(t *testing.T) {
	const federation = "- job_name: federate\n  metrics_path: /federate\n  params:\n    'match[]':\n    - '{__name__=~\"used_m.*\"}'\n    - used_bare\n"
	const group = "[{name: g, rules: [{alert: A, expr: used_metric > 1}]}]"
	for name, c := range map[string]struct{ text, metrics string }{
		"query below queries":  {object("X", "spec: {queries: {query: used_metric}}\n"), "used_metric"},
		"promql below queries": {object("X", "spec: {queries: {promql: used_metric}}\n"), "used_metric"},
		"MetricsQL below queries": {
			object("X", "spec: {queries: {errorQuery: 'sum(rate(used_metric)) by (job) keep_metric_names', totalQuery: 'used_total{'}}\n"),
			"used_metric used_total",
		},
		"federation in a Secret": {object("Secret", "stringData:\n  additional.yaml: "+indented(federation, 4)), "used_metric used_bare"},
		"federation, no quotes": {
			object("Secret", "stringData:\n  additional.yaml: "+indented(strings.ReplaceAll(federation, "'match[]'", "match[]"), 4)),
			"used_metric used_bare",
		},
		"federation in a chart": {
			object("HelmRelease", "spec:\n  values:\n    extraScrapeConfigs: "+indented(federation, 6)),
			"used_metric used_bare",
		},
		"a list of queries": {
			object("ConfigMap", "data:\n  a.yaml: "+indented("- query: used_metric\n- {expr: used_bare}\n", 4)),
			"used_metric used_bare",
		},
		"rules without a kind": {
			"apiVersion: monitoring.coreos.com/v1\nmetadata: {name: x}\nspec: {groups: " + group + "}\n",
			"used_metric",
		},
		"spec and metadata alone": {"metadata: {name: x}\nspec: {groups: " + group + "}\n", "used_metric"},
		"rules of kind Dashboard": {object("Dashboard", "groups: "+group+"\n"), "used_metric"},
		"and of LibraryPanel":     {object("LibraryPanel", "groups: "+group+"\n"), "used_metric"},
		"groups in a text": {
			object("HelmRelease", "spec: {values: {rules: "+jsonText("x: y\ngroups: "+group+"\n")+"}}\n"),
			"used_metric",
		},
		"an unreadable list": {object("X", "spec: {query: used_metric, text: "+jsonText("- a\n- {b: c}\n")+"}\n"), "used_metric"},
	} {
		holds(t, name, "f.yaml", c.text, c.metrics)
	}
	template := folder(t, "f.yaml", object("X", "spec: {queries: {query: '{{ q }}'}}\n"))
	if err := Rules(new(Set), template); err == nil || !strings.Contains(err.Error(), "the whole query is the template") {
		t.Errorf("a template below queries: %v", err)
	}
}

// TestOfOtherPrograms: what other programs call groups and rules, secrets that nobody has filled
// in, tests, and scripts and names with variables: nothing in them is refused, or a use.
func TestOfOtherPrograms(t *testing.T) {
	for _, text := range []string{
		object("HelmRelease", "spec:\n  values:\n    config: "+indented("groups:\n  admins: [a]\n", 6)),
		object("X", "spec:\n  userData: "+indented("groups: docker, admin\nusers: [a]\n", 4)),
		object("HelmRelease", "spec:\n  values:\n    config: "+indented("groups:\n- name: a\n  rules: [{allow: x}]\n", 6)),
		object("Secret", "data: {config.yaml: changeme, config.json: TODO, a.yaml: REPLACEME123}\n"),
		object("Secret", "data: {credentials.json: "+base64.StdEncoding.EncodeToString([]byte("\xff\xfe\x01\x80"))+"}\n"),
		object("Dashboard", "tests: [{input_series: []}]\nrule_files: [a]\n"),
		object("ConfigMap", "data:\n  run.sh: "+indented("set -e\n(( $i >= 3 ))\n$status >= 500\n$NF > 5\nmin($x)\n", 4)),
		object("ApplicationSet", "spec: {template: {metadata: {name: '{{env}}_{{x}}-{{c}}_{{d}}'}, path: '{{region}}_{{env}}/{{team}}_apps'}}\n"),
		object("ConfigMap", "data: {index: 'logs_{{ .a }}_{{ .b }}-{{ .c }}_{{ .d }}'}\n"),
	} {
		for flag, read := range flags {
			set := new(Set)
			if err := read(set, folder(t, "f.yaml", text)); err != nil || len(set.Uses) > 0 {
				t.Errorf("behind --%s: %v, %q\n%s", flag, err, set.lines(""), text)
			}
		}
	}
	// beside a query, names of templates are of metrics where they say more than a word
	holds(t, "a ratio", "f.yaml", object("X", "spec: {a: '{{app}}_used_errors / {{app}}_used_total'}\n"), "x_used_errors x_used_total")
	for _, text := range []string{"rules:\n\t- seriesQuery: m", "rules:\n{{- if x }}\n- seriesQuery: m\n{{- end }}"} {
		for flag, read := range flags {
			if err := read(new(Set), folder(t, "f.yaml", object("ConfigMap", "data: {config.yaml: "+jsonText(text)+"}\n"))); err == nil {
				t.Errorf("an adapter that cannot be read, behind --%s: no error\n%s", flag, text)
			}
		}
	}
}

// TestObjectsOfOtherShapes: objects that a policy makes, or that have a kind's name but not its
// fields, are read as what they are, and whole.
func TestObjectsOfOtherShapes(t *testing.T) {
	const group = "[{name: g, rules: [{alert: A, expr: used_metric > 1}]}]"
	board := jsonText(`{"title":"B","schemaVersion":39,"panels":[{"title":"P","targets":[{"expr":"used_metric"}]}]}`)
	generate := func(kind, data string) string {
		return object("ClusterPolicy", "spec:\n  rules:\n  - name: a\n    generate: {apiVersion: x/v1, kind: "+kind+", name: x, data: {"+data+"}}\n")
	}
	for name, c := range map[string]struct{ text, metrics string }{
		"rules of a policy":       {generate("PrometheusRule", "spec: {groups: "+group+"}"), "used_metric"},
		"a dashboard of a policy": {generate("GrafanaDashboard", "spec: {json: "+board+"}"), "used_metric"},
		"a Secret of a policy":    {generate("Secret", "stringData: {r.yaml: "+jsonText("a: b\ngroups: "+group)+"}"), "used_metric"},
		"a scaler of a policy": {
			generate("HorizontalPodAutoscaler", "spec: {metrics: [{pods: {metric: {name: used_metric}}}]}"),
			"used_metric",
		},
		"beside rules": {
			object("X", "spec: {a: {apiVersion: x/v1, kind: PrometheusRule, spec: {groups: "+group+"}, also: {query: used_b}}}\n"),
			"used_metric used_b",
		},
		"annotations, other keys": {
			object("X", "spec: {a: {apiVersion: v1, kind: ConfigMap, metadata: {annotations: {query: used_metric}}, data: {a: b}, query: used_b}}\n"),
			"used_metric used_b",
		},
		"Crossplane's dashboard": {object("Dashboard", "spec: {forProvider: {configJson: "+board+"}}\n"), "used_metric"},
		"a dashboard inside": {
			object("X", "spec: {a: {apiVersion: x/v1, kind: Dashboard, spec: {title: B, panels: [{targets: [{expr: used_metric}]}]}}}\n"),
			"used_metric",
		},
		"nothing but its metadata": {
			object("X", "spec: {query: used_metric, a: {apiVersion: x/v1, kind: GrafanaDashboard, metadata: {labels: {a: b}}}}\n"),
			"used_metric",
		},
	} {
		holds(t, name, "f.yaml", c.text, c.metrics)
	}
}

// TestPluginsOfPerses: what a plugin of another system asks is none of Prometheus.
func TestPluginsOfPerses(t *testing.T) {
	const panel = `"%s":{"kind":"Panel","spec":{"queries":[{"kind":"Q","spec":{"plugin":{"kind":"%s","spec":{"query":"%s"}}}}]}}`
	text := `{"kind":"Dashboard","metadata":{"name":"n"},"spec":{"panels":{` +
		fmt.Sprintf(panel, "a", "LokiLogQuery", `{job=\"kubelet\"}`) + "," +
		fmt.Sprintf(panel, "b", "LokiTimeSeriesQuery", "unused") + "," +
		fmt.Sprintf(panel, "c", "PrometheusTimeSeriesQuery", "used_metric") + `}}}`
	holds(t, "plugins", "f.json", text, "used_metric")
	set := new(Set)
	if err := Dashboards(set, folder(t, "f.json", text)); err != nil || len(set.Uses) != 1 {
		t.Errorf("%v, %q", err, set.lines(""))
	}
}
