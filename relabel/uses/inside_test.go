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

// indented puts a text under a key of YAML, as a block.
func indented(text string, by int) string {
	pad := strings.Repeat(" ", by)
	return "|\n" + pad + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+pad) + "\n"
}

// TestDocumentsInTexts: rules and dashboards are found in whatever text of whatever object they
// stand, behind either flag.
func TestDocumentsInTexts(t *testing.T) {
	const rules = "groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: used_metric > 1\n"
	const board = `{"title": "B", "schemaVersion": 39, "panels": [{"title": "P", "targets": [{"expr": "used_metric"}]}]}`
	coded := base64.StdEncoding.EncodeToString
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(board))
	_ = z.Close()
	values := "grafana:\n  dashboards:\n    default:\n      x:\n        json: " + indented(board, 10)
	alerts := "additionalPrometheusRulesMap:\n  r:\n    " + strings.ReplaceAll(rules, "\n", "\n    ")
	object := func(kind, rest string) string {
		return "apiVersion: example.com/v1\nkind: " + kind + "\nmetadata: {name: n}\n" + rest
	}
	indent := func(text string, by int) string {
		return strings.ReplaceAll("\n"+strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", by)) + "\n"
	}
	for name, text := range map[string]string{
		"HelmRelease, a board":           object("HelmRelease", "spec:\n  values:"+indent(values, 4)),
		"HelmRelease, rules":             object("HelmRelease", "spec:\n  values:"+indent(alerts, 4)),
		"values, a board":                values,
		"Application, rules":             object("Application", "spec:\n  source:\n    helm:\n      values: "+indented(alerts, 8)),
		"Application, sources, a board":  object("Application", "spec:\n  sources:\n    - helm:\n        values: "+indented(values, 10)),
		"HelmChart":                      object("HelmChart", "spec:\n  valuesContent: "+indented(values, 4)),
		"RuleGroupsNamespace":            object("RuleGroupsNamespace", "spec:\n  configuration: "+indented(rules, 4)),
		"CloudFormation":                 "Resources:\n  R:\n    Type: AWS::APS::RuleGroupsNamespace\n    Properties:\n      Data: " + indented(rules, 8),
		"Secret, coded rules":            object("Secret", "data: {r.yaml: "+coded([]byte(rules))+"}\n"),
		"Secret, rules":                  object("Secret", "stringData:\n  r.yaml: "+indented(rules, 4)),
		"Secret, a coded board":          object("Secret", "data: {b.json: "+coded([]byte(board))+"}\n"),
		"Secret, a board":                object("Secret", "stringData:\n  b.json: '"+board+"'\n"),
		"ConfigMap, a packed board":      object("ConfigMap", "binaryData: {b.json.gz: "+coded(zipped.Bytes())+"}\n"),
		"ConfigMap, a board in values":   object("ConfigMap", "data:\n  values.yaml: "+indented(values, 4)),
		"extra objects as texts":         "extraObjects:\n  - " + indented(object("ConfigMap", "data:\n  b.json: '"+board+"'\n"), 6),
		"a catalogue's groups":           "groups:\n  - name: Basic\n    services:\n      - name: S\n        exporters:\n          - rules:\n              - {name: R, query: 'used_metric > 1'}\n",
		"rules beside other than boards": rules,
	} {
		for flag, read := range map[string]func(*Set, string) error{"dashboards": Dashboards, "rules": Rules} {
			set := new(Set)
			if err := read(set, folder(t, "f.yaml", text)); err != nil {
				t.Errorf("%s behind --%s: %v\n%s", name, flag, err, text)
			} else if got := fmt.Sprint(set.lines("")); strings.Count(got, "used_metric all") != 1 {
				t.Errorf("%s behind --%s: %s", name, flag, got)
			}
		}
	}
}

// TestNotInTheFile: what a document says to be elsewhere, or what cannot be read in it, is refused
// by name and not passed over.
func TestNotInTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"grafana: {dashboards: {default: {nodes: {gnetId: 1860, revision: 37}}}}\n":                                "the dashboard nodes is not in this file but number 1860 of grafana.com",
		"grafana: {dashboards: {default: {nodes: {url: 'https://example.com/d.json'}}}}\n":                         "the dashboard nodes is not in this file but at the address",
		"apiVersion: v1\nkind: HelmRelease\nspec: {values: {dashboards: {default: {x: {gnetId: 9}}}}}\n":           "number 9 of grafana.com",
		"apiVersion: v1\nkind: X\nspec:\n  text: |\n    {{- if .Values.on }}\n    - alert: A\n      expr: m > 1\n": "seem to stand in this text",
		deep(): "stand in one another here",
	} {
		err := Dashboards(new(Set), folder(t, "f.yaml", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	set := new(Set) // it is the other flag that promises all dashboards
	if err := Rules(set, folder(t, "f.yaml", "grafana: {dashboards: {default: {nodes: {gnetId: 1860}}}}\n")); err != nil ||
		!strings.Contains(fmt.Sprint(set.Warnings), "number 1860") {
		t.Errorf("%v, warnings %q", err, set.Warnings)
	}
}

// deep is a query in twenty documents that stand in one another.
func deep() string {
	text := "expr: m > 1\n"
	for range 20 {
		text = "kind: X\napiVersion: v1\nspec:\n  query: x\n  text: " + indented(text, 4)
	}
	return text
}

// TestRulesOfOthers: rules in LogQL, and what another program calls rules, select nothing in
// Prometheus, and say so once.
func TestRulesOfOthers(t *testing.T) {
	dir := folder(t, "loki.yaml", "groups:\n  - name: g\n    rules:\n      - {alert: L, expr: 'sum(rate({app=\"a\"} |= \"error\" [5m])) > 1'}\n      - {alert: M, expr: 'sum(rate({app=\"a\"} | json [5m])) > 1'}\n      - {alert: P, expr: 'm{a=~\"x|y\"} > 1 # a | b'}\n      - {alert: T, expr: 'templated > {{ limit | default(80) }}'}\n      - {alert: W, expr: 'rate(windowed[{{ .Values.w | default \"5m\" }}]) > 1'}\n",
		"kind.yaml", "apiVersion: loki.grafana.com/v1\nkind: AlertingRule\nspec:\n  groups:\n    - name: g\n      rules:\n        - {alert: N, expr: 'count_over_time({app=\"a\"}[5m]) > 1'}\n",
		"labelled.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {labels: {loki_rule: \"\"}}\ndata:\n  r.yaml: |\n    groups:\n      - name: g\n        rules:\n          - {alert: O, expr: 'count_over_time({app=\"a\"}[5m]) > 1'}\n",
		"jmx.yml", "lowercaseOutputName: true\nrules:\n  - pattern: kafka.server<type=(.+)><>Value\n    name: kafka_$1\n")
	set := new(Set)
	if err := Rules(set, dir); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(set.lines(dir), "\n")
	for _, want := range []string{`loki.yaml:6 alert P | m{a=~"x|y"} > 1 # a | b | m{a=~"x|y"} all`, " templated all", " windowed all"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if slices.ContainsFunc([]string{"L", "M", "N", "O"}, func(name string) bool { return strings.Contains(got, "alert "+name) }) {
		t.Errorf("LogQL counts as a use:\n%s", got)
	}
	said := 0
	for _, w := range set.Warnings {
		if strings.Contains(w, "in LogQL") {
			said++
		}
	}
	if said != 3 {
		t.Errorf("%d files are said to be in LogQL: %q", said, set.Warnings)
	}
}

// TestTextsOfOthers: lists of targets, scripts and links in ConfigMaps and Secrets ask nothing, and
// refuse no folder.
func TestTextsOfOthers(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Secret"} {
		for _, text := range []string{
			"data: {targets.json: '[{\"targets\": [\"a:9100\"], \"labels\": {\"job\": \"x\"}}]'}\n",
			"stringData: {targets.json: '[{\"targets\": [\"a:9100\"]}]'}\n",
			"data:\n  run.sh: |\n    curl -d '{\"expr\": x.y}' http://h/\n    exit\n",
		} {
			text = "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: n}\n" + text
			for flag, read := range map[string]func(*Set, string) error{"dashboards": Dashboards, "rules": Rules} {
				set := new(Set)
				if err := read(set, folder(t, "f.yaml", text)); err != nil || len(set.Uses) > 0 {
					t.Errorf("behind --%s: %v, %d uses\n%s", flag, err, len(set.Uses), text)
				}
			}
		}
	}
	links := "apiVersion: x/v1\nkind: Portal\nspec: {dashboards: [{name: a, url: 'https://grafana/d/abc'}]}\n"
	if err := Dashboards(new(Set), folder(t, "f.yaml", links)); err != nil {
		t.Errorf("a link: %v", err)
	}
}
