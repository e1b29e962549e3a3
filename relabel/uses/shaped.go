package uses

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// What text looks like a query.

// isQuery tells whether a text that stands anywhere is PromQL that names a metric, and more than a
// word, a path or a name with dashes, which parse too.
func isQuery(query string) bool {
	if !strings.ContainsAny(query, "([{<>= \n") && !ratio.MatchString(query) {
		return false
	}
	return slices.ContainsFunc(parsed(query), shaped)
}

// isQueryLine tells whether a line of a text is a query. Variables compared with numbers are lines
// of scripts: one of its selectors has a name.
func isQueryLine(line string) bool {
	return isQuery(line) && slices.ContainsFunc(parsed(line), func(expr parser.Expr) bool {
		return selects(expr, func(vs *parser.VectorSelector) bool {
			return unmarked(vs.Name) != "" || matchesName(vs)
		})
	})
}

// ratio is a query without spaces: names with dashes, and paths, are more often none.
var ratio = regexp.MustCompile(`^\w*_\w*([/*+]\w*_\w*)+$`)

// namesMetric tells whether a text parses as PromQL and names a metric, which in a list may be a
// word of a language too.
func namesMetric(query string, inList bool) bool {
	return slices.ContainsFunc(parsed(query), func(expr parser.Expr) bool {
		return selects(expr, func(vs *parser.VectorSelector) bool {
			return inList && unmarked(vs.Name) != "" || noTemplate(vs) || matchesName(vs)
		})
	})
}

// parsed are the expressions that a text is, with any value in the place of its variables.
func parsed(query string) []parser.Expr {
	if len(query) > maxText || tooDear(query) != "" {
		return nil
	}
	var out []parser.Expr
	texts, m, _ := (&scope{}).expand(query)
	for _, text := range texts {
		expr, err := promql.ParseExpr(text)
		for _, attempt := range m.asNumbers(text) {
			if err == nil {
				break
			}
			expr, err = promql.ParseExpr(attempt)
		}
		if err == nil {
			out = append(out, expr)
		}
	}
	return out
}

// shaped tells whether an expression has a selector with a name inside of a function, with
// matchers, over a range, or compared with a number; or one that matches names; or an operator
// between two whose names are no words of a language, as errors_total / requests_total.
func shaped(expr parser.Expr) bool {
	found := false
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok || vs.Name == "" && !matchesName(vs) {
			return nil
		}
		found = found || matchesName(vs) || len(vs.LabelMatchers) > 1
		for _, above := range path {
			switch e := above.(type) {
			case *parser.Call, *parser.AggregateExpr, *parser.MatrixSelector, *parser.SubqueryExpr:
				found = true
			case *parser.BinaryExpr:
				_, left := e.LHS.(*parser.NumberLiteral)
				_, right := e.RHS.(*parser.NumberLiteral)
				found = found || e.Op.IsComparisonOperator() && (left || right) || selects(e.LHS, noTemplate) && selects(e.RHS, noTemplate)
			}
		}
		return nil
	})
	return found
}

// selects tells whether f is true of a selector in the expression.
func selects(expr parser.Expr, f func(*parser.VectorSelector) bool) bool {
	found := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		found = found || ok && f(vs)
		return nil
	})
	return found
}

// matchesName tells whether a selector has a matcher in the place of a name.
func matchesName(vs *parser.VectorSelector) bool {
	return vs.Name == "" && slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel })
}

// noWord tells whether a selector's name is more than a word of a language, and no host with port.
func noWord(vs *parser.VectorSelector) bool {
	_, port, colon := strings.Cut(vs.Name, ":")
	return strings.Contains(vs.Name, "_") || colon && strings.Trim(port, "0123456789") != ""
}

// noTemplate tells whether a selector's name is more than a word without its variables, too: with
// them, the templates of names and paths parse as well.
func noTemplate(vs *parser.VectorSelector) bool {
	if !mark.MatchString(vs.Name) {
		return noWord(vs)
	}
	return noWord(&parser.VectorSelector{Name: unmarked(vs.Name)})
}
