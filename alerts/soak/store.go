package soak

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// store holds samples in memory, of each family as long as some rule can reach them: the engine
// finds a sample by its place, and not by decoding what stands before it. What nobody reads is not
// stored. Many may write and read at a time, each series one writer; what is read is bounded by
// time and in the order of labels, so that nobody sees who else is at work. Nobody else may be
// while it forgets.
type store struct {
	families map[string]*family // the set never changes
}

var (
	_ storage.Appendable = (*store)(nil)
	_ storage.Appendable = (*pen)(nil)
	_ storage.Queryable  = (*store)(nil)
)

// family is all series of one name.
type family struct {
	keep int64 // ms that samples are kept

	mu     sync.RWMutex
	byHash map[uint64]*stored
	series []*stored // in the order of labels
	fresh  []*stored // those that are not among them yet
	chosen map[string]*choice
}

// choice are the series that matchers choose, in the order of labels.
type choice struct {
	matchers []*labels.Matcher
	series   []*stored
}

// stored is one series.
type stored struct {
	lset   labels.Labels
	of     *family
	next   *stored // of the same hash
	points []point // in order of time
	gone   bool    // forgotten
}

// point is one sample.
type point struct {
	t int64
	v float64
}

// grow is for how many more samples room is made: what a series holds is soon as much as it ever
// will, and twice of it is too much for a fleet.
const grow = 16

func newStore(reach map[string]time.Duration) *store {
	s := &store{families: map[string]*family{}}
	for name, d := range reach {
		s.families[name] = &family{
			keep: (d + lookback + 2*time.Minute).Milliseconds(), byHash: map[uint64]*stored{}, chosen: map[string]*choice{},
		}
	}
	return s
}

// Appender gives one that writes at once and knows no references: nothing is rolled back.
func (s *store) Appender(context.Context) storage.Appender { return &writer{pen: &pen{store: s}} }

// scraper is who writes the same series many times: its references hold as long as it is used.
func (s *store) scraper() storage.Appendable { return &pen{store: s, refers: true} }

// pen writes to the store.
type pen struct {
	store  *store
	refers bool
	refs   []*stored // by reference less one
}

func (p *pen) Appender(context.Context) storage.Appender { return &writer{pen: p} }

type writer struct {
	storage.Appender // nil: what is not below is never asked for
	*pen
}

// Append stores a sample.
func (w *writer) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	var x *stored
	if ref > 0 {
		x = w.refs[ref-1]
		x.of.mu.Lock()
		if x.gone {
			x = x.of.find(x.lset)
			w.refs[ref-1] = x
		}
	} else {
		f := w.store.families[l.Get(model.MetricNameLabel)]
		if f == nil {
			return 0, nil
		}
		f.mu.Lock()
		x = f.find(l)
		if w.refers {
			w.refs = append(w.refs, x)
			ref = storage.SeriesRef(len(w.refs))
		}
	}
	defer x.of.mu.Unlock()
	if n := len(x.points); n > 0 && t <= x.points[n-1].t {
		switch {
		case t < x.points[n-1].t:
			return ref, storage.ErrOutOfOrderSample
		case math.Float64bits(v) != math.Float64bits(x.points[n-1].v):
			return ref, storage.ErrDuplicateSampleForTimestamp
		}
		return ref, nil
	}
	if n := len(x.points); n == cap(x.points) {
		more := make([]point, n, n+grow)
		copy(more, x.points)
		x.points = more
	}
	x.points = append(x.points, point{t, v})
	return ref, nil
}

func (w *writer) SetOptions(*storage.AppendOptions) {}
func (w *writer) Commit() error                     { return nil }
func (w *writer) Rollback() error                   { return errors.New("what was written stays") }

// find is the series of these labels, a new one where there is none. The family is locked.
func (f *family) find(l labels.Labels) *stored {
	h := l.Hash()
	for x := f.byHash[h]; x != nil; x = x.next {
		if labels.Equal(x.lset, l) {
			return x
		}
	}
	x := &stored{lset: l, of: f, next: f.byHash[h]}
	f.byHash[h] = x
	f.fresh = append(f.fresh, x)
	return x
}

// drop takes a series out of the table. The family is locked.
func (f *family) drop(x *stored) {
	x.gone = true
	h := x.lset.Hash()
	if f.byHash[h] == x && x.next == nil {
		delete(f.byHash, h)
		return
	}
	at := f.byHash[h]
	if at == x {
		f.byHash[h] = x.next
		return
	}
	for at.next != x {
		at = at.next
	}
	at.next = x.next
}

// forget drops what no rule reaches that is evaluated at now or later.
func (s *store) forget(now time.Time) {
	for _, f := range s.families {
		f.settle()
		before := now.UnixMilli() - f.keep
		gone := 0
		for _, x := range f.series {
			if n := search(x.points, before); n > 0 {
				x.points = append(x.points[:0], x.points[n:]...)
			}
			if len(x.points) == 0 {
				f.drop(x)
				gone++
			}
		}
		if gone == 0 {
			continue
		}
		left := func(list []*stored) []*stored { return slices.DeleteFunc(list, func(x *stored) bool { return x.gone }) }
		f.series = left(f.series)
		for _, c := range f.chosen {
			c.series = left(c.series)
		}
	}
}

// search is the place of the first sample at or after t. Samples come at even distances, so that it
// looks first where that sample should be.
func search(points []point, t int64) int {
	n := len(points)
	if n == 0 || points[n-1].t < t {
		return n
	}
	at := 0
	if span := points[n-1].t - points[0].t; t > points[0].t {
		at = int((t - points[0].t) * int64(n-1) / span)
	}
	for at > 0 && points[at-1].t >= t {
		at--
	}
	for points[at].t < t {
		at++
	}
	return at
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

// Select finds series of one family; the plan has seen to it that each selector names one. They
// come sorted always.
func (r *reader) Select(_ context.Context, _ bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	mint, maxt := r.mint, r.maxt
	if h != nil {
		mint, maxt = max(mint, h.Start), min(maxt, h.End)
	}
	f := r.store.families[metricName(ms)]
	if f == nil {
		return storage.EmptySeriesSet()
	}
	out := &found{at: -1}
	key := text(ms)
	f.mu.RLock()
	c := f.chosen[key]
	if c == nil || len(f.fresh) > 0 {
		f.mu.RUnlock()
		f.choose(key, ms)
		f.mu.RLock()
		c = f.chosen[key]
	}
	defer f.mu.RUnlock()
	what := asked(h)
	for _, x := range c.series {
		hi := len(x.points)
		for hi > 0 && x.points[hi-1].t > maxt { // scrapes are ahead by a few
			hi--
		}
		if hi == 0 || x.points[hi-1].t < mint {
			continue
		}
		lo := hi - 1
		switch {
		case what == newest:
		case what == newestNumber:
			for lo > 0 && value.IsStaleNaN(x.points[lo].v) && x.points[lo-1].t >= mint {
				lo--
			}
		default:
			lo = search(x.points[:hi], mint)
		}
		out.series = append(out.series, stretch{x.lset, x.points[lo:hi:hi]})
	}
	return out
}

const (
	everything   = iota
	newest       // an instant selector looks at the last sample before its moment, and sees whether it is a stale marker
	newestNumber // and last_over_time at the last one that is none
)

// asked says whether who asks looks at one sample of each series: the engine would go over all
// that it gets. It says more of the time than one moment needs where there are several moments, in
// subqueries.
func asked(h *storage.SelectHints) int {
	switch {
	case h == nil:
	case h.Range == 0 && h.End-h.Start < lookback.Milliseconds():
		return newest
	case h.Func == "last_over_time" && h.Range > 0 && h.End-h.Start < h.Range:
		return newestNumber
	}
	return everything
}

// text is a key of matchers.
func text(ms []*labels.Matcher) string {
	var b strings.Builder
	for _, m := range ms {
		b.WriteString(m.Name)
		b.WriteByte(byte(m.Type))
		b.WriteString(m.Value)
		b.WriteByte(0)
	}
	return b.String()
}

// choose sees to it that the family knows which series match.
func (f *family) choose(key string, ms []*labels.Matcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	if f.chosen[key] == nil {
		f.chosen[key] = &choice{ms, thatMatch(f.series, ms)}
	}
}

// settle gives new series their places. The family is locked, or nobody else is at work.
func (f *family) settle() {
	if len(f.fresh) == 0 {
		return
	}
	slices.SortFunc(f.fresh, inOrder)
	f.series = merged(f.series, f.fresh)
	for _, c := range f.chosen {
		c.series = merged(c.series, thatMatch(f.fresh, c.matchers))
	}
	f.fresh = nil
}

func inOrder(a, b *stored) int { return labels.Compare(a.lset, b.lset) }

// thatMatch are those that all matchers take.
func thatMatch(series []*stored, ms []*labels.Matcher) []*stored {
	var out []*stored
	for _, x := range series {
		if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(x.lset.Get(m.Name)) }) {
			out = append(out, x)
		}
	}
	return out
}

// merged are both lists, each in order; the first one's room is used again.
func merged(a, b []*stored) []*stored {
	end := len(a)
	a = append(a, b...)
	for j, x := range slices.Backward(b) {
		at, _ := slices.BinarySearchFunc(a[:end], x, inOrder)
		copy(a[at+j+1:], a[at:end])
		a[at+j] = x
		end = at
	}
	return a
}

// stretch is what is read of a series.
type stretch struct {
	lset   labels.Labels
	points []point
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

func (p *stretch) Labels() labels.Labels { return p.lset }

func (p *stretch) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	w, ok := it.(*walk)
	if !ok {
		w = &walk{}
	}
	w.points, w.at = p.points, -1
	return w
}

// walk goes over samples.
type walk struct {
	chunkenc.Iterator // nil: there are no histograms
	points            []point
	at                int
}

func (w *walk) Next() chunkenc.ValueType {
	if w.at+1 >= len(w.points) {
		w.at = len(w.points)
		return chunkenc.ValNone
	}
	w.at++
	return chunkenc.ValFloat
}

// Seek goes to the first sample at or after t, never back.
func (w *walk) Seek(t int64) chunkenc.ValueType {
	w.at = max(w.at, 0)
	if w.at >= len(w.points) {
		return chunkenc.ValNone
	}
	if w.at += search(w.points[w.at:], t); w.at >= len(w.points) {
		return chunkenc.ValNone
	}
	return chunkenc.ValFloat
}

func (w *walk) At() (int64, float64) { return w.points[w.at].t, w.points[w.at].v }
func (w *walk) AtT() int64           { return w.points[w.at].t }
func (w *walk) AtST() int64          { return 0 }
func (w *walk) Err() error           { return nil }

func (w *walk) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("there are no histograms")
}
