package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// What people type into a text box within a metric's name nobody knows: what a rule takes of that
// is a warning, and an error where it takes the name that the dashboard was saved with.
func TestTextBoxInAName(t *testing.T) {
	const board = `{"title": "T", "schemaVersion": 39, "panels": [{"type": "graph", "title": "p", "gridPos": {}, "targets": [{"expr": %q}]}],
"templating": {"list": [{"name": "x", "type": "textbox", "query": "in"}, {"name": "q", "type": "query", "datasource": {"type": "prometheus"}, "query": "label_values(up, y)"},
{"name": "all", "type": "query", "datasource": {"type": "prometheus"}, "query": "label_values(up, y)", "includeAll": true, "allValue": "a|b"}]}}`
	const name, matcher = `rate(foo_${x}_total[5m])`, `rate({__name__=~"foo_${x}_total"}[5m])`
	const twice = `rate({__name__=~"foo_${x}_${all}_total"}[5m])`
	for _, c := range []struct {
		query, regex string
		severity     verify.Severity // empty where nothing is found
	}{
		{name, "foo_in_total", verify.Broken},
		{name, "foo_out_total", verify.Doubtful},
		{name, "foo_in_total|foo_out_total", verify.Broken},
		{name, "foo_.*", verify.Broken},
		{name, "foo_out.*_total", verify.Doubtful},
		{name, "bar_in_total", ""},
		{matcher, "foo_in_total", verify.Broken},
		{matcher, "foo_out_total", verify.Doubtful},
		{name + ` + on() rate({__name__=~"foo_.*"}[5m])`, "foo_out_total", verify.Broken},
		{`rate(foo_${x}_${q}_total[5m])`, "foo_in_out_total", verify.Broken}, // by the other one
		{twice, "foo_in_out_total", verify.Broken},                           // so it may be here
		{twice, "foo_in_a_total", verify.Broken},
		{`rate(foo_${q}_total[5m])`, "foo_out_total", verify.Broken},
	} {
		dashboard := file(t, "d.json", fmt.Sprintf(board, c.query))
		all := series(t, "foo_in_total pod=a", "foo_out_total pod=a", "foo_in_out_total pod=a", "foo_in_a_total pod=a",
			"bar_in_total pod=a")
		for _, src := range []inventory.Source{nil, all} {
			r := check(t, verify.Options{
				Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: '"+c.regex+"', action: drop}")},
				Dashboards: []string{dashboard}, Source: src,
			})
			got := map[verify.Severity]int{}
			for _, f := range find(r, verify.CheckLost, dashboard, 1) {
				got[f.Severity]++
				if told := strings.Contains(f.Text, "text box"); told != (f.Severity == verify.Doubtful) {
					t.Errorf("%s, %s: %s", c.query, c.regex, f.Text)
				}
			}
			want := map[verify.Severity]int{}
			if c.severity != "" {
				want[c.severity] = 1
			}
			if strings.Contains(c.query, "on()") { // the other selector loses it for sure
				want[verify.Doubtful] = 1
			}
			state := map[bool]verify.State{true: verify.Faulty, false: verify.OK}[c.severity == verify.Broken]
			if fmt.Sprint(got) != fmt.Sprint(want) || r.State != state {
				t.Errorf("%s, %s, stored %v: %v\n%s", c.query, c.regex, src != nil, got, textOf(t, r))
			}
		}
	}
}
