package uses

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// folder writes files, given as `-- name --` and their text, and returns the folder.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines are the uses of a set, one a line: `file:line where | query | needs`.
func (s *Set) lines(dir string) []string {
	var out []string
	for _, u := range s.Uses {
		out = append(out, fmt.Sprintf("%s:%d %s | %s | %s", strings.TrimPrefix(u.File, dir+"/"), u.Line, u.Where, u.Query,
			strings.Join(told(u.Needs), "; ")))
	}
	return out
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

const classic = `{
  "title": "Fleet",
  "templating": {"list": [
    {"name": "DS", "type": "datasource", "query": "prometheus"},
    {"name": "LOKI", "type": "datasource", "query": "loki"},
    {"name": "cluster", "type": "query", "datasource": {"uid": "$DS"},
     "query": {"query": "label_values(kube_node_info, cluster)", "refId": "A"}},
    {"name": "pod", "type": "query", "definition": "query_result(sum by (pod) (x{cluster=\"$cluster\"}))"},
    {"name": "kind", "type": "custom", "query": "cpu, memory : mem", "allowCustomValue": false, "includeAll": true, "allValue": "c.*"},
    {"name": "metric", "type": "query", "query": "metrics(^disk_)"},
    {"name": "log", "type": "query", "datasource": "${LOKI}", "query": "label_values(job)"},
    {"name": "prefix", "type": "constant", "query": "node"}
  ]},
  "annotations": {"list": [
    {"name": "deploys", "enable": true, "iconColor": "red", "datasource": {"type": "prometheus"}, "expr": "changes(deployed[5m]) > 0"},
    {"name": "logs", "enable": true, "iconColor": "red", "datasource": {"type": "loki"}, "expr": "{job=\"x\"}"}
  ]},
  "links": [{"title": "more", "url": "https://prometheus/graph?g0.expr=sum(linked%7Bcluster%3D%22${cluster}%22%7D)&g0.tab=0"}],
  "panels": [
    {"title": "Nodes", "datasource": {"type": "prometheus", "uid": "x"}, "repeat": "cluster", "targets": [
      {"expr": "sum by (node) (up{cluster=~\"$cluster\"})", "refId": "A"},
      {"expr": "", "refId": "B"},
      {"refId": "C", "datasource": {"type": "__expr__", "uid": "__expr__"}, "expression": "$A > 1", "type": "math"}
    ]},
    {"type": "row", "title": "Hidden", "collapsed": true, "gridPos": {}, "panels": [
      {"title": "Disks", "targets": [{"expr": "avg($metric)"}, {"expr": "${prefix}_load1{kind=~\"$kind\"}"}],
       "fieldConfig": {"defaults": {"links": [{"url": "/explore?left=%7B%22queries%22%3A%5B%7B%22expr%22%3A%22explored%22%7D%5D%7D"}]}}}
    ]},
    {"title": "Logs", "datasource": {"uid": "${LOKI}"}, "targets": [{"expr": "sum(rate({app=\"x\"} |= \"err\" [5m]))"}]},
    {"title": "Shared", "gridPos": {}, "libraryPanel": {"uid": "lib1", "name": "lib"}}
  ]
}`

func TestDashboards(t *testing.T) {
	dir := folder(t, "a/fleet.json", classic,
		"lib.json", `{"uid": "lib1", "name": "lib", "kind": 1, "model": {"title": "Lib", "targets": [{"expr": "shared{cluster=~\"$cluster\",kind=\"$kind\"}"}]}}`,
		"package.json", `{"name": "something", "scripts": {}}`,
		"tsconfig.json", "{ // a comment\n}",
		".hidden.json", `{`)
	set := new(Set)
	if err := Dashboards(set, dir); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir),
		`a/fleet.json:7 dashboard Fleet, variable $cluster | kube_node_info | kube_node_info cluster`,
		`a/fleet.json:8 dashboard Fleet, variable $pod | sum by (pod) (x{cluster="$cluster"}) | x{cluster=~".*"} pod`,
		`a/fleet.json:10 dashboard Fleet, variable $metric |  | {__name__=~".*(?:^disk_).*"} none`,
		`a/fleet.json:15 dashboard Fleet, annotation deploys | changes(deployed[5m]) > 0 | deployed all`,
		`a/fleet.json:18 dashboard Fleet, link | sum(linked{cluster="${cluster}"}) | linked{cluster=~".*"} none`,
		`a/fleet.json:21 dashboard Fleet, panel Nodes | sum by (node) (up{cluster=~"$cluster"}) | up{cluster=~".*"} node`,
		`a/fleet.json:26 dashboard Fleet, panel Disks | avg($metric) | {__name__=~"(?:.*(?:^disk_).*)"} all`,
		`a/fleet.json:26 dashboard Fleet, panel Disks | ${prefix}_load1{kind=~"$kind"} | node_load1{kind=~"cpu"} all; node_load1{kind=~"mem"} all; node_load1{kind=~"c.*"} all`,
		`a/fleet.json:27 dashboard Fleet, panel Disks, link | explored | explored all`,
		`lib.json:1 dashboard Fleet, panel Lib | shared{cluster=~"$cluster",kind="$kind"} | shared{cluster=~".*",kind="cpu"} all; shared{cluster=~".*",kind="mem"} all; shared{cluster=~".*",kind="c.*"} all`,
	)
	expect(t, "warnings", set.Warnings, "there are no dashboards in "+dir+"/tsconfig.json; passed over")
}

func TestDashboardSchemas(t *testing.T) {
	panel := `{"title": "P", "targets": [{"expr": "x"}]}`
	v2 := `{"elements": {"panel-1": {"kind": "Panel", "spec": {"title": "Two", "data": {"kind": "QueryGroup", "spec": {"queries": [
	  {"kind": "PanelQuery", "spec": {"query": {"kind": "prometheus", "spec": {"expr": "alpha{a=~\"$v\"}"}}}},
	  {"kind": "PanelQuery", "spec": {"query": {"kind": "DataQuery", "group": "prometheus", "spec": {"expr": "beta"}}}},
	  {"kind": "PanelQuery", "spec": {"query": {"kind": "DataQuery", "group": "loki", "spec": {"expr": "{job=\"x\"}"}}}},
	  {"kind": "PanelQuery", "spec": {"query": {"kind": "loki", "spec": {"expr": "{job=\"x\"}"}}}}]}}}}},
	 "variables": [{"kind": "CustomVariable", "spec": {"name": "v", "query": "p,q", "allowCustomValue": false}},
	  {"kind": "QueryVariable", "spec": {"name": "w", "query": {"kind": "DataQuery", "group": "prometheus", "spec": {"__legacyStringValue": "label_values(w_metric, l)"}}}}],
	 "annotations": [{"kind": "AnnotationQuery", "spec": {"name": "N", "query": {"kind": "DataQuery", "group": "prometheus", "spec": {"expr": "noted"}}}}],
	 "title": "V2"}`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = fmt.Fprintf(z, `{"title": "Z", "panels": [%s]}`, panel)
	_ = z.Close()
	zipped := base64.StdEncoding.EncodeToString(packed.Bytes())
	v2Uses := []string{
		`f:7 dashboard V2, variable $w | w_metric | w_metric l`,
		`f:2 dashboard V2, panel Two | alpha{a=~"$v"} | alpha{a=~"p"} all; alpha{a=~"q"} all`,
		`f:3 dashboard V2, panel Two | beta | beta all`,
		`f:8 dashboard V2, annotation N | noted | noted all`,
	}
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"rows":   {"f.json", `{"title": "R", "rows": [{"title": "row", "panels": [` + panel + `]}]}`, []string{`f:1 dashboard R, panel P | x | x all`}},
		"answer": {"f.json", `{"meta": {}, "dashboard": {"title": "A", "panels": [` + panel + `]}}`, []string{`f:1 dashboard A, panel P | x | x all`}},
		"list": {
			"f.json", `[{"title": "A", "panels": [` + panel + `]}, {"title": "B", "panels": []}]`,
			[]string{`f:1 dashboard A, panel P | x | x all`},
		},
		"object v1": {"f.json", `{"apiVersion": "dashboard.grafana.app/v1beta1", "kind": "Dashboard", "metadata": {"name": "n"}, "spec": {"panels": [` + panel + `]}}`, []string{`f:1 dashboard n, panel P | x | x all`}},
		"v2":        {"f.json", v2, v2Uses},
		"object v2": {"f.json", `{"apiVersion": "dashboard.grafana.app/v2beta1", "kind": "Dashboard", "metadata": {"name": "n"}, "spec": ` + v2 + `}`, v2Uses},
		"export":    {"f.json", `{"title": "E", "__elements": {"u": {"name": "lib", "kind": 1, "model": ` + panel + `}}, "panels": [{"libraryPanel": {"uid": "u", "name": "lib"}}]}`, []string{`f:1 dashboard E, panel P | x | x all`}},
		"config map": {
			"f.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  d.json: |-\n    {\"title\": \"C\",\n     \"panels\": [\n       " + panel + "\n    ]}\n  notes.txt: hello\n",
			[]string{`f:8 dashboard C, panel P | x | x all`},
		},
		"operator":        {"f.yaml", "apiVersion: grafana.integreatly.org/v1beta1\nkind: GrafanaDashboard\nspec:\n  json: '{\"title\": \"O\", \"panels\": [" + panel + "]}'\n", []string{`f:4 dashboard O, panel P | x | x all`}},
		"operator zipped": {"f.yaml", "apiVersion: grafana.integreatly.org/v1beta1\nkind: GrafanaDashboard\nspec:\n  gzipJson: " + zipped + "\n", []string{`f:4 dashboard Z, panel P | x | x all`}},
		"yaml":            {"f.yaml", "---\napiVersion: dashboard.grafana.app/v2beta1\nkind: Dashboard\nmetadata: {name: y}\nspec:\n  elements:\n    p:\n      kind: Panel\n      spec:\n        title: Y\n        data: {expr: x}\n", []string{`f:11 dashboard y, panel Y | x | x all`}},
		"ad hoc":          {"f.json", `{"title": "H", "templating": {"list": [{"name": "f", "type": "adhoc"}]}, "panels": [{"title": "P", "targets": [{"expr": "sum(x)"}]}]}`, []string{`f:1 dashboard H, panel P | sum(x) | x all`}},
		"mixed":           {"f.json", `{"title": "M", "panels": [{"title": "P", "datasource": {"uid": "-- Mixed --"}, "targets": [{"datasource": {"type": "loki"}, "expr": "{a=\"b\"}"}, {"datasource": {"type": "some-new-thing"}, "expr": "x"}]}]}`, []string{`f:1 dashboard M, panel P | x | x all`}},
		"names":           {"f.json", `{"title": "N", "templating": {"list": [{"name": "m", "type": "query", "query": "label_values({__name__=~\"a_.*\"}, __name__)"}]}, "panels": [{"title": "P", "targets": [{"expr": "rate($m[5m])"}]}]}`, []string{`f:1 dashboard N, variable $m | {__name__=~"a_.*"} | {__name__=~"a_.*"} all`, `f:1 dashboard N, panel P | rate($m[5m]) | {__name__=~"(?:a_.*)"} all`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, c.file, c.text)
			set := new(Set)
			if err := Dashboards(set, dir); err != nil {
				t.Fatal(err)
			}
			got := set.lines(dir)
			for i := range got {
				got[i] = strings.Replace(strings.Replace(got[i], "f.json:", "f:", 1), "f.yaml:", "f:", 1)
			}
			expect(t, name, got, c.want...)
		})
	}
}

// TestSections: variables of rows and tabs are read as those of the dashboard; where two sections
// have one of the same name, it can be what either says.
func TestSections(t *testing.T) {
	panel := func(source, expr string) string {
		return fmt.Sprintf(`{"kind":"Panel","spec":{"title":"p","data":{"kind":"QueryGroup","spec":{"queries":[{"kind":"PanelQuery","spec":{"query":{"kind":"DataQuery","datasource":{"uid":%q},"spec":{"expr":%q}}}}]}}}}`, source, expr)
	}
	section := func(kind, variables, layout string) string {
		return fmt.Sprintf(`{"kind":%q,"spec":{"title":"s","variables":[%s],"layout":%s}}`, kind, variables, layout)
	}
	const grid = `{"kind":"GridLayout","spec":{"items":[]}}`
	const custom = `{"kind":"CustomVariable","spec":{"name":%q,"query":%q,"allowCustomValue":false}}`
	const asked = `{"kind":"QueryVariable","spec":{"name":"a","query":{"kind":"DataQuery","group":%q,"spec":{"query":"label_values(%s, node)"}}}}`
	const source = `{"kind":"DatasourceVariable","spec":{"name":%q,"pluginId":%q}}`
	tab := section("TabsLayoutTab", fmt.Sprintf(custom+","+asked+","+source, "m", "two", "prometheus", "used_tab", "both", "loki"), grid)
	variables := fmt.Sprintf(custom+","+asked+","+asked+","+source+","+source, "m", "one", "prometheus", "used_row", "loki", "unused",
		"both", "prometheus", "logs", "loki")
	row := section("RowsLayoutRow", variables, `{"kind":"TabsLayout","spec":{"tabs":[`+tab+`]}}`)
	holds(t, "sections", "d.json", `{"apiVersion":"dashboard.grafana.app/v2beta1","kind":"Dashboard","metadata":{"name":"n"},"spec":{"title":"t","elements":{
		"p":`+panel("x", "sum(used_${m}_bytes)")+`,"q":`+panel("${both}", "used_both")+`,"r":`+panel("${logs}", "unused")+`},"variables":[`+fmt.Sprintf(custom, "m", "three")+`],
		"layout":{"kind":"RowsLayout","spec":{"rows":[`+row+`]}}}}`,
		"used_row used_tab used_one_bytes used_two_bytes used_three_bytes used_both")
}

func TestDashboardErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"panels": [}`:                            "f.json:1: invalid character '}'",
		"{\"panels\": [\n\n":                       "f.json:3: unexpected EOF",
		`{"panels": []} {}`:                        "f.json:1: something follows the document",
		`{"things": [{"parts": [{"expr": "x"}]}]}`: "f.json:1: there are queries in this document, but it is no dashboard",
		`{"groups": [{"rules": [{"expr": "x"}]}]}`: "f.json:1: a rule of a group without a name is neither a record nor an alert",
		"{\"title\": \"L\",\n\"panels\": [{\"libraryPanel\": {\"uid\": \"u\", \"name\": \"n\"}}]}": `f.json:2: dashboard L shows the library panel "n" (uid u), which is in none of the files`,
	} {
		err := Dashboards(new(Set), folder(t, "f.json", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
	if err := Dashboards(new(Set), folder(t, "f.txt", "")); err == nil ||
		!strings.Contains(err.Error(), "no file with .json or .yaml or .yml is below it") {
		t.Error(err)
	}
	if err := Dashboards(new(Set), folder(t, "f.yaml", "kind: GrafanaDashboard\napiVersion: v1\nmetadata: {name: g}\nspec: {url: 'http://x'}")); err == nil || !strings.Contains(err.Error(), "is not in this file") {
		t.Error(err)
	}
}

// TestLinksGiveValues: a link to a dashboard gives its variable a value that it has not in its
// list, wherever the link stands.
func TestLinksGiveValues(t *testing.T) {
	const to = `{"title":"To","uid":"abc","schemaVersion":39,"templating":{"list":[
		{"name":"metric","type":"custom","query":"m_a","allowCustomValue":false},
		{"name":"listed","type":"query","query":"metrics(disk_.*)"},
		{"name":"of","type":"query","query":"label_values(${metric}, of)"}
	]},"panels":[{"title":"P","targets":[{"expr":"sum(rate({__name__=~\"$metric\"}[5m]))"},{"expr":"sum($listed)"}]}]}`
	const listed, own = `{__name__=~"(?:.*(?:disk_.*).*)"} all`, `m_a of | {__name__=~"m_a"} all | `
	const b = `m_a of; m_b of | {__name__=~"m_a"} all; {__name__=~"m_b"} all | ` + listed
	for _, c := range []struct{ link, want, warned string }{
		{`/d/abc/a?var-metric=m_b`, b, ``},
		{`/d/${uid}/a?var-metric=m_b`, b, ``},
		{`/d/other/a?var-metric=m_b`, own + listed, ``},
		{`/d/abc?var-metric=$__all&var-metric=All`, own + listed, ``},
		{`https://g/x/d/abc/a?orgId=1&var-listed=m%3Ab&var-metric=m_a`, own + `m:b none; ` + listed, ``},
		{`?var-listed=m_b`, own + `m_b none; ` + listed, ``},
		{`/d/abc?var-listed=m_${part}_y`, own + `m_1_y none; m_2_y none; ` + listed, ``},
		{`/d/abc?${metric:queryparam}`, `m_a of; m_c of | {__name__=~"m_a"} all; {__name__=~"m_c"} all | ` + listed, ``},
		{`/d/abc?var-listed=$same`, own + listed, ``},
		{`/d/abc?var-listed=${__value.raw}`, own + `{__name__=~".*"} all`, `($listed)`},
		{`/d/abc?var-metric={{name}}`, `m_a of; {__name__=~".*"} all | {__name__=~"m_a"} all; {__name__=~".*"} all | ` + listed, `($metric)`},
	} {
		set := new(Set)
		err := Dashboards(set, folder(t, "a.json", to, "b.json", `{"title":"From","schemaVersion":39,"templating":{"list":[
			{"name":"metric","type":"custom","query":"m_c"},{"name":"part","type":"custom","query":"1,2"},
			{"name":"same","type":"query","query":"metrics(disk_.*)"}]},
			"panels":[{"title":"P","fieldConfig":{"defaults":{"links":[{"url":"`+c.link+`"}]}}}]}`))
		if err = errors.Join(err, set.Unmade()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range set.Uses {
			if u.Query != "" {
				got = append(got, strings.Join(told(u.Needs), "; "))
			}
		}
		warnings := strings.Join(set.Warnings, " ")
		if strings.Join(got, " | ") != c.want || !strings.Contains(warnings, c.warned) || c.warned == "" && warnings != "" {
			t.Errorf("%s: %q, want %s; %s", c.link, got, c.want, warnings)
		}
	}
}

// TestLinksOfServedAlerts: a server's own rules are read last.
func TestLinksOfServedAlerts(t *testing.T) {
	set := new(Set)
	err := Dashboards(set, folder(t, "d.json", `{"title":"T","uid":"abc","schemaVersion":39,"templating":{"list":[
		{"name":"m","type":"custom","query":"m_a"},{"name":"free","type":"custom","query":"","current":{}}]},"panels":[
		{"title":"P","targets":[{"expr":"sum($m)"}],"links":[{"url":"/d/abc?var-free=x_total"}]},{"title":"Q","targets":[{"expr":"avg($free)"}]}]}`))
	if err = errors.Join(err, set.Unmade()); err != nil {
		t.Fatal(err)
	}
	if len(set.Index(nil, nil).For("any_total")) == 0 {
		t.Errorf("a link closed a variable that may be any: %q", set.lines(""))
	}
	err = Served(set, "http://p", []byte(`{"groups":[{"name":"g","file":"f","rules":[
		{"type":"alerting","name":"A","query":"up","annotations":{"dashboard":"https://g/d/abc?var-m=m_b"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(set.lines(""), " "), "m_b") {
		t.Errorf("what the link of a served alert names is not needed: %q", set.lines(""))
	}
}

// TestAlertsGiveValues: the links of alerts lead to dashboards too.
func TestAlertsGiveValues(t *testing.T) {
	set := new(Set)
	err := Rules(set, folder(t, "r.yaml", "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {dashboard: 'https://g/d/abc?var-m=m_{{ $labels.job }}_x'}}]}]"))
	err = errors.Join(err, Dashboards(set, folder(t, "d.json", `{"title":"T","uid":"abc","schemaVersion":39,"templating":{"list":[
		{"name":"m","type":"custom","query":"m_a"}]},"panels":[{"title":"P","targets":[{"expr":"sum($m)"}]}]}`)), set.Unmade())
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Index(nil, nil).For("m_node_x")) == 0 {
		t.Errorf("what an alert's link names is not needed: %q", set.lines(""))
	}
}
