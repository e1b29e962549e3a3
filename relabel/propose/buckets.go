package propose

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// buckets thins histograms. One set of edges is chosen for a name across all jobs that have it:
// `sum by (le)` over jobs with different edges is wrong. Where one of these jobs cannot take part,
// none does.
func (p *proposer) buckets() {
	byName := map[string][]*stored{}
	stays := map[string]bool{} // histograms that a job keeps whole though nothing selects them there
	var names []string
	for _, s := range p.all {
		if !strings.HasSuffix(s.Name, "_bucket") || s.Labels[model.BucketLabel] == nil {
			continue
		}
		if len(s.needs) == 0 {
			stays[s.Name] = stays[s.Name] || !p.goes(s)
			continue
		}
		if byName[s.Name] == nil {
			names = append(names, s.Name)
		}
		byName[s.Name] = append(byName[s.Name], s)
	}
	slices.Sort(names)
	for _, name := range names {
		p.thin(byName[name], stays[name])
	}
}

// thin chooses the edges of one histogram and takes the others.
//
// Kept are +Inf, what a need selects by le, and of each job the highest finite edge:
// histogram_quantile answers with it for everything above. Where histogram_quantile reads all of
// them, also a grid that keeps the error. The grid depends on the edges alone and not on what is
// selected, so that one more use never takes a bucket that fewer uses kept.
//
// Answers of histogram_quantile may be over several jobs, so that with it buckets go from all of
// them or from none: also where a job that nothing selects keeps the whole histogram (stays).
func (p *proposer) thin(of []*stored, stays bool) {
	var needs []*uses.Entry
	quantile := false
	for _, s := range of {
		if s.exempt || s.recorded || s.Job == "" || len(s.blind) > 0 || s.family != "" || s.Labels[model.BucketLabel].Values == nil {
			return
		}
		stays = stays || s.Series < p.o.MinSaving // as it would if nothing selected it
		for _, e := range s.needs {
			if e.Quantile {
				quantile = true
			} else {
				needs = append(needs, e)
			}
		}
	}
	keep := map[string]bool{}
	for _, s := range of {
		finite := finiteEdges(s)
		if len(finite) > 0 {
			keep[finite[len(finite)-1].text] = true
		}
		if quantile {
			for _, e := range grid(finite, p.o.QuantileError) {
				keep[e.text] = true
			}
		}
		for value := range s.Labels[model.BucketLabel].Values {
			edge := Edge(value)
			f, err := strconv.ParseFloat(edge, 64)
			if err != nil || f-f != 0 || !rejected(needs, model.BucketLabel, edge, p.o) || !rejected(needs, model.BucketLabel, value, p.o) {
				keep[edge] = true // no number, +Inf, or selected
			}
		}
	}
	if quantile && stays {
		return
	}
	risk := Medium
	if quantile {
		risk = High
	}
	take := map[*stored][]string{}
	for _, s := range of {
		var values []string
		for value := range s.Labels[model.BucketLabel].Values {
			if edge := Edge(value); !keep[edge] {
				values = append(values, edge)
			}
		}
		if slices.Sort(values); len(values) == 0 {
			continue
		}
		take[s] = slices.Compact(values)
		if quantile && Claim(s.Metric, Buckets, model.BucketLabel, take[s]).Series < p.o.MinSaving {
			return
		}
	}
	for _, s := range of {
		if take[s] == nil {
			continue
		}
		key, ok := p.take(s, Buckets, risk, model.BucketLabel, take[s])
		if ok && quantile {
			p.errors[key] = max(p.errors[key], widest(finiteEdges(s), keep))
		}
	}
}

// edge is one finite edge of a histogram.
type edge struct {
	text  string
	value float64
}

// finiteEdges are a metric's finite edges in order, each once however it is spelled.
func finiteEdges(s *stored) []edge {
	var edges []edge
	for text := range s.Labels[model.BucketLabel].Values {
		if f, err := strconv.ParseFloat(text, 64); err == nil && f-f == 0 {
			edges = append(edges, edge{Edge(text), f})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return strings.Compare(a.text, b.text)
	})
	return slices.CompactFunc(edges, func(a, b edge) bool { return a.text == b.text })
}

// grid keeps as few edges as it can, from the lowest to the highest, so that no two neighbours are
// further apart than ratio unless they were neighbours before. Edges that are not above zero have
// no ratio and stay.
func grid(edges []edge, ratio float64) []edge {
	var kept []edge
	for i := 0; i < len(edges); {
		kept = append(kept, edges[i])
		next := i + 1
		for edges[i].value > 0 && next+1 < len(edges) && edges[next+1].value/edges[i].value <= ratio {
			next++
		}
		i = next
	}
	return kept
}

// widest is the largest ratio of neighbours that stay and were none before; 0 where all were.
func widest(edges []edge, keep map[string]bool) float64 {
	widest, last := 0.0, -1
	for i, e := range edges {
		if !keep[e.text] {
			continue
		}
		if last >= 0 && i > last+1 && edges[last].value > 0 {
			widest = max(widest, e.value/edges[last].value)
		}
		last = i
	}
	return widest
}
