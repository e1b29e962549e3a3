package uses

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVariables fills in variables of all kinds, in all spellings and places.
func TestVariables(t *testing.T) {
	many := make([]string, 0, 200)
	for i := range 200 {
		many = append(many, fmt.Sprintf("v%d", i))
	}
	s := &scope{variables: map[string]*variable{}}
	for _, v := range []*variable{
		{name: "kind", values: []string{"cpu", "mem"}},
		{name: "re", values: []string{"a.b", "c"}, regexes: true},
		{name: "op", values: []string{"sum", "max"}},
		{name: "many", values: many},
		{name: "typed", values: []string{"5"}, typed: true},
		{name: "empty", values: []string{""}, typed: true},
		{name: "any", any: true},
		{name: "label", any: true, literal: true},
		{name: "all", any: true, values: []string{".+"}},
		{name: "disk", any: true, literal: true, pattern: "disk_.*"},
		{name: "nested", values: []string{"node_$any", "x"}},
		{name: "quoted", values: []string{`a"b`}},
		{name: "open", values: []string{"cpu", "mem"}, open: true},
	} {
		s.variables[v.name] = v
	}
	for _, c := range []struct{ query, want string }{
		{`x{a="$kind"}`, `x{a="cpu"} all; x{a="mem"} all`},
		{`x{a="${kind}"}`, `x{a="cpu"} all; x{a="mem"} all`},
		{`x{a="[[kind]]"}`, `x{a="cpu"} all; x{a="mem"} all`},
		{`x{a=~"${kind:regex}"}`, `x{a=~"cpu"} all; x{a=~"mem"} all`},
		{`x{a=~"$re"}`, `x{a=~"a\\.b"} all; x{a=~"c"} all`},
		{`x{a=~"p-${re:pipe}-s"}`, `x{a=~"p-a\\.b-s"} all; x{a=~"p-c-s"} all`},
		{`x{a="$re"}`, `x{a="a.b"} all; x{a="c"} all`},
		{"x{a=`$kind`}", `x{a="cpu"} all; x{a="mem"} all`},
		{`x{a=${kind:doublequote}}`, `x{a="cpu"} all; x{a="mem"} all`},
		{`node_${kind}_bytes`, `node_cpu_bytes all; node_mem_bytes all`},
		{`sum(node_${kind}_bytes{b="$any"})`, `node_cpu_bytes{b=~".*"} none; node_mem_bytes{b=~".*"} none`},
		{`$op(rate(x[5m]))`, `x none`},
		{`sum by ($kind) (x)`, `x cpu; x mem`},
		{`x{a="$many"}`, `x{a=~".*"} all`},
		{`x{a="$many",b="$kind"}`, `x{a=~".*",b="cpu"} all; x{a=~".*",b="mem"} all`},
		{`sum(x) > $typed`, `x none`},
		{`x{a="$typed"}`, `x{a=~".*"} all`},
		{`topk($empty, sum(x))`, `x none`},
		{`x{a=~"$all"}`, `x{a=~".+"} all; x{a=~".*"} all`},
		{`rate($disk[5m])`, `{__name__=~"(?:disk_.*)"} all`},
		{`$disk`, `{__name__=~"(?:disk_.*)"} all`},
		{`$any`, `{__name__=~".*"} all`},
		{`$typed`, ``},
		{`$empty`, ``},
		{`sum($nested)`, `{__name__=~"node_(?:.*)"} all; x none`},
		{`x{a="$quoted"}`, `x{a="a\"b"} all`},
		{`x{a="$open",b="1"}`, `x{a=~".*",b="1"} all`},
		{`x{a=~"p-$open"}`, `x{a=~".*"} all`},
		{`{__name__=~"node_${open}_bytes",a=~"$open"}`, `{__name__=~"node_cpu_bytes",a=~".*"} all; {__name__=~"node_mem_bytes",a=~".*"} all`},
		{`{ __name__ = "$open" }`, `cpu all; mem all`},
		{`sum(rate(x_$open[5m]))`, `x_cpu none; x_mem none`},
		{`x{a=~"p-$label|q"}`, `x{a=~"p-(?:.*)|q"} all`},
		{`x{a=~"p-$any|q"}`, `x{a=~".*"} all`},
		{`x{a="${any.path}"}`, `x{a=~".*"} all`},
		{`x{a="$undeclared"}`, `x{a=~".*"} all`},
		{`x{a=~"^(foo|bar)$"}`, `x{a=~"^(foo|bar)$"} all`},
		{`x{a=~"[[:alpha:]]+"}`, `x{a=~"[[:alpha:]]+"} all`},
		{`x{a=~"[$any]b"}`, `x{a=~".*"} all`},
		{"x # $any\n{a=\"1\"}", `x{a="1"} all`},
		{`sum(rate(x[$__interval])) + $__range_s`, `x none`},
	} {
		needs, _ := s.needs(c.query)
		if got := strings.Join(told(needs), "; "); got != c.want {
			t.Errorf("%s\nneeds %s\nnot   %s", c.query, got, c.want)
		}
	}
}

// TestFilesFollowsLinks reads what is behind links once, whatever circles they make, and leaves out
// what Kubernetes and package managers put there.
func TestFilesFollowsLinks(t *testing.T) {
	dir := folder(t, "real/a.json", "", "real/node_modules/b.json", "", "..data/c.json", "", "d.txt", "", "E.JSON", "")
	for link, target := range map[string]string{
		"link": filepath.Join(dir, "real"), "real/back": dir,
		"f.json": filepath.Join(dir, "..data/c.json"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := new(Set).files(dir, ".json")
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = strings.TrimPrefix(got[i], dir+"/")
	}
	expect(t, "files", got, "E.JSON", "f.json", "link/a.json")
}

// TestWarnings are those about queries that keep more than people may expect.
func TestWarnings(t *testing.T) {
	for query, want := range map[string]string{
		`sum(x)`:                "",
		`count({job="x"})`:      "names no metric",
		`sum($m)`:               "a variable without known values ($m) stands for the name of a metric",
		`sum(x`:                 "the query does not parse",
		`$query`:                "the query is a variable that has no value",
		`{__name__=~"node_.*"}`: "",
	} {
		set := new(Set)
		set.Add(&Use{Kind: Dashboard, File: "f", Line: 3, Where: "w", Query: query})
		set.Add(&Use{Kind: Dashboard, File: "f", Line: 3, Where: "w", Query: query})
		got := strings.Join(set.Warnings, "\n")
		if want == "" && got != "" || !strings.Contains(got, want) || len(set.Warnings) > 1 ||
			want != "" && !strings.HasPrefix(got, "f:3 (w): ") {
			t.Errorf("%s: %q", query, set.Warnings)
		}
	}
}

// TestAsked are the queries of variables: Grafana's own functions, and PromQL.
func TestAsked(t *testing.T) {
	s := &scope{variables: map[string]*variable{"v": {name: "v", any: true, literal: true}}}
	for _, c := range []struct{ query, needs, promQL, warning string }{
		{`label_values(m, l)`, `m l`, `m`, ``},
		{` label_values( m{a="x,y", b=~"$v"} , l ) `, `m{a="x,y",b=~".*"} l`, `m{a="x,y", b=~"$v"}`, ``},
		{`label_values(sum by (a) (m), a)`, `m a`, `sum by (a) (m)`, ``},
		{`label_values({job="x"}, l)`, `{job="x"} all`, `{job="x"}`, ``},
		{`label_values(m, $v)`, `m all`, `m`, ``},
		{`label_values(l)`, ``, ``, `it lists the values of l of all metrics`},
		{`label_names()`, ``, ``, ``},
		{`label_names(  )`, ``, ``, ``},
		{`label_names(app_build_info)`, `{__name__=~".*(?:app_build_info).*"} all`, ``, ``},
		{`label_names(m{a="$v"})`, `m{a=~".*"} all`, `m{a="$v"}`, ``},
		{`label_names($v)`, ``, ``, `it lists the names of labels of all metrics`},
		{`label_names(()`, ``, ``, `no regular expression`},
		{`metrics(node_.*)`, `{__name__=~".*(?:node_.*).*"} none`, ``, ``},
		{`metrics(.+)`, ``, ``, `it lists the names of all metrics`},
		{`metrics($v)`, ``, ``, `it lists the names of all metrics`},
		{`metrics(()`, ``, ``, `no regular expression`},
		{`query_result(topk(3, sum by (a) (m{b="$v"})))`, `m{b=~".*"} a`, `topk(3, sum by (a) (m{b="$v"}))`, ``},
		{`sum by (a) (m)`, `m a`, `sum by (a) (m)`, ``},
		{`rate(m[`, `rate all; m all`, `rate(m[`, `does not parse`},
	} {
		needs, promQL, warning := s.asked(c.query)
		if got := strings.Join(told(needs), "; "); got != c.needs || promQL != c.promQL || c.warning == "" && warning != "" ||
			!strings.Contains(warning, c.warning) {
			t.Errorf("%s\nneeds %s, asks %s; %s\nnot   %s, asks %s", c.query, got, promQL, warning, c.needs, c.promQL)
		}
	}
}

// TestAllOfAVariable: the value that stands for all of a variable may be more than what it lists.
func TestAllOfAVariable(t *testing.T) {
	for _, all := range []string{".+", ".*", "m.*"} {
		set := new(Set)
		if err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"templating":{"list":[{"name":"metric","type":"query",
			"query":"label_values({__name__=~\"m01_.+\"}, __name__)","includeAll":true,"multi":true,"allValue":"`+all+`"}]},
			"panels":[{"title":"P","targets":[{"expr":"{__name__=~\"$metric\",code=~\"$code\"}"}]}]}`)); err != nil {
			t.Fatal(err)
		}
		if len(set.Index(nil, nil).For("m50_a_total")) == 0 {
			t.Errorf("All is %s: what it means beyond the list is not needed", all)
		}
	}
}

// TestMoreVariables: where their values stand outside of brackets, intervals have all of theirs;
// and a variable has the values of its static options, and the fields of its values.
func TestMoreVariables(t *testing.T) {
	const intervals = `"name":"m","type":"interval","query":"1m,5m,15m"`
	list := make([]string, 60)
	for i := range list {
		list[i] = fmt.Sprintf("n%d", i)
	}
	options := make([]string, 200)
	for i := range options {
		options[i] = fmt.Sprintf(`{"value":"static_%d"}`, i)
	}
	for _, c := range []struct{ variables, expr, want string }{
		{intervals, `rate_$m`, `rate_1m all; rate_5m all; rate_15m all`},
		{intervals, `load{window=\"$m\"}`, `load{window=~".*"} all`},
		{intervals, `sum(rate(x[$m] offset $m))`, `x none`},
		{`"name":"m","type":"interval"`, `rate(x[$m])`, `x all`},
		{
			intervals + `},{"name":"n","type":"custom","allowCustomValue":false,"query":"` + strings.Join(list, ",") + `"`, `sum(rate(x_${n}[$m]))`,
			"x_" + strings.Join(list, " none; x_") + " none",
		},
		{
			`"name":"m","type":"query","query":"label_values(x, a)","staticOptions":[{"value":"static_m","text":"S"}]`, `$m`,
			`static_m all; {__name__=~".*"} all`,
		},
		{
			`"name":"m","type":"query","query":"metrics(disk_.*)","staticOptions":[{"value":"static_m"}]`, `sum($m)`,
			`static_m none; {__name__=~"(?:.*(?:disk_.*).*)"} all`,
		},
		{
			`"name":"m","type":"query","query":"metrics(disk_.*)","includeAll":true,"multi":true,"allValue":".+"`, `{__name__=~\"$m\"}`,
			`{__name__=~".+"} all; {__name__=~"(?:.*(?:disk_.*).*)"} all`,
		},
		{ // more values than queries are made of
			`"name":"m","type":"query","query":"metrics(disk_.*)","staticOptions":[` + strings.Join(options, ",") + `]`, `sum($m)`,
			`{__name__=~".*"} all`,
		},
		{
			`"name":"m","type":"custom","query":"[{\"value\":\"a\",\"metric\":\"m_a\"},{\"value\":\"b\",\"metric\":\"m_b\"}]"`, `${m.metric}`,
			`m_a all; m_b all`,
		},
		{`"name":"m","type":"custom","query":"m_a : a, b"`, `sum(${m:text})`, `m_a none; b none`},
		{`"name":"m","type":"custom","query":"m_a : a"`, `sum($m) / sum([[m:text]])`, `a none; m_a none`},
		{`"name":"m","type":"custom","query":"m_a : a","includeAll":true,"allValue":".+"`, `{__name__=~\"${m:text}\"}`, `{__name__=~"m_a"} all; {__name__=~"All"} all`},
		{`"name":"m","type":"custom","multi":true,"options":[{"text":"m_.*","value":"a"}]`, `{__name__=~\"${m:text}\"}`, `{__name__=~"m_.*"} all`},
		{`"name":"m","type":"custom","current":{"text":["m_a","m_b"],"value":["a","b"]}`, `sum(${m:text})`, `m_a none; m_b none`},
		{`"name":"m","type":"custom","current":{"text":"m_a + m_b","value":["a","b"]}`, `sum(${m:text})`, `{__name__=~".*"} all`},
		{`"name":"m","type":"custom","query":"m_a : a, m_b : a"`, `sum(${m:text})`, `{__name__=~".*"} all`},
		{`"name":"m","type":"custom","query":"[{\"value\":\"a\",\"text\":\"m_a\"}]"`, `sum(${m:text})`, `m_a none`},
		{
			`"name":"m","type":"query","query":"metrics(disk_.*)","staticOptions":[{"value":"s","text":"m_s"}]`, `${m:text}`,
			`m_s all; {__name__=~"(?:.*(?:disk_.*).*)"} all`,
		},
		{`"name":"m","type":"constant","query":"m_a"`, `sum(${m:text})`, `m_a none`},
		{`"name":"m","type":"custom","query":"[{\"value\":\"a\",\"of\":{\"metric\":\"m_a\"}}]"`, `sum(rate(${m.of.metric}[5m]))`, `m_a none`},
	} {
		set := new(Set)
		if err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"templating":{"list":[{`+c.variables+
			`}]},"panels":[{"title":"P","targets":[{"expr":"`+c.expr+`"}]}]}`)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range set.Uses {
			if strings.Contains(u.Where, "panel") {
				got = append(got, strings.Join(told(u.Needs), "; "))
			}
		}
		if strings.Join(got, " | ") != c.want {
			t.Errorf("%s of %.300s: %q, want %q", c.expr, c.variables, got, c.want)
		}
	}
}

// TestCustomVariables: a value that is not in the list of a custom variable can be the one that was
// chosen, typed, or linked to; only where the variable refuses those, slices can go.
func TestCustomVariables(t *testing.T) {
	for variable, want := range map[string]string{
		`"query": "a"`:                                                                             `x{v=~".*"} all | x_a_y all`,
		`"query": "a", "allowCustomValue": true`:                                                   `x{v=~".*"} all | x_a_y all`,
		`"query": "a", "allowCustomValue": false`:                                                  `x{v="a"} all | x_a_y all`,
		`"query": "a", "current": {"value": "b"}`:                                                  `x{v=~".*"} all | x_a_y all; x_b_y all`,
		`"query": "a", "current": {"value": ["b"]}`:                                                `x{v=~".*"} all | x_a_y all; x_b_y all`,
		`"query": "a", "allowCustomValue": false, "current": {"value": "b"}`:                       `x{v="a"} all; x{v="b"} all | x_a_y all; x_b_y all`,
		`"query": "a", "allowCustomValue": false, "current": {"text": "All", "value": ["$__all"]}`: `x{v="a"} all | x_a_y all`,
	} {
		set := new(Set)
		if err := Dashboards(set, folder(t, "d.json", `{"title":"T","schemaVersion":39,"templating":{"list":[{"name":"m","type":"custom",`+
			variable+`}]},"panels":[{"title":"P","targets":[{"expr":"x{v=\"$m\"}"},{"expr":"x_${m}_y"}]}]}`)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range set.Uses {
			got = append(got, strings.Join(told(u.Needs), "; "))
		}
		if strings.Join(got, " | ") != want {
			t.Errorf("%s: %q, want %q", variable, got, want)
		}
	}
}
