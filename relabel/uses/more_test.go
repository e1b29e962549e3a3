package uses

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBareSelectors: names and selectors alone, where something else says that they are asked.
func TestBareSelectors(t *testing.T) {
	alert := "apiVersion: grafana.integreatly.org/v1beta1\nkind: GrafanaAlertRuleGroup\nmetadata: {name: g}\nspec:\n  rules:\n    - title: a\n      data:\n" +
		"        - {refId: A, datasourceUid: prom, model: {expr: used_total > 1}}\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"a step of an alert": {"r.yaml", alert + `        - {refId: B, datasourceUid: __expr__, model: {type: math, expression: "$A > 1"}}` + "\n", "used_total"},
		"another one":        {"r.yaml", alert + `        - {refId: B, model: {datasource: {type: __expr__, uid: __expr__}, expression: "$A > 1"}}` + "\n", "used_total"},
		"vmagent, one":       {"r.yaml", "kind: VMAgent\nspec: {streamAggrConfig: {rules: [{match: used_total, interval: 1m, outputs: [total]}]}}\n", "used_total"},
		"vmagent, several": {
			"r.yaml", "kind: VMAgent\nspec: {streamAggrConfig: {rules: [{match: [used_a, 'used_b{a=\"b\"}'], interval: 1m, outputs: [total]}]}}\n", "used_a used_b",
		},
		"other matches": {"r.yaml", "kind: Route\nspec: {rules: [{match: used_total, interval: 1m}]}\n", ""},
		"Kayenta":       {"r.yaml", "kind: X\nspec: {metrics: [{query: {type: prometheus, customInlineTemplate: 'PromQL:sum(rate(used_total[5m]))'}}]}\n", "used_total"},
		"a heartbeat":   {"spillway.yaml", "groups:\n  - name: a\n    heartbeat: used_total\n    shards: [{replicas: [{url: 'http://a:9090'}]}]\n", "used_total"},
		"no heartbeat":  {"r.yaml", "kind: X\nspec: {heartbeat: 10s}\n", ""},
		"a selector of a command": {
			"r.yaml", "kind: CronJob\nspec: {command: [mimirtool, remote-read, export, --selector, used_total]}\n", "used_total",
		},
		"a selector in a text": {"r.yaml", "kind: CronJob\nspec: {command: [sh, -c, \"mimirtool remote-read export --selector used_total --to now\"]}\n", "used_total"},
		"a selector of pods":   {"r.yaml", "kind: CronJob\nspec: {command: [sh, -c, kubectl get pods --selector app=web], args: [--selector, web]}\n", ""},
		"a data source of traces": {
			"r.yaml", "apiVersion: 1\ndatasources:\n  - {name: t, type: tempo, jsonData: {serviceMap: {datasourceUid: p}}}\n", "traces_service_graph_request_total traces_spanmetrics_latency_bucket",
		},
	} {
		set := new(Set)
		if err := Rules(set, folder(t, c.file, c.text, "up.yaml", "groups: [{name: g, rules: [{alert: Up, expr: up == 0}]}]\n")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := namesOfUses(set)
		for _, want := range strings.Fields(c.want) {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %q is missing in %q", name, want, got)
			}
		}
		if strings.HasPrefix(c.want, "used") || c.want == "" {
			if strings.Join(got, " ") != strings.TrimSpace("up "+c.want) {
				t.Errorf("%s: %q, want up and %q", name, got, c.want)
			}
		}
	}
}

// namesOfUses are the metrics that the uses name, sorted; a selector without one is itself.
func namesOfUses(set *Set) []string {
	var out []string
	for _, u := range set.Uses {
		for _, n := range u.Needs {
			name, ok := n.Name()
			if !ok {
				name = n.Selector()
			}
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestDashboardsInCode: sources that have queries behind expr are named, and no others.
func TestDashboardsInCode(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		told bool
	}{
		"a.dashboard.py": {"Dashboard(panels=[TimeSeries(targets=[Target(expr='sum(rate(used_total[5m]))')])])\n", true},
		"a.ts":           {"new DataqueryBuilder().expr('sum(rate(used_total[5m]))')\n", true},
		"a.go":           {"prometheus.NewDataqueryBuilder().Expr(`rate(used_total[5m])`)\n", true},
		"b.go":           {"flag.String(\"expr\", \"\", \"an expression\")\n", false},
		"c.py":           {"parse(expr='a b c')\n", false},
		"a.md":           {"`Target(expr='sum(rate(used_total[5m]))')`\n", false},
	} {
		set := new(Set)
		if err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"panels":[{"targets":[{"expr":"x"}]}]}`, name, c.text)); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(strings.Join(set.Warnings, "\n"), "queries, as of dashboards or rules in code, seem to be in "); told != c.told {
			t.Errorf("%s: warnings %q", name, set.Warnings)
		}
	}
}

// TestServiceGraph: a panel with a service graph asks Prometheus for metrics that stand nowhere.
func TestServiceGraph(t *testing.T) {
	const panel = `{"title":"g","gridPos":{"h":1},"type":"nodeGraph","datasource":{"type":"tempo"},"targets":[{"queryType":"serviceMap","refId":"A"}]}`
	set := new(Set)
	if err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"panels":[`+panel+`,`+panel+`]}`)); err != nil {
		t.Fatal(err)
	}
	if len(set.Uses) != 1 || len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], "service graph are built into it") {
		t.Fatalf("%d uses, warnings %q", len(set.Uses), set.Warnings)
	}
	got := namesOfUses(set)
	for _, want := range []string{
		"traces_service_graph_request_total", "traces_service_graph_request_failed_total",
		"traces_service_graph_request_server_seconds_sum",
		"traces_service_graph_request_server_seconds_bucket", "traces_spanmetrics_calls_total", "traces_spanmetrics_latency_bucket",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestQueriesOfAList: in a list of names that is JSON, the last one has no comma and would be a
// text.
func TestQueriesOfAList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics.json")
	if err := os.WriteFile(file, []byte("{\n  \"metricsUsed\": [\n    \"used_a\",\n    \"used_b\"\n  ]\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := new(Set)
	if err := File(set, file); err != nil {
		t.Fatal(err)
	}
	got := namesOfUses(set)
	for _, want := range []string{"used_a", "used_b"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
	if !strings.Contains(strings.Join(set.Warnings, "\n"), "is no query; every metric named in it is kept") {
		t.Errorf("warnings %q", set.Warnings)
	}
}
