package docs_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

// rowsOf are the first cells of the tables below a heading, up to the next one; cells with several
// names give each.
func rowsOf(t *testing.T, text, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	if end := strings.Index(section, "\n#"); end >= 0 {
		section = section[:end]
	}
	var out []string
	for _, line := range strings.Split(section, "\n") {
		if cell, ok := strings.CutPrefix(line, "| `"); ok {
			cell, _, _ = strings.Cut(cell, " | ")
			out = append(out, regexp.MustCompile("`, `").Split(strings.TrimSuffix(cell, "`"), -1)...)
		}
	}
	return out
}

// docs/experiments.md lists the query types, the settings and the labels that there are, in their
// order.
func TestExperiments(t *testing.T) {
	b, err := os.ReadFile("experiments.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	var types, settings []string
	for _, typ := range model.QueryTypes {
		types = append(types, string(typ))
	}
	fields := reflect.TypeFor[model.Settings]()
	for i := range fields.NumField() {
		if name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ","); name != "" {
			settings = append(settings, name)
		}
	}
	for heading, want := range map[string][]string{
		"## Query types": types, "## Settings": settings,
		"### What names an experiment": model.DefaultLabels,
	} {
		if got := rowsOf(t, text, heading); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", heading, got, want)
		}
	}
	// Defaults, as the table has them.
	s, err := model.ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| `ruleInterval` | `" + s.RuleInterval + "` |", "| `currency` | `" + s.Currency + "` |",
		"`" + s.NodeDashboard + "`, `" + s.GPUDashboard + "`, `" + s.PodDashboard + "`",
	} {
		if !strings.Contains(text, row) {
			t.Errorf("%s is not there", row)
		}
	}
	if s.Idle() != 5 || s.StragglerBelow != 0.8 || s.MaxSeries != 200 || s.MaxRows != 1000 || model.MaxCompared != 8 {
		t.Errorf("defaults are others than the page says: %+v", s)
	}
}
