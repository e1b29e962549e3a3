package trust

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Bucket is the length of a heartbeat's bucket; buckets end on its multiples.
	Bucket = 5 * time.Minute
	// Grace is how long after its end a bucket is closed: by then its last scrapes are stored.
	Grace = 30 * time.Second
	// Fresh is how old the last minute's finding may be.
	Fresh = 30 * time.Second
	// Pause is how long a replica takes no part after it could not be asked: requests must not wait
	// for one that is gone.
	Pause = 10 * time.Second
	// MaxReplicas is how many replicas of a shard can be told apart here.
	MaxReplicas = 64

	bucketMs = int64(Bucket / time.Millisecond)
	graceMs  = int64(Grace / time.Millisecond)
	// maxBuckets bounds a shard's findings: 31 days and an hour of them, 64 bytes each and the
	// map's own, and 40 for each replica where one lacks something.
	maxBuckets = 31*24*12 + 12
	// warmBuckets are kept ready by the background work: the last hour.
	warmBuckets = 12
	// tailLag is how long before now the last minute ends: the scrapes of the last seconds are not
	// stored yet, on one replica sooner than on the other.
	tailLag = 5 * time.Second
	// sameStart is by how much the start of one process may seem to move, since some systems reckon
	// it from a clock that is set.
	sameStart = 5 * time.Second
)

// Span is a stretch of time in milliseconds, From exclusive and Until inclusive.
type Span struct{ From, Until int64 }

// Heartbeats are what is known of the heartbeats of a shard's replicas. The finding about a closed
// bucket is kept and the numbers are not; it is looked at again after a while, and once a replica
// has been restarted, which may have cost it what it had. They are safe for use by many at once.
type Heartbeats struct {
	selector string        // of the heartbeat; empty: none is asked for
	asking   chan struct{} // holds one token while somebody asks, so that many requests ask once
	turns    atomic.Uint64
	mu       sync.Mutex
	learning Window            // what is asked for by who holds the token
	buckets  map[int64]finding // by end, milliseconds
	tail     finding
	open     [maxSlices]finding // of the minutes up to openAt, the newest first: which no closed bucket has yet
	openAt   time.Time
	tailAt   time.Time // zero: no successful question yet
	of       []pulse   // each replica
	wanted   [2]int64  // the oldest buckets that were looked at since wantedAt, and in the time before
	wantedAt time.Time
	empty    bool // the log has said that the heartbeat selects nothing
}

// pulse is what is known of one replica's heartbeats.
type pulse struct {
	err     string    // why the last question failed
	silent  time.Time // when it could not be asked: for Pause it takes no part
	late    time.Time // since when it has not answered, as Late has it; zero: not known
	away    time.Time // when it was last seen not to be there: what was known of its last minute by then is not true any more
	started time.Time // when its process was started; zero: not known
	doubted bool      // it was away, and whether it is the same process again is not known yet
	lacking time.Time // since when it lacks what another has; zero: it does not
	// unreached is the share of the targets that another one reaches now and this one fails to.
	unreached float64
	told      told
}

// New returns the heartbeats of so many replicas, at most MaxReplicas, of which nothing is known.
// The selector is that of the heartbeat.
func New(selector string, replicas int) *Heartbeats {
	return &Heartbeats{
		selector: selector, asking: make(chan struct{}, 1), buckets: map[int64]finding{}, of: make([]pulse, replicas),
		wanted: [2]int64{math.MaxInt64, math.MaxInt64},
	}
}

// lastClosed is the end of the newest closed bucket at now.
func lastClosed(nowMs int64) int64 { return floorTo(nowMs-graceMs, bucketMs) }

func floorTo(v, step int64) int64 {
	q := v / step
	if v%step < 0 {
		q--
	}
	return q * step
}

func ceilTo(v, step int64) int64 { return -floorTo(-v, step) }

// Window is what the samples of some time are known by: the buckets that end in [first, last], and
// the minutes since where it is open. Zero covers nothing.
type Window struct {
	first, last int64
	open        bool
	from        int64 // where it begins
}

// upTo is what tells whether a replica is whole as of the newest closed bucket and all since.
func upTo(closed int64) Window { return Window{closed, closed, true, closed - bucketMs} }

// WindowOf is what the samples in [from, until], milliseconds, are known by at now; false where
// that is more than 31 days, which nobody asks about.
func WindowOf(from, until int64, now time.Time) (Window, bool) {
	nowMs := now.UnixMilli()
	until = min(until, nowMs)
	from = min(from, until)
	if until < 0 || from < until-maxBuckets*bucketMs {
		return Window{}, false
	}
	closed := lastClosed(nowMs)
	w := Window{first: ceilTo(from, bucketMs), last: ceilTo(until, bucketMs), from: from}
	if w.open = w.last > closed; w.open {
		w.first, w.last = min(w.first, closed), closed // the newest closed bucket speaks for the open one
	}
	return w, true
}

// Lookup is the set of those taking part that lack nothing in the window; known tells whether all
// of it was asked.
func (h *Heartbeats) Lookup(part uint64, w Window, now time.Time) (whole uint64, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.want(w.first, now)
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

// Without are those of whole that are not known to lack, at some time of the window, something of
// substance that one of others has: of one who takes no part at the moment what it answered before
// is known still. A scrape of a few targets is no substance, which each replica has more than the
// other in the course of a day; no scrape of some job at all is.
func (h *Heartbeats) Without(whole, others uint64, w Window, now time.Time) uint64 {
	h.eachIn(w, now, func(f finding, end int64) bool {
		whole &^= f.lacking(others, w.from, end)
		return true
	})
	return whole
}

// Covers tells whether, as far as is known, those that are left have between them all of substance
// that the others have in the window: at no time of it does each of them lack some, as Without has
// it.
func (h *Heartbeats) Covers(left, others uint64, w Window, now time.Time) bool {
	covers := left != 0
	h.eachIn(w, now, func(f finding, end int64) bool {
		covers = covers && left&^f.lacking(others, w.from, end) != 0
		return covers
	})
	return covers
}

// eachIn calls look for what is believed of the window, with the end of each bucket, until it
// returns false.
func (h *Heartbeats) eachIn(w Window, now time.Time, look func(f finding, end int64) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	more := true
	believed := func(f finding, end int64) {
		if more && (f.until == 0 || now.UnixMilli() < f.until) {
			more = look(f, end)
		}
	}
	for end := w.first; end <= w.last && more; end += bucketMs {
		believed(h.buckets[end], end)
	}
	if w.open {
		believed(h.tail, 0)
		h.eachOpen(w, func(f finding, _ Span) { believed(f, 0) })
	}
}

// Late is for how long a replica has not answered, as far as somebody has asked this; from the
// first time on.
func (h *Heartbeats) Late(replica int, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.of[replica]
	if p.late.IsZero() {
		p.late = now
	}
	return now.Sub(p.late)
}

// Refused notes that a replica could not be asked at all, or said so: Late is for ever then, until
// it answers.
func (h *Heartbeats) Refused(replica int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[replica].late = time.Unix(0, 0)
}

// Newest is Lookup of the newest closed bucket and all since.
func (h *Heartbeats) Newest(part uint64, now time.Time) (whole uint64, known bool) {
	return h.Lookup(part, upTo(lastClosed(now.UnixMilli())), now)
}

// Lacks are, for each replica, the stretches of the window in which it takes part and lacks
// something, sorted. What is lacked in the newest closed bucket or in the last minute counts as
// lacked in all that comes after, unless it ended before. It is false where not all of the window
// is known, as Lookup has it: what was forgotten is not what nobody lacks.
func (h *Heartbeats) Lacks(part uint64, w Window, now time.Time) ([][]Span, bool) {
	out := make([][]Span, len(h.of))
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.open && h.stale(part, now) {
		return nil, false
	}
	add := func(f finding, s Span, end int64) {
		whole := f.whole(part)
		for i := range out {
			spans, s := &out[i], s
			if part&^whole&(1<<i) == 0 {
				continue
			}
			if end != 0 {
				s.Until = min(s.Until, f.less[i].until(end))
			}
			if n := len(*spans); n > 0 && (*spans)[n-1].Until >= s.From {
				(*spans)[n-1].Until = max((*spans)[n-1].Until, s.Until)
				continue
			}
			*spans = append(*spans, s)
		}
	}
	for end := w.first; end <= w.last; end += bucketMs {
		s := Span{end - bucketMs, end}
		if w.open && end == w.last {
			s.Until = math.MaxInt64
		}
		f, ok := h.buckets[end]
		if !ok || !f.known(part, now.UnixMilli()) {
			return nil, false
		}
		add(f, s, end)
	}
	if w.open {
		add(h.tail, Span{w.last, math.MaxInt64}, 0)
		h.eachOpen(w, func(f finding, s Span) { add(f, s, 0) })
	}
	return out, true
}

// eachOpen calls f for the minutes that the window reaches into and no closed bucket has. The
// caller holds mu.
func (h *Heartbeats) eachOpen(w Window, f func(finding, Span)) {
	at := h.openAt.Add(-tailLag).UnixMilli()
	for k := maxSlices - 1; k >= 0; k-- {
		if s := (Span{at - int64(k+1)*minuteMs, at - int64(k)*minuteMs}); s.Until > w.last && s.Until > w.from {
			f(h.open[k], s)
		}
	}
}

// stale tells whether the last minute is to be asked about anew. The caller holds mu.
func (h *Heartbeats) stale(part uint64, now time.Time) bool {
	for i, p := range h.of {
		if part&(1<<i) != 0 && !p.away.Before(h.tailAt) {
			return true
		}
	}
	return h.tailAt.IsZero() || now.Sub(h.tailAt) > Fresh || h.tail.asked&part != part || h.open[0].asked&part != part
}

// unproven tells whether one of those taking part could not be asked the last time, and takes part
// again because Pause is over. The caller holds mu.
func (h *Heartbeats) unproven(part uint64) bool {
	for i, p := range h.of {
		if part&(1<<i) != 0 && !p.silent.IsZero() {
			return true
		}
	}
	return false
}

// openStale tells whether the minutes before the last one are to be asked about anew. The caller
// holds mu.
func (h *Heartbeats) openStale(part uint64, now time.Time) bool {
	return now.Sub(h.openAt) >= openFresh || h.open[0].asked&part != part
}

// trim keeps the number of findings under maxBuckets; the oldest tenth goes first, but for those of
// the window that is being learned, of which there are no more. The caller holds mu.
func (h *Heartbeats) trim() {
	if len(h.buckets) <= maxBuckets {
		return
	}
	ends := make([]int64, 0, len(h.buckets))
	for e := range h.buckets {
		if h.learning.last == 0 || e < h.learning.first || e > h.learning.last {
			ends = append(ends, e)
		}
	}
	slices.Sort(ends)
	for _, e := range ends[:min(len(ends), len(h.buckets)-maxBuckets*9/10)] {
		delete(h.buckets, e)
	}
}

// Silent are the replicas that could not be asked within the last Pause.
func (h *Heartbeats) Silent(now time.Time) (silent uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.of {
		if at := h.of[i].silent; !at.IsZero() && now.Sub(at) < Pause {
			silent |= 1 << i
		}
	}
	return silent
}

// Away notes that a replica's server is not there: it is Silent, and what was known of its last
// minute is not true any more. What was known of the time before is true only if the same process
// comes back (Started), since another one may have lost what it had: a volume, or the end of a log.
func (h *Heartbeats) Away(replica int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[replica].silent, h.of[replica].away = now, now
	h.of[replica].doubted = true
	bit := uint64(1) << replica
	h.eachFinding(func(f *finding) {
		f.unsure |= f.asked & bit
		f.asked &^= bit
	})
}

// Started notes when the process of a replica's server was started, as it said to who asked it at a
// time; zero is not known. Of another process than the one before nothing is known any more.
func (h *Heartbeats) Started(replica int, start, asked time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.of[replica]
	if start.IsZero() || asked.Before(p.away) {
		return
	}
	was, bit := p.started, uint64(1)<<replica
	p.started, p.doubted = start, false
	if same := start.Sub(was).Abs() <= sameStart; same || was.IsZero() {
		h.eachFinding(func(f *finding) {
			if same {
				f.asked |= f.unsure & bit
			}
			f.unsure &^= bit
		})
		return
	}
	p.away = asked // and nothing of the last minute
	h.eachFinding(func(f *finding) {
		f.asked &^= bit
		f.unsure &^= bit
	})
}

// Doubted tells that a replica was away whose start is known, and has not said it anew: what was
// known of it may hold.
func (h *Heartbeats) Doubted(replica int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[replica].doubted && !h.of[replica].started.IsZero()
}

// restarts are when each replica was last seen not to be there, or to be another process.
func (h *Heartbeats) restarts() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make([]time.Time, len(h.of))
	for i := range h.of {
		at[i] = h.of[i].away
	}
	return at
}

// eachFinding lets change change all that is known of closed buckets. The caller holds mu.
func (h *Heartbeats) eachFinding(change func(*finding)) {
	for end, f := range h.buckets {
		change(&f)
		h.buckets[end] = f
	}
}

// Answered notes that a replica has answered a question.
func (h *Heartbeats) Answered(replica int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[replica].err, h.of[replica].silent, h.of[replica].late = "", time.Time{}, time.Time{}
}

// Failed notes why a replica has not answered; silent tells that it could not be asked.
func (h *Heartbeats) Failed(replica int, why error, silent bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[replica].err = why.Error()
	if silent {
		h.of[replica].silent = time.Now()
	}
}

// Turn waits until nobody else asks; ok is false where ctx ended first. The caller calls done when
// it has asked.
func (h *Heartbeats) Turn(ctx context.Context) (done func(), ok bool) {
	select {
	case h.asking <- struct{}{}:
		return h.turn(), true
	case <-ctx.Done():
		return nil, false
	}
}

// TryTurn is Turn for who does not wait.
func (h *Heartbeats) TryTurn() (done func(), ok bool) {
	select {
	case h.asking <- struct{}{}:
		return h.turn(), true
	default:
		return nil, false
	}
}

// Turns is how many turns have ended: the number of who has it now, or has it next.
func (h *Heartbeats) Turns() uint64 { return h.turns.Load() }

func (h *Heartbeats) turn() (done func()) {
	return func() { h.turns.Add(1); <-h.asking }
}
