package uses

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzNeeds reads any text as a query: it never fails, what PromQL parses has a need for each
// selector, and what nothing parses has one for each word.
func FuzzNeeds(f *testing.F) {
	for _, seed := range []string{
		`sum by (a) (rate(x{b="1"}[5m]))`, `a * on (l) group_left (g) b`, `with (f = {a="1"}) sum(rate(x{f}))`,
		`x{a="$v", b=~"${w:regex}.*", $f}`, `topk($n, $m)`, `sum(rate(foo_total{a="b"}[5m])`,
		`[[x]]`, `${`, `rate(x[$__rate_interval:$y] offset $z) @ $t`, "`$a`\"\\$b\"'", `{__name__=~"$a|b"}`, `info(x, {__name__!="y"})`,
		`{"my.utf8", "é"="ü"}`, `spillwayAny0x`, `x{spillwayAny9999999999999999999x="1"}`,
		`histogram_quantile(0.9, sum by (le) (2 * rate(x_bucket[5m])))`, `x{a="1" or b="2"}`, `# comment`, `label_replace(x, "a", "$1", "b", "(.*)")`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		needs, warning := Needs(query)
		again, _ := Needs(query)
		if !slices.Equal(show(needs), show(again)) {
			t.Errorf("%q needs %v, then %v", query, show(needs), show(again))
		}
		for i := range needs {
			if needs[i].Quantile && !needs[i].Labels.Has("le") {
				t.Errorf("%q: %v needs a quantile without le", query, show(needs))
			}
			if !slices.IsSorted(needs[i].Labels.Names) {
				t.Errorf("%q: %v is not sorted", query, needs[i].Labels.Names)
			}
		}
		if strings.ContainsAny(query, "$[") || strings.Contains(query, markStart) || len(query) > 10_000 || tooDear(query) != "" {
			return
		}
		if missing := unneeded(query); missing != "" {
			t.Errorf("%q: no need has %s", query, missing)
		}
		if strings.HasPrefix(warning, "the query") {
			for _, word := range tokens(query) {
				if word.kind == 'w' && !slices.ContainsFunc(needs, func(n Need) bool { return n.named(word.text) }) {
					t.Errorf("%q does not keep %q: %v", query, word.text, show(needs))
				}
			}
		}
	})
}

// within holds uses to the lines of their file.
func within(t *testing.T, set *Set, text []byte) {
	for _, u := range set.Uses {
		if n := strings.Count(string(text), "\n") + 1; u.Line < 1 || u.Line > n+1 {
			t.Errorf("%s is in none of the %d lines", u.Place(), n)
		}
	}
}

func FuzzDashboards(f *testing.F) {
	f.Add([]byte(classic))
	f.Add([]byte(`{"elements": {"p": {"kind": "Panel", "spec": {"data": {"expr": "x"}}}}, "variables": [{"kind": "TextVariable", "spec": {"name": "a"}}]}`))
	f.Add([]byte(`[{"rows": [{"panels": [{"targets": [{"expr": "$a"}]}]}]}, null, 1]`))
	f.Add([]byte(`{"panels": [{"links": [{"url": "?expr=%7B%22expr%22%3A%22x%22%7D&g0.expr=%zz${x}"}]}], "templating": {"list": [{"type": "custom", "query": "[{\"value\": 1}]"}, {}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set := new(Set)
		b := board{set: set, elements: map[string][]*element{}}
		if err := b.file("f.json", text); err == nil && b.finish() == nil {
			within(t, set, text)
		}
	})
}

func FuzzRules(f *testing.F) {
	f.Add([]byte("groups:\n- name: g\n  rules:\n  - {record: a, expr: sum(b)}\n  - alert: x\n    expr: |-\n      y > 1\n    annotations: {a: '{{ query \"z\" }}'}\n"))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  data:\n    a: |\n      groups: []\n---\n"))
	f.Add([]byte("a: &a [1]\nb: *a\n<<: {c: d}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set := new(Set)
		if _, _, err := ruleFile(set, "f.yaml", text); err == nil {
			within(t, set, text)
		}
	})
}

func FuzzAutoscalers(f *testing.F) {
	f.Add([]byte("apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec:\n  metrics:\n  - {type: Pods, pods: {metric: {name: a_per_second}}}\n"))
	f.Add([]byte("apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec:\n  triggers:\n  - {type: prometheus, metadata: {query: sum(x)}}\n"))
	f.Add([]byte("rules:\n- seriesQuery: 'x{a!=\"\"}'\n  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)\nresourceRules: {cpu: {nodeQuery: 'y{<<.LabelMatchers>>}'}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set := new(Set)
		if err := scalerFile(set, "f.yaml", text); err == nil {
			within(t, set, text)
		}
	})
}

func FuzzKeep(f *testing.F) {
	f.Add([]byte("- match: a*\n  owner: o\n  reason: r\n  expires: 2027-01-01\n  labels: [a]\n"))
	f.Add([]byte("- match: '{a=\"b\"}'\n  owner: o\n  reason: r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		uses, _, err := keeps("f", text, time.Unix(0, 0))
		if err != nil {
			return
		}
		for _, u := range uses {
			if u.Owner == "" || u.Reason == "" || len(u.Needs) != 1 || len(u.Needs[0].Matchers) == 0 {
				t.Errorf("%+v", u)
			}
		}
	})
}

func FuzzLog(f *testing.F) {
	f.Add([]byte(asked(time.Hour, "query", `sum(x)`) + asked(time.Hour, "series", `x{a="1"},y`)))
	f.Add([]byte(asked(time.Hour, "query", strings.Repeat(strings.Repeat("x", 200)+" + ", 50)+"y")))
	f.Add([]byte(`{"v":1,"endpoint":"query","query":"x…","metrics":3,"matchers":["a=1","}"]}` + "\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set := new(Set)
		l := newLogReader(LogOptions{Window: 24 * time.Hour, Now: logNow})
		if _, err := l.read(t.Context(), bytes.NewReader(text)); err != nil {
			return
		}
		l.finish(set, "u")
		for _, u := range set.Uses {
			if u.Count < 1 || u.Last.Before(logNow.Add(-24*time.Hour)) {
				t.Errorf("%+v", u)
			}
		}
	})
}
