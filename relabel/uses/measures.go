package uses

import (
	"slices"
	"strings"
)

// measures are the series that say how much is scraped and stored: whatever is dropped changes
// them, although no rule sees them.
var measures = []string{"scrape_samples_post_metric_relabeling", "scrape_series_added", "prometheus_tsdb_head_series"}

// Measures are the names of series that say how much is stored, and of those that rules of the set
// record of them.
func (s *Set) Measures() map[string]bool {
	out := map[string]bool{}
	for _, name := range measures {
		out[name] = true
	}
	for changed := true; changed; {
		changed = false
		for _, u := range s.Uses {
			if u.Records != "" && !out[u.Records] && u.reads(out) {
				out[u.Records], changed = true, true
			}
		}
	}
	return out
}

// Measuring are the uses whose answers say how much is stored, but for those of the project's own
// rules that are about drop rules and cardinality: these know of it.
func (s *Set) Measuring() []*Use {
	names := s.Measures()
	return slices.DeleteFunc(slices.Clone(s.Uses), func(u *Use) bool { return !u.reads(names) || u.knows() })
}

func (u *Use) reads(names map[string]bool) bool {
	return slices.ContainsFunc(u.Needs, func(n Need) bool {
		name, exact := n.Name()
		return exact && names[name]
	})
}

// knows says whether it is a rule of the project itself that expects this.
func (u *Use) knows() bool {
	return strings.HasPrefix(u.Records, "cluster_job:scrape_") || u.Alerts &&
		slices.ContainsFunc([]string{"DropRulesNotEffective", "PrometheusJobCardinalityJump", "PrometheusHeadSeriesRunaway"},
			func(name string) bool { return strings.HasSuffix(u.Where, "alert "+name) })
}
