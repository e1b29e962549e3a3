package merge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Grid is the evaluation times of a query, in milliseconds: Start, and every Step up to End. A Step of 0, or an End that is not behind Start, is one instant.
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

// ErrTwice is the error of a label set that stands twice where every one must stand once: in two shards that ought to be disjoint, or in one after its
// labels have been removed. What can be done is to fetch the series themselves and see.
var ErrTwice = errors.New("a label set stands twice")

// Table is what a shard answered to an expression on a grid: one value for each step of each series, sorted by labels.Compare, each label set once.
// A step without a sample has the bits of value.StaleNaN, which JSON cannot carry. Every series has at least one sample.
//
// Its memory is held in the budget until Close, and so are the values: nothing of a Table may be used afterwards.
type Table struct {
	Grid   Grid
	Series []TableSeries
	// Histograms tells that a native histogram was met. JSON loses its schema, so the numbers are of no further use: decoding stopped there, and Series is empty.
	Histograms bool

	blocks []*valueBlock
	held   ledger
}

// TableSeries is one series of a Table. Values has Grid.Len entries.
type TableSeries struct {
	Labels labels.Labels
	Values []float64
}

// Close gives the buffers back to their pool and the memory to the budget. It is idempotent, and does nothing on nil.
func (t *Table) Close() {
	if t == nil {
		return
	}
	for _, b := range t.blocks {
		valueBlocks.Put(b)
	}
	t.blocks, t.Series = nil, nil
	t.held.drop()
}

// valueBlock is the unit in which values are allocated: 64 KiB.
type valueBlock [8 << 10]float64

const valueBlockBytes = int64(len(valueBlock{})) * 8

var valueBlocks = sync.Pool{New: func() any { return new(valueBlock) }}

// maxSteps is more than max_points lets any query have.
const maxSteps = 1 << 24

// tableSeriesBytes is what one series of a table costs beside its values and the bytes of its names and values.
const tableSeriesBytes = labelSetBytes + 96

// stale marks a step without a sample.
var stale = math.Float64frombits(value.StaleNaN)

// isStale tells whether a step has no sample.
func isStale(v float64) bool { return math.Float64bits(v) == value.StaleNaN }

// DecodeTable reads the answer of one shard to query or query_range on the grid: a vector where the grid is an instant, or a matrix. Labels are relabelled by
// src.Relabel. An answer of any other type or shape is the shard's fault, and so are a sample whose time is not on the grid, times that do not increase,
// and a series that is sent twice. Two series that become equal by removing labels are ErrTwice. Where Result.Truncated is set, the shard's own limit cut
// the answer, and the caller decides what half an answer is good for.
//
// Memory: one Scanner, 64 KiB of values at a time, the label sets, and 24 bytes for each step of the grid while more than one series is read; all of it is
// held in budget as it grows, so an endless answer is refused while it is read. Samples are counted; series are not, since only the caller knows which
// of them are returned. After an error nothing is held.
func DecodeTable(ctx context.Context, src Source, grid Grid, budget *Budget) (*Table, Result, error) {
	if grid.Len() > maxSteps {
		return nil, Result{}, qerr.New(qerr.Internal, "a grid of %d steps is longer than any query's", grid.Len())
	}
	s := NewScanner(src.Body, budget)
	defer s.Close()
	t := &Table{Grid: grid}
	t.held.budget = budget
	d := tableDecoder{pairReader: pairReader{s: s}, ctx: ctx, t: t, steps: grid.Len(), set: setDecoder{rl: src.Relabel}, budget: budget, inOrder: true}
	d.times.budget = budget
	done := false
	defer func() {
		d.times.drop()
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
	res.Series = len(t.Series)
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
	budget *Budget
	steps  int

	resultType string
	shape      resultShape
	set        setDecoder
	removed    bool // a label was removed from a series
	inOrder    bool // the series, so far

	spare   []float64 // what is left of the last block
	texts   []timeText
	times   ledger // for texts
	next    int    // step after the last one of the series in hand
	samples int64  // not yet counted in budget
}

// timeText is the time of a step as Prometheus writes it with the comma and the quote behind, 12 or 16 bytes, as little-endian words. Times of the years
// 2001 to 2286 have ten digits; others have no text.
type timeText struct {
	low, high uint64
	mask      uint64 // of high
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
	return "", s.fail(WrongShape, "resultType is %q", clip(t))
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
	d.samples = 0
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
	if !d.took(d.t.held.hold(size + tableSeriesBytes)) {
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

// labels decodes a metric object and relabels it. It returns the set and the number of bytes of its names and values.
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

// plainLabels is the label set of an object without escapes whose labels have been noted. ok is false where it is not sorted, or has other rarities.
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

// room returns space for the values of one series.
func (d *tableDecoder) room() []float64 {
	n := d.steps
	if n > len(d.spare) {
		if n > len(valueBlock{}) {
			const page = 8 << 10 // in which the runtime gives such space
			if !d.took(d.t.held.hold((8*int64(n) + page - 1) &^ (page - 1))) {
				return nil
			}
			return make([]float64, n)
		}
		if !d.took(d.t.held.hold(valueBlockBytes)) {
			return nil
		}
		block := valueBlocks.Get().(*valueBlock)
		d.t.blocks = append(d.t.blocks, block)
		d.spare = block[:]
	}
	values := d.spare[:n:n]
	d.spare = d.spare[n:]
	return values
}

// points decodes what follows the bracket of values, or, where single is set, of one point's array; the values are nil where there is no point.
func (d *tableDecoder) points(single bool) ([]float64, bool) {
	s := d.s
	if d.steps > 1 && len(d.t.Series) == 1 && d.texts == nil && !d.spell() {
		return nil, false
	}
	if single {
		s.pos-- // the bracket is the point's own
		if d.steps != 1 {
			return nil, s.fail(WrongShape, "a vector where a matrix was asked for")
		}
	}
	var values []float64
	d.next = 0
	for first := true; single && first || !single && s.More(first); first = false {
		if values == nil {
			if values = d.room(); values == nil {
				return nil, false
			}
		}
		if !d.fastPoints(values) && !d.slowPoint(values) {
			return nil, false
		}
		if d.samples >= countEvery && !d.count() {
			return nil, false
		}
	}
	if s.err != nil {
		return nil, false
	}
	if values != nil {
		for i := d.next; i < len(values); i++ {
			values[i] = stale
		}
	}
	return values, true
}

// spell makes the texts of the grid's times.
func (d *tableDecoder) spell() bool {
	const textBytes = 24
	if !d.took(d.times.hold(textBytes * int64(d.steps))) {
		return false
	}
	d.texts = make([]timeText, d.steps)
	var room [40]byte
	for i := range d.texts {
		b := append(AppendTimestamp(room[:0], d.t.Grid.Time(i)), ',', '"')
		x := &d.texts[i]
		switch {
		case len(b) == 12 && b[0] != '-':
			x.mask = math.MaxUint32
		case len(b) == 16 && b[10] == '.':
			x.mask = math.MaxUint64
		default:
			x.low = 1 // no text begins with that byte
			continue
		}
		b = append(b, 0, 0, 0, 0)
		x.low, x.high = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])&x.mask
	}
	return true
}

// pointRoom is more than fastPoints looks at: a bracket, a time of at most 15 digits, a point, seven more, a comma and a quote; a number; and a word behind it.
const pointRoom = 26 + plainRoom + 8

// fastPoints decodes as many points of the form [123.456,"1.5"] as lie in the buffer, with no white space, escapes or other rarities between. It stops after
// a whole point, in front of the comma or bracket that follows, and tells whether it decoded any: where it did not, the slow way must.
func (d *tableDecoder) fastPoints(values []float64) bool {
	s := d.s
	buf := s.buf[:s.end]
	i, done := s.pos, s.pos
	next, texts := d.next, d.texts
	n := int64(0)
	if i >= len(buf) || buf[i] != '[' {
		return false
	}
	for i+pointRoom <= len(buf) && next < len(values) { // buf[i] is a bracket
		b := buf[i : i+pointRoom : i+pointRoom]
		j := 0
		if next < len(texts) {
			x := &texts[next]
			if binary.LittleEndian.Uint64(b[1:])^x.low|(binary.LittleEndian.Uint64(b[9:])^x.high)&x.mask == 0 {
				j = 13 + int(x.mask>>61)&4
			}
		}
		step := next
		if j == 0 {
			var ms int64
			if ms, j = pointMillis(b); j == 0 {
				break
			}
			if ms != d.t.Grid.Start+int64(next)*d.t.Grid.Step {
				if step = d.t.Grid.index(ms); step < next {
					break
				}
			}
		}
		v, end := plainFloat(b, j)
		if end == 0 {
			end = j
			for limit := j + 24; end < limit; end += 8 {
				if m := stringStop(binary.LittleEndian.Uint64(b[end:])); m != 0 {
					end += bits.TrailingZeros64(m) / 8
					break
				}
			}
			if b[end] != '"' {
				break
			}
			var err error
			if v, err = parseFloat(b[j:end]); err != nil {
				break
			}
		}
		for ; next < step; next++ {
			values[next] = stale
		}
		if binary.LittleEndian.Uint32(b[end:]) == nextPoint {
			values[next] = v
			next++
			n++
			i += end + 3
			done = i - 1
			continue
		}
		if b[end+1] == ']' {
			values[next] = v
			next++
			n++
			done = i + end + 2
		}
		break
	}
	s.pos, d.next = done, next
	d.samples += n
	return n > 0
}

// pointMillis returns the time of a point as pointTime finds it, in milliseconds, and where the text begins; 0 where it is anything else.
func pointMillis(b []byte) (ms int64, j int) {
	j = pointTime(b)
	if j == 0 {
		return 0, 0
	}
	u := word(b, 1)
	n := leading(u)
	t := upTo(u, n)
	i := 1 + n
	if n == 8 {
		u = word(b, 9)
		n = leading(u)
		t = t*tens[n] + upTo(u, n)
		i += n
	}
	t *= 1000
	if b[i] == '.' {
		u = word(b, i+1)
		n = leading(u)
		f := upTo(u, n)
		if n > 3 {
			if f%tens[n-3] != 0 {
				return 0, 0
			}
			f /= tens[n-3]
			n = 3
		}
		t += f * tens[3-n]
	}
	return int64(t), j
}

// slowPoint decodes one point of any spelling.
func (d *tableDecoder) slowPoint(values []float64) bool {
	s := d.s
	if !s.Array() {
		return false
	}
	text, ok := s.Number()
	if !ok {
		return false
	}
	ms, whole := parseMillis(text)
	if !s.expect(',', "a comma") {
		return false
	}
	step := d.t.Grid.index(ms)
	switch {
	case !whole:
		return s.fail(WrongShape, "a sample at a part of a millisecond, at which nothing was asked")
	case step < 0:
		return s.fail(WrongShape, "a sample at %d ms, at which nothing was asked", ms)
	case step < d.next:
		return s.fail(WrongShape, "a sample at %d ms behind one that is as late or later", ms)
	}
	if text, ok = s.String(); !ok {
		return false
	}
	v, err := parseFloat(text)
	if err != nil {
		return s.fail(WrongShape, "the value of a sample is %q", clip(text))
	}
	for ; d.next < step; d.next++ {
		values[d.next] = stale
	}
	values[step] = v
	d.next++
	d.samples++
	return s.expect(']', "the end of a point")
}
