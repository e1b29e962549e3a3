package recording

import (
	"fmt"
	"slices"
	"strings"

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
			found = found || !slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && !m.Matches(metric) })
		}
		return nil
	})
	return found
}

// inOrder sorts rules so that each comes after those that it reads, and otherwise as they were. A
// rule may read its own past, and that of rules that write the same.
func inOrder(all []*rule) ([]*rule, error) {
	const visiting, done = 1, 2
	var (
		out   []*rule
		state = map[*rule]int{}
		road  []string
		visit func(r *rule) error
	)
	visit = func(r *rule) error {
		switch state[r] {
		case done:
			return nil
		case visiting:
			return fmt.Errorf("rules read each other in a circle: %s -> %s", strings.Join(road, " -> "), r.rule.Name())
		}
		state[r] = visiting
		road = append(road, r.rule.Name())
		for _, other := range all {
			theirs := writes(other.rule)
			if theirs[0] == writes(r.rule)[0] || !slices.ContainsFunc(theirs, func(m string) bool { return reads(r.rule.Query(), m) }) {
				continue
			}
			if err := visit(other); err != nil {
				return err
			}
		}
		road = road[:len(road)-1]
		state[r] = done
		out = append(out, r)
		return nil
	}
	for _, r := range all {
		if err := visit(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}
