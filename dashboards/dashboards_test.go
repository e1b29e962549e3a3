package dashboards

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func load(t testing.TB, name string) *Dashboard {
	t.Helper()
	d, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNames(t *testing.T) {
	onDisk, err := filepath.Glob("*.json")
	if err != nil || len(onDisk) == 0 {
		t.Fatalf("%v, %v", onDisk, err)
	}
	names := Names()
	if len(names) != len(onDisk) || !slices.Contains(names, "fleet") {
		t.Errorf("%v are not the files %v", names, onDisk)
	}
	for _, name := range names {
		b, err := os.ReadFile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fs.ReadFile(FS(), name+".json"); err != nil || string(got) != string(b) {
			t.Errorf("%s: what is embedded is not the file, or %v", name, err)
		}
	}
	if _, err := Load("flet"); err == nil || !strings.Contains(err.Error(), "fleet") {
		t.Errorf("an unknown dashboard: %v; want the names that there are", err)
	}
}

const nested = `{
 "uid": "x", "title": "X", "schemaVersion": 39, "time": {"from": "now-1h", "to": "now"},
 "templating": {"list": [
  {"name": "datasource", "type": "datasource", "query": "prometheus"},
  {"name": "node", "type": "query", "query": {"query": "label_values(up{a=\"b\", c=~\"$cluster\"}, node)"}, "includeAll": true, "multi": true, "current": {"value": ["$__all"]}}
 ]},
 "annotations": {"list": [{"name": "stored", "builtIn": 1}, {"name": "Pages", "expr": "ALERTS", "titleFormat": "{{alertname}}"}]},
 "panels": [
  {"id": 1, "type": "stat", "title": "first", "gridPos": {"x": 0, "y": 0, "w": 4, "h": 4}, "targets": [{"refId": "A", "expr": "up"}],
   "fieldConfig": {"defaults": {"links": [{"url": "/d/a"}]}, "overrides": [{"matcher": {"id": "byName", "options": "x"}, "properties": [{"id": "links", "value": [{"url": "/d/b"}]}]}]}},
  {"id": 2, "type": "row", "title": "Open", "collapsed": false, "panels": []},
  {"id": 3, "type": "table", "title": "second", "description": "What. Empty while all is well: nothing is wrong.", "targets": [{"refId": "A", "expr": "a"}, {"refId": "B", "expr": "b"}]},
  {"id": 4, "type": "row", "title": "Shut", "collapsed": true, "panels": [{"id": 5, "type": "timeseries", "title": "third", "targets": [{"refId": "A", "expr": "c"}]}]}
 ]
}`

func TestParse(t *testing.T) {
	d, err := Parse([]byte(nested))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range d.Panels {
		s := p.Title + " in " + p.Row
		if p.Collapsed {
			s += " (shut)"
		}
		got = append(got, s)
	}
	if want := []string{"first in ", "Open in Open", "second in Open", "Shut in Shut", "third in Shut (shut)"}; !slices.Equal(got, want) {
		t.Errorf("panels %q, want %q", got, want)
	}
	var where []string
	for _, q := range d.Queries() {
		where = append(where, q.Where+": "+q.Expr)
	}
	want := []string{
		`panel "first", query A: up`, `panel "second", query A: a`, `panel "second", query B: b`, `panel "third", query A: c`,
		`variable node: up{a="b", c=~"$cluster"}`, `annotation "Pages": ALERTS`,
	}
	if !slices.Equal(where, want) {
		t.Errorf("queries\n%s\nwant\n%s", strings.Join(where, "\n"), strings.Join(want, "\n"))
	}
	if v := d.Variable("node"); v == nil || v.LabelName() != "node" || v.Current.Value != "$__all" {
		t.Errorf("variable node is %+v", v)
	}
	if d.Variable("pod") != nil {
		t.Error("there is a variable pod")
	}
	if got := d.Panels[2].Quiet(); got != "nothing is wrong" {
		t.Errorf("quiet because %q", got)
	}
	if got := d.Panels[0].Quiet(); got != "" {
		t.Errorf("quiet because %q, without a reason given", got)
	}
	links, err := d.Panels[0].Links()
	if err != nil || len(links) != 2 || links[0].URL != "/d/a" || links[1].URL != "/d/b" {
		t.Errorf("links %+v, %v", links, err)
	}
}

func TestSubstitute(t *testing.T) {
	from := time.UnixMilli(1_700_000_000_000)
	vars := Vars{
		Interval: 30 * time.Second, Scrape: 15 * time.Second, From: from, To: from.Add(90 * time.Minute),
		Values: map[string]Value{
			"cluster": {Several: true, AllValue: ".*"},
			"one":     {Chosen: []string{"a.b"}, Several: true},
			"two":     {Chosen: []string{"a.b", `c\d`}, Several: true},
			"plain":   {Chosen: []string{`say "a.b"`}},
			"none":    {Several: true},
		},
	}
	for expr, want := range map[string]string{
		`x{cluster=~"$cluster"}`:          `x{cluster=~".*"}`,
		`x{a=~"$one"}`:                    `x{a=~"a\\.b"}`,
		`x{a=~"${two}"}`:                  `x{a=~"(a\\.b|c\\\\d)"}`,
		`x{a=~"[[two:pipe]]"}`:            `x{a=~"a.b|c\d"}`,
		`x{a="$plain"}`:                   `x{a="say \"a.b\""}`,
		`${one:regex}`:                    `a\.b`,
		`${two:regex}`:                    `(a\.b|c\\d)`,
		`${two:csv}`:                      `a.b,c\d`,
		`${two:raw}`:                      `a.b,c\d`,
		`${two:glob}`:                     `{a.b,c\d}`,
		`${two:doublequote}`:              `"a.b","c\d"`,
		`${one:queryparam}`:               `var-one=a.b`,
		`${cluster:queryparam}`:           `var-cluster=$__all`,
		`${plain:percentencode}`:          `say%20%22a.b%22`,
		`x{a=~"$none"}`:                   `x{a=~"()"}`,
		`rate(x[$__rate_interval])`:       `rate(x[1m])`,
		`rate(x[${__rate_interval}])`:     `rate(x[1m])`,
		`rate(x[$__interval])`:            `rate(x[30s])`,
		`$__interval_ms/$__range_s`:       `30000/5400`,
		`increase(x[$__range])`:           `increase(x[5400s])`,
		`$__from $__to $__range_ms`:       `1700000000000 1700005400000 5400000`,
		`label_replace(x,"a","$1","","")`: `label_replace(x,"a","$1","","")`,
	} {
		got, err := Substitute(expr, vars)
		if err != nil || got != want {
			t.Errorf("%s\n got %s, %v\nwant %s", expr, got, err, want)
		}
	}
	// A step longer than three scrapes.
	vars.Interval = 5 * time.Minute
	if got, _ := Substitute("$__rate_interval", vars); got != "5m15s" {
		t.Errorf("$__rate_interval is %s at a step of 5m and a scrape interval of 15s", got)
	}
	for _, expr := range []string{`x{a="$nobody"}`, `${one:nonsense}`, `${__data.fields.node}`} {
		if got, err := Substitute(expr, vars); err == nil {
			t.Errorf("%s: %s, and no error", expr, got)
		}
	}
	if got := References(`a $b ${c:regex} [[d]] ${__data.fields["e"]} $b`); !slices.Equal(got, []string{"__data", "b", "c", "d"}) {
		t.Errorf("references %v", got)
	}
}

// The values that variables themselves give.
func TestChoose(t *testing.T) {
	v := Variable{Name: "node", IncludeAll: true, AllValue: ".+"}
	if got := v.Choose("a"); !got.Several || got.AllValue != "" {
		t.Errorf("one chosen: %+v", got)
	}
	if got := v.All("a", "b"); got.AllValue != ".+" {
		t.Errorf("all chosen: %+v", got)
	}
	single := Variable{Name: "node"}
	if single.Choose("a").Several {
		t.Error("a variable of one choice is escaped for a regular expression")
	}
}
