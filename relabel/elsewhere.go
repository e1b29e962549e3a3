package relabel

import (
	"maps"
	"slices"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// elsewhere are the metrics that rules take from a job by their names and of which another job
// keeps something, sorted. A query for one of them may be about that other job, and the proxy must
// not tell it that the metric is gone.
func elsewhere(inv *inventory.Inventory, rules []propose.Rule, dropped map[key]propose.Saving) []string {
	gone := map[string]bool{}
	for _, r := range rules {
		if r.Kind != propose.Names {
			continue
		}
		for _, name := range r.Metrics {
			gone[name] = true
		}
	}
	kept := map[string]bool{}
	for _, m := range inv.Metrics {
		if gone[m.Name] && dropped[key{m.Job, m.Name}].Series < m.Series {
			kept[m.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(kept))
}
