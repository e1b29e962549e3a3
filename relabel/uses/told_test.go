package uses

import (
	"fmt"
	"strings"
	"testing"
)

// TestFilesOfRules: .rules files are read, and files that seem to have rules and are not read are
// named.
func TestFilesOfRules(t *testing.T) {
	const rule = "groups: [{name: g, rules: [{alert: A, expr: '%s > 1'}]}]\n"
	const block = "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: m > 1\n"
	dir := folder(t, "a.yaml", fmt.Sprintf(rule, "used_a"), "node.rules", fmt.Sprintf(rule, "used_b"),
		"udev.rules", "SUBSYSTEM==\"net\", {{\n\tx: [\n",
		"b.yaml.j2", block, "README.md", block, "run.sh", "echo a\n")
	set := new(Set)
	if err := Rules(set, dir); err != nil || !set.keeps("used_a") || !set.keeps("used_b") {
		t.Errorf("%v\n%s", err, strings.Join(set.lines(dir), "\n"))
	}
	said := strings.Join(set.Warnings, "\n")
	if !strings.Contains(said, "rules seem to be in "+dir+"/b.yaml.j2 (1 file)") ||
		!strings.Contains(said, "no rules in "+dir+"/udev.rules") {
		t.Errorf("warnings: %s", said)
	}
	set = new(Set)
	err := Rules(set, folder(t, "node.rules", fmt.Sprintf(rule, "used_b")))
	if err != nil || !set.keeps("used_b") || len(set.Warnings) > 0 {
		t.Errorf("a folder of .rules: %q", set.Warnings)
	}
}

// TestProgramsBesideFiles: scripts with calls of the API are read whatever flag names their folder,
// and programs and other files that seem to ask are named.
func TestProgramsBesideFiles(t *testing.T) {
	const empty = `{"title":"T","panels":[],"schemaVersion":39}`
	for name, c := range map[string]struct{ file, text, keeps, says string }{
		"a script":      {"s.sh", "#!/bin/sh\ncurl -sG http://p/api/v1/query --data-urlencode 'query=sum(used_a)'\n", "used_a", ""},
		"no extension":  {"bin/ask", "curl http://p/api/v1/query?query=used_a\n", "used_a", ""},
		"Python":        {"s.py", "p.custom_query('sum(used_a)')\n", "used_a", "every metric named in it is kept"},
		"Go":            {"s.go", "v1api.Query(ctx, `sum(unused)`, t)\n", "", "s.go (1 file), and are not read: list their queries"},
		"a test":        {"s_test.go", "v1api.Query(ctx, `sum(unused)`, t)\n", "", ""},
		"a large one":   {"s.sh", "curl http://p/api/v1/query?query=unused\n" + strings.Repeat("#", 64<<10), "", "s.sh (1 file), and are not read: list their queries"},
		"Terraform":     {"r.tf", "model = jsonencode({expr = \"sum(unused)\"})\n", "", "r.tf (1 file), and are not read"},
		"Alloy":         {"c.alloy", "params = {\"match[]\" = [\"unused\"]}\n", "", "c.alloy (1 file), and are not read"},
		"prose":         {"README.md", "curl http://p/api/v1/query?query=unused\n", "", ""},
		"other scripts": {"s.sh", "curl http://x/unused\n", "", ""},
		"no text":       {"s.bin", "curl http://p/api/v1/query?query=unused\n\x00", "", ""},
	} {
		for flag, read := range flags {
			dir := folder(t, "d.json", empty, "r.yaml", "groups: [{name: g, rules: [{alert: A, expr: up > 0}]}]\n", c.file, c.text)
			set := new(Set)
			for range 2 {
				if err := read(set, dir); err != nil {
					t.Errorf("%s behind --%s: %v", name, flag, err)
				}
			}
			said := strings.Join(set.Warnings, "\n")
			if set.keeps("unused") || c.keeps != "" && !set.keeps(c.keeps) ||
				!strings.Contains(said, c.says) || c.says == "" && strings.Contains(said, c.file) {
				t.Errorf("%s behind --%s:\n%s\n%s", name, flag, strings.Join(set.lines(dir), "\n"), said)
			}
		}
	}
}

// TestOtherSourcesInObjects: queries of alert rules and provisioned data sources that go to Loki or
// others by their type are no uses, and are told of; those of Prometheus beside them are.
func TestOtherSourcesInObjects(t *testing.T) {
	const group = `apiVersion: grafana.integreatly.org/v1beta1
kind: GrafanaAlertRuleGroup
metadata: {name: g}
spec:
  rules:
    - title: A
      data:
        - {refId: A, datasourceUid: l, model: {datasource: {type: loki, uid: l}, expr: 'sum(count_over_time({unused="a"}[5m]))'}}
        - {refId: B, datasourceUid: l, model: {datasource: {type: loki, uid: l}, expr: '{unused="a"} |= "x"'}}
        - {refId: C, datasourceUid: p, model: {datasource: {type: prometheus, uid: p}, expr: used_a}}
        - {refId: E, datasourceUid: p, model: {datasource: {type: loki, uid: l}, expr: 'sum(rate(used_d[5m]))'}}
        - {refId: D, datasourceUid: v, model: {datasource: {type: some-new-thing, uid: v}, expr: sum(used_b)}}
`
	const sources = `apiVersion: 1
datasources:
  - name: Tempo
    type: tempo
    jsonData:
      tracesToLogsV2: {datasourceUid: l, customQuery: true, query: '{unused="a"} |= "$${__trace.traceId}"'}
      tracesToProfiles: {customQuery: true, query: 'sum(unused)'}
      tracesToMetrics: {queries: [{name: rate, query: 'sum(rate(used_c{$$__tags}[5m]))'}]}
`
	for flag, read := range flags {
		set := new(Set)
		dir := folder(t, "g.yaml", group, "datasources.yaml", sources)
		if err := read(set, dir); err != nil {
			t.Errorf("--%s: %v", flag, err)
		}
		said := strings.Join(set.Warnings, "\n")
		lines := strings.Join(set.lines(dir), "\n")
		for _, want := range []string{"used_a", "used_b", "used_c", "used_d"} {
			if !set.keeps(want) {
				t.Errorf("--%s: %s is no use:\n%s", flag, want, lines)
			}
		}
		if strings.Contains(lines, "unused") || !strings.Contains(said, dir+"/g.yaml: what is in LogQL there, such as GrafanaAlertRuleGroup g, spec.rules[0].data[0].model") ||
			!strings.Contains(said, dir+"/datasources.yaml: what is in LogQL there, such as document, datasources[0].jsonData.tracesToLogsV2") {
			t.Errorf("--%s: %s\n%s", flag, lines, said)
		}
	}
}

// TestNamesOfSources: a data source whose name sounds like another language may be Prometheus' all
// the same, and what is not asked of it is told.
func TestNamesOfSources(t *testing.T) {
	set := new(Set)
	err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"templating":{"list":[
		{"name":"a","type":"query","datasource":"Loki-Metrics","query":"label_values(used_var, x)"},
		{"name":"b","type":"query","datasource":"Loki","query":"label_values({app=\"x\"}, y)"}]},"panels":[
		{"title":"P","datasource":"Loki-Metrics","targets":[{"expr":"sum(rate(used_metric{a=\"$a\"}[$__interval]))"}]},
		{"title":"Q","datasource":{"uid":"tempo-metrics"},"targets":[{"expr":"used_tempo"}]},
		{"title":"R","datasource":"Loki","targets":[{"expr":"sum(rate({app=\"x\"}[5m]))"},{"expr":"{app=\"x\"} |= \"y\""}]}]}`))
	got := strings.Join(set.lines(""), "\n")
	if err != nil || !set.keeps("used_metric") || !set.keeps("used_tempo") || !set.keeps("used_var") || strings.Contains(got, "app") {
		t.Errorf("%v\n%s", err, got)
	}
	if said := fmt.Sprint(set.Warnings); !strings.Contains(said, "of the data source Loki, asks Loki and not Prometheus; passed over") {
		t.Errorf("warnings: %s", said)
	}
}

// TestNamesThatBelongToPrometheus: a name in which another language's only stands somewhere is one
// of Prometheus' own, and MetricsQL is asked of one that sounds otherwise.
func TestNamesThatBelongToPrometheus(t *testing.T) {
	for source, metrics := range map[string]string{
		"Temporal-Prometheus": "used_a used_b used_c used_d used_job",
		"elastic-exporter":    "used_a used_b used_c used_d used_job",
		"temporal":            "used_a used_b used_c used_d used_job",
		"loki-metrics":        "used_a used_b used_c used_d",
	} {
		set := new(Set)
		err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"templating":{"list":[
			{"name":"d","type":"query","datasource":"`+source+`","query":"metrics(used_d)"}]},"panels":[{"title":"P","datasource":"`+source+`","targets":[
			{"expr":"rate(used_a)"},{"expr":"topk_max(5, used_b{a=\"b\"})"},{"expr":"sum(rate(used_c[$interval])) by (le) $op 3"},{"expr":"count({job=\"used\"})"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, metric := range strings.Fields(metrics) {
			if metric == "used_job" {
				if got := strings.Join(set.lines(""), "\n"); !strings.Contains(got, `{job="used"}`) {
					t.Errorf("%s: {job=\"used\"} is not in\n%s", source, got)
				}
			} else if !set.keeps(metric) {
				t.Errorf("%s: nothing keeps %s\n%s\n%q", source, metric, strings.Join(set.lines(""), "\n"), set.Warnings)
			}
		}
	}
}

// TestAddressesOfPanels: panels of data sources for any address can ask Prometheus' API.
func TestAddressesOfPanels(t *testing.T) {
	holds(t, "an address", "d.json", `{"title":"T","schemaVersion":39,"panels":[{"title":"P","targets":[
		{"datasource":{"type":"yesoreyeram-infinity-datasource"},"url":"http://p:9090/api/v1/query?query=used_a%20%3E%201"},
		{"url":"http://p:9090/api/v1/query","url_options":{"params":[{"key":"query","value":"used_b"},{"key":"time","value":"1"}]}},
		{"url":"http://p:9090/api/v1/query","url_options":{"method":"POST","body_form":[{"key":"query","value":"used_c"}]}},
		{"url":"http://p:9090/api/v1/query?query=${q}&time=1"}]}],"templating":{"list":[
		{"name":"q","type":"custom","query":"used_d,used_e"}]}}`, "used_a used_b used_c used_d used_e")
}

// TestQuotesInAddressesOfPanels: a query in quotes, and one beside another that has a variable.
func TestQuotesInAddressesOfPanels(t *testing.T) {
	holds(t, "an address", "d.json", `{"title":"T","schemaVersion":39,"panels":[{"title":"P","targets":[
		{"url":"http://p:9090/api/v1/query?query='rate(used_a)'&time=1"},
		{"url":"http://p:9090/api/v1/query?query=\"used_b\"&x=/api/v1/query"}]}]}`, "used_a used_b")
}

// TestPackedThatAreCut: a document that cannot be unpacked is refused by name; what is encrypted in
// a Secret is told.
func TestPackedThatAreCut(t *testing.T) {
	for text, want := range map[string]string{
		"ConfigMap binaryData: {b.json.gz: H4sIAAAAAAAA}":                              "b.json.gz: it cannot be unpacked: unexpected EOF",
		"ConfigMap binaryData: {r.yaml: /////w==}":                                     "r.yaml: it cannot be unpacked: it is no text",
		"ConfigMap binaryData: {b.gz: H4sIAAAAAAAA}":                                   "b.gz: it cannot be unpacked",
		"ConfigMap binaryData: {x.tar.gz: H4sIAAAAAAAA, l.gz: " + zipped("\xff") + "}": "",
		"Secret data: {tls.key: 'ENC[x]', token: /////w==}":                            "",
	} {
		kind, rest, _ := strings.Cut(text, " ")
		text = object(kind, rest+"\n")
		for flag, read := range flags {
			err := read(new(Set), folder(t, "f.yaml", text))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("behind --%s: %v, want %q\n%s", flag, err, want, text)
			}
		}
	}
	set := new(Set)
	if err := Rules(set, folder(t, "f.yaml", object("Secret", "data: {values.yaml: 'ENC[AES256_GCM,data:x]'}\n"))); err != nil ||
		!strings.Contains(fmt.Sprint(set.Warnings), "values.yaml: it cannot be unpacked") {
		t.Errorf("an encrypted Secret: %v, warnings %q", err, set.Warnings)
	}
}

// TestDashboardsOfFiles: a dashboard that a chart's values name by its file is told of.
func TestDashboardsOfFiles(t *testing.T) {
	set := new(Set)
	err := Dashboards(set, folder(t, "f.yaml", "grafana: {dashboards: {default: {nodes: {file: dashboards/nodes.json}}}}\n"))
	if err != nil || !strings.Contains(fmt.Sprint(set.Warnings), "the dashboard nodes is not in this file but in the chart's dashboards/nodes.json") {
		t.Errorf("%v, warnings %q", err, set.Warnings)
	}
}

// TestTextsOfPanels: links in texts, and what panels' programs and other data sources ask.
func TestTextsOfPanels(t *testing.T) {
	for panel, want := range map[string]string{
		`"options":{"mode":"markdown","content":"[see](http://p/graph?g0.expr=sum(used_a)) more"}`:                                            "used_a",
		`"options":{"mode":"html","content":"<a href='/explore?left=%7B%22queries%22:%5B%7B%22expr%22:%22sum(used_a)%22%7D%5D%7D'>x</a>"}`:    "used_a",
		`"content":"<script>fetch('/api/datasources/proxy/1/api/v1/query?query=used_a')</script>"`:                                            "used_a",
		`"options":{"onRender":"const m = 'used_a';\nfetch('/api/v1/query?query=' + m)"}`:                                                     "used_a",
		`"options":{"helpers":"fetch('/api/v1/query?query=sum(used_a)')"}`:                                                                    "used_a",
		`"options":{"root":{"actions":[{"fetch":{"url":"http://p/api/v1/query","queryParams":[["query","sum(used_a)"],["time","1"]]}}]}}`:     "used_a",
		`"targets":[{"urlPath":"/api/v1/query","params":[["query","sum(used_a{x=\"$v\"})"]]}]`:                                                "used_a",
		`"targets":[{"urlPath":"/api/v1/query","queryParams":"time=1&query=sum(used_a)"}]`:                                                    "used_a",
		`"links":[{"url":"/explore/metrics/trail?metric=used_a&var-ds=x"},{"url":"/a/grafana-metricsdrilldown-app/drilldown?metric=used_b"}]`: "used_a used_b",
		`"targets":[{"urlPath":"/other","params":[["query","unused"]]}],"description":"the expr of unused, see /api/v1 and ?metric=unused"`:   "",
	} {
		holds(t, panel, "d.json", `{"title":"T","schemaVersion":39,"panels":[{"title":"P","type":"x",`+panel+`}]}`, want)
	}
}

// TestTypesOfBefore: a data source that is a variable of Prometheus is Prometheus, whatever type
// stands beside it.
func TestTypesOfBefore(t *testing.T) {
	for source, want := range map[string]string{
		`{"type":"loki","uid":"${ds}"}`:                     "used_a",
		`{"type":"elasticsearch","uid":"${DS_PROMETHEUS}"}`: "used_a",
		`{"type":"prometheus","uid":"${logs}"}`:             "used_a",
		`{"type":"loki","uid":"${logs}"}`:                   "",
		`{"type":"loki","uid":"${other}"}`:                  "",
	} {
		metric := "used_a"
		if want == "" {
			metric = "unused"
		}
		holds(t, source, "d.json", `{"title":"T","schemaVersion":39,"__inputs":[{"name":"DS_PROMETHEUS","type":"datasource","pluginId":"prometheus"}],
			"templating":{"list":[{"name":"ds","type":"datasource","query":"prometheus"},{"name":"logs","type":"datasource","query":"loki"}]},
			"panels":[{"title":"P","datasource":`+source+`,"targets":[{"expr":"sum(`+metric+`)"}]}]}`, want)
	}
}

// TestTypes: an id of a plugin names what it asks in its last part, and PromQL for another system
// is told, once for each type.
func TestTypes(t *testing.T) {
	for source, want := range map[string]bool{
		"prometheus": true, "acme-github-prom": true, "loki-operator-metrics": false, "grafana-amazonprometheus-datasource": true,
		"victoriametrics-metrics-datasource": true, "grafana-github-datasource": false, "github": false, "postgresql": false,
		"grafana-postgresql-datasource": false, "vertamedia-clickhouse-datasource": false, "yesoreyeram-infinity-datasource": false,
		"haohanyang-mongodb-datasource": false, "acme-splunk": false, "grafana-opensearch-datasource": false, "mysql": false,
		"camptocamp-prometheus-alertmanager-datasource": true, "grafana-azure-monitor-datasource": false,
	} {
		if got := prometheus(source); got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
	const panel = `{"title":"P","datasource":{"type":"%s"},"targets":[{"expr":"%s"}]},`
	set := new(Set)
	err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"panels":[`+
		fmt.Sprintf(panel, "loki", `sum(rate({app=\"x\"}[5m]))`)+fmt.Sprintf(panel, "loki", "sum(unused)")+
		fmt.Sprintf(panel, "loki", "sum(unused_b)")+fmt.Sprintf(panel, "mysql", "unused")+`{"title":"Q","targets":[{"expr":"used_a"}]}]}`))
	said := strings.Join(set.Warnings, "\n")
	told := strings.Count(said, "though it is PromQL: dashboard T, panel P")
	if err != nil || set.keeps("unused") || told != 2 || len(set.Warnings) != 2 {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestPanelsOfOldExports: a library panel whose model is in the dashboard is in a file.
func TestPanelsOfOldExports(t *testing.T) {
	holds(t, "a model", "d.json", `{"title":"T","schemaVersion":39,"panels":[{"title":"P","gridPos":{},
		"libraryPanel":{"uid":"u","name":"n","model":{"targets":[{"expr":"sum(used_a)"}]}}}]}`, "used_a")
}
