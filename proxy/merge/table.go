package merge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Grid is the evaluation times of a query, in milliseconds: Start, and every Step up to End. A Step
// of 0, or an End that is not after Start, is one instant.
type Grid struct{ Start, End, Step int64 }

// Len is the number of times; at least one.
func (g Grid) Len() int {
	if g.Step <= 0 || g.End <= g.Start {
		return 1
	}
	return int(min(uint64(g.End-g.Start)/uint64(g.Step), math.MaxInt-1)) + 1
}

// Time is the time of step i, which must be less than Len.
func (g Grid) Time(i int) int64 { return g.Start + int64(i)*g.Step }

// index is the step at a time, -1 where there is none.
func (g Grid) index(ms int64) int {
	switch {
	case ms == g.Start:
		return 0
	case g.Step <= 0 || ms < g.Start || ms > g.End:
		return -1
	}
	since, step := uint64(ms-g.Start), uint64(g.Step)
	if since%step != 0 {
		return -1
	}
	return int(since / step)
}

// ErrTwice is the error of a label set that occurs twice where each must occur once: in two shards
// that ought to be disjoint, or in one after labels have been removed. The way out is to fetch the
// series themselves and see.
var ErrTwice = errors.New("a label set stands twice")

// Table is what a shard answered to an expression on a grid: one value for each step of each
// series, sorted by labels.Compare, each label set once. A step without a sample has the bits of
// value.StaleNaN, which JSON cannot carry. Every series has at least one sample.
//
// Its memory is held in the budget until Close, and so are the values: nothing of a Table may be
// used afterwards.
type Table struct {
	Grid   Grid
	Series []TableSeries
	// Histograms tells that a native histogram was met. JSON loses its schema, so the numbers are
	// of no further use: decoding stopped there, and Series is empty.
	Histograms bool

	blocks []*valueBlock
	held   admit.Ledger
}

// TableSeries is one series of a Table. Values has Grid.Len entries.
type TableSeries struct {
	Labels labels.Labels
	Values []float64
}

// Close gives the buffers back to their pool and the memory to the budget. It is idempotent, and
// does nothing on nil.
func (t *Table) Close() {
	if t == nil {
		return
	}
	for _, b := range t.blocks {
		valueBlocks.Put(b)
	}
	t.blocks, t.Series = nil, nil
	t.held.Drop()
}

// valueBlock is the unit in which values are allocated: 64 KiB.
type valueBlock [8 << 10]float64

// firstValues is how many values there is room for before the first block: 2 KiB.
const firstValues = 256

const valueBlockBytes = int64(len(valueBlock{})) * 8

var valueBlocks = sync.Pool{New: func() any { return new(valueBlock) }}

// maxSteps is more than max_points lets any query have.
const maxSteps = 1 << 24

// tableSeriesBytes is what one series of a table costs beside its values and the bytes of its names
// and values.
const tableSeriesBytes = labelSetBytes + 96

// stale marks a step without a sample.
var stale = math.Float64frombits(value.StaleNaN)

// isStale tells whether a step has no sample.
func isStale(v float64) bool { return math.Float64bits(v) == value.StaleNaN }

// DecodeTable reads the answer of one shard to query or query_range on the grid: a vector where the
// grid is an instant, or a matrix. Labels are relabelled by src.Relabel. An answer of any other
// type or shape is the shard's fault, and so are a sample whose time is not on the grid, times that
// do not increase, and a series that is sent twice. Two series that become equal by removing labels
// are ErrTwice. Where Result.Truncated is set, the shard's own limit cut the answer, and the caller
// decides what half an answer is good for.
//
// Memory: one Scanner, 64 KiB of values at a time, the label sets, and 24 bytes for each step of
// the grid while more than one series is read; all of it is held in budget as it grows, so an
// endless answer is refused while it is read. Samples are counted; series are not, since only the
// caller knows which of them are returned. After an error nothing is held.
func DecodeTable(ctx context.Context, src Source, grid Grid, budget *admit.Budget) (*Table, Result, error) {
	if grid.Len() > maxSteps {
		return nil, Result{}, qerr.New(qerr.Internal, "a grid of %d steps is longer than any query's", grid.Len())
	}
	s := NewScanner(src.Body, budget)
	defer s.Close()
	t := &Table{Grid: grid}
	t.held = admit.NewLedger(budget)
	d := tableDecoder{
		pairReader: pairReader{s: s}, ctx: ctx, t: t, steps: grid.Len(), set: setDecoder{rl: src.Relabel}, budget: budget,
		inOrder: true,
	}
	d.texts.held = admit.NewLedger(budget)
	done := false
	defer func() {
		d.texts.drop()
		if !done {
			t.Close()
		}
	}()
	var (
		a               answer
		res             Result
		warnings, infos Notes
		ok              = readAnswer(s, &a, d.data)
	)
	res.take(&a, &warnings, &infos)
	res.Counts = []Count{{Samples: d.counted}} // in an error, too: of what the caller asks for again
	switch {
	case t.Histograms:
		t.Close()
		done = true
		return t, res, nil
	case ok && !a.hasData:
		s.fail(WrongShape, "it has no data")
	}
	if s.err == nil && !d.inOrder {
		if twice := t.sort(); twice >= 0 {
			ls := t.Series[twice].Labels
			if d.removed {
				return nil, res, fmt.Errorf("shard %s: %s by removing the group's and replica labels: %w", src.Name, cutNote([]byte(ls.String())), ErrTwice)
			}
			s.fail(WrongShape, "it holds %s twice", cutNote([]byte(ls.String())))
		}
	}
	if err := shardErr(ctx, src.Name, s.err); err != nil {
		return nil, res, err
	}
	res.Series, res.Counts = len(t.Series), []Count{{Series: len(t.Series), Samples: d.counted}}
	done = true
	return t, res, nil
}

// sort sorts the series and returns the index of one that stands twice, or -1.
func (t *Table) sort() int {
	slices.SortFunc(t.Series, func(a, b TableSeries) int { return labels.Compare(a.Labels, b.Labels) })
	for i := 1; i < len(t.Series); i++ {
		if labels.Equal(t.Series[i-1].Labels, t.Series[i].Labels) {
			return i
		}
	}
	return -1
}

// tableDecoder decodes one answer.
type tableDecoder struct {
	pairReader
	ctx    context.Context
	t      *Table
	budget *admit.Budget
	steps  int

	resultType string
	shape      resultShape
	set        setDecoder
	removed    bool // a label was removed from a series
	inOrder    bool // the series, so far

	spare   []float64 // what is left of the last block
	small   bool      // the room before the first block was taken
	texts   timeTexts
	next    int   // step after the last one of the series in hand
	samples int64 // not yet counted in budget
	counted int64 // and those that are
}

// data decodes the data object.
func (d *tableDecoder) data() bool {
	s := d.s
	if !s.Object() {
		return false
	}
	hasResult := false
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "resultType":
			if d.resultType != "" {
				return s.fail(WrongShape, "resultType stands twice")
			}
			if d.resultType, ok = readResultType(s); !ok {
				return false
			}
			if d.resultType != "vector" && d.resultType != "matrix" {
				return s.fail(WrongShape, "the result is a %s, neither a vector nor a matrix", d.resultType)
			}
		case "result":
			if hasResult {
				return s.fail(WrongShape, "result stands twice")
			}
			hasResult = true
			if !d.result() {
				return false
			}
		default:
			if !s.skip(3) {
				return false
			}
		}
	}
	switch {
	case s.err != nil:
		return false
	case !hasResult:
		return s.fail(WrongShape, "it has no result")
	case d.resultType == "":
		return s.fail(WrongShape, "it has no resultType")
	case d.shape == vectorShape && d.resultType != "vector", d.shape == matrixShape && d.resultType != "matrix":
		return s.fail(WrongShape, "the result is not the %q that it claims to be", d.resultType)
	}
	return true
}

// readResultType consumes the type of a result.
func readResultType(s *Scanner) (string, bool) {
	t, ok := s.String()
	if !ok {
		return "", false
	}
	switch string(t) {
	case "vector", "matrix", "scalar", "string":
		return string(t), true
	}
	return "", s.fail(WrongShape, "resultType is %q", short(t))
}

func (d *tableDecoder) result() bool {
	s := d.s
	if !s.Array() {
		return false
	}
	d.shape = emptyShape
	for first := true; s.More(first); first = false {
		if n := len(d.t.Series); n&1023 == 0 && d.ctx.Err() != nil {
			s.err = context.Cause(d.ctx)
			return false
		}
		if !d.series() {
			return false
		}
	}
	return s.err == nil && d.count()
}

// count brings the samples to the budget.
func (d *tableDecoder) count() bool {
	n := d.samples
	d.samples, d.counted = 0, d.counted+n
	return d.took(d.budget.AddSamples(n))
}

// took keeps an error of the budget in the scanner, so that all of a decoding has one.
func (d *tableDecoder) took(err error) bool {
	if err != nil && d.s.err == nil {
		d.s.err = err
	}
	return err == nil
}

// series decodes one object of a vector or matrix.
func (d *tableDecoder) series() bool {
	s := d.s
	if !s.Object() {
		return false
	}
	var (
		ls     labels.Labels
		size   int64
		metric bool
		values []float64
	)
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "metric":
			if metric {
				return s.fail(WrongShape, "metric stands twice in one series")
			}
			metric = true
			ls, size, ok = d.labels()
		case "value", "values":
			if values != nil {
				return s.fail(WrongShape, "values stand twice in one series")
			}
			shape := vectorShape
			if len(key) == len("values") {
				shape = matrixShape
			}
			if ok = d.is(shape) && s.Array(); ok {
				values, ok = d.points(shape == vectorShape)
			}
		case "histogram", "histograms":
			// An empty list of histograms is none.
			shape := vectorShape
			if len(key) == len("histograms") {
				shape = matrixShape
			}
			if ok = d.is(shape) && s.Array(); ok && (shape == vectorShape || s.More(true)) {
				d.t.Histograms = s.err == nil
				return false
			}
			ok = ok && s.err == nil
		default:
			ok = s.skip(5)
		}
		if !ok {
			return false
		}
	}
	switch {
	case s.err != nil:
		return false
	case !metric:
		return s.fail(WrongShape, "a series without metric")
	case values == nil: // Prometheus leaves such a series out, so something was lost
		return s.fail(WrongShape, "a series without value")
	}
	if !d.took(d.t.held.Hold(size + tableSeriesBytes)) {
		return false
	}
	if n := len(d.t.Series); n > 0 && d.inOrder {
		d.inOrder = labels.Compare(d.t.Series[n-1].Labels, ls) < 0
	}
	d.t.Series = append(d.t.Series, TableSeries{Labels: ls, Values: values})
	return d.samples < countEvery || d.count()
}

func (d *tableDecoder) is(shape resultShape) bool {
	if d.shape == emptyShape {
		d.shape = shape
	}
	return d.shape == shape || d.s.fail(WrongShape, "values of a vector and of a matrix in one result")
}

// labels decodes a metric object and relabels it. It returns the set and the number of bytes of its
// names and values.
func (d *tableDecoder) labels() (ls labels.Labels, size int64, ok bool) {
	s := d.s
	if s.peek() == '{' {
		start := s.pos
		if d.plainPairs(true) {
			if ls, size, ok = d.plainLabels(s.buf[start:s.pos]); ok {
				return ls, size, true
			}
		}
		s.pos = start
	}
	ls, size, ok = d.set.decode(s)
	d.removed = d.removed || d.set.removed
	return ls, size, ok
}

// plainLabels is the label set of an object without escapes whose labels have been noted. ok is
// false where it is not sorted, or has other rarities.
func (d *tableDecoder) plainLabels(obj []byte) (ls labels.Labels, size int64, ok bool) {
	if !utf8.Valid(obj) || !d.sorted(obj) {
		return ls, 0, false
	}
	for i := range d.pairs {
		if p := &d.pairs[i]; p.valueFrom == p.valueTo {
			return ls, 0, false // an empty value is no label
		}
	}
	all := string(obj)
	b := &d.set.b
	b.Reset()
	var owned []ownedLabel
	if d.set.rl != nil {
		owned = d.set.rl.owned
	}
	for i := range d.pairs {
		p := &d.pairs[i]
		name := all[p.nameFrom:p.nameTo]
		for len(owned) > 0 && owned[0].name < name {
			size += addOwned(b, owned[0])
			owned = owned[1:]
		}
		if len(owned) > 0 && owned[0].name == name {
			d.removed = true
			continue // it is set, or not, when its turn comes
		}
		b.Add(name, all[p.valueFrom:p.valueTo])
		size += int64(p.nameTo - p.nameFrom + p.valueTo - p.valueFrom)
	}
	for _, own := range owned {
		size += addOwned(b, own)
	}
	return b.Labels(), size, true
}

func addOwned(b *labels.ScratchBuilder, own ownedLabel) int64 {
	if own.value == "" {
		return 0
	}
	b.Add(own.name, own.value)
	return int64(len(own.name) + len(own.value))
}
