package plan

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// TableSet shows a table to the engine as series: a sample at each step, and a stale marker at
// those without one, so that no step sees an earlier one's value. The set is to be used while the
// table is open. turn is told of what is about to be read.
func TableSet(t *merge.Table, turn raw.Turn) storage.SeriesSet {
	return &tableSet{t: t, turn: turn, at: -1}
}

type tableSet struct {
	t    *merge.Table
	turn raw.Turn
	at   int
}

func (s *tableSet) Next() bool                      { s.at++; return s.at < len(s.t.Series) }
func (s *tableSet) At() storage.Series              { return &tableSeries{s.t, &s.t.Series[s.at], s.turn} }
func (*tableSet) Err() error                        { return nil }
func (*tableSet) Warnings() annotations.Annotations { return nil }

type tableSeries struct {
	t    *merge.Table
	s    *merge.TableSeries
	turn raw.Turn
}

// Labels implements storage.Series.
func (s *tableSeries) Labels() labels.Labels { return s.s.Labels }

// Iterator implements storage.Series.
func (s *tableSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	i, ok := it.(*tableIterator)
	if !ok {
		i = &tableIterator{}
	}
	*i = tableIterator{grid: s.t.Grid, values: s.s.Values, at: -1}
	if i.err = s.turn.Work(len(s.s.Values)); i.err != nil {
		i.values = nil
	}
	return i
}

type tableIterator struct {
	grid   merge.Grid
	values []float64
	at     int
	err    error // that ended the evaluation
}

// Next implements chunkenc.Iterator.
func (i *tableIterator) Next() chunkenc.ValueType {
	if i.at < len(i.values) {
		i.at++
	}
	return i.typ()
}

func (i *tableIterator) typ() chunkenc.ValueType {
	if i.at < 0 || i.at >= len(i.values) {
		return chunkenc.ValNone
	}
	return chunkenc.ValFloat
}

// Seek implements chunkenc.Iterator.
func (i *tableIterator) Seek(t int64) chunkenc.ValueType {
	to := 0
	if t > i.grid.Start {
		to = len(i.values)
		if i.grid.Step > 0 {
			to = int(min((t-i.grid.Start+i.grid.Step-1)/i.grid.Step, int64(len(i.values))))
		}
	}
	i.at = max(i.at, to)
	return i.typ()
}

// At implements chunkenc.Iterator.
func (i *tableIterator) At() (int64, float64) { return i.AtT(), i.values[i.at] }

// AtT implements chunkenc.Iterator.
func (i *tableIterator) AtT() int64 { return i.grid.Time(i.at) }

// AtST implements chunkenc.Iterator.
func (*tableIterator) AtST() int64 { return 0 }

// AtHistogram implements chunkenc.Iterator; a table has none.
func (i *tableIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	return i.AtT(), nil
}

// AtFloatHistogram implements chunkenc.Iterator; a table has none.
func (i *tableIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return i.AtT(), nil
}

// Err implements chunkenc.Iterator.
func (i *tableIterator) Err() error { return i.err }
