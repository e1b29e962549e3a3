package uses

import (
	"strings"
	"testing"
)

// What people type into a text box is not what the dashboard was saved with.
func TestTextBoxes(t *testing.T) {
	const box, custom = `{"name": "v", "type": "textbox", "query": "SAVED"}`, `{"name": "v", "type": "custom", "query": "SAVED"}`
	for name, c := range map[string]struct {
		variable, saved, query string
		want, warning          string
	}{
		"matchers":             {box, `x=\"1\"`, `a_m{$v}`, `a_m`, ""},
		"matchers after one":   {box, `x=\"1\"`, `a_m{y=\"2\",$v}`, `a_m{y="2"}`, ""},
		"matchers of a custom": {custom, `x=\"1\"`, `a_m{$v}`, `a_m`, ""},
		"a closed custom": {
			strings.Replace(custom, `"name"`, `"allowCustomValue": false, "name"`, 1), `x=\"1\"`, `a_m{$v}`, `a_m{x="1"}`, "",
		},
		"a part of a name":     {box, "in", `rate(node_${v}_total[5m])`, `{__name__=~"node_(?:.*)_total"}`, ""},
		"a name":               {box, "a_m", `rate($v[5m])`, `a_m`, "the text box $v"},
		"a part of a function": {box, "max", `${v}_over_time(a_m[5m])`, `a_m`, ""},
		"a number":             {box, "5", `a_m > $v`, `a_m`, ""},
		"a label":              {box, "pod", `sum by ($v) (a_m)`, `a_m`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := new(Set)
			board := `{"title": "T", "schemaVersion": 39, "panels": [{"type": "timeseries", "title": "P", "targets": [{"expr": "` + c.query +
				`"}]}], "templating": {"list": [` + strings.Replace(c.variable, "SAVED", c.saved, 1) + `]}}`
			if err := Dashboards(set, folder(t, "a.json", board)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range set.Uses[0].Needs {
				got = append(got, n.Selector())
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q", got)
			}
			text := strings.Join(set.Warnings, "\n")
			if strings.Contains(text, "text box") != (c.warning != "") || !strings.Contains(text, c.warning) {
				t.Errorf("warnings %q", set.Warnings)
			}
		})
	}
}

// What a text box in a name was saved with is noted of the selectors that have it, and of no
// others.
func TestSavedNames(t *testing.T) {
	s := &scope{variables: map[string]*variable{
		"x": {name: "x", values: []string{"in"}, typed: true}, "e": {name: "e", values: []string{""}, typed: true},
		"y": {name: "y", any: true, literal: true},
	}}
	for query, want := range map[string]string{
		`foo_${x}_total`:                      "foo_in_total",
		`{__name__=~"foo_${x}|bar_$x",a=""}`:  "foo_in bar_in",
		`foo_${x} + {__name__=~"foo_(?:.*)"}`: "",
		`foo_${x} / {__name__=~"foo_.*"}`:     "foo_in",
		`foo_${x}_${y}`:                       "",
		`foo_${y}`:                            "",
		`foo_total{a="$x"}`:                   "",
		`$x`:                                  "",
		`foo_${e}`:                            "foo_",
	} {
		needs, _ := s.needs(query)
		var got []string
		for i := range needs {
			got = append(got, needs[i].Saved...)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q", query, got)
		}
	}
}
