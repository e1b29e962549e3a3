package uses

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestExclude: what is left out by its name is not read, and the set says so; all else is.
func TestExclude(t *testing.T) {
	const rule = "groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: %s > 1\n"
	dir := folder(t,
		"a.yaml", fmt.Sprintf(rule, "metric_a"),
		"charts/x/templates/rule.yaml", "{{ if .Values.on }}\nexpr: metric_x\n{{ end }}",
		"charts/x/files/rule.yaml", fmt.Sprintf(rule, "metric_file"),
		"old/deep/b.yaml", fmt.Sprintf(rule, "metric_old"),
		"values.yaml", "rules:\n\t- expr: metric_values",
	)
	for _, tc := range []struct {
		patterns          []string
		found, warns, err string // metrics that are used; part of the warnings and of the error
	}{
		{nil, "", "", "render it first"},
		{[]string{"charts/*/templates", "values.yaml"}, "metric_a metric_file metric_old", "charts/*/templates: left out by its name, such as " + filepath.Join(dir, "charts/x/templates") + " (1 path)", ""},
		{[]string{"charts", "old/", "val*"}, "metric_a", "old: left out by its name", ""},
		{[]string{"charts", "values.yaml", "nobody.yaml"}, "metric_a metric_old", "", "nothing is called nobody.yaml"},
		{[]string{"harts", "values.yaml"}, "", "", "render it first"}, // a name is whole
		{[]string{"[", ""}, "", "", `"[" is no pattern of files`},
		{[]string{"*"}, "", "", "no file with .yaml"},
	} {
		set := new(Set)
		err := set.Exclude(tc.patterns...)
		if err == nil {
			if err = Rules(set, dir); err == nil {
				err = set.Excluded()
			}
		}
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %v, want %q", tc.patterns, err, tc.err)
		}
		for _, metric := range []string{"metric_a", "metric_file", "metric_old", "metric_x", "metric_values"} {
			got, want := strings.Contains(fmt.Sprint(set.lines("")), metric+" "), strings.Contains(tc.found+" ", metric+" ")
			if tc.found != "" && got != want {
				t.Errorf("%q: %s is used: %t, want %t", tc.patterns, metric, got, want)
			}
		}
		if got := fmt.Sprint(set.Warnings); !strings.Contains(got, tc.warns) {
			t.Errorf("%q warns of %s, want %q", tc.patterns, got, tc.warns)
		}
	}
	set := new(Set)
	if err := set.Exclude("values.yaml", "*.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := Rules(set, filepath.Join(dir, "a.yaml")); err != nil || len(set.Uses) != 1 {
		t.Errorf("a file that is given itself: %v, %d uses", err, len(set.Uses))
	}
}

// TestExcludeEach: every pattern that meets something has met it, whatever another one has taken,
// and the files below all of them are counted once.
func TestExcludeEach(t *testing.T) {
	const rule = "groups:\n  - name: g\n    rules:\n      - alert: A\n        expr: metric_a > 1\n"
	dir := folder(t, "a.yaml", rule, "values.yaml", rule, "charts/x/templates/r.yaml", rule, "charts/x/b.txt", "b",
		".git/x.yaml", rule, "node_modules/x.yaml", rule)
	for _, tc := range []struct{ patterns, left string }{
		{"val* values.yaml", "1 file in DIR/values.yaml (1)"},
		{"charts charts/x/templates", "2 files in DIR/charts (2)"},
		{".git node_modules", ""},
		{"./values.yaml charts/", "3 files in DIR/charts (2), DIR/values.yaml (1)"},
	} {
		set := new(Set)
		err := set.Exclude(strings.Fields(tc.patterns)...)
		if err == nil {
			if err = Rules(set, dir); err == nil {
				err = set.Excluded()
			}
		}
		if err != nil {
			t.Errorf("%s: %v", tc.patterns, err)
		}
		if got := strings.ReplaceAll(set.LeftOut(), dir, "DIR"); got != tc.left {
			t.Errorf("%s: %q is left out, want %q", tc.patterns, got, tc.left)
		}
	}
}
