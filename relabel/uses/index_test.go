package uses

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func indexOf(external []string, known Known, queries ...string) *Index {
	set := new(Set)
	for _, q := range queries {
		set.Add(&Use{Kind: Listed, Query: q, Where: q})
	}
	return set.Index(external, known)
}

func TestSelects(t *testing.T) {
	known := func(metric, label string) bool { return metric == "m" && (label == "a" || label == "le") }
	series := labels.FromStrings("__name__", "m", "a", "1", "job", "j")
	bucket := labels.FromStrings("__name__", "m", "le", "30.0")
	old := labels.FromStrings("__name__", "m", "le", "30")
	for _, c := range []struct {
		query  string
		series labels.Labels
		want   bool
	}{
		{`m`, series, true},
		{`n`, series, false},
		{`{__name__=~"m|n"}`, series, true},
		{`m{a="1"}`, series, true},
		{`m{a="2"}`, series, false},
		{`m{a=""}`, series, false},
		{`m{a="1"}`, bucket, false},          // other series of the metric have it
		{`m{unknown="1"}`, series, true},     // none has: it comes from elsewhere, or with a trouble
		{`m{unknown!=""}`, series, true},     //
		{`m{cluster="other"}`, series, true}, // external
		{`m{cluster="other",a="2"}`, series, false},
		{`m{job="x"}`, series, false}, // it has this label, whatever is known
		{`m{le="30"}`, bucket, true},
		{`m{le="30.0"}`, bucket, true},
		{`m{le="30"}`, old, true},
		{`m{le="30.0"}`, old, true},
		{`m{le=~"30(\\.0)?"}`, bucket, true},
		{`m{le="3"}`, bucket, false},
		{`m{a="1.0"}`, series, false},
		{`{a="1"}`, series, true},
		{`{job=~".+"}`, series, true},
		{`{unknown="1"}`, series, false}, // the metric is not meant
		{`{cluster="other"}`, series, true},
	} {
		x := indexOf([]string{"cluster"}, known, c.query)
		if got := x.Selects(x.Entries()[0], c.series); got != c.want {
			t.Errorf("%s selects %s: %v", c.query, c.series, got)
		}
	}
}

func TestIndex(t *testing.T) {
	x := indexOf(nil, nil, `sum(m)`, `sum(m) > 2`, `m`, `sum(m{b="1",a="2"})`, `sum(m{a="2",b="1"})`, `{__name__=~"m|n"}`, `{job="x"}`, `n`,
		`{__name__="m",__name__!="m"}`)
	var got []string
	for _, e := range x.For("m") {
		got = append(got, e.Selector()+" "+e.Labels.String()+" "+strings.Repeat("*", len(e.Uses)))
	}
	expect(t, "needs of m", got, `m none **`, `m all *`, `m{a="2",b="1"} none **`, `{__name__=~"m|n"} all *`, `{job="x"} all *`)
	blind := func(name string) []string {
		var out []string
		for _, e := range x.Blind(name) {
			out = append(out, e.Selector())
		}
		return out
	}
	x.Observe(labels.FromStrings("__name__", "m", "a", "2"))
	expect(t, "blind", blind("m"), `m{a="2",b="1"}`, `{job="x"}`)
	x.Observe(labels.FromStrings("__name__", "m", "a", "2", "b", "1", "job", "x"))
	expect(t, "blind", blind("m"))
	expect(t, "blind", blind("n"), `n`, `{__name__=~"m|n"}`, `{job="x"}`)
}

func TestChains(t *testing.T) {
	dir := folder(t, "r.yaml", `groups:
- name: g
  rules:
  - {record: 'a:b', expr: sum(raw)}
  - {record: 'a:c', expr: 'a:b * 2'}
  - {record: 'a:d', expr: 'a:e'}
  - {record: 'a:e', expr: 'a:d + other'}
  - {alert: X, expr: 'a:c > 1'}
`)
	set := new(Set)
	if err := Rules(set, dir); err != nil {
		t.Fatal(err)
	}
	x := set.Index(nil, nil)
	for name, want := range map[string]int{"raw": 1, "a:b": 1, "a:c": 1, "other": 0, "a:d": 0} {
		if got := x.Readers(name); len(got) != want || want > 0 && got[0].Where != "alert X" {
			t.Errorf("%s is read by %v", name, got)
		}
	}
	if got := x.Unread(); len(got) != 1 || !strings.HasSuffix(got[0], "r.yaml: 2 rules record what nothing that is known reads: a:d, a:e; what the rules read is kept all the same") {
		t.Errorf("%q", got)
	}
}

// TestLabelSets holds sets of labels against lists of them.
func TestLabelSets(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 3))
	names := []string{"a", "b", "c", "d"}
	set := func() Labels {
		var chosen []string
		for range rng.IntN(4) {
			chosen = append(chosen, names[rng.IntN(4)])
		}
		if rng.IntN(2) == 0 {
			return allBut(chosen...)
		}
		return some(chosen...)
	}
	for range 5000 {
		l, o := set(), set()
		or := l.Or(o)
		for _, name := range append(names, "other") {
			if or.Has(name) != (l.Has(name) || o.Has(name)) {
				t.Fatalf("%s or %s is %s", l, o, or)
			}
		}
		if !slices.IsSorted(or.Names) || len(slices.Compact(slices.Clone(or.Names))) != len(or.Names) {
			t.Fatalf("%s", or)
		}
	}
}

// TestEverySelectorIsANeed holds the needs of random queries against Prometheus' own list of
// selectors.
func TestEverySelectorIsANeed(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 4))
	for range 4 * *rounds {
		query := writer{rng}.vector(1 + rng.IntN(4))
		if missing := unneeded(query); missing != "" {
			t.Fatalf("%s: no need has %s", query, missing)
		}
	}
}

// unneeded is a selector of the query that none of its needs covers; those of info's second
// argument have their own tests.
func unneeded(query string) string {
	expr, err := promql.ParseExpr(query)
	if err != nil {
		return ""
	}
	needs, _ := Needs(query)
	missing := ""
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok || s.BypassEmptyMatcherCheck {
			return nil
		}
		if !slices.ContainsFunc(needs, func(need Need) bool {
			return !slices.ContainsFunc(need.Matchers, func(m *labels.Matcher) bool {
				return !slices.ContainsFunc(s.LabelMatchers, func(o *labels.Matcher) bool { return o.String() == m.String() })
			})
		}) {
			missing = s.String()
		}
		return nil
	})
	return missing
}
