package uses

import (
	"strings"
	"testing"
)

// TestWhatAsks: whatever asks Prometheus in a document of another kind is a use.
func TestWhatAsks(t *testing.T) {
	for name, c := range map[string]struct{ file, text, metrics string }{
		"federation of a monitor": {
			"f.yaml", object("ServiceMonitor", "spec: {endpoints: [{path: /federate, params: {'match[]': [used_metric, '{__name__=~\"used_re.*\"}', '{job=\"kubelet\"}']}}]}\n"),
			"used_metric used_re_x",
		},
		"federation of a server": {"f.yaml", "scrape_configs:\n- {job_name: f, metrics_path: /federate, params: {'match[]': [used_metric]}}\n", "used_metric"},
		"rules of Azure": {
			"f.json", `{"$schema":"x","resources":[{"properties":{"rules":[{"alert":"A","expression":"sum(rate(used_a[5m])) > 1"},{"alert":"B","expression":"usedb != usedc"},{"record":"r","expression":"used_d / used_e"},{"alert":"C","expression":"used_f{ > broken"}]}}]}`,
			"used_a usedb usedc used_d used_e used_f",
		},
		"operators between two": {
			"f.yaml", object("X", "spec: {condition: 'used_a > used_b', ratio: 'used_c / used_d', sel: '{__name__=~\"used_e.*\"}', and: 'used_f and used_g'}\n"),
			"used_a used_b used_c used_d used_e1 used_f used_g",
		},
		"lists of queries": {"f.yaml", object("X", "spec: {queries: [used_a, {name: not_this, query: used_c}], metrics_queries: {a: used_b}}\n"), "used_a used_b used_c"},
		"a script": {
			"f.yaml", object("CronJob", "spec: {containers: [{args: [-c, \"curl -sG http://p:9090/api/v1/query --data-urlencode 'query=sum(rate(used_metric[5m]))' | jq .\"]}]}\n"),
			"used_metric",
		},
		"scripts in a ConfigMap": {
			"f.yaml", object("ConfigMap", "data:\n  run.sh: |\n    a=$(curl \"$P/api/v1/query?query=used_a&time=1\")\n    b=$(curl \"$P/api/v1/query?query=used_b&time=1\")\n    c=$(promtool query instant $P 'sum(rate(used_c[5m]))')\n"),
			"used_a used_b used_c",
		},
		"a script with a variable": {"f.yaml", object("ConfigMap", "data:\n  run.sh: |\n    q='sum(used_a)'\n    curl -G $P/api/v1/query --data-urlencode \"query=$q\"\n"), "used_a"},
		"a query a line":           {"f.yaml", object("ConfigMap", "data:\n  queries.txt: |\n    # those of the report\n    sum(rate(used_a[5m]))\n    used_b > 3\n"), "used_a used_b"},
		"a text without a word that tells": {
			"f.yaml", object("Application", "spec: {source: {helm: {values: \"capacity:\\n  cpu: sum(rate(used_metric[5m]))\\n\"}}}\n"),
			"used_metric",
		},
		"a label called source": {"f.yaml", "checks:\n- {source: postgresql, query: 'used_metric == 0'}\n", "used_metric"},
		"an alert's template": {
			"f.yaml", "version: prometheus/v1\nservice: s\nslos:\n- {name: a, sli: {events: {error_query: 'sum(rate(used_a[{{.window}}]))', total_query: 'sum(rate(used_a[{{.window}}]))'}}, alerting: {annotations: {d: '{{ range query \"used_b > 1\" }}{{ . }}{{ end }}'}}}\n",
			"used_a used_b",
		},
		"Kiali's dashboards": {
			"f.yaml", object("MonitoringDashboard", "spec: {items: [{chart: {name: c, metricName: used_metric, dataType: rate}}, {chart: {name: c, metricName: used_b, dataType: histogram}}]}\n"),
			"used_metric used_b_bucket",
		},
	} {
		holds(t, name, c.file, c.text, c.metrics)
	}
}

// TestWhatAsksNothing: prose, names, images, addresses and the languages of others keep nothing.
func TestWhatAsksNothing(t *testing.T) {
	set := new(Set)
	text := object("Deployment", `spec:
  description: "ready and able: cpu / memory > disk, see node exporter / docs"
  image: registry.example.com:5000/team/node-exporter:v1.2
  small: localhost:5000/app
  url: http://prometheus:9090/api/v1/query
  expression: object.spec.replicas <= self.max
  filter: {expression: "true"}
  memcached-queries: {enabled: "true", args: [-o, modern], size: high-availability, image: {tag: x_y}}
  cron: {expression: "*/5 * * * *"}
  args: [--path.procfs=/host/proc, --web.route=/federate, "a-b-c", "x_y"]
  provider: {type: datadog, query: "avg:system.cpu{*} by {host}"}
  metrics: [{provider: {datadog: {query: word}}}, {provider: {loki: {query: 'sum(rate({app="x"}[5m]))'}}}]
  text: |
    the first line of prose (with more)
    retries - and more
`)
	for flag, read := range flags {
		if err := read(set, folder(t, "f.yaml", text)); err != nil || len(set.Uses) > 0 {
			t.Errorf("behind --%s: %v\n%s", flag, err, strings.Join(set.lines(""), "\n"))
		}
	}
}

// TestRemoteWrite: what a list keeps for remote write is used; where all is sent on, that is told.
func TestRemoteWrite(t *testing.T) {
	to := func(labels, regex, action string) string {
		return "{url: x, write_relabel_configs: [{source_labels: [" + labels + "], regex: '" + regex + "', action: " + action + "}]}"
	}
	for text, c := range map[string]struct {
		keeps string
		told  bool
	}{
		"[" + to("__name__", "used_a|used_b.*", "keep") + "]":    {"used_a used_b_x", false},
		"[" + to("__name__", ".*", "keep") + "]":                 {"", true},
		"[" + to("__name__", "used_a", "keep") + ", {url: y}]":   {"used_a", true},
		"[" + to("__name__", "unused", "drop") + "]":             {"", true},
		"[" + to("job", "unused", "keep") + "]":                  {"", true},
		"[" + to("job, __name__", "a;used_a|b;.*", "keep") + "]": {"used_a", false},
		"{url: x}": {"", false},
	} {
		operator := strings.NewReplacer("write_relabel_configs", "writeRelabelConfigs", "source_labels", "sourceLabels").Replace(text)
		for _, doc := range []string{"remote_write: " + text + "\n", object("Prometheus", "spec: {remoteWrite: "+operator+"}\n")} {
			holds(t, doc, "f.yaml", doc, c.keeps)
			set := new(Set)
			err := Rules(set, folder(t, "f.yaml", doc))
			if err != nil || strings.Contains(strings.Join(set.Warnings, "\n"), "remote write sends on") != c.told {
				t.Errorf("%s: %v, warnings %q", doc, err, set.Warnings)
			}
		}
	}
}
