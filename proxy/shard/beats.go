package shard

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// bucketMs is the length of a heartbeat bucket; buckets end on its multiples.
	bucketMs = 5 * 60 * 1000
	// bucketGraceMs is how long after its end a bucket is closed: by then its last scrapes are
	// stored.
	bucketGraceMs = 30 * 1000
	// maxBuckets bounds a shard's findings: 31 days and an hour of them, 64 bytes each and the
	// map's own, and 40 for each replica where one lacks something.
	maxBuckets = 31*24*12 + 12
	// pieceBuckets is how many buckets one question covers: six hours.
	pieceBuckets = 72
	// warmBuckets are kept ready by the background work: the last hour.
	warmBuckets = 12
	// tailFresh is how old the last minute's finding may be.
	tailFresh = 30 * time.Second
	// doubtFor is how long at least a bucket is believed to differ between replicas, or to be
	// empty: history may still be filled in behind. An older one is believed for a sixtieth of its
	// age.
	doubtFor, doubtShare = time.Minute, 60
	// beatEvery is how often the background work asks.
	beatEvery = 10 * time.Second
	// wholeWait is the most that one request spends on buckets that are not known yet.
	wholeWait = 3 * time.Second
	// beatGrace is how much later than another one a replica may answer the same question; it is
	// less than wholeWait, so that a request that comes while others ask has time left afterwards.
	beatGrace = 2 * time.Second
	// tailLag is how long before now the last minute ends: the scrapes of the last seconds are not
	// stored yet, on one replica sooner than on the other.
	tailLag = 5 * time.Second
	// beatPause is how long a replica takes no part after it could not be asked: requests must not
	// wait for one that is gone.
	beatPause = 10 * time.Second
	// maxReplicas is how many replicas of a shard can be told apart here.
	maxReplicas = 64
)

// finding says what the replicas that were asked about some stretch of time lack of each other.
type finding struct {
	asked uint64      // bit i: replica i answered
	less  []shortfall // of each replica; nil where none lacks anything
	data  bool        // a heartbeat was seen at all
	until int64       // how long this is believed, Unix milliseconds; 0 where it stands for good
}

// known tells whether the finding still stands, and is about all that take part.
func (f finding) known(part uint64, nowMs int64) bool {
	return f.asked&part == part && (f.until == 0 || nowMs < f.until)
}

// whole are those that take part and lack nothing that another of them has.
func (f finding) whole(part uint64) uint64 {
	whole := part
	for i, s := range f.less {
		if s.more&part != 0 {
			whole &^= 1 << i
		}
	}
	return whole
}

// wholeSince are those that take part and lack nothing after from that another of them has; the
// finding is of the bucket that ends at end.
func (f finding) wholeSince(part uint64, from, end int64) uint64 {
	whole := part
	for i, s := range f.less {
		if s.more&part != 0 && s.until(end) > from {
			whole &^= 1 << i
		}
	}
	return whole
}

// until is the time up to which it reaches in the bucket that ends at end: the end of the last
// minute that shows it. The next one has less of it than half a scrape of each target.
func (s shortfall) until(end int64) int64 {
	if s.ended == 0 {
		return math.MaxInt64
	}
	return end - int64(s.ended-1)*minuteMs
}

// heartbeats are a shard's findings. A closed bucket in which nobody lacks anything does not change
// any more, so the finding is kept and the numbers are not; any other is looked at again after a
// while.
type heartbeats struct {
	key     string
	asking  chan struct{} // holds one token while somebody asks, so that many requests ask once
	mu      sync.Mutex
	buckets map[int64]finding // by end, milliseconds
	tail    finding
	open    [maxSlices]finding // of the minutes up to openAt, the newest first: which no closed bucket has yet
	openAt  time.Time
	tailAt  time.Time // zero: no successful question yet
	of      []pulse   // each replica
}

// pulse is what is known of one replica's heartbeats.
type pulse struct {
	err     string    // why the last question failed
	silent  time.Time // when it could not be asked: for beatPause it takes no part
	away    time.Time // when it was last seen not to be there: what was known of its last minute by then is not true any more
	lacking time.Time // since when it lacks what another has; zero: it does not
	// unreached is the share of the targets that another one reaches now and this one fails to.
	unreached float64
	told      told
}

func newHeartbeats(key string, replicas int) *heartbeats {
	return &heartbeats{key: key, asking: make(chan struct{}, 1), buckets: map[int64]finding{}, of: make([]pulse, replicas)}
}

// lastClosed is the end of the newest closed bucket at now.
func lastClosed(nowMs int64) int64 { return floorTo(nowMs-bucketGraceMs, bucketMs) }

func floorTo(v, step int64) int64 {
	q := v / step
	if v%step < 0 {
		q--
	}
	return q * step
}

func ceilTo(v, step int64) int64 { return -floorTo(-v, step) }

// buckets are what a window is known by: those that end in [first, last], and the last minute where
// it is open.
type buckets struct {
	first, last int64
	open        bool
	from        int64 // where the window begins
}

// upTo is what tells whether a replica is whole as of the newest closed bucket and all since.
func upTo(closed int64) buckets { return buckets{closed, closed, true, closed - bucketMs} }

// window is what the samples in [from, until], milliseconds, are known by at now; false where that
// is more than anybody asks about.
func window(from, until int64, now time.Time) (buckets, bool) {
	nowMs := now.UnixMilli()
	until = min(until, nowMs)
	from = min(from, until)
	if until < 0 || from < until-maxBuckets*bucketMs {
		return buckets{}, false
	}
	closed := lastClosed(nowMs)
	w := buckets{first: ceilTo(from, bucketMs), last: ceilTo(until, bucketMs), from: from}
	if w.open = w.last > closed; w.open {
		w.first, w.last = min(w.first, closed), closed // the newest closed bucket speaks for the open one
	}
	return w, true
}

var errBeatBudget = errors.New("the time for heartbeats is over")

// lookup is the set of those taking part that lack nothing in the window; known tells whether all
// of it was asked.
func (h *heartbeats) lookup(part uint64, w buckets, now time.Time) (whole uint64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	whole = part
	data := false
	for end := w.first; end <= w.last; end += bucketMs {
		f, ok := h.buckets[end]
		if !ok || !f.known(part, now.UnixMilli()) {
			return 0, false
		}
		whole &= f.wholeSince(part, w.from, end)
		data = data || f.data
	}
	if w.open {
		if h.stale(part, now) {
			return 0, false
		}
		whole &= h.tail.whole(part)
		data = data || h.tail.data
		h.eachOpen(w, func(f finding, _ Span) { whole &= f.whole(part) })
	}
	if !data {
		return 0, true // a heartbeat that is nowhere proves nothing
	}
	return whole, true
}

// lacks adds the stretches of the window in which those taking part lack something. The newest
// closed bucket, and the last minute, speak for all that comes after it, but where what is lacked
// ended before.
func (h *heartbeats) lacks(part uint64, w buckets, out []Lack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add := func(f finding, s Span, end int64) {
		whole := f.whole(part)
		for i := range out {
			l, s := &out[i], s
			if whole&(1<<l.Replica.Index) != 0 {
				continue
			}
			if end != 0 {
				s.Until = min(s.Until, f.less[l.Replica.Index].until(end))
			}
			if n := len(l.Spans); n > 0 && l.Spans[n-1].Until >= s.From {
				l.Spans[n-1].Until = max(l.Spans[n-1].Until, s.Until)
				continue
			}
			l.Spans = append(l.Spans, s)
		}
	}
	for end := w.first; end <= w.last; end += bucketMs {
		s := Span{end - bucketMs, end}
		if w.open && end == w.last {
			s.Until = math.MaxInt64
		}
		add(h.buckets[end], s, end)
	}
	if w.open {
		add(h.tail, Span{w.last, math.MaxInt64}, 0)
		h.eachOpen(w, func(f finding, s Span) { add(f, s, 0) })
	}
}

// stale tells whether the last minute is to be asked about anew. The caller holds mu.
func (h *heartbeats) stale(part uint64, now time.Time) bool {
	for i, p := range h.of {
		if part&(1<<i) != 0 && !p.away.Before(h.tailAt) {
			return true
		}
	}
	return h.tailAt.IsZero() || now.Sub(h.tailAt) > tailFresh || h.tail.asked&part != part || h.open[0].asked&part != part
}

// askBeats asks those taking part for what lookup would miss. Who cannot be asked takes part no
// more: left are the others. The error is of replicas that can be asked and do not say it. The
// caller holds the token.
func (s *Shard) askBeats(ctx context.Context, part uint64, w buckets, now time.Time) (left uint64, err error) {
	h := s.beats
	if w.open {
		h.mu.Lock()
		stale := h.stale(part, now)
		h.mu.Unlock()
		if stale {
			if part, err = s.askTail(ctx, part, now); err != nil {
				return 0, err
			}
		}
	}
	for end := w.last; end >= w.first && bits.OnesCount64(part) > 1; { // newest first: what is asked for most
		h.mu.Lock()
		f, ok := h.buckets[end]
		h.mu.Unlock()
		if ok && f.known(part, now.UnixMilli()) {
			end -= bucketMs
			continue
		}
		lo := max(w.first, end-(pieceBuckets-1)*bucketMs)
		if part, err = s.askBuckets(ctx, part, lo, end, now); err != nil {
			return 0, err
		}
		end = lo - bucketMs
	}
	return part, nil
}

// askBuckets asks those taking part about the buckets that end in [lo, hi] and keeps the findings.
func (s *Shard) askBuckets(ctx context.Context, part uint64, lo, hi int64, now time.Time) (left uint64, err error) {
	answers, left, err := s.askAll(ctx, part, &endpoint.Request{
		ID: endpoint.QueryRange, Query: s.Group.beatQuery("5m"), Start: endpoint.At(lo), End: endpoint.At(hi), Step: bucketMs * time.Millisecond,
	})
	if err != nil {
		return left, err
	}
	warm := max(lo, lastClosed(now.UnixMilli())-(warmBuckets-1)*bucketMs) // of these all minutes are known
	runs := []Span{{lo, hi}}
	if hi-lo >= warmBuckets*bucketMs {
		if runs = dips(answers, left, lo, min(hi, warm-bucketMs)); warm <= hi {
			runs = append(runs, Span{warm, hi})
		}
	}
	for _, run := range runs {
		if left, err = s.askMinutes(ctx, left, answers, run); err != nil {
			return left, err
		}
	}
	h := s.beats
	h.mu.Lock()
	defer h.mu.Unlock()
	for end := lo; end <= hi; end += bucketMs {
		f := judge(beatsAt(answers, end), left)
		if f.less != nil || !f.data {
			age := time.Duration(now.UnixMilli()-end) * time.Millisecond
			f.until = now.Add(max(doubtFor, age/doubtShare)).UnixMilli()
		}
		h.buckets[end] = f
	}
	h.trim()
	return left, nil
}

// beatsAt are the answers for one bucket.
func beatsAt(answers []map[int64]beats, end int64) []beats {
	at := make([]beats, len(answers))
	for i, a := range answers {
		at[i] = a[end]
	}
	return at
}

// askTail asks those taking part about the last minute, and now and then about the minutes before.
func (s *Shard) askTail(ctx context.Context, part uint64, now time.Time) (left uint64, err error) {
	t := now.Add(-tailLag).UnixMilli()
	h := s.beats
	h.mu.Lock()
	stale := h.openStale(part, now)
	h.mu.Unlock()
	if stale {
		if part, err = s.askOpen(ctx, part, t, now); err != nil || bits.OnesCount64(part) < 2 {
			return part, err
		}
	}
	answers, left, err := s.askAll(ctx, part, &endpoint.Request{ID: endpoint.Query, Query: s.Group.tailQuery(), Time: endpoint.At(t)})
	if err != nil {
		return left, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make([]beats, len(answers))
	for i, a := range answers {
		for _, b := range a { // one instant, whatever timestamp the server writes on it
			at[i] = b
		}
	}
	h.tail, h.tailAt = judge(at, left), now
	for i := range h.of {
		h.of[i].unreached = 0
		for j := range at {
			if left&(1<<i) != 0 && left&(1<<j) != 0 {
				h.of[i].unreached = max(h.of[i].unreached, unreached(at[i].last, at[j].last))
			}
		}
	}
	return left, nil
}

// askAll asks those taking part the same thing at once, each by itself: the failure of one is
// nothing that another could be charged with. left are those that answered. One that could not be
// asked, or was silent for all the time that there is, or for beatGrace after another one had
// answered, takes part no more, for a while; where one says something else than an answer, that is
// the error.
func (s *Shard) askAll(ctx context.Context, part uint64, req *endpoint.Request) (answers []map[int64]beats, left uint64, err error) {
	answers = make([]map[int64]beats, len(s.Replicas))
	errs := make([]error, len(s.Replicas))
	began := time.Now()
	own, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var all sync.WaitGroup
	var first sync.Once
	var grace *time.Timer
	for i, r := range s.Replicas {
		if part&(1<<i) == 0 {
			continue
		}
		all.Go(func() {
			errs[i] = qerr.Guard(func() (err error) {
				answers[i], err = r.beats(own, req)
				return err
			})
			if errs[i] == nil {
				first.Do(func() { grace = time.AfterFunc(beatGrace, func() { giveUp(context.DeadlineExceeded) }) })
			}
		})
	}
	all.Wait()
	overdue := grace != nil && !grace.Stop()
	h := s.beats
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range s.Replicas {
		if part&(1<<i) == 0 {
			continue
		}
		b := &h.of[i]
		if errs[i] == nil {
			b.err, b.silent = "", time.Time{}
			left |= 1 << i
			continue
		}
		switch kind := qerr.From(errs[i]).Kind; {
		case kind == qerr.Canceled: // a request that ended by itself says nothing about the replicas
			return nil, 0, errs[i]
		case !absent(errs[i]):
			b.err = errs[i].Error()
			err = errs[i]
		case kind == qerr.Timeout && !overdue && time.Since(began) < wholeWait: // of a caller who was in a hurry
			b.err = errs[i].Error()
		default:
			b.err, b.silent = errs[i].Error(), time.Now()
		}
	}
	return answers, left, err
}

// absent tells whether the failure is of a server that could not be asked, and not what it said.
func absent(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code >= 500
	}
	kind := qerr.From(err).Kind
	return kind == qerr.ShardFailed || kind == qerr.Timeout
}

// errBeats is the private cause of an answer to a heartbeat question that makes no sense.
var errBeats = errors.New("not an answer to a heartbeat question")

// beats asks the replica for its heartbeats, by bucket end.
func (r *Replica) beats(ctx context.Context, req *endpoint.Request) (map[int64]beats, error) {
	resp, err := r.Do(ctx, req, CallOptions{MaxBytes: maxBeatBytes, Entered: true}) // our own, and one at a time for each shard
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := decodeBeats(resp.Body)
	if err != nil && ctx.Err() == nil && !isQerr(err) {
		err = qerr.Wrap(qerr.Internal, errBeats, "heartbeat of %s: %s", r.Name(), err)
	}
	return out, err
}

func isQerr(err error) bool {
	var e *qerr.Error
	return errors.As(err, &e)
}

// trim keeps the number of findings under maxBuckets; the oldest tenth goes first. The caller holds
// mu.
func (h *heartbeats) trim() {
	if len(h.buckets) <= maxBuckets {
		return
	}
	ends := make([]int64, 0, len(h.buckets))
	for e := range h.buckets {
		ends = append(ends, e)
	}
	slices.Sort(ends)
	for _, e := range ends[:len(ends)-maxBuckets*9/10] {
		delete(h.buckets, e)
	}
}

// wholeNow tells whether the replica is whole as of the newest closed bucket and the last minute.
func (s *Shard) wholeNow(replica int, now time.Time) bool {
	part := s.present(time.Now())
	if replica >= maxReplicas || part&(1<<replica) == 0 {
		return false
	}
	if part == 1<<replica {
		return true
	}
	closed := lastClosed(now.UnixMilli())
	whole, known := s.beats.lookup(part, upTo(closed), now)
	return known && whole&(1<<replica) != 0
}

// beatLoop keeps the last hour and the last minute known until ctx ends.
func (s *Shard) beatLoop(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		s.awaitProbes(ctx)
		s.refreshBeats(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Shard) refreshBeats(ctx context.Context) {
	h := s.beats
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, beatEvery, errBeatBudget)
	defer cancel()
	now := s.topology.opts.Clock()
	closed := lastClosed(now.UnixMilli())
	part := s.present(time.Now())
	if bits.OnesCount64(part) < 2 { // nobody to compare with
		h.noteLacking(0, closed, now)
		h.reachUnknown()
		s.tellLacking(now)
		return
	}
	// An error is kept for the shards view; until a later question succeeds the shard is read raw.
	left, err := s.askTail(ctx, part, now)
	if err == nil && bits.OnesCount64(left) > 1 {
		left, err = s.askBeats(ctx, left, buckets{first: closed - (warmBuckets-1)*bucketMs, last: closed}, now)
	}
	if err != nil {
		h.reachUnknown()
	} else {
		part = left
	}
	h.noteLacking(part, closed, now)
	s.tellLacking(now)
}
