package propose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// Estimates of what a label takes in the head of Prometheus.
const (
	labelOverhead = 10 // of each series: two lengths and an entry in a list of postings
	valueOverhead = 64 // of each value: its list of postings, and its place in the index
	usualValue    = 16 // bytes of a value, of labels with more values than are known
)

// labelBytes is about what a label of one metric takes in memory. Values that other metrics have
// too are counted in full, since a rule does not know of them.
func labelBytes(m *inventory.Metric, label string) int64 {
	l := m.Labels[label]
	if l == nil {
		return 0
	}
	bytes := l.Series*int64(labelOverhead+len(label)) + l.Distinct*valueOverhead
	if l.Values == nil {
		return bytes + l.Series*usualValue
	}
	for value, series := range l.Values {
		bytes += series * int64(len(value))
	}
	return bytes
}

// longValue is from how many bytes on a label is worth taking though all series have the same value
// of it.
const longValue = 64

// label takes one label that no answer depends on, of a metric that is used. That saves no series
// but bytes of the index, and, where values change with each restart (uid, container_id), the new
// series that each of them makes. A label with one short value saves nothing worth a rule.
//
// Only one label is taken of a metric: two that say the same (a uid and a container's id) may each
// go, but not both. It is the one with the most values of those without which no two series of the
// sample become one. What merges others all the same is refused by the proof; what merges them in
// the sample is refused here: that label of the metric whose aggregation would save most.
func (p *proposer) label(s *stored) {
	best, merging := "", ""
	var most int64
	for _, name := range p.candidates(s) {
		sample := p.o.Collisions.of(s.Metric, name)
		if sample.example() == "" {
			if best == "" || s.Labels[name].Distinct > s.Labels[best].Distinct {
				best = name
			}
		} else if merged := sample.merged(s.Series); merging == "" || merged > most {
			merging, most = name, merged
		}
	}
	if best != "" {
		p.take(s, Label, High, best, nil) // today no series collide; tomorrow new ones may
	}
	if merging != "" && most >= p.o.MinSaving {
		share := float64(most) / float64(s.Series)
		p.merging = append(p.merging, Refusal{
			Kind: Label, Job: s.Job, Metrics: []string{s.Name}, Label: merging,
			Examples: []string{p.o.Collisions.of(s.Metric, merging).example()},
			Reason:   fmt.Sprintf("without %s, series become one with others: the server would keep one of them, and say nothing", merging),
			Instead:  Aggregate(s.Job, s.Name, s.Type, merging),
			Saves:    Save(most, s.SamplesPerSecond*share),
		})
	}
}

// candidates are the labels of a metric that no answer depends on and whose removal is worth a
// rule, sorted.
func (p *proposer) candidates(s *stored) []string {
	if s.exempt || s.recorded || s.Job == "" || len(s.needs) == 0 || len(s.blind) > 0 || s.family != "" {
		return nil
	}
	var names []string
	for _, name := range sortedLabels(s.Metric) {
		if p.target[[2]string{s.Job, name}] || name == model.BucketLabel || name == model.QuantileLabel || strings.Contains(name, "$") {
			continue // $ in a target label means a group of the expression
		}
		if worth(s.Metric, name) && !demanded(s.needs, name) {
			names = append(names, name)
		}
	}
	return names
}

func demanded(needs []*uses.Entry, label string) bool {
	return slices.ContainsFunc(needs, func(e *uses.Entry) bool { return e.Reads(label) })
}

// worth says whether anything is saved.
func worth(m *inventory.Metric, name string) bool {
	l := m.Labels[name]
	if l.Distinct > 1 || l.Series < m.Series {
		return true
	}
	for value := range l.Values {
		if len(value) >= longValue {
			return true
		}
	}
	return false
}

// Aggregate is what to do where a label cannot go because series would merge: a recording rule, and
// what an agent that aggregates would be told. Both are for one metric.
func Aggregate(job, metric string, kind model.MetricType, label string) string {
	selector := fmt.Sprintf("%s{job=%q}", metric, job)
	if !model.LegacyValidation.IsValidMetricName(metric) {
		selector = fmt.Sprintf("{%q, job=%q}", metric, job)
	}
	by := label
	if !model.LegacyValidation.IsValidLabelName(label) {
		by = fmt.Sprintf("%q", label)
	}
	record, expr, output := "without_"+label+":"+metric+":sum", fmt.Sprintf("sum without (%s) (%s)", by, selector), "sum_samples"
	switch counter := kind == model.MetricTypeCounter || kind == model.MetricTypeHistogram || kind == model.MetricTypeSummary; {
	case strings.HasSuffix(metric, "_bucket"), strings.HasSuffix(metric, "_total"), counter:
		// Sums of counters that begin anew one by one are no counters; sums of their rates are
		// right.
		record, expr, output = "without_"+label+":"+metric+":rate5m", fmt.Sprintf("sum without (%s) (rate(%s[5m]))", by, selector), "total"
	}
	return fmt.Sprintf("record the aggregate and look at that:\n  - record: %s\n    expr: %s\nor aggregate at the agent, before it is stored (vmagent, -remoteWrite.streamAggr.config):\n"+
		"  - match: '%s'\n    interval: 1m\n    without: [%s]\n    outputs: [%s]", record, expr, strings.ReplaceAll(selector, "'", "''"), label, output)
}
