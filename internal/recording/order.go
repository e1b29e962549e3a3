package recording

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// alertSeries are what alerting rules write.
var alertSeries = []string{"ALERTS", "ALERTS_FOR_STATE"}

// writes are the metrics that a rule writes.
func writes(r rules.Rule) []string {
	if _, ok := r.(*rules.AlertingRule); ok {
		return alertSeries
	}
	return []string{r.Name()}
}

// reads says whether the expression may select the metric.
func reads(expr parser.Expr, metric string) bool {
	found := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			found = found || !slices.ContainsFunc(vs.LabelMatchers,
				func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && !m.Matches(metric) })
		}
		return nil
	})
	return found
}

// readsItself says whether a recording rule reads what it recorded before.
func readsItself(r rules.Rule) bool {
	_, alert := r.(*rules.AlertingRule)
	return !alert && reads(r.Query(), r.Name())
}

// inOrder sorts rules so that each comes after those that it reads, and otherwise as they were.
// Rules that read each other in a circle, as where one reads what another one recorded a while ago,
// come together; all others are by themselves. A rule may read its own past, and that of rules that
// write the same. (Tarjan, Depth-first search and linear graph algorithms, 1972.)
func inOrder(all []*rule) (out [][]*rule) {
	var (
		seen    = map[*rule]int{} // when, from 1 on
		low     = map[*rule]int{} // the earliest that it leads back to
		placed  = map[*rule]bool{}
		stack   []*rule
		visit   func(r *rule)
		earlier = func(r *rule, n int) { low[r] = min(low[r], n) }
	)
	visit = func(r *rule) {
		seen[r] = len(seen) + 1
		low[r] = seen[r]
		stack = append(stack, r)
		for _, other := range all {
			theirs := writes(other.rule)
			if theirs[0] == writes(r.rule)[0] || !slices.ContainsFunc(theirs, func(m string) bool { return reads(r.rule.Query(), m) }) {
				continue
			}
			switch {
			case seen[other] == 0:
				visit(other)
				earlier(r, low[other])
			case !placed[other]:
				earlier(r, seen[other])
			}
		}
		if low[r] != seen[r] {
			return
		}
		from := slices.Index(stack, r)
		circle := map[*rule]bool{}
		for _, r := range stack[from:] {
			circle[r], placed[r] = true, true
		}
		stack = stack[:from]
		out = append(out, slices.DeleteFunc(slices.Clone(all), func(r *rule) bool { return !circle[r] }))
	}
	for _, r := range all {
		if seen[r] == 0 {
			visit(r)
		}
	}
	return out
}
