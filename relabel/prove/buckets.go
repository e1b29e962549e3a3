package prove

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spillwayproject/spillway/relabel/propose"
)

// infinite is the bucket without which there is no quantile.
const infinite = "+Inf"

// take notes what happens to a bucket.
func (m *metric) take(le string, taken bool) {
	if le == "" {
		return
	}
	if was, ok := m.taken[le]; ok && (was || !taken) {
		return
	}
	m.taken[strings.Clone(le)] = taken
}

// buckets looks at the edges that stay. Which buckets queries select by le was looked at series by
// series; quantiles need more than that.
func (c *check) buckets() {
	for _, r := range c.rules {
		if r.Kind != propose.Buckets || r.chain == nil {
			continue
		}
		for _, name := range r.Metrics {
			m := c.jobs[r.Job].metrics[name]
			if m == nil {
				continue // it has no series: the savings say so
			}
			if reason := edges(m.taken, r.QuantileError); reason != "" {
				r.fail(name, name+": "+reason)
			} else if reason := c.otherJobs(r, name); reason != "" {
				r.fail(name, name+": "+reason)
			}
		}
	}
}

// edges says what is wrong with the buckets that stay; "" where nothing is.
func edges(taken map[string]bool, quantileError float64) string {
	if len(taken) == 0 {
		return ""
	}
	if taken[infinite] {
		return "it takes the bucket +Inf, without which there is no quantile and no total"
	}
	var all []float64
	gone := map[float64]string{}
	for _, le := range slices.Sorted(maps.Keys(taken)) {
		v, err := strconv.ParseFloat(le, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 1) {
			continue // no edge; no quantile is made of it
		}
		all = append(all, v)
		if taken[le] {
			gone[v] = le
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return ""
	}
	if le, ok := gone[all[len(all)-1]]; ok {
		return fmt.Sprintf("it takes the highest finite bucket, %s: quantiles above it would come out lower", le)
	}
	if quantileError <= 0 {
		return "" // no quantile is made of these buckets
	}
	// The lowest bucket begins at zero where its edge is positive: no ratio bounds what a wider one
	// would change.
	if le, ok := gone[all[0]]; ok {
		return fmt.Sprintf("it takes the lowest bucket, %s, and no ratio bounds the error below the next one", le)
	}
	last := 0 // index of the last edge that stays
	for i := 1; i < len(all); i++ {
		if _, ok := gone[all[i]]; ok {
			continue
		}
		if lower, upper := all[last], all[i]; i > last+1 && (lower <= 0 || upper/lower > quantileError*(1+1e-9)) {
			return fmt.Sprintf("from %g to %g is more than the factor %g that it states", lower, upper, quantileError)
		}
		last = i
	}
	return ""
}

// otherJobs: where quantiles are made over several jobs, a bucket that one of them lacks counts as
// empty there. All jobs lose the same ones.
func (c *check) otherJobs(r *rule, name string) string {
	if r.QuantileError <= 0 {
		return ""
	}
	mine := c.jobs[r.Job].metrics[name].taken
	for _, other := range slices.Sorted(maps.Keys(c.jobs)) {
		m := c.jobs[other].metrics[name]
		if m == nil || other == r.Job {
			continue
		}
		for _, le := range slices.Sorted(maps.Keys(mine)) {
			if taken, ok := m.taken[le]; ok && mine[le] && !taken {
				return fmt.Sprintf("it takes the bucket %s, and the job %s keeps it: a quantile over both would be wrong", le, other)
			}
		}
	}
	return ""
}
