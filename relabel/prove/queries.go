package prove

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// syntax accepts all that a server may be told to accept.
var syntax = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

// query is one question with what a difference may be.
type query struct {
	text string
	expr parser.Expr
	use  *uses.Use
	more int // other uses with the same text
	// touched says that a rule does something to a metric that it reads, or that a recorded series
	// that it reads is made of.
	touched bool
	// quantile is the largest QuantileError of the rules that thin its buckets.
	quantile float64
}

// where names who asks.
func (q *query) where() string {
	if q.more > 0 {
		return fmt.Sprintf("%s and %d more", q.use.Place(), q.more)
	}
	return q.use.Place()
}

// questions are the different queries of the set, those about metrics that a rule touches first,
// and why others are none.
func questions(set *uses.Set, rules []propose.Rule, external []string, end time.Time, span time.Duration) (out []*query,
	skipped map[string]int64,
) {
	skipped = map[string]int64{}
	vars := dashboards.Vars{Interval: interval, Scrape: interval, From: end.Add(-span), To: end}
	byText := map[string]*query{}
	written := map[string]*query{} // by text as written: a log and a set of dashboards repeat them
	add := func(u *uses.Use, expr parser.Expr) *query {
		free(expr, external)
		text := expr.String()
		q := byText[text]
		switch {
		case q == nil:
			q = &query{text: text, expr: expr, use: u}
			byText[text] = q
			out = append(out, q)
		case q.use != u:
			q.more++
		}
		return q
	}
	for _, u := range set.Uses {
		if q := written[u.Query]; q != nil {
			q.more++
			continue
		}
		expr, named, err := expand(u.Query, vars)
		named = named && selective(u)
		if err == nil && !named && !values(u, expr) {
			written[u.Query] = add(u, expr)
			continue
		}
		// What is no PromQL, such as label_values or a keep, is asked for by what it needs. So is
		// that of which a variable names the metrics: the needs know which these may be.
		op := parser.ItemType(parser.GROUP)
		if named {
			op = parser.COUNT
		}
		asked := false
		for i := range u.Needs {
			if expr, err := selection(&u.Needs[i], op); err == nil {
				add(u, expr)
				asked = true
			}
		}
		if !asked {
			skipped["it is no PromQL, and what it needs cannot be asked for"]++
		}
	}
	effects := spread(set, rules, vars)
	if measures := set.Measures(); len(rules) > 0 {
		out = slices.DeleteFunc(out, func(q *query) bool {
			measured := readsAny(q.expr, measures)
			if measured {
				skipped[Measured]++
			}
			return measured
		})
	}
	for _, q := range out {
		q.quantile, q.touched = reads(q.expr, effects)
	}
	slices.SortStableFunc(out, func(a, b *query) int { return cmp.Compare(rank(a), rank(b)) })
	return out, skipped
}

func rank(q *query) int {
	if q.touched {
		return 0
	}
	return 1
}

// values says whether a use that is written as a selector is about values of labels only, as the
// options of a variable are.
func values(u *uses.Use, expr parser.Expr) bool {
	_, ok := expr.(*parser.VectorSelector)
	return ok && len(u.Needs) > 0 && !slices.ContainsFunc(u.Needs, func(n uses.Need) bool { return n.Labels.Except })
}

// selective tells whether all that a use needs can be asked for: any metric cannot.
func selective(u *uses.Use) bool {
	return len(u.Needs) > 0 && !slices.ContainsFunc(u.Needs, func(n uses.Need) bool {
		_, err := selection(&n, parser.GROUP)
		return err != nil
	})
}

// selection is the query for what a need selects: the series, or what op makes of those that have
// the same values of the labels that it is about.
func selection(n *uses.Need, op parser.ItemType) (parser.Expr, error) {
	expr, err := syntax.ParseExpr(n.Selector())
	if err != nil || n.Labels.Except && len(n.Labels.Names) == 0 {
		return expr, err
	}
	return &parser.AggregateExpr{Op: op, Expr: expr, Grouping: n.Labels.Names, Without: n.Labels.Except}, nil
}

// spread is the QuantileError of every metric that a rule touches, and of what recording rules make
// of it.
func spread(set *uses.Set, rules []propose.Rule, vars dashboards.Vars) map[string]float64 {
	out := map[string]float64{}
	for i := range rules {
		for _, m := range rules[i].Metrics {
			out[m] = max(out[m], rules[i].QuantileError)
		}
	}
	type recorded struct {
		name string
		expr parser.Expr
	}
	var chain []recorded
	for _, u := range set.Uses {
		if u.Records == "" {
			continue
		}
		if expr, _, err := expand(u.Query, vars); err == nil {
			chain = append(chain, recorded{u.Records, expr})
		}
	}
	for changed := true; changed; {
		changed = false
		for _, r := range chain {
			e, touched := reads(r.expr, out)
			if was, known := out[r.name]; touched && (!known || e > was) {
				out[r.name], changed = e, true
			}
		}
	}
	return out
}

// reads is the largest QuantileError of the metrics that the expression reads, and whether it reads
// any that a rule touches.
func reads(expr parser.Expr, effects map[string]float64) (quantile float64, touched bool) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		for _, m := range vs.LabelMatchers {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				if e, ok := effects[m.Value]; ok {
					quantile, touched = max(quantile, e), true
				}
				return nil
			}
		}
		for name, e := range effects { // no exact name: any of them
			if !slices.ContainsFunc(vs.LabelMatchers,
				func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && !m.Matches(name) }) {
				quantile, touched = max(quantile, e), true
			}
		}
		return nil
	})
	return quantile, touched
}

// Measured is why a query was not asked that says how much is stored: the series of the sample say
// what was there before, and the rules change them by what they drop.
const Measured = "they ask how much is stored, which falls by what the rules drop"

// readsAny says whether the expression names one of these metrics.
func readsAny(expr parser.Expr, names map[string]bool) bool {
	found := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			found = found || slices.ContainsFunc(vs.LabelMatchers,
				func(m *labels.Matcher) bool {
					return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && names[m.Value]
				})
		}
		return nil
	})
	return found
}

// free takes away matchers on labels that only come from outside: no stored series has them, and
// every answer would be empty.
func free(expr parser.Expr, external []string) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			vs.LabelMatchers = slices.DeleteFunc(vs.LabelMatchers,
				func(m *labels.Matcher) bool { return slices.Contains(external, m.Name) && !m.Matches("") })
		}
		return nil
	})
}

// anything stands in a string for a variable whose value may be any.
const anything = "spillwayAnyValue"

// variable is a dashboard's own; those of Grafana begin with two underscores.
var variable = regexp.MustCompile(`\$([a-zA-Z_]\w*)|\[\[([a-zA-Z_]\w*?)(?::\w+)?\]\]|\$\{([a-zA-Z_]\w*)(?:\.[^:}]+)?(?::[^}]+)?\}`)

var errVariable = errors.New("a variable stands where no value can be guessed")

// expand parses a query, with values for the variables of dashboards: anything in matchers, five
// minutes in ranges, and otherwise a number or the label instance, whichever parses. named says
// that a variable stands in a matcher on the name of metrics.
func expand(text string, vars dashboards.Vars) (expr parser.Expr, named bool, err error) {
	if !variable.MatchString(text) {
		expr, err = syntax.ParseExpr(text)
		return expr, false, err
	}
	for _, elsewhere := range []string{"5", model.InstanceLabel, "5m"} {
		tried, err := dashboards.Substitute(fill(text, elsewhere), vars)
		if err != nil {
			return nil, false, err
		}
		if expr, err := syntax.ParseExpr(tried); err == nil {
			return expr, match(expr), nil
		}
	}
	return nil, false, errVariable
}

// fill puts values in the place of a dashboard's own variables, by where they stand.
func fill(text, elsewhere string) string {
	var b strings.Builder
	at := 0
	var quote byte
	brackets := 0
	for _, m := range variable.FindAllStringSubmatchIndex(text, -1) {
		quote, brackets = scan(text[at:m[0]], quote, brackets)
		b.WriteString(text[at:m[0]])
		at = m[1]
		name := ""
		for _, g := range []int{2, 4, 6} {
			if m[g] >= 0 {
				name = text[m[g]:m[g+1]]
			}
		}
		switch {
		case strings.HasPrefix(name, "__"):
			b.WriteString(text[m[0]:m[1]])
		case quote != 0:
			b.WriteString(anything)
		case brackets > 0:
			b.WriteString("5m")
		default:
			b.WriteString(elsewhere)
		}
	}
	b.WriteString(text[at:])
	return b.String()
}

// scan follows quotes and brackets.
func scan(text string, quote byte, brackets int) (byte, int) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '[':
			brackets++
		case c == ']':
			brackets--
		}
	}
	return quote, brackets
}

// match has matchers with variables match whatever the variable may be, and says whether one of
// them is on the name of metrics.
func match(expr parser.Expr) (named bool) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		var out []*labels.Matcher
		for _, m := range vs.LabelMatchers {
			if !strings.Contains(m.Value, anything) {
				out = append(out, m)
				continue
			}
			named = named || m.Name == model.MetricNameLabel
			if m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp {
				continue // a value that excludes nothing
			}
			parts := strings.Split(m.Value, anything)
			if m.Type == labels.MatchEqual {
				for i := range parts {
					parts[i] = regexp.QuoteMeta(parts[i])
				}
			}
			if any, err := labels.NewMatcher(labels.MatchRegexp, m.Name, strings.Join(parts, ".*")); err == nil {
				out = append(out, any)
			}
		}
		vs.LabelMatchers = out
		if vs.Name != "" && strings.Contains(vs.Name, anything) {
			vs.Name = ""
		}
		return nil
	})
	return named
}
