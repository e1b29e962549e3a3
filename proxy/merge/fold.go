package merge

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// FoldOp is an aggregation whose partial results can be joined.
type FoldOp int

// The aggregations.
const (
	FoldSum FoldOp = iota
	FoldCount
	FoldMin
	FoldMax
	FoldGroup
	FoldAvg
)

// PartLabel tells apart the two series of each group that a shard sends for an average: its values
// are "sum" and "count".
const PartLabel = "__spillway_part__"

// ErrInexact is the error of partial results from which the exact one cannot be determined. The
// caller evaluates the expression over the series themselves.
var ErrInexact = errors.New("the partial results do not tell the exact one")

// Fold joins partial aggregates of disjoint shards: series with equal label sets are combined step
// by step, and a step that one shard lacks is what the others say. The result is sorted by
// labels.Compare. The order of the tables changes no bit of it, except the last bit of a sum.
//
// Where only one table has a value at a step, it stands as it is, NaN and infinities included.
// Where several have:
//
//   - A sum is that of the partial sums with Neumaier's compensation. It stands where all of them
//     and the total are finite, none is more than 1,000 times the total, and their magnitudes
//     together are no more than 8,000 times the total: beyond that they cancel, and what each shard
//     rounded away, half a unit in the last of 53 bits, shows. Within these limits the error is
//     less than 1e-12.
//   - A count is exact: partial counts are integers, and so is their sum while it is below 2^53.
//   - The least and the greatest follow Prometheus: a NaN gives way to anything. Zeros of both
//     signs that tie are inexact, since nobody can know which of them Prometheus finds first.
//   - A group is 1 wherever any table has a value.
//   - An average is the total of the sums, under the rule for sums, divided by the total of the
//     counts.
//
// With FoldAvg each table has two series for each group, told apart by PartLabel, which the result
// does not have. A group or step with a count and no sum is inexact (there floats met histograms),
// and so is a sum that is not finite, even of one shard alone: where a running sum overflows,
// Prometheus changes to a running mean, which may well be finite, and the sum does not show that.
// Only the average of a single sample is that sample, whatever it is. One shard's finite average is
// sum/count, whereas Prometheus adds the two parts of its compensated sum after dividing them: a
// difference in the last bits.
//
// Everything else is an error that wraps ErrInexact and says why. Fold takes ownership of all
// tables, even on an error: the result keeps the buffers of those whose values it uses (it folds in
// place, into the first table that has a series) and closes the others. Its own memory is held in
// budget.
func Fold(op FoldOp, tables []*Table, budget *admit.Budget) (result *Table, err error) {
	defer closeAll(tables)
	grid, err := sameGrid(tables)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Histograms {
			return nil, fmt.Errorf("%w: a shard holds native histograms, which JSON does not carry whole", ErrInexact)
		}
	}
	f := folder{op: op, out: &Table{Grid: grid}, grid: grid, kept: make([]bool, len(tables))}
	f.out.held = admit.NewLedger(budget)
	defer func() {
		if err != nil {
			f.out.Close()
		}
	}()
	if op == FoldAvg {
		f.counts = make([][][]float64, len(tables))
		for i, t := range tables {
			if f.counts[i], err = f.pairUp(t); err != nil {
				return nil, err
			}
		}
	}
	heads := newHeads(tables)
	for heads.more() {
		if err = f.group(heads); err != nil {
			return nil, err
		}
	}
	for i, t := range tables {
		if f.kept[i] {
			f.out.adopt(t)
		}
	}
	return f.out, nil
}

// Union puts the series of disjoint shards side by side, sorted by labels.Compare. A label set that
// two tables hold at all, whatever the steps, is ErrTwice. If any table met a histogram, so has the
// union, and it has no series. Union takes ownership of all tables, even on an error.
func Union(tables []*Table) (result *Table, err error) {
	defer closeAll(tables)
	grid, err := sameGrid(tables)
	if err != nil {
		return nil, err
	}
	out := &Table{Grid: grid}
	total := 0
	for _, t := range tables {
		out.held = admit.NewLedger(t.held.Budget())
		out.Histograms = out.Histograms || t.Histograms
		total += len(t.Series)
	}
	if out.Histograms {
		return out, nil
	}
	if len(tables) == 1 {
		out.Series = tables[0].Series
		out.adopt(tables[0])
		return out, nil
	}
	if err := out.held.Hold(int64(total) * seriesHeader); err != nil {
		return nil, err
	}
	out.Series = make([]TableSeries, 0, total)
	heads := newHeads(tables)
	for heads.more() {
		series, _ := heads.top()
		if n := len(out.Series); n > 0 && labels.Equal(out.Series[n-1].Labels, series.Labels) {
			out.held.Drop()
			return nil, fmt.Errorf("two shards hold %s: %w", cutNote([]byte(series.Labels.String())), ErrTwice)
		}
		out.Series = append(out.Series, *series)
		heads.next()
	}
	for _, t := range tables {
		out.adopt(t)
	}
	return out, nil
}

// seriesHeader is what a TableSeries itself takes: a label set and a slice.
const seriesHeader = 48

// closeAll closes all tables. Those whose buffers a result took over have nothing left to close.
func closeAll(tables []*Table) {
	for _, t := range tables {
		t.Close()
	}
}

// adopt takes over what another table holds.
func (t *Table) adopt(from *Table) {
	t.blocks = append(t.blocks, from.blocks...)
	from.blocks, from.Series = nil, nil
	t.held.Adopt(&from.held)
}

// sameGrid is the grid that all tables have.
func sameGrid(tables []*Table) (Grid, error) {
	if len(tables) == 0 {
		return Grid{}, nil
	}
	for _, t := range tables {
		if t.Grid != tables[0].Grid {
			return Grid{}, qerr.New(qerr.Internal, "answers at different times cannot be joined")
		}
	}
	return tables[0].Grid, nil
}

// heads walks the series of all tables in order: those of equal labels one after the other, by the
// order of the tables.
type heads struct {
	tables []*Table
	at     []int
	queue  queue
}

func newHeads(tables []*Table) *heads {
	h := &heads{tables: tables, at: make([]int, len(tables))}
	h.queue.less = func(a, b int) bool {
		c := labels.Compare(h.tables[a].Series[h.at[a]].Labels, h.tables[b].Series[h.at[b]].Labels)
		return c < 0 || c == 0 && a < b
	}
	for i, t := range tables {
		if len(t.Series) > 0 {
			h.queue.push(i)
		}
	}
	return h
}

func (h *heads) more() bool { return len(h.queue.items) > 0 }

// top is the next series and its table.
func (h *heads) top() (*TableSeries, int) {
	i := h.queue.items[0]
	return &h.tables[i].Series[h.at[i]], i
}

// next goes on.
func (h *heads) next() {
	i := h.queue.items[0]
	if h.at[i]++; h.at[i] < len(h.tables[i].Series) {
		h.queue.fix()
		return
	}
	h.queue.pop()
}

// queue is a heap of numbers, the least first by less.
type queue struct {
	items []int
	less  func(a, b int) bool
}

func (q *queue) push(x int) {
	q.items = append(q.items, x)
	for i := len(q.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(q.items[i], q.items[up]) {
			break
		}
		q.items[i], q.items[up] = q.items[up], q.items[i]
		i = up
	}
}

// fix puts the first where it belongs after it has changed.
func (q *queue) fix() {
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(q.items) {
			return
		}
		if other := down + 1; other < len(q.items) && q.less(q.items[other], q.items[down]) {
			down = other
		}
		if !q.less(q.items[down], q.items[i]) {
			return
		}
		q.items[i], q.items[down] = q.items[down], q.items[i]
		i = down
	}
}

// pop removes the first.
func (q *queue) pop() {
	last := len(q.items) - 1
	q.items[0] = q.items[last]
	q.items = q.items[:last]
	q.fix()
}

// folder folds.
type folder struct {
	op     FoldOp
	out    *Table
	grid   Grid
	kept   []bool        // tables whose buffers the result uses
	counts [][][]float64 // of each table and series, for averages

	parts   [][]float64 // the values of the group in hand
	weights [][]float64 // and its counts
}

// group folds the group at the top.
func (f *folder) group(h *heads) error {
	first, table := h.top()
	ls := first.Labels
	f.kept[table] = true
	f.parts, f.weights = f.parts[:0], f.weights[:0]
	for h.more() {
		s, i := h.top()
		if len(f.parts) > 0 && !labels.Equal(s.Labels, ls) {
			break
		}
		f.parts = append(f.parts, s.Values)
		if f.counts != nil {
			f.weights = append(f.weights, f.counts[i][h.at[i]])
		}
		h.next()
	}
	values := f.parts[0]
	step, why := -1, ""
	switch {
	case f.op == FoldAvg:
		step, why = foldAverages(f.parts, f.weights)
	case f.op == FoldGroup:
		foldGroups(f.parts)
	case len(f.parts) == 1:
	case f.op == FoldSum:
		step, why = foldSums(f.parts)
	case f.op == FoldCount:
		step, why = foldCounts(f.parts)
	case f.op == FoldMin, f.op == FoldMax:
		step, why = foldExtremes(f.parts, f.op == FoldMax)
	default:
		return qerr.New(qerr.Internal, "there is no way to fold operation %d", f.op)
	}
	if step >= 0 {
		return fmt.Errorf("%w: at %s, of %s, %s", ErrInexact, AppendTimestamp(nil, f.grid.Time(step)), cutNote([]byte(ls.String())), why)
	}
	if n := len(f.out.Series); n == cap(f.out.Series) {
		grow := max(64, n)
		if err := f.out.held.Hold(int64(grow) * seriesHeader * 2); err != nil {
			return err
		}
		f.out.Series = slices.Grow(f.out.Series, grow)
	}
	f.out.Series = append(f.out.Series, TableSeries{Labels: ls, Values: values})
	return nil
}

const (
	whyNotFinite = "a partial result is not finite, or their sum overflows"
	whyCancel    = "the partial sums cancel each other"
	whyCount     = "a partial count is no integer below 2^53"
	whyZeros     = "zeros of both signs tie"
	whyAlone     = "a sum or a count stands alone, as where floats meet histograms"
	whyStranger  = "a series of an average is neither its sum nor its count: the shard was not asked for it"
	whyOverflow  = "the sum under an average is not finite"
)

const (
	// cancels is how much larger than the total the largest part of a sum may be.
	cancels = 1000
	// cancelsAll is how much larger the magnitudes of all parts together may be: 8,000 roundings of
	// 2^-53 are 8.9e-13.
	cancelsAll = 8 * cancels
)

// total is a compensated sum, with the largest magnitude of its parts and the sum of all.
type total struct{ sum, rest, most, all float64 }

func (t *total) add(v float64) {
	s := t.sum + v
	if math.Abs(t.sum) >= math.Abs(v) {
		t.rest += (t.sum - s) + v
	} else {
		t.rest += (v - s) + t.sum
	}
	t.sum = s
	t.most = max(t.most, math.Abs(v)) // NaN where any is
	t.all += math.Abs(v)
}

// stands tells why the total does not, or nothing.
func (t *total) stands() string {
	switch sum := t.sum + t.rest; {
	case !finite(sum) || !finite(t.most):
		return whyNotFinite
	case t.most > cancels*math.Abs(sum) || t.all > cancelsAll*math.Abs(sum):
		return whyCancel
	}
	return ""
}

func finite(v float64) bool { return v-v == 0 }

// foldSums adds parts into the first. Where a step is inexact it returns the step and why, else -1;
// so do its sisters.
func foldSums(parts [][]float64) (step int, why string) {
	into := parts[0]
	for i := range into {
		var (
			t    total
			n    int
			last = stale
		)
		for _, p := range parts {
			if v := p[i]; !isStale(v) {
				t.add(v)
				n++
				last = v
			}
		}
		if n < 2 {
			into[i] = last
			continue
		}
		if why := t.stands(); why != "" {
			return i, why
		}
		into[i] = t.sum + t.rest
	}
	return -1, ""
}

// isCount tells whether v can be a count.
func isCount(v float64) bool { return v >= 0 && v < 1<<53 && v == math.Trunc(v) }

func foldCounts(parts [][]float64) (step int, why string) {
	into := parts[0]
	for i := range into {
		sum, n, last, sound := 0.0, 0, stale, true
		for _, p := range parts {
			if v := p[i]; !isStale(v) {
				sound = sound && isCount(v)
				sum += v
				n++
				last = v
			}
		}
		switch {
		case n < 2:
			into[i] = last
		case !sound || !isCount(sum):
			return i, whyCount
		default:
			into[i] = sum
		}
	}
	return -1, ""
}

func foldExtremes(parts [][]float64, greatest bool) (step int, why string) {
	into := parts[0]
	for i := range into {
		best, n, plus, minus := stale, 0, false, false
		for _, p := range parts {
			v := p[i]
			if isStale(v) {
				continue
			}
			if v == 0 {
				plus, minus = plus || !math.Signbit(v), minus || math.Signbit(v)
			}
			if n++; n == 1 || math.IsNaN(best) || greatest && v > best || !greatest && v < best {
				best = v
			}
		}
		if best == 0 && plus && minus {
			return i, whyZeros
		}
		into[i] = best
	}
	return -1, ""
}

func foldGroups(parts [][]float64) {
	into := parts[0]
	for i := range into {
		for _, p := range parts {
			if !isStale(p[i]) {
				into[i] = 1
				break
			}
		}
	}
}

func foldAverages(sums, counts [][]float64) (step int, why string) {
	into := sums[0]
	for i := range into {
		var (
			t total
			n float64
			k int
		)
		for j, p := range sums {
			v, c := p[i], counts[j][i]
			if isStale(v) != isStale(c) {
				return i, whyAlone
			}
			if isStale(v) {
				continue
			}
			if !isCount(c) || c == 0 {
				return i, whyCount
			}
			t.add(v)
			n += c
			k++
			into[i] = v // kept where it is the only sample
		}
		switch {
		case k == 0 || n == 1:
			continue
		case n >= 1<<53:
			return i, whyCount
		case k == 1 && !finite(t.sum):
			return i, whyOverflow
		case k > 1:
			if why := t.stands(); why != "" {
				return i, why
			}
		}
		into[i] = t.sum/n + t.rest/n
	}
	return -1, ""
}

// pairUp joins the sums and counts of a table: its series become the groups, with the sums as
// values. It returns the counts.
func (f *folder) pairUp(t *Table) ([][]float64, error) {
	type part struct {
		TableSeries
		count bool
	}
	const partBytes = seriesHeader + 16 + 24
	parts := make([]part, 0, len(t.Series))
	if err := f.out.held.Hold(int64(len(t.Series)) * partBytes); err != nil {
		return nil, err
	}
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, s := range t.Series {
		b.Reset(s.Labels)
		b.Del(PartLabel)
		p := part{TableSeries: TableSeries{Labels: b.Labels(), Values: s.Values}}
		switch s.Labels.Get(PartLabel) {
		case "sum":
		case "count":
			p.count = true
		default:
			return nil, fmt.Errorf("%w: of %s %s", ErrInexact, cutNote([]byte(p.Labels.String())), whyStranger)
		}
		if err := f.out.held.Hold(int64(p.Labels.ByteSize()) + labelSetBytes); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b part) int {
		if c := labels.Compare(a.Labels, b.Labels); c != 0 || a.count == b.count {
			return c
		}
		if a.count {
			return 1
		}
		return -1
	})
	counts := make([][]float64, 0, len(parts)/2)
	t.Series = t.Series[:0]
	for i := 0; i < len(parts); i += 2 {
		if i+1 == len(parts) || parts[i].count || !parts[i+1].count || !labels.Equal(parts[i].Labels, parts[i+1].Labels) {
			return nil, fmt.Errorf("%w: of %s %s", ErrInexact, cutNote([]byte(parts[i].Labels.String())), whyAlone)
		}
		t.Series = append(t.Series, parts[i].TableSeries)
		counts = append(counts, parts[i+1].Values)
	}
	return counts, nil
}
