package alerts_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// survives are literals that a mutant may change unseen, by alert and literal as it stands in the
// rendered expression, with the reason.
var survives = map[string]string{}

// anywhere are literals whose change no case of any alert must notice.
var anywhere = map[string]string{
	"2e+09 as 1e+09": "it tells DCGM's sentinels for no value, all above 2e9, from values; no value comes near half of it",
	"1e+15 as 5e+14": "likewise, of gauges",
	"1e+15 as 2e+15": "likewise: the sentinels of 64 bits are above 9e18",
}

// A threshold is there for a reason, so that a case must notice when it is half or twice as large.
// Each number on a side of a comparison that has no series in it is changed, one at a time; all
// mutants of an alert are evaluated beside it over the input of the alert's own cases, by
// Prometheus' own rule manager.
func TestThresholdsMatter(t *testing.T) {
	byName := map[string][]ruleAt{}
	for _, a := range alertsOf(t) {
		byName[a.Alert] = append(byName[a.Alert], a)
	}
	files := caseFiles(t)
	unused := maps.Clone(survives)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		t.Run(name, func(t *testing.T) {
			mutants := mutantsOf(byName[name])
			if len(mutants) == 0 {
				t.Log("it has no threshold")
				return
			}
			cases := 0 // that were needed to kill them
			for _, f := range files {
				for i := range f.Tests {
					c := &f.Tests[i]
					if !slices.ContainsFunc(mutants, func(m *mutant) bool { return !m.killed }) {
						continue
					}
					if about, _ := c.subject(); about == name {
						cases++
						tryMutants(t, f, c, byName[name], mutants)
					}
				}
			}
			for _, m := range mutants {
				key := name + ": " + m.literal
				reason, exempt := survives[key]
				delete(unused, key)
				if r, ok := anywhere[m.literal+" as "+m.became]; ok && !m.killed {
					reason, exempt = r, true
				}
				switch {
				case m.killed && exempt:
					t.Errorf("%s: a case notices %s as %s: it needs no exemption (%s)", name, m.literal, m.became, reason)
				case !m.killed && !exempt:
					t.Errorf("%s: none of its %d cases notices %s as %s in %s", name, cases, m.literal, m.became, m.in)
				}
			}
		})
	}
	for key, reason := range unused {
		t.Errorf("the exemption %q (%s) is for no threshold that there is", key, reason)
	}
}

// mutant is an alert with one number changed.
type mutant struct {
	literal string
	became  string
	in      string               // the first comparison that has it
	rules   map[int]rulefmt.Rule // what stands in the place of which of the alert's rules; its name is its own
	killed  bool
}

// mutantsOf makes the mutants of an alert. Equal numbers are changed together: they are one value
// of the configuration, such as the burn rate that a long and a short window are compared with, or
// the traffic from which an alert's rules believe a ratio.
func mutantsOf(alert []ruleAt) []*mutant {
	type place struct {
		rule int
		threshold
	}
	by := map[float64][]place{}
	for i, a := range alert {
		for _, s := range thresholds(a.expr) {
			by[s.number.Val] = append(by[s.number.Val], place{i, s})
		}
	}
	var out []*mutant
	for _, was := range slices.Sorted(maps.Keys(by)) {
		in := by[was][0].in.String()
		for _, factor := range []float64{0.5, 2} {
			m := &mutant{literal: number(was), became: number(was * factor), in: in, rules: map[int]rulefmt.Rule{}}
			for _, p := range by[was] {
				p.number.Val = was * factor
			}
			for _, p := range by[was] {
				r := alert[p.rule].Rule
				r.Expr = alert[p.rule].expr.String()
				r.Alert = fmt.Sprintf("%s_mutant_%d_%d", r.Alert, p.rule, len(out))
				m.rules[p.rule] = r
			}
			for _, p := range by[was] {
				p.number.Val = was
			}
			out = append(out, m)
		}
	}
	return out
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

type threshold struct {
	number *parser.NumberLiteral
	in     parser.Expr
}

// thresholds are the numbers other than 0 on that side of each comparison which has no series of
// its own, or which scales series there: 0.8 in `a > 0.8` and in `a > 0.8 * b`. Arguments of
// functions, such as a quantile, are none.
func thresholds(e parser.Expr) []threshold {
	var out []threshold
	var numbers func(parser.Expr, parser.Expr)
	numbers = func(e, in parser.Expr) {
		switch e := e.(type) {
		case *parser.NumberLiteral:
			if e.Val != 0 {
				out = append(out, threshold{e, in})
			}
		case *parser.ParenExpr:
			numbers(e.Expr, in)
		case *parser.UnaryExpr:
			numbers(e.Expr, in)
		case *parser.StepInvariantExpr:
			numbers(e.Expr, in)
		case *parser.BinaryExpr:
			if !e.Op.IsComparisonOperator() && !e.Op.IsSetOperator() {
				numbers(e.LHS, in)
				numbers(e.RHS, in)
			}
		}
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if b, ok := n.(*parser.BinaryExpr); ok && b.Op.IsComparisonOperator() {
			numbers(b.RHS, b)
			if b.LHS.Type() == parser.ValueTypeScalar {
				numbers(b.LHS, b)
			}
		}
		return nil
	})
	return out
}

// tryMutants evaluates mutants over the input of a case and marks those that do not do what the
// case expects of the alert.
func tryMutants(t *testing.T, f *caseFile, c *ruleCase, originals []ruleAt, mutants []*mutant) {
	t.Helper()
	name := originals[0].Alert
	fail := func(err error) {
		t.Helper()
		t.Errorf("%s: case %q: %v", f.path, c.Name, err)
	}
	every := time.Duration(f.Interval)
	if every == 0 {
		every = time.Minute
	}
	step := c.Interval
	if step == 0 {
		step = model.Duration(every)
	}
	var load strings.Builder
	fmt.Fprintf(&load, "load %dms\n", time.Duration(step).Milliseconds())
	for _, in := range c.Input {
		fmt.Fprintf(&load, "  %s %s\n", in.Series, in.Values)
	}
	suite, err := promqltest.NewLazyLoader(load.String(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		fail(err)
		return
	}
	defer suite.Close() //nolint:errcheck // it is in memory
	suite.SubqueryInterval = every

	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), Appendable: suite.Storage(), Context: context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: slog.New(slog.DiscardHandler), Parser: newParser(),
	})
	groupsOf := func(file string) []*rules.Group {
		groups, errs := m.LoadGroups(time.Duration(step), labels.FromMap(c.ExternalLabels), "", nil, false, file)
		if len(errs) > 0 {
			t.Fatalf("%s: case %q: %v", f.path, c.Name, errs[0])
		}
		return slices.SortedFunc(maps.Values(groups), func(a, b *rules.Group) int { return strings.Compare(a.Name(), b.Name()) })
	}
	recordFile, alertFile := mutantFiles(t, f, originals, mutants)
	records := groupsOf(recordFile)
	for _, g := range records {
		for _, r := range g.AlertingRules() { // one that is read by what it reads
			r.SetRestored(true)
		}
	}
	// What an alert does at a moment depends on its last `for` and `keep_firing_for` only, so that
	// it is evaluated just that long before each moment that is looked at: cases of days would take
	// minutes else. It begins anew, without memory, where there is a gap.
	var memory, last time.Duration
	for _, o := range originals {
		memory = max(memory, time.Duration(o.For)+time.Duration(o.KeepFiringFor)+2*every)
	}
	for _, a := range c.Alerts {
		last = max(last, time.Duration(a.At))
	}
	needed := func(at time.Duration) bool {
		for _, a := range c.Alerts {
			if a.Name == name && at > time.Duration(a.At)-memory-every && at <= time.Duration(a.At) {
				return true
			}
		}
		return false
	}
	var judged []*rules.Group
	alerts := map[string]*rules.AlertingRule{}
	begin := time.Unix(0, 0).UTC()
	for at := time.Duration(0); at <= last; at += every {
		switch {
		case !needed(at):
			judged = nil
		case judged == nil:
			judged = groupsOf(alertFile)
			for _, r := range judged[0].Rules() {
				a := r.(*rules.AlertingRule)
				a.SetRestored(true)
				alerts[a.Name()] = a
			}
		}
		suite.WithSamplesTill(begin.Add(at), func(err error) {
			if err != nil {
				fail(err)
				return
			}
			for _, g := range slices.Concat(records, judged) {
				g.Eval(suite.Context(), begin.Add(at))
			}
		})
		for _, a := range c.Alerts {
			if t := time.Duration(a.At); a.Name != name || t < at || t >= at+every {
				continue
			}
			var want []string
			for _, w := range a.Want {
				want = append(want, labels.FromMap(w.Labels).String())
			}
			slices.Sort(want)
			// An alert may have several rules; a mutant stands in the place of some of them.
			with := func(m *mutant) []string {
				var out []string
				for i := range originals {
					r := alerts[original(name, i)]
					if r == nil {
						continue // its file is none of the case's
					}
					if m != nil && m.rules[i].Alert != "" {
						r = alerts[m.rules[i].Alert]
					}
					out = append(out, firing(r)...)
				}
				slices.Sort(out)
				return out
			}
			for _, m := range mutants {
				if !m.killed && !slices.Equal(with(m), want) {
					m.killed = true
				}
			}
			if got := with(nil); !slices.Equal(got, want) {
				fail(fmt.Errorf("the alert itself does not do what is expected at %s: %v, want %v", a.At, got, want))
				return
			}
		}
	}
}

// firing are the label sets of an alert that fire, without the alert's name.
func firing(r *rules.AlertingRule) []string {
	var out []string
	for _, a := range r.ActiveAlerts() {
		if a.State == rules.StateFiring {
			out = append(out, labels.NewBuilder(a.Labels).Del(labels.AlertName).Labels().String())
		}
	}
	return out
}

// original is what the i-th rule of an alert is called where its mutants are evaluated.
func original(name string, i int) string { return fmt.Sprintf("%s_original_%d", name, i) }

// reads tells whether a selector is of what is written down of an alert.
func reads(s *parser.VectorSelector, alert string) bool {
	return nameOf(s) == "ALERTS" && slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == "alertname" && m.Type == labels.MatchEqual && m.Value == alert
	})
}

// mutantFiles writes two rule files and returns their paths: the recording rules of the case's
// files that the alert needs, with the alert itself where one of them reads what was written down
// of it, and the alert with its mutants. Recording rules are evaluated first:
// promtool evaluates groups in no order, and one evaluation later makes no difference that a case
// may depend on.
func mutantFiles(t *testing.T, f *caseFile, originals []ruleAt, mutants []*mutant) (records, alerts string) {
	t.Helper()
	name := originals[0].Alert
	var all []rulefmt.RuleGroup
	for _, path := range f.rules(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var g rulefmt.RuleGroups
		if err := yaml.Unmarshal(b, &g); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, g.Groups...)
	}
	p := newParser()
	need, itself := map[string]bool{}, false
	names := func(expr string) {
		e, err := p.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				need[nameOf(s)] = true
				itself = itself || reads(s, name)
			}
			return nil
		})
	}
	out := rulefmt.RuleGroups{}
	alert := rulefmt.RuleGroup{Name: "alert and mutants"}
	plain := func(r rulefmt.Rule) rulefmt.Rule {
		r.Annotations = nil // templates cost time and change nothing
		return r
	}
	for _, g := range all {
		for _, r := range g.Rules {
			if r.Alert != name {
				continue
			}
			i := slices.IndexFunc(originals, func(o ruleAt) bool { return o.Expr == r.Expr && maps.Equal(o.Labels, r.Labels) })
			if i < 0 {
				t.Fatalf("%s: %s of rule_files is none of the committed rules", f.path, name)
			}
			names(r.Expr)
			r.Alert = original(name, i)
			alert.Rules = append(alert.Rules, plain(r))
		}
	}
	if len(alert.Rules) == 0 {
		t.Fatalf("%s: rule_files has no alert %s", f.path, name)
	}
	for _, m := range mutants {
		if m.killed {
			continue // a case before this one did that
		}
		for _, i := range slices.Sorted(maps.Keys(m.rules)) {
			alert.Rules = append(alert.Rules, plain(m.rules[i]))
		}
	}
	for again := true; again; {
		before := len(need)
		for _, g := range all {
			for _, r := range g.Rules {
				if r.Record != "" && need[r.Record] {
					names(r.Expr)
				}
			}
		}
		again = len(need) > before
	}
	for i, g := range all {
		keep := rulefmt.RuleGroup{Name: fmt.Sprintf("%04d %s", i, g.Name)}
		for _, r := range g.Rules {
			if r.Record != "" && need[r.Record] || itself && r.Alert == name {
				keep.Rules = append(keep.Rules, plain(r))
			}
		}
		if len(keep.Rules) > 0 {
			out.Groups = append(out.Groups, keep)
		}
	}
	dir := t.TempDir()
	write := func(name string, g rulefmt.RuleGroups) string {
		b, err := yaml.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return at
	}
	return write("records.yaml", out), write("alerts.yaml", rulefmt.RuleGroups{Groups: []rulefmt.RuleGroup{alert}})
}
