package evaluation

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// point is a sample in memory.
type point struct {
	t int64
	f float64
}

func (p point) T() int64                    { return p.t }
func (point) ST() int64                     { return 0 }
func (p point) F() float64                  { return p.f }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }

// stored is so many series with a sample every 15 seconds.
type stored struct{ list []storage.Series }

func newStored(series, samples int) stored {
	all := make([]chunks.Sample, samples)
	for i := range all {
		all[i] = point{(1e9-3600)*1000 + int64(i)*15000, float64(i)}
	}
	var s stored
	for i := range series {
		s.list = append(s.list, storage.NewListSeries(labels.FromStrings("__name__", "m_total", "i", fmt.Sprint(i), "zone",
			fmt.Sprint(i%7)), all))
	}
	return s
}

func (s stored) Querier(int64, int64) (storage.Querier, error) {
	return storedQuerier{storage.NoopQuerier(), s.list}, nil
}

type storedQuerier struct {
	storage.Querier
	list []storage.Series
}

func (q storedQuerier) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	return &storedSet{q.list, -1}
}

type storedSet struct {
	list []storage.Series
	at   int
}

func (s *storedSet) Next() bool                      { s.at++; return s.at < len(s.list) }
func (s *storedSet) At() storage.Series              { return s.list[s.at] }
func (*storedSet) Err() error                        { return nil }
func (*storedSet) Warnings() annotations.Annotations { return nil }

// BenchmarkWatch is what looking costs where calls are cheapest and most: rate over many series.
func BenchmarkWatch(b *testing.B) {
	from := newStored(2000, 480)
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) {
			g := NewGate(2, nil)
			for b.Loop() {
				var turn *Turn
				if watched {
					turn, _ = g.Begin(b.Context(), "")
				}
				if err := evaluate(b, b.Context(), turn, "rate(m_total[1m])", 200, from); err != nil {
					b.Fatal(err)
				}
				turn.End()
			}
		})
	}
}
