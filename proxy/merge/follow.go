package merge

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TableOf is a matrix as the engine returns it, as a table on the grid that it was evaluated on.
// Histograms are reported as DecodeTable reports them. Memory is held in budget: 8 bytes for each
// step of each series, and the label sets.
func TableOf(m promql.Matrix, grid Grid, budget *admit.Budget) (*Table, error) {
	t := &Table{Grid: grid}
	t.held = admit.NewLedger(budget)
	for _, s := range m {
		if len(s.Histograms) > 0 {
			t.Close()
			return &Table{Grid: grid, Histograms: true}, nil
		}
		if err := t.held.Hold(tableSeriesBytes + 8*int64(grid.Len())); err != nil {
			t.Close()
			return nil, err
		}
		values := newValues(grid.Len())
		for _, p := range s.Floats {
			if i := grid.index(p.T); i >= 0 {
				values[i] = p.F
			}
		}
		t.Series = append(t.Series, TableSeries{s.Metric, values})
	}
	slices.SortFunc(t.Series, func(a, b TableSeries) int { return labels.Compare(a.Labels, b.Labels) })
	return t, nil
}

// Follow makes one table of those of the same expression on pieces of the grid, which follow each
// other in time and together have all of its steps. If any of them met a histogram, so has the
// result, and it has no series. Follow takes ownership of all tables, even on an error. Memory: 8
// bytes for each step of each series, held in budget, until the result is closed.
func Follow(grid Grid, tables []*Table, budget *admit.Budget) (*Table, error) {
	defer closeAll(tables)
	out := &Table{Grid: grid}
	out.held = admit.NewLedger(budget)
	first, steps := make([]int, len(tables)), 0
	for i, t := range tables {
		if first[i] = steps; grid.index(t.Grid.Start) != steps {
			return nil, qerr.New(qerr.Internal, "answers do not follow each other in time")
		}
		steps += t.Grid.Len()
		out.Histograms = out.Histograms || t.Histograms
	}
	if steps != grid.Len() {
		return nil, qerr.New(qerr.Internal, "answers lack steps")
	}
	if out.Histograms {
		return out, nil
	}
	heads := newHeads(tables)
	for heads.more() {
		s, i := heads.top()
		if n := len(out.Series); n == 0 || !labels.Equal(out.Series[n-1].Labels, s.Labels) {
			if err := out.held.Hold(seriesHeader + 8*int64(steps)); err != nil {
				out.Close()
				return nil, err
			}
			out.Series = append(out.Series, TableSeries{s.Labels, newValues(steps)})
		}
		copy(out.Series[len(out.Series)-1].Values[first[i]:], s.Values)
		heads.next()
	}
	for _, t := range tables {
		out.adopt(t) // the label sets are theirs
	}
	return out, nil
}

// newValues are the values of a series without samples.
func newValues(steps int) []float64 {
	values := make([]float64, steps)
	for i := range values {
		values[i] = stale
	}
	return values
}
