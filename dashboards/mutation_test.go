package dashboards

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// object is a piece of a dashboard's JSON.
type object = map[string]any

// good is a small dashboard that every rule accepts. Each case of TestRulesCanFail breaks one thing
// of it.
func good() object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	panel := func(id int, kind, title, expr string, x int) object {
		return object{
			"id": id, "type": kind, "title": title, "description": "How many there are. Normal is all of them.", "datasource": source,
			"gridPos": object{"x": x, "y": 0, "w": 12, "h": 8},
			"targets": []any{object{
				"refId": "A", "datasource": source, "expr": expr, "legendFormat": "", "range": true,
				"editorMode": "code",
			}},
			"fieldConfig": object{"defaults": object{
				"unit": "short", "links": []any{}, "mappings": []any{},
				"color": object{"mode": "fixed", "fixedColor": "#4188b6"},
			}, "overrides": []any{}},
			"options": object{}, "pluginVersion": "11.0.0",
		}
	}
	return object{
		"uid": "spillway-good", "title": "Good", "description": "Is this a good dashboard?", "tags": []any{"spillway"}, "refresh": "1m",
		"schemaVersion": 39,
		"time":          object{"from": "now-1h", "to": "now"},
		"templating": object{"list": []any{
			object{"name": "datasource", "type": "datasource", "query": "prometheus"},
			object{
				"name": "cluster", "type": "query", "datasource": source, "query": "label_values(cluster:nodes:count, cluster)",
				"includeAll": true, "allValue": ".*",
			},
			object{"name": "node", "type": "query", "datasource": source, "query": object{"query": `label_values(node:ready:max{cluster=~"$cluster"}, node)`}},
		}},
		"annotations": object{"list": []any{object{
			"name": "Pages", "enable": true, "datasource": source,
			"expr": `ALERTS{cluster=~"$cluster"}`, "iconColor": "#d64550",
		}}},
		"links": []any{object{
			"type": "dashboards", "title": "All", "tags": []any{"spillway"}, "includeVars": true, "keepTime": true,
			"icon": "", "tooltip": "", "asDropdown": true, "targetBlank": false,
		}},
		"panels": []any{
			panel(1, "stat", "Nodes ready", `sum(cluster:nodes_ready:sum{cluster=~"$cluster"})`, 0),
			panel(2, "timeseries", "Requests", `sum by (code) (rate(apiserver_request_total{job="kube-apiserver",cluster=~"$cluster"}[$__rate_interval]))`, 12),
		},
	}
}

func list(o object, keys ...string) []any {
	for _, k := range keys[:len(keys)-1] {
		o = o[k].(object)
	}
	return o[keys[len(keys)-1]].([]any)
}

func panelOf(o object, i int) object    { return list(o, "panels")[i].(object) }
func variableOf(o object, i int) object { return list(o, "templating", "list")[i].(object) }
func asked(expr string) func(object) {
	return func(o object) { list(panelOf(o, 0), "targets")[0].(object)["expr"] = expr }
}
func field(o object) object { return panelOf(o, 0)["fieldConfig"].(object)["defaults"].(object) }
func linked(url string) func(object) {
	return func(o object) { field(o)["links"] = []any{object{"title": "There", "url": url}} }
}

// breaks are the ways to break the good dashboard, by the rule that must notice.
var breaks = []struct {
	rule, how string
	do        func(object)
}{
	{"identity", "a uid that is too long", func(o object) { o["uid"] = "spillway-" + strings.Repeat("x", 40) }},
	{"identity", "the uid of another one", func(o object) { o["uid"] = "spillway-fleet" }},
	{"identity", "the title of another one", func(o object) { o["title"] = "Fleet at a glance" }},
	{"identity", "a refresh of ten seconds", func(o object) { o["refresh"] = "10s" }},
	{"identity", "another schema", func(o object) { o["schemaVersion"] = 16 }},
	{"identity", "no tag", func(o object) { o["tags"] = []any{} }},
	{"identity", "no description", func(o object) { o["description"] = "" }},
	{"described", "a panel without a description", func(o object) { delete(panelOf(o, 0), "description") }},
	{"described", "a description that is no sentence", func(o object) { panelOf(o, 0)["description"] = "nodes" }},
	{"described", "no unit", func(o object) { delete(field(o), "unit") }},
	{"described", "one title twice", func(o object) { panelOf(o, 0)["title"] = "Requests" }},
	{"described", "no query", func(o object) { panelOf(o, 0)["targets"] = []any{} }},
	{"panel types", "an Angular panel", func(o object) { panelOf(o, 0)["type"] = "graph" }},
	{"panel types", "a plugin", func(o object) { panelOf(o, 0)["type"] = "grafana-polystat-panel" }},
	{"data source", "a query with a data source of its own", func(o object) {
		list(panelOf(o, 0), "targets")[0].(object)["datasource"] = object{"type": "prometheus", "uid": "P1"}
	}},
	{"data source", "a variable with one", func(o object) { variableOf(o, 1)["datasource"] = object{"type": "prometheus", "uid": "P1"} }},
	{"data source", "an annotation with one", func(o object) {
		list(o, "annotations", "list")[0].(object)["datasource"] = object{"type": "prometheus", "uid": "P1"}
	}},
	{"data source", "no variable for it", func(o object) { variableOf(o, 0)["name"] = "source" }},
	{"layout", "two panels in one place", func(o object) { panelOf(o, 1)["gridPos"].(object)["x"] = 11 }},
	{"layout", "a panel beyond the edge", func(o object) { panelOf(o, 1)["gridPos"].(object)["w"] = 13 }},
	{"layout", "one id twice", func(o object) { panelOf(o, 1)["id"] = 1 }},
	{"layout", "panels out of order", func(o object) { panelOf(o, 0)["gridPos"].(object)["y"] = 9 }},
	{"variables", "All without a value", func(o object) { delete(variableOf(o, 1), "allValue") }},
	{"variables", "a variable used and not there", asked(`sum(cluster:nodes_ready:sum{cluster=~"$cluster", rack="$rack"})`)},
	{"variables", "a variable that asks for a later one", func(o object) {
		variableOf(o, 1)["query"] = `label_values(cluster:nodes:count{node="$node"}, cluster)`
	}},
	{"variables", "a variable that reads all series of a query", func(o object) { variableOf(o, 2)["query"] = `query_result(up)` }},
	{"variables", "no cluster to choose", func(o object) { variableOf(o, 1)["name"] = "clusters" }},
	{"links", "a dashboard that is not there", linked("/d/spillway-flet?${cluster:queryparam}")},
	{"links", "a variable that the other one lacks", linked("/d/spillway-fleet?var-nodd=x")},
	{"links", "a variable that this one lacks", linked("/d/spillway-fleet?${rack:queryparam}")},
	{"links", "a field that the table lacks", linked(`/d/spillway-fleet?var-cluster=${__data.fields["node"]}`)},
	{"links", "an address that is none", linked("d/spillway-fleet")},
	{"links", "no list of dashboards", func(o object) { o["links"] = []any{} }},
	{"links", "a list that forgets the time", func(o object) { list(o, "links")[0].(object)["keepTime"] = false }},
	{"parses", "no PromQL", asked(`sum(cluster:nodes_ready:sum{cluster=~"$cluster"}`)},
	{"cluster", "no matcher", asked(`sum(cluster:nodes_ready:sum)`)},
	{"cluster", "one of two selectors without it", asked(`sum(cluster:nodes_ready:sum{cluster=~"$cluster"}) / sum(cluster:nodes:count)`)},
	{"cluster", "another matcher", asked(`sum(cluster:nodes_ready:sum{cluster="$cluster"})`)},
	{"cluster", "an annotation without it", func(o object) { list(o, "annotations", "list")[0].(object)["expr"] = "ALERTS" }},
	{"cluster", "a variable without it", func(o object) { variableOf(o, 2)["query"] = "label_values(node:ready:max, node)" }},
	{"windows", "a rate over five minutes", asked(`sum(rate(apiserver_request_total{job="kube-apiserver",cluster=~"$cluster"}[5m]))`)},
	{"windows", "a rate over the panel's step", asked(`sum(rate(apiserver_request_total{job="kube-apiserver",cluster=~"$cluster"}[$__interval]))`)},
	{"windows", "an increase over two minutes", asked(`sum(increase(apiserver_request_total{job="kube-apiserver",cluster=~"$cluster"}[2m]))`)},
	{"metrics", "a metric that nobody exports", asked(`sum(rate(apiserver_requests_total{job="kube-apiserver",cluster=~"$cluster"}[$__rate_interval]))`)},
	{"metrics", "a metric of another job", asked(`sum(rate(apiserver_request_total{job="etcd",cluster=~"$cluster"}[$__rate_interval]))`)},
	{"metrics", "a series that no rule records", asked(`sum(cluster:nodes_red:sum{cluster=~"$cluster"})`)},
	{"counters", "a counter as it is", asked(`sum(apiserver_request_total{job="kube-apiserver",cluster=~"$cluster"})`)},
	{"counters", "the mean of a counter", asked(`sum(avg_over_time(apiserver_request_total{job="kube-apiserver",cluster=~"$cluster"}[1h]))`)},
	{"counters", "the rate of a gauge", asked(`sum(rate(node_load1{job="node-exporter",cluster=~"$cluster"}[$__rate_interval]))`)},
	{"counters", "the rate of a recorded series", asked(`sum(rate(cluster:nodes_ready:sum{cluster=~"$cluster"}[$__rate_interval]))`)},
	{"guard", "a line for each node", asked(`node:ready:max{cluster=~"$cluster"}`)},
	{"guard", "a line for each node of an exporter", asked(`node_load1{job="node-exporter",cluster=~"$cluster"}`)},
	{"guard", "a sum by node", asked(`sum by (node) (node_arp_entries{job="node-exporter",cluster=~"$cluster"})`)},
	{"guard", "a filter, which an outage lets through", asked(`node:ready:max{cluster=~"$cluster"} < 1`)},
	{"guard", "a thousand of them", asked(`topk(1000, node:ready:max{cluster=~"$cluster"})`)},
	{"guard", "ten of each node", asked(`topk by (node) (10, node_arp_entries{job="node-exporter",cluster=~"$cluster"})`)},
	{"guard", "nodes beside what is one", asked(`topk(5, node:ready:max{cluster=~"$cluster"}) or node:ready:max{cluster=~"$cluster"}`)},
	{"no invented zero", "zero for what is not measured", asked(`sum(cluster:nodes_ready:sum{cluster=~"$cluster"}) or vector(0)`)},
	{"palette", "another colour", func(o object) { field(o)["color"].(object)["fixedColor"] = "green" }},
	{"palette", "Grafana's own palette", func(o object) { field(o)["color"].(object)["mode"] = "palette-classic" }},
	{
		"palette", "another colour of a threshold",
		func(o object) { field(o)["thresholds"] = object{"steps": []any{object{"color": "red"}}} },
	},
	{"palette", "another colour of an annotation", func(o object) { list(o, "annotations", "list")[0].(object)["iconColor"] = "red" }},
	{"schema", "a misspelt field of a query", func(o object) { list(panelOf(o, 0), "targets")[0].(object)["exprr"] = "up" }},
	{"schema", "a misspelt option", func(o object) { panelOf(o, 1)["options"] = object{"legendd": object{}} }},
	{"schema", "a misspelt field of the dashboard", func(o object) { o["panles"] = []any{} }},
	{"schema", "a number for a text", func(o object) { o["title"] = 7 }},
}

// Every rule accepts a good dashboard, and each of them can fail: on what it is for.
func TestRulesCanFail(t *testing.T) {
	x := newLinter(t)
	// problems of the good dashboard with one change.
	problems := func(change func(object)) []string {
		o := good()
		if change != nil {
			change(o)
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		if err := strict(complete(o)); err != nil {
			out = append(out, "schema: "+err.Error())
		}
		d, err := Parse(b)
		if err != nil {
			return append(out, "read: "+err.Error())
		}
		d.Name = "good"
		return append(out, x.lint(d)...)
	}
	if got := problems(nil); len(got) > 0 {
		t.Fatalf("the good dashboard is refused:\n%s", strings.Join(got, "\n"))
	}
	broken := map[string]bool{}
	for _, b := range breaks {
		broken[b.rule] = true
		t.Run(b.rule+"/"+b.how, func(t *testing.T) {
			got := problems(b.do)
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, b.rule+": ") }) {
				t.Errorf("%s: rule %q does not notice; others say %q", b.how, b.rule, got)
			}
		})
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("nothing breaks rule %q", r.name)
		}
	}
}

// complete gives the panels the options that Grafana's schema wants, which no rule of ours looks
// at.
func complete(o object) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was made here
	}
	var copied object
	if err := json.Unmarshal(b, &copied); err != nil {
		panic(err)
	}
	for _, p := range list(copied, "panels") {
		options := p.(object)["options"].(object)
		switch p.(object)["type"] {
		case "stat":
			for k, v := range (object{
				"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
				"wideLayout":        true,
				"showPercentChange": false, "percentChangeColorMode": "standard", "reduceOptions": object{"calcs": []any{"lastNotNull"}},
			}) {
				options[k] = v
			}
		case "timeseries":
			options["legend"] = object{"showLegend": true, "displayMode": "list", "placement": "bottom", "calcs": []any{}}
			options["tooltip"] = object{"mode": "multi", "sort": "desc"}
		}
	}
	out, err := json.Marshal(copied)
	if err != nil {
		panic(fmt.Sprint("marshal what was just read: ", err))
	}
	return out
}
