package server

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/spillwayproject/spillway/internal/seamref"
)

// A replica that lost scrapes is spliced with another by the rules of proxy/plan/raw: another
// replica's samples fill what is longer than one and a half intervals. So some gaps must be seen by
// nobody, and others may be: where a window ends less than half an interval after the first scrape
// that is missing, the base's last sample is still the newest one that a replica has to have, and
// its answer is right by our definition (section 7 of the design: the samples of one replica in
// each segment) but not the answer of a server that lost nothing, which is what promqltest's files
// expect.
//
// Gaps are therefore chosen by what the file asks: a first run of it over one plain storage records
// every window of every select, and a gap is taken where the rules, written down again in
// internal/seamref, fill it in all those windows, whichever replica is the base. The choice is
// random otherwise, and the numbers of samples lost are printed.

// schedule is when which replica of a shard is down: gaps of one replica at a time.
type schedule []gap

type gap struct {
	replica     int
	from, until int64 // both inclusive
}

// down tells whether the replica misses the scrape at t.
func (s schedule) down(replica int, t int64) bool {
	return slices.ContainsFunc(s, func(g gap) bool { return g.replica == replica && t >= g.from && t <= g.until })
}

// stampOf is a sample as splicing sees it.
type stampOf struct {
	t     int64
	stale bool
}

// preview is what a file does between two `clear`s.
type preview struct {
	collector
	mu      sync.Mutex
	windows map[[2]int64]bool
	series  map[string]*previewSeries
}

type previewSeries struct {
	ls     labels.Labels
	stamps []stampOf
}

// previewStorage is a plain storage that records into a preview.
type previewStorage struct {
	*teststorage.TestStorage
	p *preview
}

func newPreview(t testing.TB) *previewStorage {
	return &previewStorage{emptyStorage(t), &preview{windows: map[[2]int64]bool{}, series: map[string]*previewSeries{}}}
}

// AppenderV2 implements storage.AppendableV2.
func (r *previewStorage) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return &recordingAppender{AppenderV2: r.TestStorage.AppenderV2(ctx), p: r.p}
}

// Querier implements storage.Queryable.
func (r *previewStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := r.TestStorage.Querier(mint, maxt)
	return &recordingQuerier{q, r.p}, err
}

type recordingQuerier struct {
	storage.Querier
	p *preview
}

// Select implements storage.Querier.
func (q *recordingQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	q.p.mu.Lock()
	q.p.windows[[2]int64{hints.Start, hints.End}] = true
	q.p.mu.Unlock()
	return q.Querier.Select(ctx, sorted, hints, ms...)
}

type recordingAppender struct {
	storage.AppenderV2
	collector
	p *preview
}

func (a *recordingAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram,
	fh *histogram.FloatHistogram, o storage.AppendV2Options,
) (storage.SeriesRef, error) {
	_, _ = a.collector.Append(ref, ls, st, t, v, h, fh, o)
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, o)
}

// Rollback implements storage.AppenderV2.
func (a *recordingAppender) Rollback() error { return a.AppenderV2.Rollback() }

// Commit implements storage.AppenderV2.
func (a *recordingAppender) Commit() error {
	for i := range a.samples {
		x := &a.samples[i]
		key := x.ls.String()
		s := a.p.series[key]
		if s == nil {
			s = &previewSeries{ls: x.ls}
			a.p.series[key] = s
		}
		s.stamps = append(s.stamps, stampOf{x.t, x.stale()})
	}
	return a.AppenderV2.Commit()
}

// chooseGaps takes gaps for the servers that hold the series for which ours is true.
func chooseGaps(p *preview, rng *rand.Rand, ours func(labels.Labels) bool) schedule {
	var times []int64
	patterns := map[string][]stampOf{}
	for _, s := range p.series {
		if !ours(s.ls) {
			continue
		}
		key := make([]byte, 0, len(s.stamps)*9)
		slices.SortStableFunc(s.stamps, func(a, b stampOf) int { return cmp.Compare(a.t, b.t) })
		for _, x := range s.stamps {
			times = append(times, x.t)
			key = appendStamp(key, x)
		}
		patterns[string(key)] = s.stamps
	}
	slices.Sort(times)
	times = slices.Compact(times)
	if len(times) == 0 {
		return nil
	}
	windows := make([][2]int64, 0, len(p.windows))
	for w := range p.windows {
		windows = append(windows, w)
	}
	slices.SortFunc(windows, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	keys := make([]string, 0, len(patterns))
	for k := range patterns {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var taken schedule
	for range 30 {
		if len(taken) == 6 {
			break
		}
		from := rng.IntN(len(times))
		until := min(from+rng.IntN(1+rng.IntN(max(len(times)/3, 4))), len(times)-1)
		g := gap{rng.IntN(2), times[from], times[until]}
		if slices.ContainsFunc(taken, func(o gap) bool { return g.from <= o.until && o.from <= g.until }) {
			continue
		}
		next := append(slices.Clone(taken), g)
		if !slices.ContainsFunc(keys, func(k string) bool { return !allFilled(patterns[k], next, windows) }) {
			taken = next
		}
	}
	return taken
}

func appendStamp(b []byte, s stampOf) []byte {
	for i := range 8 {
		b = append(b, byte(s.t>>(8*i)))
	}
	if s.stale {
		return append(b, 1)
	}
	return append(b, 0)
}

// allFilled tells whether the rule of splicing gives back all samples of a series in every window.
func allFilled(all []stampOf, s schedule, windows [][2]int64) bool {
	var has [2][]stampOf
	for r := range has {
		for _, x := range all {
			if !s.down(r, x.t) {
				has[r] = append(has[r], x)
			}
		}
	}
	if len(has[0]) == len(all) && len(has[1]) == len(all) {
		return true
	}
	for _, w := range windows {
		want := stampsIn(all, w)
		a, b := stampsIn(has[0], w), stampsIn(has[1], w)
		if !slices.Equal(filledFrom(a, b, w), want) || !slices.Equal(filledFrom(b, a, w), want) {
			return false
		}
	}
	return true
}

func stampsIn(s []stampOf, w [2]int64) []stampOf {
	lo, _ := slices.BinarySearchFunc(s, w[0], func(x stampOf, t int64) int { return cmp.Compare(x.t, t) })
	hi, _ := slices.BinarySearchFunc(s, w[1]+1, func(x stampOf, t int64) int { return cmp.Compare(x.t, t) })
	return s[lo:max(lo, hi)]
}

// filledFrom is what the rules of seams make of two replicas in a window.
func filledFrom(base, other []stampOf, w [2]int64) []stampOf {
	told := func(ss []stampOf, copy int) []seamref.Sample {
		out := make([]seamref.Sample, len(ss))
		for i, s := range ss {
			out[i] = seamref.Sample{T: s.t, Copy: copy, Marker: s.stale}
		}
		return out
	}
	var out []stampOf
	for _, s := range seamref.Splice(told(base, 0), told(other, 1), w[0], w[1]) {
		out = append(out, stampOf{s.T, s.Marker})
	}
	return out
}
