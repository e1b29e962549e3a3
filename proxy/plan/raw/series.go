package raw

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Segment is a stretch of time in which a series' samples come from one copy of one slice. From and
// Until are inclusive, in milliseconds.
type Segment struct {
	// Slice and Copy name the shard and the replica.
	Slice string `json:"shard"`
	Copy  string `json:"replica"`
	// From and Until bound the samples taken, both inclusive, in milliseconds.
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

// part is a segment with the chunks that hold its samples; chunks may reach beyond it on both
// sides.
type part struct {
	Segment
	chunks []prompb.Chunk
}

// damaged is the error of a copy whose chunk ended before its samples did: it was announced and
// looked at as sound.
func (p *part) damaged(err error) error {
	e := qerr.Wrap(qerr.ShardFailed, err, "%s sent series data that cannot be decoded", p.Copy)
	e.Shards = []string{p.Copy}
	return e
}

// series is one series in parts that follow each other in time without overlap.
type series struct {
	lbls  labels.Labels
	parts []part
	turn  Turn // of the evaluation that reads it; nil where none does
}

var _ storage.Series = (*series)(nil)

// Labels returns the label set as one Prometheus would hold it, the group's labels included.
func (s *series) Labels() labels.Labels { return s.lbls }

// Iterator walks the samples of all parts in time order. it is reused where it is one of this
// package's.
func (s *series) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	p, ok := it.(*iterator)
	if !ok {
		p = &iterator{}
	}
	p.turn = s.turn
	p.reset(s.parts)
	return p
}

// iterator walks parts, then chunks within a part, then samples within the part's bounds.
type iterator struct {
	parts []part
	part  int
	chunk int
	cur   chunkenc.Iterator // over the current chunk; nil before the first
	typ   chunkenc.ValueType
	first bool // the current sample is the first of its part
	fresh bool // no sample of the current part was emitted yet
	err   error
	turn  Turn
}

var _ chunkenc.Iterator = (*iterator)(nil)

func (it *iterator) reset(parts []part) {
	// nothing precedes the first part, so what its first histogram says of its past holds
	*it = iterator{parts: parts, cur: it.cur, turn: it.turn}
	it.open()
}

// workOfChunk is how many samples a chunk counts for: what servers usually put into one.
const workOfChunk = 120

// open makes cur the iterator of the current chunk, skipping parts and chunks that are exhausted.
// It reports whether there is one.
func (it *iterator) open() bool {
	for it.part < len(it.parts) {
		p := &it.parts[it.part]
		for it.chunk < len(p.chunks) {
			c := &p.chunks[it.chunk]
			if c.MaxTimeMs < p.From || c.MinTimeMs > p.Until {
				it.chunk++
				continue
			}
			if it.turn != nil {
				if it.err = it.turn.Work(workOfChunk); it.err != nil {
					return false
				}
			}
			chk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
			if err != nil {
				it.err = p.damaged(err)
				return false
			}
			it.cur = chk.Iterator(it.cur)
			return true
		}
		it.part++
		it.chunk = 0
		it.fresh = true
	}
	return false
}

// Next implements chunkenc.Iterator.
func (it *iterator) Next() chunkenc.ValueType {
	for it.err == nil && it.part < len(it.parts) {
		p := &it.parts[it.part]
		if it.chunk >= len(p.chunks) {
			if !it.open() {
				break
			}
			continue
		}
		for typ := it.cur.Next(); typ != chunkenc.ValNone; typ = it.cur.Next() {
			t := it.cur.AtT()
			if t < p.From {
				continue
			}
			if t > p.Until {
				break
			}
			it.typ, it.first, it.fresh = typ, it.fresh, false
			return typ
		}
		if err := it.cur.Err(); err != nil {
			it.err = p.damaged(err)
			break
		}
		it.chunk++
		if !it.open() {
			break
		}
	}
	it.typ = chunkenc.ValNone
	return chunkenc.ValNone
}

// Seek implements chunkenc.Iterator.
func (it *iterator) Seek(t int64) chunkenc.ValueType {
	if it.typ != chunkenc.ValNone && it.AtT() >= t {
		return it.typ
	}
	// Whole chunks before t need not be decoded.
	moved := false
	for it.part < len(it.parts) {
		p := &it.parts[it.part]
		if p.Until < t {
			it.part++
			it.chunk, it.fresh, moved = 0, true, true
			continue
		}
		if it.chunk < len(p.chunks) && p.chunks[it.chunk].MaxTimeMs < t {
			it.chunk++
			moved = true
			continue
		}
		break
	}
	if moved && !it.open() {
		it.typ = chunkenc.ValNone
		return chunkenc.ValNone
	}
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		if it.AtT() >= t {
			return typ
		}
	}
	return chunkenc.ValNone
}

// At implements chunkenc.Iterator.
func (it *iterator) At() (int64, float64) { return it.cur.At() }

// AtT implements chunkenc.Iterator.
func (it *iterator) AtT() int64 { return it.cur.AtT() }

// AtST implements chunkenc.Iterator.
func (it *iterator) AtST() int64 { return it.cur.AtST() }

// AtHistogram implements chunkenc.Iterator. The first histogram of a part was not encoded after the
// one that precedes it here, so its reset hint says nothing about that one.
func (it *iterator) AtHistogram(h *histogram.Histogram) (int64, *histogram.Histogram) {
	t, h := it.cur.AtHistogram(h)
	if it.first && h.CounterResetHint != histogram.GaugeType {
		h.CounterResetHint = histogram.UnknownCounterReset
	}
	return t, h
}

// AtFloatHistogram implements chunkenc.Iterator, with the same care as AtHistogram.
func (it *iterator) AtFloatHistogram(h *histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	t, h := it.cur.AtFloatHistogram(h)
	if it.first && h.CounterResetHint != histogram.GaugeType {
		h.CounterResetHint = histogram.UnknownCounterReset
	}
	return t, h
}

// Err implements chunkenc.Iterator.
func (it *iterator) Err() error { return it.err }
