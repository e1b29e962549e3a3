package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// bucketMs is the length of a heartbeat bucket; buckets end on its multiples.
	bucketMs = 5 * 60 * 1000
	// bucketGraceMs is how long after its end a bucket is closed: by then its last scrapes are stored.
	bucketGraceMs = 30 * 1000
	// maxBuckets bounds a shard's findings: 31 days and an hour of them, 24 bytes each and the map's own.
	maxBuckets = 31*24*12 + 12
	// pieceBuckets is how many buckets one question covers: six hours.
	pieceBuckets = 72
	// warmBuckets are kept ready by the background work: the last hour.
	warmBuckets = 12
	// tailFresh is how old the last minute's finding may be.
	tailFresh = 30 * time.Second
	// doubtFor is how long a bucket is believed to differ between replicas, or to be empty: history may still be filled in behind.
	doubtFor = time.Minute
	// beatEvery is how often the background work asks.
	beatEvery = 10 * time.Second
	// wholeWait is the most that one request spends on buckets that are not known yet.
	wholeWait = 3 * time.Second
	// tailLag is how long before now the last minute ends: the scrapes of the last seconds are not stored yet, on one replica sooner than on the other.
	tailLag = 5 * time.Second
	// beatPause is how long nobody asks for heartbeats on a request's account after a question failed: requests must not wait for a replica that is gone.
	beatPause = 10 * time.Second
	// maxReplicas is how many replicas of a shard can be told apart here.
	maxReplicas = 64
)

// finding says which replicas agree over some stretch of time.
type finding struct {
	mask uint64 // bit i: replica i agrees with the fullest; two bits at least, or none
	data bool   // a heartbeat was seen at all
	at   int64  // when this was found, Unix milliseconds; 0 where it stands for good
}

// known tells whether the finding still stands.
func (f finding) known(nowMs int64) bool { return f.at == 0 || nowMs-f.at < doubtFor.Milliseconds() }

// heartbeats are a shard's findings. A closed bucket in which all replicas agree does not change any more, so the finding is kept and the numbers are
// not; any other is looked at again after a minute.
type heartbeats struct {
	key     string
	asking  chan struct{} // holds one token while somebody asks, so that many requests ask once
	mu      sync.Mutex
	buckets map[int64]finding // by end, milliseconds
	tail    finding
	tailAt  time.Time // zero: no successful question yet
	err     string    // why the last question failed
	failed  time.Time // when
}

func newHeartbeats(key string) *heartbeats {
	return &heartbeats{key: key, asking: make(chan struct{}, 1), buckets: map[int64]finding{}}
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

// Whole chooses the replica that a request about the samples in [from, until] (milliseconds, everything its selectors reach) should read, and tells
// whether that one holds every sample of the shard there. A shard with one replica is whole. With several, those are whole that agree with each other
// by the group's heartbeat over the whole window; without a heartbeat none is. What is not known yet is asked for at most three seconds or a quarter of
// the remaining time; a window of more than 31 days is not asked about. The error is that of Base.
func (s *Shard) Whole(ctx context.Context, from, until int64, now time.Time) (*Replica, bool, error) {
	order, n, err := s.wholes(ctx, from, until, now)
	if err != nil {
		return nil, false, err
	}
	return order[0], n > 0, nil
}

// Wholes are the replicas that Whole could choose for the window, the one that it chooses first: each of them holds every sample of the shard there and is
// well enough to be asked. None is an empty slice. The error is that of Base.
func (s *Shard) Wholes(ctx context.Context, from, until int64, now time.Time) ([]*Replica, error) {
	order, n, err := s.wholes(ctx, from, until, now)
	return order[:n], err
}

// wholes orders the replicas that can be asked: n whole ones first. Without an error there is one at least.
func (s *Shard) wholes(ctx context.Context, from, until int64, now time.Time) (order []*Replica, n int, err error) {
	s.awaitProbes(ctx)
	if ctx.Err() != nil {
		return nil, 0, s.Replicas[0].ctxError(ctx)
	}
	if order, err = s.order(now); err != nil {
		return nil, 0, err
	}
	if len(s.Replicas) == 1 {
		return order, 1, nil
	}
	if s.Thanos() && s.SameStores() {
		return order, len(order), nil
	}
	if s.Group.Heartbeat == "" || len(s.Replicas) > maxReplicas || s.split.Load() {
		return order, 0, nil
	}
	mask := s.agreement(ctx, from, until, now)
	if mask == 0 {
		return order, 0, nil
	}
	whole := func(r *Replica) bool {
		rank, ok := r.rank(now)
		return ok && rank < 3 && mask&(1<<r.Index) != 0
	}
	for i, r := range order {
		if whole(r) {
			copy(order[n+1:i+1], order[n:i]) // the others keep their order
			order[n] = r
			n++
		}
	}
	if n > 0 {
		s.base.Store(int32(order[0].Index)) // the same the next time, while it stays whole
	}
	return order, n, nil
}

// agreement is the set of replicas that agree over the window; 0 where that is not known.
func (s *Shard) agreement(ctx context.Context, from, until int64, now time.Time) uint64 {
	nowMs := now.UnixMilli()
	until = min(until, nowMs)
	from = min(from, until)
	if until < 0 || from < until-maxBuckets*bucketMs {
		return 0
	}
	closed := lastClosed(nowMs)
	first, last := ceilTo(from, bucketMs), ceilTo(until, bucketMs)
	open := last > closed
	if open {
		first, last = min(first, closed), closed // the newest closed bucket speaks for the open one
	}
	h := s.beats
	result, complete := h.lookup(first, last, open, now)
	if complete {
		return result
	}
	if !s.beatable() {
		return 0
	}
	wait := wholeWait
	if dl, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(dl)/4)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errBeatBudget)
	defer cancel()
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	case <-ctx.Done():
		return 0
	}
	if err := s.askBeats(ctx, first, last, open, now); err != nil {
		return 0
	}
	result, complete = h.lookup(first, last, open, now)
	if !complete {
		return 0
	}
	return result
}

// beatable tells whether asking for heartbeats now has a chance: all replicas can be asked, and the last question did not fail just now.
func (s *Shard) beatable() bool {
	now := time.Now()
	for _, r := range s.Replicas {
		if rank, ok := r.rank(now); !ok || rank >= 3 {
			return false
		}
	}
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	return s.beats.failed.IsZero() || now.Sub(s.beats.failed) >= beatPause
}

var errBeatBudget = errors.New("the time for heartbeats is over")

// lookup joins the findings of the buckets that end in [first, last] and, for an open window, of the last minute.
func (h *heartbeats) lookup(first, last int64, open bool, now time.Time) (mask uint64, complete bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mask = ^uint64(0)
	data := false
	for end := first; end <= last; end += bucketMs {
		v, ok := h.buckets[end]
		if !ok || !v.known(now.UnixMilli()) {
			return 0, false
		}
		mask &= v.mask
		data = data || v.data
	}
	if open {
		if h.tailAt.IsZero() || now.Sub(h.tailAt) > tailFresh {
			return 0, false
		}
		mask &= h.tail.mask
		data = data || h.tail.data
	}
	if !data {
		return 0, true // a heartbeat that is nowhere proves nothing
	}
	return mask, true
}

// askBeats asks for what lookup would miss. The caller holds the token.
func (s *Shard) askBeats(ctx context.Context, first, last int64, open bool, now time.Time) error {
	h := s.beats
	if open {
		h.mu.Lock()
		stale := h.tailAt.IsZero() || now.Sub(h.tailAt) > tailFresh
		h.mu.Unlock()
		if stale {
			if err := s.askTail(ctx, now); err != nil {
				return err
			}
		}
	}
	for end := last; end >= first; { // newest first: what is asked for most
		h.mu.Lock()
		f, ok := h.buckets[end]
		h.mu.Unlock()
		if ok && f.known(now.UnixMilli()) {
			end -= bucketMs
			continue
		}
		lo := max(first, end-(pieceBuckets-1)*bucketMs)
		if err := s.askBuckets(ctx, lo, end, now); err != nil {
			return err
		}
		end = lo - bucketMs
	}
	return nil
}

// askBuckets asks every replica about the buckets that end in [lo, hi] and keeps the findings. All must answer: half of the numbers say nothing.
func (s *Shard) askBuckets(ctx context.Context, lo, hi int64, now time.Time) error {
	answers, err := s.askAll(ctx, &endpoint.Request{
		ID: endpoint.QueryRange, Query: s.Group.beatQuery("5m"), Start: endpoint.At(lo), End: endpoint.At(hi), Step: bucketMs * time.Millisecond,
	})
	if err != nil {
		return err
	}
	h := s.beats
	h.mu.Lock()
	defer h.mu.Unlock()
	for end := lo; end <= hi; end += bucketMs {
		at := make([]beats, len(answers))
		for i, a := range answers {
			at[i] = a[end]
		}
		f := judge(at)
		if all := uint64(1)<<len(at) - 1; f.mask != all || !f.data {
			f.at = now.UnixMilli()
		}
		h.buckets[end] = f
	}
	h.trim()
	return nil
}

// askTail asks every replica about the last minute.
func (s *Shard) askTail(ctx context.Context, now time.Time) error {
	t := now.Add(-tailLag).UnixMilli()
	answers, err := s.askAll(ctx, &endpoint.Request{ID: endpoint.Query, Query: s.Group.beatQuery("1m"), Time: endpoint.At(t)})
	if err != nil {
		return err
	}
	h := s.beats
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make([]beats, len(answers))
	for i, a := range answers {
		for _, b := range a { // one instant, whatever timestamp the server writes on it
			at[i] = b
		}
	}
	h.tail, h.tailAt = judge(at), now
	return nil
}

// askAll asks all replicas the same thing at once.
func (s *Shard) askAll(ctx context.Context, req *endpoint.Request) ([]map[int64]beats, error) {
	answers := make([]map[int64]beats, len(s.Replicas))
	g, gctx := errgroup.WithContext(ctx)
	for i, r := range s.Replicas {
		g.Go(func() error {
			resp, err := r.Do(gctx, req, CallOptions{MaxBytes: maxBeatBytes, Entered: true}) // our own, and one at a time for each shard
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if answers[i], err = decodeBeats(resp.Body); err != nil {
				return fmt.Errorf("heartbeat of %s: %w", r.Name(), err)
			}
			return nil
		})
	}
	err := g.Wait()
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	if err != nil {
		if kind := qerr.From(err).Kind; kind != qerr.Canceled { // a request that ended by itself says nothing about the replicas
			s.beats.err, s.beats.failed = err.Error(), time.Now()
		}
		return nil, err
	}
	s.beats.err, s.beats.failed = "", time.Time{}
	return answers, nil
}

// trim keeps the number of findings under maxBuckets; the oldest tenth goes first. The caller holds mu.
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

// wholeNow tells whether the replica agreed with another when last asked.
func (h *heartbeats) wholeNow(replica int, now time.Time) bool {
	closed := lastClosed(now.UnixMilli())
	mask, complete := h.lookup(closed, closed, true, now)
	return complete && replica < maxReplicas && mask&(1<<replica) != 0
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
	// An error is kept in h.err for the shards view; until a later question succeeds the shard is read raw.
	if err := s.askTail(ctx, now); err == nil {
		_ = s.askBeats(ctx, closed-(warmBuckets-1)*bucketMs, closed, false, now)
	}
}
