package evaluation

import (
	"context"
	"fmt"
	"testing"
	"time"

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
		s.list = append(s.list, storage.NewListSeries(labels.FromStrings("__name__", "m_total", "i", fmt.Sprint(i), "zone", fmt.Sprint(i%7)), all))
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
					turn, _ = g.Begin(b.Context())
				}
				if err := evaluate(b, b.Context(), turn, "rate(m_total[1m])", 200, from); err != nil {
					b.Fatal(err)
				}
				turn.End()
			}
		})
	}
}

// slowest notes the longest stretch between two looks.
type slowest struct {
	context.Context
	last    time.Time
	longest time.Duration
}

// Err implements context.Context: each look asks first.
func (s *slowest) Err() error {
	now := time.Now()
	s.longest = max(s.longest, now.Sub(s.last))
	s.last = now
	return nil
}

// BenchmarkLongestStretch is how long nasty texts run without a look of a Turn's, in ms. The engine's own looks, once for each step or series, are not seen by it.
func BenchmarkLongestStretch(b *testing.B) {
	many := newStored(20000, 4)
	for _, c := range []struct {
		text  string
		steps int
		from  storage.Queryable
	}{
		{"quantile_over_time(0.9, vector(time())[22700s:1s])", 200, nil},
		{"mad_over_time(vector(time())[22700s:1s])", 200, nil},
		{"double_exponential_smoothing(vector(time())[22700s:1s], 0.5, 0.5)", 200, nil},
		{"max_over_time(quantile_over_time(0.9, vector(time())[500s:1s])[500s:1s])", 200, nil},
		{"rate(m_total[1h])", 200, many},
		{"abs(m_total)", 20, many},
		{"sort_desc(m_total)", 1, many},
		{"histogram_quantile(0.9, m_total)", 20, many},
	} {
		b.Run(c.text, func(b *testing.B) {
			for b.Loop() {
				ctx := &slowest{Context: b.Context(), last: time.Now()}
				turn, err := NewGate(2, nil).Begin(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := evaluate(b, b.Context(), turn, c.text, c.steps, c.from); err != nil {
					b.Fatal(err)
				}
				turn.End()
				b.ReportMetric(float64(ctx.longest.Microseconds())/1000, "longest-ms")
			}
		})
	}
}
