package alerts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// labelSet is the labels that the series of an expression may have.
type labelSet struct {
	names map[string]bool
	any   bool // it may have every label: nothing can be said
}

func setOf(names ...string) labelSet {
	s := labelSet{names: map[string]bool{}}
	s.add(names...)
	return s
}

func (s labelSet) add(names ...string) {
	for _, n := range names {
		s.names[n] = true
	}
}

// has says whether a series may have the label; a name that ends in * stands for all that begin so.
func (s labelSet) has(name string) bool {
	if s.any || s.names[name] {
		return true
	}
	for n := range s.names {
		if begin, ok := strings.CutSuffix(n, "*"); ok && strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

func (s labelSet) without(names ...string) labelSet {
	out := labelSet{maps.Clone(s.names), s.any}
	for _, n := range names {
		delete(out.names, n)
	}
	return out
}

func (s labelSet) String() string {
	if s.any {
		return "any label"
	}
	return "{" + strings.Join(slices.Sorted(maps.Keys(s.names)), ", ") + "}"
}

// inference finds the labels of expressions from the facts.
type inference struct {
	t     testing.TB
	facts facts
	rules map[string][]ruleAt
	known map[string]labelSet
	rule  string // the rule that is looked at, for messages; "" keeps quiet
}

func newInference(t testing.TB) *inference {
	return &inference{t: t, facts: readFacts(t), rules: recorded(rulesOf(t)), known: map[string]labelSet{}}
}

// recorded is the labels of a recorded series: of all rules that record it.
func (in *inference) recorded(name string) labelSet {
	if s, ok := in.known[name]; ok {
		return s
	}
	out := setOf()
	in.known[name] = out // a rule that reads what it records adds nothing
	rule := in.rule
	in.rule = ""
	for _, r := range in.rules[name] {
		s := in.of(r.expr)
		out.any = out.any || s.any
		maps.Copy(out.names, s.names)
		for l := range r.Labels {
			out.add(l)
		}
		if r.scope == "shard" {
			out.add("cluster") // of the server's external labels
		}
	}
	in.rule = rule
	in.known[name] = out
	return out
}

func (in *inference) bad(format string, args ...any) {
	if in.rule != "" {
		in.t.Errorf(in.rule+": "+format, args...)
	}
}

// check says which of names, which an expression groups or joins by, its operand cannot have.
func (in *inference) check(what string, e parser.Expr, has labelSet, names []string) {
	for _, n := range names {
		if !has.has(n) {
			in.bad("%s %s: %s never has it; it has %s", what, n, e, has)
		}
	}
}

func (in *inference) of(e parser.Expr) labelSet {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return in.of(e.Expr)
	case *parser.UnaryExpr:
		return in.of(e.Expr)
	case *parser.StepInvariantExpr:
		return in.of(e.Expr)
	case *parser.SubqueryExpr:
		return in.of(e.Expr)
	case *parser.MatrixSelector:
		return in.of(e.VectorSelector)
	case *parser.VectorSelector:
		return in.selector(e)
	case *parser.AggregateExpr:
		return in.aggregate(e)
	case *parser.BinaryExpr:
		return in.binary(e)
	case *parser.Call:
		return in.call(e)
	}
	return setOf() // numbers and strings
}

func (in *inference) selector(s *parser.VectorSelector) labelSet {
	name := nameOf(s)
	if in.rules[name] != nil {
		return in.recorded(name).without()
	}
	hits := in.facts.find(name, s.LabelMatchers)
	out := setOf()
	for _, h := range hits {
		out.add(h.labels...)
	}
	if len(hits) == 0 {
		out.any = true // TestRulesKnowTheirMetrics says so
	}
	return out
}

func (in *inference) aggregate(e *parser.AggregateExpr) labelSet {
	inner := in.of(e.Expr)
	in.check("by or without", e.Expr, inner, e.Grouping)
	if e.Op == parser.TOPK || e.Op == parser.BOTTOMK || e.Op == parser.LIMITK || e.Op == parser.LIMIT_RATIO {
		return inner
	}
	out := inner.without(e.Grouping...)
	if !e.Without {
		out = setOf(e.Grouping...)
	}
	if e.Op == parser.COUNT_VALUES {
		out.add(strings.Trim(e.Param.String(), `"`))
	}
	return out
}

func (in *inference) binary(e *parser.BinaryExpr) labelSet {
	l, r := in.of(e.LHS), in.of(e.RHS)
	switch {
	case e.LHS.Type() == parser.ValueTypeScalar:
		return r
	case e.RHS.Type() == parser.ValueTypeScalar:
		return l
	}
	m := e.VectorMatching
	if m.On {
		in.check("on", e.LHS, l, m.MatchingLabels)
		in.check("on", e.RHS, r, m.MatchingLabels)
	}
	switch {
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return l
	case e.Op == parser.LOR:
		out := l.without()
		maps.Copy(out.names, r.names)
		out.any = l.any || r.any
		return out
	}
	many, one := l, r
	if m.Card == parser.CardOneToMany {
		many, one = r, l
	}
	if m.Card != parser.CardOneToOne {
		in.check("group", e, one, m.Include)
		out := many.without()
		out.add(m.Include...)
		return out
	}
	if m.On {
		return setOf(m.MatchingLabels...)
	}
	return l.without(m.MatchingLabels...)
}

func (in *inference) call(e *parser.Call) labelSet {
	var inner labelSet
	for _, a := range e.Args {
		if t := a.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			inner = in.of(a)
		}
	}
	if inner.names == nil {
		inner = setOf()
	}
	text := func(i int) string { return strings.Trim(e.Args[i].String(), `"`) }
	switch e.Func.Name {
	case "histogram_quantile", "histogram_fraction":
		in.check(e.Func.Name+" needs", e, inner, []string{"le"})
		return inner.without("le")
	case "label_replace", "label_join":
		out := inner.without()
		out.add(text(1))
		if e.Func.Name == "label_replace" && text(3) != "" {
			in.check("label_replace reads", e, inner, []string{text(3)})
		}
		return out
	case "absent", "absent_over_time":
		out := setOf()
		arg := e.Args[0]
		if m, ok := arg.(*parser.MatrixSelector); ok {
			arg = m.VectorSelector
		}
		if s, ok := arg.(*parser.VectorSelector); ok {
			for _, m := range s.LabelMatchers {
				if m.Type == labels.MatchEqual && m.Name != model.MetricNameLabel {
					out.add(m.Name)
				}
			}
		}
		return out
	case "vector", "time", "scalar":
		return setOf()
	}
	return inner
}

// Every label that a rule groups or joins by is one that its operands can have: a misspelt one
// makes groups that never match, silently.
func TestRulesJoinOnLabelsThatAreThere(t *testing.T) {
	in := newInference(t)
	for _, r := range rulesOf(t) {
		in.rule = r.where()
		in.of(r.expr)
	}
}

// TestGlobalRulesKeepTheCluster: a ruler for each cluster (docs/ruler.md) writes what those of
// other clusters write, but for the cluster: no two may write one series.
func TestGlobalRulesKeepTheCluster(t *testing.T) {
	in := newInference(t)
	for _, r := range rulesOf(t) {
		if r.scope != "global" {
			continue
		}
		if has := in.of(r.expr); !has.has("cluster") {
			t.Errorf("%s loses the cluster: it has %s", r.where(), has)
		}
	}
}
