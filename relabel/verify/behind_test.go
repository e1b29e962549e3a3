package verify_test

import (
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// server is a source of what is stored behind rules in force.
type server struct{ memory }

func (server) BehindRules() bool { return true }

// What rules in force take is not among what is stored: of a new query for it the stored series of
// the same metric say nothing. Where a rule still takes some of the metric, it is not in force.
func TestBehindRulesInForce(t *testing.T) {
	const slice = "- {source_labels: [__name__, mode], regex: 'cpu_total;(user|system|iowait)', action: drop}"
	for name, c := range map[string]struct {
		rules, query string
		stored       []string
		state        verify.State
		text         string
	}{
		"a value": {
			slice, `sum(rate(cpu_total{mode="iowait"}[5m])) or cpu_total{mode="idle"}`,
			[]string{"cpu_total mode=idle"},
			verify.Faulty, `of cpu_total{mode="iowait"}`,
		},
		"one of several": {
			slice, `cpu_total{mode=~"idle|iowait"}`,
			[]string{"cpu_total mode=idle"},
			verify.Faulty, `loses mode="iowait"`,
		},
		"any": {
			slice, "sum by (mode) (cpu_total)",
			[]string{"cpu_total mode=idle"},
			verify.OK, "may lose",
		},
		"what stays": {
			slice, `cpu_total{mode="idle"}`,
			[]string{"cpu_total mode=idle"},
			verify.OK, "ok: 0 errors, 0 warnings",
		},
		"a bucket": {
			"- {source_labels: [__name__, le], regex: 'h_bucket;(1|2)(\\.0)?', action: drop}", `h_bucket{le=~"2|3"}`,
			[]string{"h_bucket le=3.0"},
			verify.Faulty, `le="2.0"`,
		},
		"a label": {
			"- {action: replace, source_labels: [__name__], regex: m, target_label: uid, replacement: ''}", "sum by (uid) (m)",
			[]string{"m a=1"},
			verify.Faulty, "needs label uid of m",
		},
		"not in force": {
			slice, `cpu_total{mode=~"idle|iowait"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=user"},
			verify.OK, "ok: 0 errors, 0 warnings",
		},
		"and seen to be lost": {
			slice, `cpu_total{mode=~"idle|iowait"}`,
			[]string{"cpu_total mode=idle", "cpu_total mode=iowait"},
			verify.Faulty, "loses 1 stored series",
		},
	} {
		o := verify.Options{Prometheus: []string{withRules(t, c.rules)}, Uses: queries(t, c.query), Source: server{series(t, c.stored...)}}
		for _, src := range []inventory.Source{o.Source, inventory.Join(o.Source, series(t, "other a=1"))} {
			o.Source = src
			r := check(t, o)
			if text := textOf(t, r); r.State != c.state || !strings.Contains(text, c.text) {
				t.Errorf("%s:\n%s", name, text)
			}
		}
	}
}
