package relabel

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
)

// Difference is what the rules of one plan do to stored series, and those of another do not.
type Difference struct {
	// Alarms are those of the new plan, and Unrecorded are the names of recorded series that it
	// uses without knowing their rules.
	Alarms     []string `json:"alarms,omitempty"`
	Unrecorded []string `json:"unrecorded,omitempty"`
	// Series is how many were looked at; 0 without a source.
	Series int64 `json:"series"`
	// Lost is kept by the old plan and dropped by the new one, Gained the other way round.
	Lost   propose.Saving `json:"lost"`
	Gained propose.Saving `json:"gained"`
	// Metrics are those with a difference, sorted by job and name. Without a source they are empty.
	Metrics []MetricDifference `json:"metrics"`
	// Rules are those that only one plan has, or that say something else, sorted by ID.
	Rules []RuleDifference `json:"rules"`
}

// MetricDifference is one metric of one job.
type MetricDifference struct {
	Job    string `json:"job"`
	Name   string `json:"name"`
	Lost   int64  `json:"lost"`
	Gained int64  `json:"gained"`
	// LostLabels are labels that at least one series has by the old plan and not by the new one,
	// GainedLabels the other way round; of series that both keep. Sorted.
	LostLabels   []string `json:"lost_labels,omitempty"`
	GainedLabels []string `json:"gained_labels,omitempty"`
}

// RuleDifference is one rule that is not the same in both plans.
type RuleDifference struct {
	ID string `json:"id"`
	// Change is added, removed or changed.
	Change string `json:"change"`
	// Added and Removed are the metrics that the new plan's rule has and the old one's has not, and
	// the other way round.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// AddedValues and RemovedValues are the values, likewise.
	AddedValues   []string `json:"added_values,omitempty"`
	RemovedValues []string `json:"removed_values,omitempty"`
}

// Empty says that both plans do the same, as far as was looked.
func (d *Difference) Empty() bool { return len(d.Metrics) == 0 && len(d.Rules) == 0 }

// Diff runs the rules of both plans over every series of the source, and says which series and
// labels come and go with the step from old to updated. Without a source (nil) only the rules are
// compared. It holds one entry for each metric with a difference.
func Diff(ctx context.Context, old, updated *Plan, src inventory.Source) (*Difference, error) {
	d := &Difference{
		Alarms: updated.Alarms, Unrecorded: updated.Unrecorded,
		Metrics: []MetricDifference{}, Rules: compare(old.Rules, updated.Rules),
	}
	if src == nil {
		return d, nil
	}
	before, err := chains(old.Rules)
	if err != nil {
		return nil, err
	}
	after, err := chains(updated.Rules)
	if err != nil {
		return nil, err
	}
	type change struct {
		MetricDifference
		lost, gained map[string]bool
	}
	changes := map[key]*change{}
	err = src.Scan(ctx, func(s *inventory.Series) error {
		d.Series++
		k := key{s.Labels.Get("job"), s.Labels.Get("__name__")}
		was, kept := apply(before[k.job], s.Labels)
		is, keeps := apply(after[k.job], s.Labels)
		if kept == keeps && (!kept || labels.Equal(was, is)) {
			return nil
		}
		c := changes[k]
		if c == nil {
			c = &change{MetricDifference: MetricDifference{Job: k.job, Name: k.name}, lost: map[string]bool{}, gained: map[string]bool{}}
			changes[k] = c
		}
		one := propose.Save(1, 0)
		if s.Interval > 0 {
			one = propose.Save(1, 1/s.Interval.Seconds())
		}
		switch {
		case kept && !keeps:
			c.Lost++
			d.Lost = d.Lost.Add(one)
		case keeps && !kept:
			c.Gained++
			d.Gained = d.Gained.Add(one)
		default:
			was.Range(func(l labels.Label) {
				if !is.Has(l.Name) {
					c.lost[l.Name] = true
				}
			})
			is.Range(func(l labels.Label) {
				if !was.Has(l.Name) {
					c.gained[l.Name] = true
				}
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		c.LostLabels = slices.Sorted(maps.Keys(c.lost))
		c.GainedLabels = slices.Sorted(maps.Keys(c.gained))
		d.Metrics = append(d.Metrics, c.MetricDifference)
	}
	slices.SortFunc(d.Metrics, func(a, b MetricDifference) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Name, b.Name)) })
	return d, nil
}

// apply is what a job's rules leave of a series. A job without rules has no chain.
func apply(chain *prove.Chain, ls labels.Labels) (labels.Labels, bool) {
	if chain == nil {
		return ls, true
	}
	out, kept, _ := chain.Apply(ls)
	return out, kept
}

// compare compares rules by ID.
func compare(old, updated []propose.Rule) []RuleDifference {
	was, is := map[string]propose.Rule{}, map[string]propose.Rule{}
	ids := map[string]bool{}
	for _, r := range old {
		was[r.ID], ids[r.ID] = r, true
	}
	for _, r := range updated {
		is[r.ID], ids[r.ID] = r, true
	}
	out := []RuleDifference{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		a, had := was[id]
		b, has := is[id]
		d := RuleDifference{
			ID: id, Change: "changed",
			Added: without(b.Metrics, a.Metrics), Removed: without(a.Metrics, b.Metrics),
			AddedValues: without(b.Values, a.Values), RemovedValues: without(a.Values, b.Values),
		}
		switch {
		case !had:
			d.Change = "added"
		case !has:
			d.Change = "removed"
		case a.Kind == b.Kind && a.Job == b.Job && a.Label == b.Label &&
			len(d.Added)+len(d.Removed)+len(d.AddedValues)+len(d.RemovedValues) == 0:
			continue
		}
		out = append(out, d)
	}
	return out
}

// without are the texts of a that b has not, in their order.
func without(a, b []string) []string {
	has := map[string]bool{}
	for _, text := range b {
		has[text] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(text string) bool { return has[text] })
}
