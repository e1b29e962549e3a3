package alerts_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
)

var wholeFiles = flag.Bool("alerts.whole", false, "TestPromtool gives promtool each file of cases as it stands, with all of its rules (six times as long)")

// The real promtool runs every case. It evaluates all rules of a file at each minute of each of its
// cases, of which a case looks at a few: without -alerts.whole it gets those that the case asks
// for, and what these read, to the end.
func TestPromtool(t *testing.T) {
	t.Setenv("GOGC", "400") // it evaluates days in seconds, and what it holds is small
	for _, f := range caseFiles(t) {
		t.Run(filepath.Base(f.path), func(t *testing.T) {
			files := []string{f.path}
			if !*wholeFiles {
				files = narrowed(t, f)
			}
			for _, path := range files {
				stdout, stderr, err := realprom.Promtool(t.Context(), "test", "rules", path)
				if err != nil {
					t.Errorf("%v\n%s%s", errors.Unwrap(err), stdout, stderr)
					return
				}
			}
			t.Logf("%d cases pass", len(f.Tests))
		})
	}
}

// writtenRule is a rule of a file as it stands there.
type writtenRule struct {
	Alert, Record string
	Expr          string
	Annotations   map[string]string
	node          *yaml.Node
	reads         []*parser.VectorSelector
}

// asks finds a template that asks the server itself.
var asks = regexp.MustCompile(`{{[^}]*\bquery\s`)

// writtenRules are the rules of a file, and the file that they stand in.
func writtenRules(t *testing.T, path string) (*yaml.Node, []*writtenRule) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var out []*writtenRule
	for _, group := range under(&doc, "groups").Content {
		for _, n := range under(group, "rules").Content {
			r := &writtenRule{node: n}
			if err := n.Decode(r); err != nil {
				t.Fatalf("%s:%d: %v", path, n.Line, err)
			}
			r.reads = selectorsOf(t, r.Expr)
			for _, text := range r.Annotations {
				if asks.MatchString(text) {
					t.Fatalf("%s:%d: an annotation that asks something: tell selectorsOf which series it reads", path, n.Line)
				}
			}
			out = append(out, r)
		}
	}
	return &doc, out
}

// under is the value of a key of a mapping, or of the document that has it.
func under(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return &yaml.Node{}
}

func selectorsOf(t *testing.T, expr string) []*parser.VectorSelector {
	t.Helper()
	e, err := newParser().ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var out []*parser.VectorSelector
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s)
		}
		return nil
	})
	return out
}

// feeds tells whether a selector may read what a rule writes down.
func (r *writtenRule) feeds(s *parser.VectorSelector) bool {
	may := func(name, alert string) bool {
		for _, m := range s.LabelMatchers {
			if m.Name == model.MetricNameLabel && !m.Matches(name) || m.Name == labels.AlertName && !m.Matches(alert) {
				return false
			}
		}
		return true
	}
	if r.Alert != "" {
		return may("ALERTS", r.Alert) || may("ALERTS_FOR_STATE", r.Alert)
	}
	// What it gives its series for labels is not looked at: alertname may be one.
	return !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == model.MetricNameLabel && !m.Matches(r.Record)
	})
}

// needed tells of each rule whether a case looks at it: what it asks for, and what that reads.
func needed(rules []*writtenRule, alertNames []string, reads []*parser.VectorSelector) []bool {
	out := make([]bool, len(rules))
	for len(reads) > 0 || len(alertNames) > 0 {
		var more []*parser.VectorSelector
		for i, r := range rules {
			if out[i] || !slices.Contains(alertNames, r.Alert) && !slices.ContainsFunc(reads, r.feeds) {
				continue
			}
			out[i] = true
			more = append(more, r.reads...)
		}
		reads, alertNames = more, nil
	}
	return out
}

// narrowed writes the cases of a file beside the rules that they look at, cases of the same rules
// into one file.
func narrowed(t *testing.T, f *caseFile) []string {
	t.Helper()
	var docs []*yaml.Node
	var rules []*writtenRule
	for _, path := range f.rules(t) {
		doc, found := writtenRules(t, path)
		docs, rules = append(docs, doc), append(rules, found...)
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	var cases yaml.Node
	if err := yaml.Unmarshal(b, &cases); err != nil {
		t.Fatalf("%s: %v", f.path, err)
	}
	type part struct {
		rules []bool
		cases []*yaml.Node
	}
	var parts []part
	all := under(&cases, "tests")
	for i, c := range f.Tests {
		var names []string
		for _, a := range c.Alerts {
			names = append(names, a.Name)
		}
		var reads []*parser.VectorSelector
		for _, q := range c.Queries {
			reads = append(reads, selectorsOf(t, q.Expr)...)
		}
		keep := needed(rules, names, reads)
		at := slices.IndexFunc(parts, func(p part) bool { return slices.Equal(p.rules, keep) })
		if at < 0 {
			at, parts = len(parts), append(parts, part{rules: keep})
		}
		parts[at].cases = append(parts[at].cases, all.Content[i])
	}
	dir := t.TempDir()
	var out []string
	for i, p := range parts {
		kept := map[*yaml.Node]bool{}
		for j, r := range rules {
			kept[r.node] = p.rules[j]
		}
		files := &yaml.Node{Kind: yaml.SequenceNode}
		for j, doc := range docs {
			if groups := groupsWith(doc, kept); len(groups.Content) > 0 {
				name := fmt.Sprintf("%d-%d.rules.yaml", i, j)
				writeYAML(t, filepath.Join(dir, name), map[string]*yaml.Node{"groups": groups})
				files.Content = append(files.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name})
			}
		}
		*under(&cases, "rule_files"), all.Content = *files, p.cases
		path := filepath.Join(dir, fmt.Sprintf("%d.%s", i, filepath.Base(f.path)))
		writeYAML(t, path, &cases)
		out = append(out, path)
	}
	return out
}

// groupsWith are the groups of a file with those of their rules that are kept.
func groupsWith(doc *yaml.Node, kept map[*yaml.Node]bool) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode}
	for _, group := range under(doc, "groups").Content {
		rules := *under(group, "rules")
		rules.Content = slices.DeleteFunc(slices.Clone(rules.Content), func(n *yaml.Node) bool { return !kept[n] })
		if len(rules.Content) == 0 {
			continue
		}
		g := *group
		g.Content = slices.Clone(g.Content)
		for i := 0; i+1 < len(g.Content); i += 2 {
			if g.Content[i].Value == "rules" {
				g.Content[i+1] = &rules
			}
		}
		out.Content = append(out.Content, &g)
	}
	return out
}

func writeYAML(t *testing.T, path string, v any) {
	t.Helper()
	b, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestNeeded: what a case looks at is found over recorded series and over what alerts write down,
// and nothing else is.
func TestNeeded(t *testing.T) {
	var rules []*writtenRule
	for _, r := range []writtenRule{
		{Alert: "Slow", Expr: "a:b:c > 1 unless on () ALERTS{alertname=~\"Down|Gone\", alertstate=\"firing\"}"},
		{Alert: "Slow", Expr: "other:b:c > 1"},
		{Record: "a:b:c", Expr: "sum(a:b)"},
		{Record: "a:b", Expr: "rate(b[5m])"},
		{Record: "other:b:c", Expr: "vector(1)"},
		{Alert: "Gone", Expr: "up == 0"},
		{Alert: "Full", Expr: "{__name__=~\"a:b.*\"} > 9"},
		{Record: "unread", Expr: "Slow"},
	} {
		r.reads = selectorsOf(t, r.Expr)
		rules = append(rules, &r)
	}
	for name, c := range map[string]struct {
		alerts []string
		expr   string
		want   string
	}{
		"an alert":        {alerts: []string{"Slow"}, want: "11111100"},
		"nothing":         {expr: "up", want: "00000000"},
		"by a pattern":    {alerts: []string{"Full"}, want: "00110010"},
		"a query":         {expr: "rate(a:b[5m])", want: "00010000"},
		"one alert":       {expr: "ALERTS{alertname=\"Gone\"}", want: "00000100"},
		"since when":      {expr: "ALERTS_FOR_STATE{alertname!=\"Slow\"}", want: "00110110"},
		"without a name":  {expr: "{job=\"x\"}", want: "11111111"},
		"a missing alert": {alerts: []string{"Nobody"}, want: "00000000"},
	} {
		var reads []*parser.VectorSelector
		if c.expr != "" {
			reads = selectorsOf(t, c.expr)
		}
		got := ""
		for _, b := range needed(rules, c.alerts, reads) {
			got += map[bool]string{true: "1", false: "0"}[b]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
