package verify_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// Where names of a use cannot be listed, as with a variable in the middle of one, names are made up
// that both it and the rules are about.
func TestNamesOfAShape(t *testing.T) {
	const node = "- {source_labels: [__name__], regex: 'node_network_.*', action: drop}"
	for name, c := range map[string]struct {
		rules, query string
		state        verify.State
		severity     verify.Severity // empty where nothing is found
		text         string
	}{
		"all that it selects":   {node, `sum({__name__=~"node_network_.+_total"})`, verify.Faulty, verify.Broken, "loses all series"},
		"a part, by its prefix": {"- {source_labels: [__name__], regex: 'node_.*', action: drop}", `sum({__name__=~"node_network_.*"})`, verify.Faulty, verify.Broken, "loses all series"},
		"all that the rule has": {node, `sum({__name__=~"node_.*"})`, verify.Faulty, verify.Broken, "loses all series"},
		"one of many branches":  {"- {source_labels: [__name__], regex: 'go_.*|node_network_.*|up', action: drop}", `sum({__name__=~"node_network_.+_total"})`, verify.Faulty, verify.Broken, "loses all series"},
		"not in a keep":         {"- {source_labels: [__name__], regex: 'kube_.*', action: keep}", `sum({__name__=~"node_network_.+_total"})`, verify.Faulty, verify.Broken, "loses all series"},
		"partly in a keep":      {"- {source_labels: [__name__], regex: 'node_network_receive_.*', action: keep}", `sum({__name__=~"node_network_.+_total"})`, verify.OK, verify.Doubtful, "may lose"},
		"all in a keep":         {"- {source_labels: [__name__], regex: 'node_.*', action: keep}", `sum({__name__=~"node_network_.+_total"})`, verify.OK, "", ""},
		"some of both": {
			"- {source_labels: [__name__], regex: 'node_network_transmit_.*', action: drop}", `sum({__name__=~"node_network_.+_total"})`, verify.NotChecked,
			verify.Doubtful, "such as node_network_transmit_",
		},
		"another end":            {"- {source_labels: [__name__], regex: 'node_network_.*_seconds', action: drop}", `sum({__name__=~"node_network_.+_total"})`, verify.OK, "", ""},
		"another name":           {node, `sum({__name__=~"node_netstat_.+_total"})`, verify.OK, "", ""},
		"but for what it leaves": {node, `sum({__name__=~"node_.*",__name__!~"node_network_.*"})`, verify.OK, "", ""},
		"a rule on any name":     {"- {source_labels: [__name__], regex: '.+_created', action: drop}", `sum({__name__=~"node_network_.*"})`, verify.OK, "", ""},
		"another label": {
			"- {source_labels: [code], regex: '500', action: drop}", `rate({__name__=~"http_.+_total",code="500"}[5m])`,
			verify.Faulty, verify.Broken, "loses all series",
		},
		"a label that goes": {
			"- {regex: pod, action: labeldrop}", `sum({__name__=~"http_.+_total",pod=~"x.+"})`,
			verify.Faulty, verify.Broken, "needs label pod",
		},
		"one of a class":    {"- {source_labels: [__name__], regex: 'node_a.*|foo_.*', action: keep}", `sum({__name__=~"node_[a-e].*"})`, verify.OK, verify.Doubtful, "such as node_b"},
		"one of the digits": {"- {source_labels: [__name__], regex: 'http_0.*|foo_.*', action: keep}", `sum({__name__=~"http_[0-9].*"})`, verify.OK, verify.Doubtful, "such as http_1"},
		"all of a class":    {"- {source_labels: [__name__], regex: 'node_[a-e].*|foo_.*', action: keep}", `sum({__name__=~"node_(?:a|b|[c-e]).*"})`, verify.OK, "", ""},
		"one of a class goes": {
			"- {source_labels: [__name__], regex: 'node_a.*', action: drop}", `sum({__name__=~"node_[a-e]x.*"})`,
			verify.Faulty, verify.Broken, "loses all series",
		},
		"a word's boundary": {`- {source_labels: [__name__], regex: 'node_network_.*\b', action: drop}`, `sum({__name__=~"node_network_.+_total"})`, verify.NotChecked, verify.Doubtful, "may lose"},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, verify.Options{Prometheus: []string{withRules(t, c.rules)}, Uses: queries(t, c.query)})
			var got []verify.Finding
			for _, f := range r.Findings {
				if f.Check == verify.CheckLost {
					got = append(got, f)
				}
			}
			if r.State != c.state || len(got) > 1 || (c.severity != "") != (len(got) == 1) {
				t.Fatal(textOf(t, r))
			}
			if len(got) == 1 && (got[0].Severity != c.severity || !strings.Contains(got[0].Text, c.text) || got[0].RuleLine != 4) {
				t.Error(textOf(t, r))
			}
		})
	}
}

// How a name begins is known, too, where an expression is anchored, names a class of first
// characters, either case, or several beginnings.
func TestBeginnings(t *testing.T) {
	const total = `sum({__name__=~"node_network_.+_total"})`
	for _, c := range []struct {
		action, regex, query string
		state                verify.State
		text                 string // empty where nothing is found
	}{
		{"drop", `^node_network_.*`, total, verify.Faulty, "loses all series"},
		{"drop", `^node_network_.*$`, total, verify.Faulty, "loses all series"},
		{"drop", `\Anode_network_.*\z`, total, verify.Faulty, "loses all series"},
		{"drop", `(?m)^node_network_.*$`, total, verify.Faulty, "loses all series"},
		{"drop", `^(node_network_.*|go_.*)$`, total, verify.Faulty, "loses all series"},
		{"drop", `(^node_network_.*$|^go_.*)`, total, verify.Faulty, "loses all series"},
		{"drop", `(?:^^)node_network_(?:.*$)`, total, verify.Faulty, "loses all series"},
		{"drop", `\bnode_network_.*`, total, verify.NotChecked, "may lose"},
		{"drop", `\Bnode_network_.*`, total, verify.NotChecked, ""},
		{"drop", `node_network\b.*`, `sum({__name__=~"node_network.+_total"})`, verify.NotChecked, ""},
		{"drop", `node_network_.*`, `sum({__name__=~"^node_network_.+_total"})`, verify.Faulty, "loses all series"},
		{"drop", `node_network_.*`, `sum({__name__=~"^node_network_.+_total$"})`, verify.Faulty, "loses all series"},
		{"drop", `node_network_.*`, `sum({__name__=~"\\bnode_network_.+_total"})`, verify.NotChecked, "may lose"},
		{"drop", `node_disk_.*`, `sum({__name__=~"^node_network_.+_total$"})`, verify.OK, ""},
		{"drop", `^node_disk_.*$`, total, verify.OK, ""},
		{"keep", `foo_.*`, `sum({__name__=~"^node_disk_.*"})`, verify.Faulty, "loses all series"},
		{"keep", `^node_.*`, `sum({__name__=~"^node_disk_.*"})`, verify.OK, ""},
		{"drop", `(?i)node_network_.*`, total, verify.Faulty, "loses all series"},
		{"drop", `[gn]ode_network_.*`, total, verify.Faulty, "loses all series"},
		{"drop", `[a-z]ode_network_.*`, total, verify.Faulty, "loses all series"},
		{"drop", `[a-z]+_network_.*`, total, verify.Faulty, "loses all series"},
		{"drop", `.ode_network_.*`, total, verify.Faulty, "loses all series"},
		{"drop", `[gm]ode_network_.*`, total, verify.OK, ""},
		{"keep", `foo_.*`, `sum({__name__=~"(?i)node_disk_.*"})`, verify.Faulty, "loses all series"},
		{"keep", `(?i)node_.*`, `sum({__name__=~"(?i)node_disk_.*"})`, verify.OK, ""},
		{"drop", `go_.*`, `sum({__name__=~"node_.*|go_.*"})`, verify.Faulty, "loses all series"},
		{"drop", `kube_.*`, `sum({__name__=~"node_.*|go_.*"})`, verify.OK, ""},
		{"drop", `node_.*`, `sum({__name__=~"node_.*|.+_created"})`, verify.Faulty, "loses all series"},
		// the words of a rule that names too many to be listed
		{"drop", `node_network_(a|b)_total|go_[a-e]{8}_.*`, total, verify.Faulty, "loses all series"},
		// these say nothing of how a name begins
		{"drop", `^.+_created$`, total, verify.OK, ""},
		{"drop", `\w+_total`, total, verify.OK, ""},
		{"drop", `(?:.*_)?errors_total`, total, verify.OK, ""},
		{"drop", `node_network_.*`, `sum({__name__=~"[a-zA-Z_:][a-zA-Z0-9_:]*_total"})`, verify.OK, ""},
		{"drop", `node_network_.*`, `sum({__name__=~"^.+_total$"})`, verify.OK, ""},
	} {
		t.Run(c.action+" "+c.regex+" "+c.query, func(t *testing.T) {
			rule := fmt.Sprintf("- {source_labels: [__name__], regex: '%s', action: %s}", c.regex, c.action)
			r := check(t, verify.Options{Prometheus: []string{withRules(t, rule)}, Uses: queries(t, c.query)})
			var got []string
			for _, f := range r.Findings {
				if f.Check == verify.CheckLost {
					got = append(got, f.Text)
				}
			}
			if r.State != c.state || len(got) > 1 || (c.text != "") != (len(got) == 1) || !strings.Contains(strings.Join(got, ""), c.text) {
				t.Error(textOf(t, r))
			}
		})
	}
}

// A variable in the middle of a name, and stored series of the job that tell nothing of it.
func TestNameWithAVariable(t *testing.T) {
	dashboard := file(t, "d.json", `{"title": "T", "schemaVersion": 39, "panels": [{"type": "graph", "title": "p", "gridPos": {}, "targets": [{"expr": "rate(node_network_${dir}_bytes_total[5m])"}]}],
"templating": {"list": [{"name": "dir", "type": "query", "datasource": {"type": "prometheus"}, "query": "label_values(up, x)"}]}}`)
	for _, src := range []inventory.Source{nil, stored(t, "# TYPE go_x gauge\ngo_x 1\n")} {
		r := check(t, verify.Options{
			Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: 'node_network_.*', action: drop}")},
			Dashboards: []string{dashboard}, Source: src,
		})
		if r.State != verify.Faulty || len(find(r, verify.CheckLost, dashboard, 1)) != 1 {
			t.Error(textOf(t, r))
		}
	}
}

// A rule with many alternatives is one line of what could not be checked, however many uses it may
// take something of, and is not looked at for each of them anew.
func TestManyAlternatives(t *testing.T) {
	var one, other []string
	for c := 'a'; c <= 'z'; c++ {
		one, other = append(one, string(c)+"q"), append(other, string(c)+"w")
	}
	rule := fmt.Sprintf("- {source_labels: [__name__], regex: 'kube_(%s)_.*(%s).*0', action: drop}", strings.Join(one, "|"), strings.Join(other, "|"))
	r := check(t, verify.Options{
		Prometheus: []string{withRules(t, rule)},
		Uses: queries(t,
			`sum({__name__=~"kube_.*_perf_.*",a="0"})`,
			`sum({__name__=~"kube_.*_perf_.*",a="1"})`,
			`sum({__name__=~"kube_.*_io_.*"})`,
		),
	})
	if r.State != verify.NotChecked || len(r.Unchecked) != 1 || !strings.Contains(r.Unchecked[0], "3 uses") || len(r.Findings) != 3 {
		t.Error(textOf(t, r))
	}
}

// What is looked at for one rule is bounded, and what lies beyond is told.
func TestBeyondTheBounds(t *testing.T) {
	r := check(t, verify.Options{
		Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: 'kube_(?:[a-z_]*f){5}.{0,200}(a|b)[a-z]{20}', action: drop}")},
		Uses:       queries(t, `sum({__name__=~"kube_.*s.{30}"})`),
	})
	if r.State != verify.NotChecked || len(r.Unchecked) != 1 {
		t.Error(textOf(t, r))
	}
}

// Where no name is found within the bounds that a use asks for, what rules on other labels take of
// it is not known either.
func TestNoNameWithinTheBounds(t *testing.T) {
	var b strings.Builder
	for at := range 5000 {
		fmt.Fprintf(&b, `[\x{%x}\x{%x}]?`, 0x10000+2*at, 0x10003+2*at)
	}
	r := check(t, verify.Options{
		Prometheus: []string{withRules(t, "- {source_labels: [code], regex: '500', action: drop}")},
		Uses:       queries(t, "sum({__name__=~'http_"+strings.ReplaceAll(b.String(), `\`, `\\`)+".*',code='500'})"),
	})
	if r.State != verify.NotChecked || len(r.Unchecked) != 1 {
		t.Errorf("%s: %d", r.State, len(r.Unchecked))
	}
}

// A check ends when nobody waits for it any more.
func TestCheckEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := verify.Check(ctx, verify.Options{
		Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: 'kube_a_.*', action: drop}")},
		Uses:       queries(t, `sum({__name__=~"kube_.*_perf_.*"})`), Now: now,
	})
	if err == nil {
		t.Error("it went on")
	}
}
