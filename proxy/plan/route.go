package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Owns tells whether a label belongs to the group rather than to what its shards store.
func Owns(g *shard.Group, name string) bool {
	return g.Labels.Has(name) || slices.Contains(g.ReplicaLabels, name)
}

// Owned lists the label names for which Owns holds, sorted.
func Owned(g *shard.Group) []string {
	names := slices.Clone(g.ReplicaLabels)
	g.Labels.Range(func(l labels.Label) { names = append(names, l.Name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// ownsAny tells whether any label belongs to the group.
func ownsAny(g *shard.Group) bool { return !g.Labels.IsEmpty() || len(g.ReplicaLabels) > 0 }

// Strip decides the matchers on the group's own labels. It returns those to be sent to the group's
// shards, ms itself where that is all of them, and whether the group can hold such series at all. A
// replica label is on no series of an answer: a matcher on it is decided against the empty value.
func Strip(g *shard.Group, ms []*labels.Matcher) (sent []*labels.Matcher, ok bool) {
	if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return Owns(g, m.Name) }) {
		return slices.Clip(ms), true
	}
	sent = make([]*labels.Matcher, 0, len(ms))
	for _, m := range ms {
		if Owns(g, m.Name) {
			if !m.Matches(g.Labels.Get(m.Name)) {
				return nil, false
			}
			continue
		}
		sent = append(sent, m)
	}
	return sent, true
}

// everything is the selector that stands for one emptied by Strip, where a selector is needed.
var everything = labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, "")

// Filled returns ms, or a matcher for every series where ms would select by nothing: Prometheus
// rejects a selector whose matchers all match the empty string.
func Filled(ms []*labels.Matcher) []*labels.Matcher {
	for _, m := range ms {
		if !m.Matches("") {
			return ms
		}
	}
	return append(slices.Clone(ms), everything)
}

// Selector is the text of a selector for match[].
func Selector(ms []*labels.Matcher) string {
	var sb strings.Builder
	sb.WriteByte('{')
	for i, m := range ms {
		if i > 0 {
			sb.WriteByte(',')
		}
		sb.WriteString(m.String())
	}
	sb.WriteByte('}')
	return sb.String()
}

// changes tells whether rewrite has anything to do.
func changes(n parser.Node, g *shard.Group, interval time.Duration) bool {
	switch n := n.(type) {
	case *parser.SubqueryExpr:
		if interval > 0 && n.Step == 0 && n.StepExpr == nil {
			return true
		}
	case *parser.VectorSelector:
		return slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool { return Owns(g, m.Name) })
	}
	for child := range parser.ChildrenIter(n) {
		if changes(child, g, interval) {
			return true
		}
	}
	return false
}

// rewrite returns the query text for the group's shards: matchers on the group's labels taken out,
// and subqueries without a step given the interval, where there is one. ok is false where the text
// would not say the same.
func rewrite(text string, e parser.Expr, g *shard.Group, interval time.Duration) (string, bool) {
	if !changes(e, g, interval) {
		return text, true
	}
	touched := false
	var known tree.Regexps
	known.KnowAll(e)
	c, err := known.Parse(tree.Parser, text) // the request's own tree is shared and must not change
	if err != nil {
		return "", false
	}
	parser.Inspect(c, func(n parser.Node, _ []parser.Node) error {
		if sub, ok := n.(*parser.SubqueryExpr); ok && sub.Step == 0 && sub.StepExpr == nil && interval > 0 {
			sub.Step, touched = interval, true
		}
		vs, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		keep := vs.LabelMatchers[:0:0]
		for _, m := range vs.LabelMatchers {
			if Owns(g, m.Name) {
				touched = true
				continue
			}
			keep = append(keep, m)
		}
		vs.LabelMatchers = Filled(keep)
		return nil
	})
	if !touched {
		return text, true
	}
	out := tree.String(c)
	return out, says(out, c)
}

// says tells whether a text is the expression that it was printed from. It is printed as
// Prometheus' own printer would, which has had faults: a form that it prints wrongly is found by
// reading it back. Where a duration is computed the same text may be another expression:
// x offset (1m + 1s) @ 5 * 2 is printed with the offset last, which takes the * 2 for its own.
func says(text string, e parser.Expr) bool {
	var known tree.Regexps
	known.KnowAll(e)
	back, err := known.Parse(tree.Parser, text)
	return err == nil && tree.String(back) == text && Same(e, back)
}

// Same tells whether a printed expression, read back, is what it was, where it is printed equally.
func Same(e, back parser.Expr) bool {
	if finer(e) {
		return false
	}
	if !writesDurations(e) {
		return true
	}
	was, err := Tree(e)
	is, broken := Tree(back)
	return err == nil && broken == nil && reflect.DeepEqual(inOrder(was), inOrder(is))
}

// inOrder is a tree with the matchers of each selector in one order, since printing sorts them, and
// with values as texts.
func inOrder(t any) any {
	switch t := t.(type) {
	case object:
		for key, child := range t {
			if fills, ok := child.(map[string]*float64); ok {
				texts := map[string]string{}
				for side, v := range fills {
					if v != nil {
						texts[side] = number(*v) // NaN is equal to itself as a text
					}
				}
				t[key] = texts
				continue
			}
			inOrder(child)
		}
	case []any:
		for _, child := range t {
			inOrder(child)
		}
	case []object: // matchers
		slices.SortFunc(t, func(a, b object) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return t
}

// finer tells whether any range, step or offset is no whole number of milliseconds, which is all
// that is printed of it: rate(x[60.0004]) divides by more than a minute.
func finer(n parser.Node) bool {
	fine := func(ds ...time.Duration) bool {
		return slices.ContainsFunc(ds, func(d time.Duration) bool { return d%time.Millisecond != 0 })
	}
	switch n := n.(type) {
	case *parser.VectorSelector:
		return fine(n.OriginalOffset)
	case *parser.MatrixSelector:
		if fine(n.Range) {
			return true
		}
	case *parser.SubqueryExpr:
		if fine(n.Range, n.Step, n.OriginalOffset) {
			return true
		}
	}
	for child := range parser.ChildrenIter(n) {
		if finer(child) {
			return true
		}
	}
	return false
}

// writesDurations tells whether any range, step or offset is an expression, or a number a duration.
func writesDurations(n parser.Node) bool {
	switch n := n.(type) {
	case *parser.NumberLiteral:
		return n.Duration
	case *parser.VectorSelector:
		return n.OriginalOffsetExpr != nil
	case *parser.MatrixSelector:
		if n.RangeExpr != nil {
			return true
		}
	case *parser.SubqueryExpr:
		if n.RangeExpr != nil || n.StepExpr != nil || n.OriginalOffsetExpr != nil {
			return true
		}
	}
	for child := range parser.ChildrenIter(n) {
		if writesDurations(child) {
			return true
		}
	}
	return false
}
