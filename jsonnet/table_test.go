package mixin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// The tables between these lines of docs/alerts.md are made from the rendered rules.
const tablesBegin, tablesEnd = "<!-- made by go test ./jsonnet -run TestAlertTable -update -->\n", "<!-- end -->\n"

// docs/alerts.md lists every alert with its severities, how long it waits and what it tells.
func TestAlertTable(t *testing.T) {
	files := rendering(t, "")
	page := filepath.Join(root, "docs", "alerts.md")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), tablesBegin)
	_, after, ok2 := strings.Cut(rest, tablesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the line %q or %q", page, tablesBegin, tablesEnd)
	}
	want := before + tablesBegin + tables(t, files) + tablesEnd + after
	switch {
	case want == string(b):
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not list what is rendered: line %s; run make generate", page, firstDifference(string(b), want))
	}
}

func tables(t *testing.T, files Files) string {
	var out strings.Builder
	for _, name := range files.Names() {
		at, ok := strings.CutPrefix(name, "alerts/")
		if !ok {
			continue
		}
		var groups rulefmt.RuleGroups
		if err := yaml.Unmarshal(files[name], &groups); err != nil {
			t.Fatal(err)
		}
		type row struct{ severities, holds, tells []string }
		rows, order := map[string]*row{}, []string{}
		add := func(to *[]string, s string) {
			if !slices.Contains(*to, s) {
				*to = append(*to, s)
			}
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if r.Alert == "" {
					continue
				}
				if rows[r.Alert] == nil {
					rows[r.Alert] = &row{}
					order = append(order, r.Alert)
				}
				hold := "at once"
				if r.For > 0 {
					hold = r.For.String()
				}
				add(&rows[r.Alert].severities, r.Labels["severity"])
				add(&rows[r.Alert].holds, hold)
				add(&rows[r.Alert].tells, r.Annotations["summary"])
			}
		}
		if len(order) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n### %s\n\n| alert | severity | for | what it tells |\n| --- | --- | --- | --- |\n", at)
		for _, name := range order {
			r := rows[name]
			fmt.Fprintf(&out, "| [%s](runbooks/%s.md) | %s | %s | %s |\n", name, name, strings.Join(r.severities, ", "),
				strings.Join(r.holds, ", "), strings.Join(r.tells, " / "))
		}
	}
	out.WriteString("\n")
	return out.String()
}
