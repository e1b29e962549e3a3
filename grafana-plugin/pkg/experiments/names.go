package experiments

import (
	"context"
	"fmt"
	"slices"
)

// Listed is an experiment as lists to choose from have it.
type Listed struct {
	Name, Team, Cluster, Namespace string
	// State is running, pending, ended or unknown; empty where that takes more questions: pods are
	// there that ask for no GPUs.
	State string
}

// Recent are the chosen experiments of the range whose names have the query's Search in them, those
// that were seen last first: what type experiments shows, without the details.
func (r *Run) Recent(ctx context.Context) ([]Listed, error) {
	rows, err := r.experiments(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Listed, len(rows))
	for i, k := range rows {
		out[i] = Listed{Name: k.experiment, Team: k.team, Cluster: k.cluster, Namespace: k.namespace, State: k.state}
		if k.here && !k.decided {
			out[i].State = ""
		}
	}
	return out, nil
}

// Names are the values of a label of what is chosen, sorted, none twice or empty: label is cluster,
// namespace, team or node. Values are those of pods that are there and, but for nodes, those of
// experiments with GPUs in the range; nodes are those in the range where experiments are chosen.
func (r *Run) Names(ctx context.Context, label string) ([]string, error) {
	chosen := append(Chosen(r.Query), label+`!=""`)
	info := Selector("experiment:pod:info", chosen...)
	past := Selector("experiment:pods:count", chosen...)
	if label == "node" {
		past = info
	}
	list := []question{r.at(fmt.Sprintf("group by (%s) (%s)", label, info), r.Until)}
	if label != "node" || len(r.Query.Experiments) > 0 {
		for _, p := range parts(r.Until.Add(-r.back()), r.Until, max(hoursPart, r.back()/maxHoursParts)) {
			there := past + "[" + seconds(p.until.Sub(p.from)) + "]"
			list = append(list, r.at(fmt.Sprintf("group by (%s) (last_over_time(%s))", label, there), p.until))
		}
	}
	answers, err := r.each(ctx, list)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(answers[0]))
	for _, s := range answers[0] {
		if v := s.Labels[label]; v != "" {
			names = append(names, v)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
