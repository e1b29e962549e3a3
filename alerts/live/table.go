package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// longest is the window and for-clause up to which an alert is shown live: at a scale of 30 it is
// twelve minutes.
const longest = 6 * time.Hour

// Alert is what the table needs to know of one alert, over all of its rules.
type Alert struct {
	Name string
	// Severities are those of its rules, sorted.
	Severities []string
	// For are the least and the most that one of its rules waits.
	ForMin, ForMax time.Duration
	// SpanMin is the longest range, offset or for-clause of its shortest rule, those of recording
	// rules that it reads included.
	SpanMin time.Duration
	// Global says that the ruler evaluates it; else each Prometheus does.
	Global bool
}

// rule is one rule of a rule file.
type rule struct {
	Alert, Record, Expr string
	For                 model.Duration
	Labels              map[string]string
}

// Alerts reads the alerts of rule files, rendered at a time scale of 1, by name.
func Alerts(r Rules) (map[string]Alert, error) {
	type found struct {
		rule
		global bool
	}
	var rules []found
	for _, scope := range []struct {
		global bool
		files  map[string][]byte
	}{{true, r.Global}, {false, r.Shard}} {
		for name, text := range scope.files {
			var file struct{ Groups []struct{ Rules []rule } }
			if err := yaml.Unmarshal(text, &file); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			for _, g := range file.Groups {
				for _, x := range g.Rules {
					rules = append(rules, found{x, scope.global})
				}
			}
		}
	}
	past := recorded{}
	for _, x := range rules {
		if x.Record != "" {
			past[x.Record] = append(past[x.Record], x.Expr)
		}
	}
	out := map[string]Alert{}
	for _, x := range rules {
		if x.Alert == "" {
			continue
		}
		d, err := past.span(x.Expr, nil)
		if err != nil {
			return nil, fmt.Errorf("alert %s: %w", x.Alert, err)
		}
		hold := time.Duration(x.For)
		d = max(d, hold)
		a, ok := out[x.Alert]
		if !ok {
			a = Alert{Name: x.Alert, ForMin: hold, ForMax: hold, SpanMin: d, Global: x.global}
		}
		a.ForMin, a.ForMax, a.SpanMin = min(a.ForMin, hold), max(a.ForMax, hold), min(a.SpanMin, d)
		if s := x.Labels["severity"]; s != "" && !slices.Contains(a.Severities, s) {
			a.Severities = append(a.Severities, s)
			slices.Sort(a.Severities)
		}
		out[x.Alert] = a
	}
	return out, nil
}

// recorded are expressions by the name that they are recorded as.
type recorded map[string][]string

// span is the past that an expression reads, with that of what it is recorded from; under are the
// names that it is itself recorded as.
func (r recorded) span(expr string, under []string) (time.Duration, error) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", expr, err)
	}
	var most time.Duration
	var bad error
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		var here time.Duration
		switch n := n.(type) {
		case *parser.MatrixSelector:
			here = n.Range
		case *parser.SubqueryExpr:
			here = n.Range + n.OriginalOffset
		case *parser.VectorSelector:
			here = n.OriginalOffset
			if slices.Contains(under, n.Name) {
				break
			}
			for _, inner := range r[n.Name] {
				d, err := r.span(inner, append(under[:len(under):len(under)], n.Name))
				bad = cmp.Or(bad, err)
				here = max(here, n.OriginalOffset+d)
			}
		}
		most = max(most, here)
		return nil
	})
	return most, bad
}

// waits is the for-clause in words.
func (a Alert) waits() string {
	switch {
	case a.ForMax == 0:
		return "at once"
	case a.ForMin == a.ForMax:
		return model.Duration(a.ForMin).String()
	default:
		return model.Duration(a.ForMin).String() + " to " + model.Duration(a.ForMax).String()
	}
}

// runbook links to the page of an alert.
func runbook(name string) string { return fmt.Sprintf("[%s](runbooks/%s.md)", name, name) }

// Page is docs/alerts-by-trouble.md: Cases against alerts, rendered at a time scale of 1.
func Page(alerts map[string]Alert) string {
	var b strings.Builder
	b.WriteString(`# Alerts by trouble

What goes wrong, the alerts that must come, and those that may come beside them. The table is that of the test in ` + "`alerts/live`" + `, which stages each trouble in the simulated cluster while two shards of two Prometheus servers
scrape it, and looks at what a real Alertmanager sends: the wanted alerts, on the right node or server, and nothing that the table does not name; the same with one replica down; then a whole shard is taken away. ` + "`go test ./alerts/live -run TestAlertsByTroublePage -update`" + ` writes this page.

Time is divided by 30 there (` + "`_config.timeScale`" + `); the waits below are those of production. Five troubles are staged by ` + "`make test`" + `, all of them by ` + "`make test-full`" + `.

| trouble | in the model | alerts that must come | severity | after | may come beside, and why | staged |
|---|---|---|---|---|---|---|
`)
	for _, c := range append(slices.Clone(Cases), replicaDown, shardDown) {
		kind := "`" + string(c.Kind) + "`"
		if c.Value != 0 {
			kind += fmt.Sprintf(" %g", c.Value)
		}
		if c.Kind == "" {
			kind = "servers are killed"
		}
		var names, severities, waits, beside []string
		for _, name := range c.Want {
			names = append(names, runbook(name))
			severities = append(severities, strings.Join(alerts[name].Severities, ", "))
			waits = append(waits, alerts[name].waits())
		}
		for _, name := range slices.Sorted(maps.Keys(c.Beside)) {
			beside = append(beside, runbook(name)+": "+c.Beside[name])
		}
		staged := "`make test-full`"
		if c.Short || c.Kind == "" {
			staged = "`make test`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.Name, kind, orNone(names), orNone(severities), orNone(waits),
			orNone(beside), staged)
	}
	b.WriteString(`
## Not staged live

An alert whose shortest rule looks back, or waits, for more than six hours would need more than twelve minutes even at that scale. It is marked *long*. Rule tests are those of ` + "`alerts/tests`" + `.

| alert | severity | looks back or waits | shown by |
|---|---|---|---|
`)
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		if how, ok := Elsewhere[name]; ok {
			a := alerts[name]
			span := model.Duration(a.SpanMin).String()
			if a.SpanMin > longest {
				span += " (*long*)"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", runbook(name), strings.Join(a.Severities, ", "), span, how)
		}
	}
	return b.String()
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, "<br>")
}
