package raw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Query is what a copy is asked for one selector.
type Query struct {
	// From and Until bound the samples wanted, both inclusive, in milliseconds.
	From, Until int64
	// Matchers are those sent to the shard: none on the group's own labels.
	Matchers []*labels.Matcher
	// Asked are the matchers as the engine gave them.
	Asked []*labels.Matcher
	// Hints are the engine's, for the shard's own use; nil where there are none.
	Hints *storage.SelectHints
	// Waits is called when the read begins to wait for room in which no copy is nearer to it than
	// another, and over when that has ended; nil where nobody wants to know.
	Waits func() (over func())
}

// Copy is one replica's copy of a slice.
type Copy interface {
	// Name is the replica as errors and segments name it.
	Name() string
	// Read calls emit for each frame of a series, in the order of the shard; a series may come in
	// several neighbouring frames. The labels and chunks may be kept by emit. An error of emit ends
	// the read and is returned as it is.
	Read(ctx context.Context, q Query, emit func(lbls []prompb.Label, chunks []prompb.Chunk) error) error
}

// Slice is one shard of one group, as raw reads it.
type Slice struct {
	// Name is the shard as errors and segments name it.
	Name string
	// Labels are set on every series.
	Labels labels.Labels
	// Drop are the label names removed from stored series: those of Labels and the replica labels.
	Drop []string
	// From is the slice's first millisecond, Until the first one after it.
	From, Until int64
	// Copies are its replicas, the base first. One copy is read alone; several are spliced.
	Copies []Copy
	// Lacking are the stretches in which the base may lack something that another copy has, sorted
	// and apart: the others are read there alone. Empty is everywhere.
	Lacking []Stretch
	// Known tells whether it is known what the copies lack: Lacking, or something everywhere.
	Known bool
	// Spare are other whole replicas where Copies is a whole one alone; they are read, and spliced,
	// where that one fails.
	Spare []Copy

	spared []string // Spare's are read in place of these, which failed
}

// Failure is what became of the copies of a slice, some of which failed.
type Failure struct {
	// Slice names the shard, From and Until the window in milliseconds, both inclusive.
	Slice       string
	From, Until int64
	// Failed name the copies that failed, Left those that were read: these are the answer, read
	// once more where they were read in part, unless there is an error.
	Failed, Left []string
	// Err is what happened to the first of them.
	Err error
}

// names are those of the copies for which is holds.
func (s *Slice) names(is func(i int) bool) []string {
	var out []string
	for i, c := range s.Copies {
		if is(i) {
			out = append(out, c.Name())
		}
	}
	return out
}

// Stretch is a stretch of time, both ends inclusive, in milliseconds.
type Stretch struct{ From, Until int64 }

// Leg is a slice with the matchers to send it.
type Leg struct {
	Slice    *Slice
	Matchers []*labels.Matcher
}

// Meter charges a request's budget; admit.Budget is one.
type Meter interface {
	AddSeries(n int) error
	Hold(n int64) error
	Drop(n int64)
}

// Turn is an evaluation's place among others; evaluation.Turn is one. It is for the goroutine that
// evaluates.
type Turn interface {
	// Pause gives the place away while a server is waited for.
	Pause()
	// Work counts samples that are about to be worked on; its error ends the evaluation.
	Work(samples int) error
}

// Queryable is the storage of one request. It is used once, by one engine query at a time.
type Queryable struct {
	// Legs chooses the slices that may hold series of a selector in a window; an error refuses the
	// query.
	Legs func(ctx context.Context, from, until int64, matchers []*labels.Matcher) ([]Leg, error)
	// Width is how many slices are read at once, whatever the number of selectors, and so how many
	// goroutines read; 0 is all of them.
	Width int
	// PerSlice is how many selectors read one slice at once, so that a query with many selectors
	// leaves some of a server's read slots to others; 0 is all of them.
	PerSlice int
	// Meter is charged with what is held.
	Meter Meter
	// PerSeries is charged for each series beside what it holds itself: what the engine will hold
	// of its results, in bytes.
	PerSeries int64
	// Turn is asked while the engine reads; nil where no engine does.
	Turn Turn
	// WorkPerSeries is what the engine will have to do with each series, in samples. Turn is told
	// of it when the series have arrived.
	WorkPerSeries int
	// Judge is told how many series a select found and the bytes of their longest label, before
	// they are evaluated; an error refuses the query. May be nil; several goroutines call it.
	Judge func(matchers []*labels.Matcher, n, longest int) error
	// SparePatience is how long a copy is waited for that has a spare one, and how long further
	// copies once one was read whole, where it is not known what they lack; 0 is until the end of
	// the request. In neither patience is what Query.Waits tells of.
	SparePatience time.Duration
	// SlicePatience is how long a slice is waited for before it counts as failed, so that Lost can
	// decide in time; 0, and all where it is nil, is until the end of the request.
	SlicePatience func(slice string) time.Duration
	// Lost decides about a slice none of whose copies answered: with a nil error the query goes on
	// without it and the caller warns; where Lost is nil the slice is an error.
	Lost func(slice string, err error) error
	// Again tells whether the spare copies of the named slice may be read after this failure of a
	// copy; where Again is nil they may.
	Again func(slice, failed string, err error) bool
	// Failed decides about copies that failed, where those that were read, if any were, may lack
	// what they have. With a nil error the query goes on with these; may be nil. Several goroutines
	// call it.
	Failed func(Failure) error
	// Twice is told of each series that two slices hold for the same time; may be nil. Several
	// goroutines call it.
	Twice func(a, b string, lbls labels.Labels)
	// Used is told for each select of which copies a slice was read, and which failed; may be nil.
	// Several goroutines call it.
	Used func(slice string, used, failed []string)
	// Read is told what each copy answered; may be nil. Several goroutines call it.
	Read func(Fetched)
	// Observe is told the segments of every series of each select; may be nil. It is for tests and
	// explain, and is called from several goroutines.
	Observe func(Selected)

	mu      sync.Mutex
	places  places // of Width
	ofSlice map[string]places
}

var (
	_ storage.Queryable = (*Queryable)(nil)
	_ storage.Querier   = (*querier)(nil)
)

// Querier implements storage.Queryable.
func (q *Queryable) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{q: q, mint: mint, maxt: maxt}, nil
}

type querier struct {
	q          *Queryable
	mint, maxt int64
	wait       sync.WaitGroup

	mu    sync.Mutex
	known map[string]*fetched
}

// fetched is what one selector found in one window, there once done is closed. Every part of the
// query that selects the same uses it.
type fetched struct {
	done   chan struct{}
	series []*series
	err    error
}

// LabelValues is not part of PromQL; it refuses.
func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("raw serves series only")
}

// LabelNames is not part of PromQL; it refuses.
func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("raw serves series only")
}

// Close waits for selects that are still under way: the engine closes only after it has used or
// given up every set.
func (q *querier) Close() error {
	if q.q.Turn != nil {
		q.q.Turn.Pause()
	}
	q.wait.Wait()
	return nil
}

// Select implements storage.Querier. The series are fetched in the background, all selectors of a
// query at once, equal ones together, and are always sorted.
func (q *querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	from, until := q.mint, q.maxt
	if hints != nil {
		from, until = hints.Start, hints.End
		own := *hints
		own.Grouping = slices.Clone(own.Grouping) // the engine sorts it in place while the series are fetched
		hints = &own
	}
	key := selectKey(from, until, hints, matchers)
	q.mu.Lock()
	defer q.mu.Unlock()
	if f := q.known[key]; f != nil {
		return &set{q: q.q, fetched: f, at: -1, again: true}
	}
	f := &fetched{done: make(chan struct{})}
	if q.known == nil {
		q.known = map[string]*fetched{}
	}
	q.known[key] = f
	q.wait.Go(func() {
		defer close(f.done)
		f.err = qerr.Guard(func() (err error) {
			f.series, err = q.q.fetch(ctx, from, until, hints, matchers)
			return err
		})
	})
	return &set{q: q.q, fetched: f, at: -1}
}

// selectKey is equal for selects that a shard is asked the same for.
func selectKey(from, until int64, hints *storage.SelectHints, matchers []*labels.Matcher) string {
	b := fmt.Appendf(nil, "%d %d", from, until)
	for _, m := range matchers {
		b = fmt.Appendf(b, " %q %s %q", m.Name, m.Type, m.Value)
	}
	if hints != nil {
		b = fmt.Appendf(b, " %+v", *hints)
	}
	return string(b)
}

// set is the sorted result of one select.
type set struct {
	q *Queryable
	*fetched
	at    int
	again bool  // a second use: the engine holds results for it too
	own   error // of this use
}

func (s *set) Next() bool {
	if s.at < 0 {
		s.arrive()
	}
	if s.err != nil || s.own != nil || s.at+1 >= len(s.series) {
		return false
	}
	s.at++
	return true
}

// arrive waits for the series. The evaluation's place is somebody else's meanwhile.
func (s *set) arrive() {
	turn := s.q.Turn
	select {
	case <-s.done:
	default:
		if turn != nil {
			turn.Pause()
		}
		<-s.done
	}
	if s.err == nil && s.again {
		if s.own = s.q.Meter.AddSeries(len(s.series)); s.own == nil {
			s.own = s.q.Meter.Hold(int64(len(s.series)) * s.q.PerSeries)
		}
	}
	if s.err == nil && s.own == nil && turn != nil {
		s.own = turn.Work(len(s.series) * s.q.WorkPerSeries)
	}
}

func (s *set) At() storage.Series { return s.series[s.at] }

func (s *set) Err() error {
	<-s.done
	return cmp.Or(s.err, s.own)
}

func (*set) Warnings() annotations.Annotations { return nil }

// Series fetches the series of one selector, sorted by labels. It is what remote read and federate
// use, which need no engine.
func (q *Queryable) Series(ctx context.Context, from, until int64, hints *storage.SelectHints,
	matchers []*labels.Matcher,
) ([]storage.Series, error) {
	got, err := q.fetch(ctx, from, until, hints, matchers)
	if err != nil {
		return nil, err
	}
	out := make([]storage.Series, len(got))
	for i, s := range got {
		out[i] = s
	}
	return out, nil
}

func (q *Queryable) fetch(ctx context.Context, from, until int64, hints *storage.SelectHints, matchers []*labels.Matcher) ([]*series,
	error,
) {
	legs, err := q.Legs(ctx, from, until, matchers)
	if err != nil {
		return nil, err
	}
	results, err := q.readSlices(ctx, legs, Query{From: from, Until: until, Asked: matchers, Hints: hints})
	if err != nil {
		return nil, err
	}
	all, err := q.join(legs, results, from, until)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		s.turn = q.Turn
	}
	if err := q.Meter.AddSeries(len(all)); err != nil {
		return nil, err
	}
	if q.Judge != nil {
		if err := q.Judge(matchers, len(all), longest(all)); err != nil {
			return nil, err
		}
	}
	if q.Observe != nil {
		o := Selected{From: from, Until: until, Matchers: matchers, Series: make(map[string][]Segment, len(all))}
		for _, s := range all {
			segments := make([]Segment, len(s.parts))
			for i, p := range s.parts {
				segments[i] = p.Segment
			}
			o.Series[s.lbls.String()] = segments
		}
		q.Observe(o)
	}
	return all, nil
}

// longest is how many bytes the longest label of the series has.
func longest(all []*series) int {
	n := 0
	for _, s := range all {
		s.lbls.Range(func(l labels.Label) { n = max(n, len(l.Value)) })
	}
	return n
}

// Selected is what one select read: where the samples of each series come from.
type Selected struct {
	// From and Until are the window in milliseconds, inclusive.
	From, Until int64
	// Matchers are the selector as the engine gave it.
	Matchers []*labels.Matcher
	// Series are the segments by label set, as labels.Labels prints it.
	Series map[string][]Segment
}

// Fetched is what one copy answered to one select.
type Fetched struct {
	// Slice and Copy name the shard and the replica.
	Slice, Copy string
	// Matchers are the selector as the engine gave it.
	Matchers []*labels.Matcher
	// Series, Samples and Bytes are what came: samples as the chunks have them, which reach beyond
	// the window; bytes of labels and chunks.
	Series         int
	Samples, Bytes int64
	// Took is how long it took to the last byte.
	Took time.Duration
}

// stored is a series as one copy sent it, relabelled.
type stored struct {
	lbls    labels.Labels
	removed string // the labels that were removed, as text; equal ones share it
	chunks  []prompb.Chunk
}

// seriesOverhead is charged for each series held beside its labels and chunk data: headers of
// slices and structs, by measurement rounded up.
const seriesOverhead = 256

func (q *Queryable) patience(slice string) time.Duration {
	if q.SlicePatience == nil {
		return 0
	}
	return q.SlicePatience(slice)
}

// slice reads all copies of one slice and splices them. Of its patience a part has gone by.
func (q *Queryable) slice(ctx context.Context, s *Slice, query Query, gone time.Duration) ([]*series, error) {
	hauls := s.hauls(query)
	limit := q.patience(s.Name)
	if limit > 0 {
		limit = max(limit-gone, time.Millisecond)
	}
	var errs []error
	if len(s.Copies) == 1 {
		reading := newPatience(ctx, limit, errSlowSlice)
		if len(s.Spare) > 0 && q.SparePatience > 0 { // what is left is for these
			reading.within(q.SparePatience, errSlowBase)
		}
		errs = []error{q.readOne(reading, s, s.Copies[0], query, hauls)}
		reading.stop()
	} else {
		errs = q.readAll(ctx, limit, s, query, hauls)
	}
	var live []int
	var failure error // of the first copy that failed
	for i, err := range errs {
		if err == nil {
			live = append(live, i)
			continue
		}
		// A bound, a collision or the end of the request is about the query, not about this copy.
		if ctx.Err() != nil || !copyFailed(err) {
			return nil, err
		}
		if failure == nil {
			failure = err
		}
	}
	read, failed := s.names(func(i int) bool { return errs[i] == nil }), s.names(func(i int) bool { return errs[i] != nil })
	rest := s.without(live, failed)
	whole := len(s.spared) > 0 && len(live) > 0 // each of these has all
	if failure != nil && q.Failed != nil && !whole && (rest == nil || len(live) > 0) {
		if err := q.Failed(Failure{s.Name, query.From, query.Until, slices.Concat(s.spared, failed), read, failure}); err != nil {
			q.give(hauls)
			return nil, err
		}
	}
	if rest != nil && (q.Again == nil || q.Again(s.Name, s.Copies[0].Name(), failure)) {
		q.give(hauls)
		return q.slice(ctx, rest, query, 0)
	}
	if len(live) == 0 || len(s.Lacking) > 0 && live[0] != 0 {
		q.give(hauls)
		if q.Lost == nil {
			return nil, failure
		}
		return nil, q.Lost(s.Name, failure)
	}
	if q.Used != nil {
		q.Used(s.Name, read, failed)
	}
	return (&weaver{q: q, slice: s, query: query, live: live, hauls: hauls}).weave(ctx)
}

var (
	errSlowSlice = qerr.Wrap(qerr.Timeout, context.DeadlineExceeded, "the shard was not read while there was time for an answer without it")
	errSlowBase  = qerr.Wrap(qerr.Timeout, context.DeadlineExceeded, "the replica was not read while there was time for another one")
	errSlowCopy  = qerr.New(qerr.Timeout, "another replica of the shard was read long before")
)

// together merges two series of one label set and time as a splice of two copies does: a is the
// base, b fills its gaps.
func together(a, b *series, from, until int64) (*series, error) {
	parts := slices.Concat(a.parts, b.parts)
	var acc [2][]stamp
	for i, p := range parts {
		of := 0
		if i >= len(a.parts) {
			of = 1
		}
		var err error
		if acc[of], err = stamps(p.chunks, p.From, p.Until, i, false, acc[of]); err != nil {
			return nil, err
		}
	}
	out := &series{lbls: a.lbls}
	for _, r := range runs(new(splicer).splice(acc[0], acc[1], from, until)) {
		p := parts[r.copy]
		p.From, p.Until = r.from, r.until
		out.parts = append(out.parts, p)
	}
	return out, nil
}

// join merges the slices' series: equal label sets follow each other in time, the slice with the
// later start supplying everything from there on. Where two slices of one time hold the same label
// set, which the configuration says cannot be, they are merged and Twice is told.
func (q *Queryable) join(legs []Leg, results [][]*series, from, until int64) ([]*series, error) {
	type owned struct {
		*series
		slice *Slice
	}
	n := 0
	for _, r := range results {
		n += len(r)
	}
	all := make([]owned, 0, n)
	for i, r := range results {
		for _, s := range r {
			all = append(all, owned{s, legs[i].Slice})
		}
	}
	slices.SortStableFunc(all, func(a, b owned) int {
		if c := labels.Compare(a.lbls, b.lbls); c != 0 {
			return c
		}
		return cmp64(a.slice.From, b.slice.From)
	})
	out := make([]*series, 0, n)
	for i := 0; i < len(all); {
		j := i + 1
		for j < len(all) && labels.Equal(all[i].lbls, all[j].lbls) {
			j++
		}
		if j == i+1 {
			out = append(out, all[i].series)
			i = j
			continue
		}
		// Slices of different times follow each other. Of one time there ought to be one: two are
		// merged as copies of a slice would be.
		var turns []owned
		for _, o := range all[i:j] {
			if n := len(turns); n > 0 && turns[n-1].slice.From == o.slice.From {
				both, err := together(turns[n-1].series, o.series, from, until)
				if err != nil {
					return nil, qerr.Wrap(qerr.ShardFailed, err, "shard %s sent series data that cannot be decoded", o.slice.Name)
				}
				if q.Twice != nil {
					q.Twice(turns[n-1].slice.Name, o.slice.Name, o.lbls)
				}
				turns[n-1].series = both
				continue
			}
			turns = append(turns, o)
		}
		merged := &series{lbls: all[i].lbls}
		for k, o := range turns {
			last := int64(math.MaxInt64)
			if k+1 < len(turns) {
				last = turns[k+1].slice.From - 1
			}
			for _, p := range o.parts {
				if p.From > last {
					break
				}
				p.Until = min(p.Until, last)
				merged.parts = append(merged.parts, p)
			}
		}
		out = append(out, merged)
		i = j
	}
	return out, nil
}
