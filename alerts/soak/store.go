package soak

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// store holds samples in memory, of each family as long as some rule can reach them: the engine
// finds a sample by its place, and not by decoding what stands before it. What nobody reads is not
// stored. It is for one goroutine.
type store struct {
	families map[string]*family
	refs     []*stored // by reference less one
}

var (
	_ storage.Appendable = (*store)(nil)
	_ storage.Queryable  = (*store)(nil)
)

// family is all series of one name.
type family struct {
	keep     int64 // ms that samples are kept
	series   []*stored
	byLabels map[string]*stored
	chosen   map[string][]*stored // by the text of matchers, until a series comes or goes
}

// stored is one series, in order of time.
type stored struct {
	lset labels.Labels
	key  string
	ref  storage.SeriesRef
	t    []int64
	v    []float64
}

func newStore(reach map[string]time.Duration) *store {
	s := &store{families: map[string]*family{}}
	for name, d := range reach {
		s.families[name] = &family{
			keep: (d + lookback + 2*time.Minute).Milliseconds(), byLabels: map[string]*stored{}, chosen: map[string][]*stored{},
		}
	}
	return s
}

// Appender gives one that writes at once: nothing is rolled back.
func (s *store) Appender(context.Context) storage.Appender { return &writer{store: s} }

type writer struct {
	storage.Appender // nil: what is not below is never asked for
	store            *store
}

// Append stores a sample. References hold until the next forget.
func (w *writer) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	var x *stored
	if ref > 0 {
		x = w.store.refs[ref-1]
	} else {
		f := w.store.families[l.Get(model.MetricNameLabel)]
		if f == nil {
			return 0, nil
		}
		var buf [1024]byte
		key := l.Bytes(buf[:])
		if x = f.byLabels[string(key)]; x == nil {
			x = &stored{lset: l, key: string(key)}
			w.store.refs = append(w.store.refs, x)
			x.ref = storage.SeriesRef(len(w.store.refs))
			f.byLabels[x.key] = x
			f.series = append(f.series, x)
			clear(f.chosen)
		}
	}
	if n := len(x.t); n > 0 && t <= x.t[n-1] {
		switch {
		case t < x.t[n-1]:
			return x.ref, storage.ErrOutOfOrderSample
		case math.Float64bits(v) != math.Float64bits(x.v[n-1]):
			return x.ref, storage.ErrDuplicateSampleForTimestamp
		}
		return x.ref, nil
	}
	x.t, x.v = append(x.t, t), append(x.v, v)
	return x.ref, nil
}

func (w *writer) SetOptions(*storage.AppendOptions) {}
func (w *writer) Commit() error                     { return nil }
func (w *writer) Rollback() error                   { return errors.New("what was written stays") }

// forget drops what no rule reaches that is evaluated at now or later.
func (s *store) forget(now time.Time) {
	s.refs = s.refs[:0]
	for _, f := range s.families {
		before := now.UnixMilli() - f.keep
		kept := f.series[:0]
		for _, x := range f.series {
			if n, _ := slices.BinarySearch(x.t, before); n > 0 {
				x.t = append(x.t[:0], x.t[n:]...)
				x.v = append(x.v[:0], x.v[n:]...)
			}
			if len(x.t) == 0 {
				delete(f.byLabels, x.key)
				continue
			}
			kept = append(kept, x)
			s.refs = append(s.refs, x)
			x.ref = storage.SeriesRef(len(s.refs))
		}
		if len(kept) != len(f.series) {
			clear(f.chosen)
			clear(f.series[len(kept):])
			f.series = kept
		}
	}
}

// Querier reads [mint, maxt], in milliseconds.
func (s *store) Querier(mint, maxt int64) (storage.Querier, error) {
	return &reader{store: s, mint: mint, maxt: maxt}, nil
}

type reader struct {
	storage.Querier // nil: what is not below is never asked for
	store           *store
	mint, maxt      int64
}

func (r *reader) Close() error { return nil }

// Select finds series of one family; the plan has seen to it that each selector names one.
func (r *reader) Select(_ context.Context, sorted bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	mint, maxt := r.mint, r.maxt
	if h != nil {
		mint, maxt = max(mint, h.Start), min(maxt, h.End)
	}
	f := r.store.families[metricName(ms)]
	if f == nil {
		return storage.EmptySeriesSet()
	}
	out := &found{at: -1}
	for _, x := range f.choose(ms) {
		if n := len(x.t); n == 0 || x.t[0] > maxt || x.t[n-1] < mint {
			continue
		}
		lo, _ := slices.BinarySearch(x.t, mint)
		hi, _ := slices.BinarySearch(x.t, maxt+1)
		if lo < hi {
			out.series = append(out.series, stretch{x, lo, hi})
		}
	}
	if sorted {
		slices.SortFunc(out.series, func(a, b stretch) int { return labels.Compare(a.of.lset, b.of.lset) })
	}
	return out
}

// choose are the series that match.
func (f *family) choose(ms []*labels.Matcher) []*stored {
	var b strings.Builder
	for _, m := range ms {
		b.WriteString(m.Name)
		b.WriteByte(byte(m.Type))
		b.WriteString(m.Value)
		b.WriteByte(0)
	}
	key := b.String()
	if out, ok := f.chosen[key]; ok {
		return out
	}
	out := []*stored{}
next:
	for _, x := range f.series {
		for _, m := range ms {
			if !m.Matches(x.lset.Get(m.Name)) {
				continue next
			}
		}
		out = append(out, x)
	}
	f.chosen[key] = out
	return out
}

// stretch is samples [lo, hi) of a series.
type stretch struct {
	of     *stored
	lo, hi int
}

// found is what a selector finds.
type found struct {
	series []stretch
	at     int
}

func (s *found) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *found) At() storage.Series                { return &s.series[s.at] }
func (s *found) Err() error                        { return nil }
func (s *found) Warnings() annotations.Annotations { return nil }

func (p *stretch) Labels() labels.Labels { return p.of.lset }

func (p *stretch) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	w, ok := it.(*walk)
	if !ok {
		w = &walk{}
	}
	w.t, w.v, w.at = p.of.t[p.lo:p.hi], p.of.v[p.lo:p.hi], -1
	return w
}

// walk goes over samples.
type walk struct {
	chunkenc.Iterator // nil: there are no histograms
	t                 []int64
	v                 []float64
	at                int
}

func (w *walk) Next() chunkenc.ValueType {
	if w.at+1 >= len(w.t) {
		w.at = len(w.t)
		return chunkenc.ValNone
	}
	w.at++
	return chunkenc.ValFloat
}

// Seek goes to the first sample at or after t, never back.
func (w *walk) Seek(t int64) chunkenc.ValueType {
	w.at = max(w.at, 0)
	if w.at >= len(w.t) {
		return chunkenc.ValNone
	}
	n, _ := slices.BinarySearch(w.t[w.at:], t)
	if w.at += n; w.at >= len(w.t) {
		return chunkenc.ValNone
	}
	return chunkenc.ValFloat
}

func (w *walk) At() (int64, float64) { return w.t[w.at], w.v[w.at] }
func (w *walk) AtT() int64           { return w.t[w.at] }
func (w *walk) AtST() int64          { return 0 }
func (w *walk) Err() error           { return nil }

func (w *walk) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("there are no histograms")
}
