package rewrite

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// edited is the query's text after f has changed a parse of it; empty where f did not.
func (q *Question) edited(f func(parser.Expr) (parser.Expr, bool)) string {
	if q.Expr == nil {
		return ""
	}
	var known tree.Regexps
	known.KnowAll(q.Expr)
	e, err := known.Parse(q.Parser, q.Request.Query)
	if err != nil {
		return ""
	}
	if e, ok := f(e); ok {
		return tree.String(e)
	}
	return ""
}

// ranges are shorter ranges in brackets: all that are longer become as long.
func (q *Question) ranges(yield func(Candidate) bool) {
	if q.Expr == nil {
		return
	}
	for _, d := range windows {
		if !shortens(q.Expr, d) {
			continue
		}
		text := q.edited(func(e parser.Expr) (parser.Expr, bool) {
			each(e, func(n parser.Node, _ []parser.Node) {
				switch n := n.(type) {
				case *parser.MatrixSelector:
					n.Range = min(n.Range, d)
				case *parser.SubqueryExpr:
					n.Range = min(n.Range, d)
				}
			})
			return e, true
		})
		if !q.text(Range, text, yield) {
			return
		}
	}
}

// resolutions are longer steps of subqueries, as long as their ranges have some of them.
func (q *Question) resolutions(yield func(Candidate) bool) {
	if q.Expr == nil || !timeless(q.Expr) || turned(q.Expr) {
		return
	}
	for _, d := range steps {
		text := q.edited(func(e parser.Expr) (parser.Expr, bool) {
			changed, sound := false, true
			each(e, func(n parser.Node, path []parser.Node) {
				if s, ok := n.(*parser.SubqueryExpr); ok && s.Step > 0 && s.Step < d && s.Range/d >= minSubSteps {
					s.Step, changed, sound = d, true, sound && coarser(path)
				}
			})
			return e, changed && sound
		})
		if !q.text(Step, text, yield) {
			return
		}
	}
}

// pairs are the same query about the series with one value of a label, in all selectors or in none.
func (q *Question) pairs(yield func(Candidate) bool) {
	if q.Pairs == nil {
		return
	}
	for p := range q.Pairs {
		if q.Expr == nil {
			if !q.match(Matcher, q.matchWith(func(ms []*labels.Matcher) ([]*labels.Matcher, bool) {
				return narrowed(ms, p.Label, p.Value)
			}), yield) {
				return
			}
			continue
		}
		if !Narrows(q.Expr, p.Label) {
			continue
		}
		text := q.edited(func(e parser.Expr) (parser.Expr, bool) {
			all, any := true, false
			eachSelector(e, func(vs *parser.VectorSelector) {
				ms, ok := narrowed(vs.LabelMatchers, p.Label, p.Value)
				all, any = all && ok, any || ok
				vs.LabelMatchers = ms
			})
			return e, all && any
		})
		if !q.text(Matcher, text, yield) {
			return
		}
	}
}

// narrowed is a selector with one matcher more; false where it does not leave the label open, or
// not to that value.
func narrowed(ms []*labels.Matcher, label, value string) ([]*labels.Matcher, bool) {
	if slices.ContainsFunc(ms, func(m *labels.Matcher) bool {
		return m.Name == label && (m.Type == labels.MatchEqual || !m.Matches(value))
	}) {
		return ms, false
	}
	m, err := labels.NewMatcher(labels.MatchEqual, label, value)
	if err != nil {
		return ms, false
	}
	return append(slices.DeleteFunc(slices.Clone(ms), func(m *labels.Matcher) bool { return m.Name == label }), m), true
}

// metrics name one metric where the query's only selector names none.
func (q *Question) metrics(yield func(Candidate) bool) {
	if q.Metrics == nil {
		return
	}
	only := 0
	if q.Expr != nil {
		eachSelector(q.Expr, func(*parser.VectorSelector) { only++ })
		if only != 1 || turned(q.Expr) || byName(q.Expr) { // one metric is hardly an answer to who asks for names
			return
		}
	}
	for name := range q.Metrics {
		if q.Expr == nil {
			if !q.match(Metric, q.matchWith(func(ms []*labels.Matcher) ([]*labels.Matcher, bool) { return named(ms, name) }), yield) {
				return
			}
			continue
		}
		if !names(q.Expr, name) {
			continue
		}
		text := q.edited(func(e parser.Expr) (parser.Expr, bool) {
			changed := false
			eachSelector(e, func(vs *parser.VectorSelector) {
				if ms, ok := named(vs.LabelMatchers, name); ok && vs.Name == "" {
					vs.Name, vs.LabelMatchers, changed = plainName(name), ms, true
				}
			})
			return e, changed
		})
		if !q.text(Metric, text, yield) {
			return
		}
	}
}

// plainName is a name that can stand before the braces; empty where it has to stand inside.
func plainName(name string) string {
	if model.LegacyValidation.IsValidMetricName(name) {
		return name
	}
	return ""
}

// named is a selector with the name of a metric, if it has none and the name meets what it says of
// names.
func named(ms []*labels.Matcher, name string) ([]*labels.Matcher, bool) {
	out := make([]*labels.Matcher, 0, len(ms)+1)
	for _, m := range ms {
		if m.Name != model.MetricNameLabel {
			out = append(out, m)
			continue
		}
		if m.Type == labels.MatchEqual && m.Value != "" || !m.Matches(name) {
			return ms, false
		}
	}
	m, err := labels.NewMatcher(labels.MatchEqual, model.MetricNameLabel, name)
	if err != nil {
		return ms, false
	}
	return append(out, m), true
}

// matchWith are the request's selectors of match[], each changed by f where it can be; none where
// no one was.
func (q *Question) matchWith(f func([]*labels.Matcher) ([]*labels.Matcher, bool)) (out []string) {
	changed := false
	for _, text := range q.Request.Match {
		ms, err := q.Parser.ParseMetricSelector(text)
		if err != nil {
			return nil
		}
		if next, ok := f(ms); ok {
			text, changed = selector(next), true
		}
		out = append(out, text)
	}
	if !changed {
		return nil
	}
	return out
}

// selector writes matchers, a metric's name before the braces where that can be.
func selector(ms []*labels.Matcher) string {
	name, rest := "", make([]string, 0, len(ms))
	for _, m := range ms {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && name == "" && plainName(m.Value) != "" {
			name = m.Value
			continue
		}
		rest = append(rest, m.String())
	}
	if name != "" && len(rest) == 0 {
		return name
	}
	return name + "{" + strings.Join(rest, ",") + "}"
}

// eachSelector calls f with every selector, but for those of info() that say what labels are
// wanted.
func eachSelector(node parser.Node, f func(*parser.VectorSelector)) {
	if vs, ok := node.(*parser.VectorSelector); ok {
		f(vs)
	}
	if call, ok := node.(*parser.Call); ok && call.Func.Name == "info" {
		eachSelector(call.Args[0], f)
		return
	}
	for child := range parser.ChildrenIter(node) {
		eachSelector(child, f)
	}
}
