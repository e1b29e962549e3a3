package docs_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

var (
	// queried is a query that a command of a runbook asks, as the shell has it.
	queried = regexp.MustCompile(`promtool query (?:instant|range) (?:--\S+?=(?:\$\([^)]*\)|\S+) )*\S+ ('[^']*'(?:"?\$\w+"?'[^']*')*|[a-z_:]+)`)
	// asksPromQL is every command that asks one.
	asksPromQL = regexp.MustCompile(`promtool query (?:instant|range) `)
	// pasted is where the shell puts a variable into it.
	pasted = regexp.MustCompile(`'"?\$\w+"?'`)
	// keepName are functions that leave a series its name, or answer without one whatever there is.
	keepName = regexp.MustCompile(`^((last|first)_over_time|sort.*|label_(replace|join)|absent(_over_time)?|scalar|info)$`)
)

// TestRunbookQueries: each query of the runbooks is PromQL, and none takes the names from series
// that nothing else tells apart, to which a server answers with an error.
func TestRunbookQueries(t *testing.T) {
	pages, err := filepath.Glob("runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	// $EXPR is a whole query, which the alert's rule gives.
	read, asked, whole := 0, 0, 0
	for _, page := range pages {
		for _, line := range sh(t, page) {
			asked += len(asksPromQL.FindAllString(line, -1))
			whole += len(regexp.MustCompile(`promtool query instant \S+ "\$EXPR"`).FindAllString(line, -1))
			for _, m := range queried.FindAllStringSubmatch(line, -1) {
				read++
				text := pasted.ReplaceAllString(m[1], "m")
				if text[0] == '\'' {
					text = text[1 : len(text)-1]
				}
				expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
				if err != nil {
					t.Errorf("%s: %s: %v", page, text, err)
				} else if what := nameless(expr); what != "" {
					t.Errorf("%s: series of several metrics would be one without their names, and the answer an error: %s", page, what)
				}
			}
		}
	}
	if read < 150 || read+whole != asked {
		t.Errorf("%d of %d queries were read, and %d are the rule's", read, asked, whole)
	}
}

// TestNameless: what takes names away is told from what does not.
func TestNameless(t *testing.T) {
	for text, bad := range map[string]bool{
		`avg_over_time({__name__=~"probe_success|up", node="a"}[5m])`:  true,
		`max by (job) (rate({job="a"}[5m]))`:                           true,
		`abs(({__name__=~"a.*"}))`:                                     true,
		`sum({__name__=~"a|b"} * 2)`:                                   true,
		`2 / {__name__!="a",b="c"}`:                                    true,
		`-{__name__=~"a|b"}`:                                           true,
		`{__name__=~"a|b"} > bool 2`:                                   true,
		`max_over_time(({__name__=~"a|b"} > 2)[5m:1m])`:                true,
		`sort(label_replace({__name__=~"a|b"}, "a", "", "b", ""))`:     false,
		`last_over_time({__name__=~"a|b", node="a"}[5m])`:              false,
		`{__name__=~"a|b"} < 100`:                                      false,
		`max by (node) ({__name__=~"a|b"}) / 2`:                        false,
		`avg_over_time(up{node=~".+"}[5m])`:                            false,
		`avg_over_time({__name__="up"}[5m])`:                           false,
		`abs(max by (__name__) ({__name__=~"a|b"}))`:                   false,
		`a * on (node) group_left () ({__name__=~"a|b"} and on (a) b)`: false,
	} {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if what := nameless(expr); (what != "") != bad {
			t.Errorf("%s: %q", text, what)
		}
	}
}

// nameless is a part of an expression that takes the names from series of several metrics, "" if
// there is none.
func nameless(expr parser.Expr) string {
	found := ""
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		takes := func(of ...parser.Expr) {
			for _, e := range of {
				if severalNames(e) {
					found = n.String()
				}
			}
		}
		switch n := n.(type) {
		case *parser.Call:
			if !keepName.MatchString(n.Func.Name) {
				takes(n.Args...)
			}
		case *parser.UnaryExpr:
			takes(n.Expr)
		case *parser.BinaryExpr:
			scalar := n.LHS.Type() == parser.ValueTypeScalar || n.RHS.Type() == parser.ValueTypeScalar
			if scalar && (n.ReturnBool || !n.Op.IsComparisonOperator()) {
				takes(n.LHS, n.RHS)
			}
		}
		return nil
	})
	return found
}

// severalNames tells that the series of an expression may have the names of several metrics.
func severalNames(expr parser.Expr) bool {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return severalNames(e.Expr)
	case *parser.StepInvariantExpr:
		return severalNames(e.Expr)
	case *parser.MatrixSelector:
		return severalNames(e.VectorSelector)
	case *parser.SubqueryExpr:
		return severalNames(e.Expr)
	case *parser.Call:
		return keepName.MatchString(e.Func.Name) && len(e.Args) > 0 && severalNames(e.Args[0])
	case *parser.BinaryExpr:
		return e.Op.IsComparisonOperator() && !e.ReturnBool && (severalNames(e.LHS) || severalNames(e.RHS))
	case *parser.VectorSelector:
		for _, m := range e.LabelMatchers {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				return false
			}
		}
		return true
	}
	return false
}
