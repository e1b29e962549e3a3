package shard

import (
	"context"
	"math/bits"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// Whole chooses the replica that a request about the samples in [from, until] (milliseconds,
// everything its selectors reach) should read, and tells whether that one holds every sample of the
// shard there, as far as anybody can know. A replica that cannot be asked (down, replaying, failing
// call after call, silent) takes no part; one that failed call after call is asked first whether it
// answers now. If only one is left, it is whole, but for a minute over what it is known to lack of
// one that is silent, or failed too often and does not say that it still does, which is an error;
// of several, those are whole that lack nothing that another one has by the group's heartbeat,
// bucket by bucket over the whole window; without a heartbeat none of several is. What is not known
// yet is asked for at most three seconds or a quarter of the remaining time; a window of more than
// 31 days is not asked about. The error is that, or that of Base.
func (s *Shard) Whole(ctx context.Context, from, until int64, now time.Time) (*Replica, bool, error) {
	order, n, err := s.wholes(ctx, from, until, now, false)
	if err != nil {
		return nil, false, err
	}
	return order[0], n > 0, nil
}

// Unjudged tells whether no replica can ever be known to be whole, since there are several and the
// group has no heartbeat to compare them by.
func (s *Shard) Unjudged() bool {
	return len(s.Replicas) > 1 && s.Group.Heartbeat == "" && !s.Thanos()
}

// Wholes are the replicas that Whole could choose for the window, the one that it chooses first:
// each of them holds every sample of the shard there and is well enough to be asked. The slice is
// empty where there is none. The error is that of Whole.
func (s *Shard) Wholes(ctx context.Context, from, until int64, now time.Time) ([]*Replica, error) {
	order, n, err := s.wholes(ctx, from, until, now, false)
	return order[:n], err
}

// Ordered are the replicas that can be asked, those first of which Wholes tells, and how many these
// are. The error is that of Whole.
func (s *Shard) Ordered(ctx context.Context, from, until int64, now time.Time) (order []*Replica, whole int, err error) {
	return s.wholes(ctx, from, until, now, false)
}

// Settled is Ordered for what cannot be read of all of them: one is whole also while the group's
// targets may move.
func (s *Shard) Settled(ctx context.Context, from, until int64, now time.Time) (order []*Replica, whole int, err error) {
	return s.wholes(ctx, from, until, now, true)
}

// Alone is the only replica that can be asked of a shard that has several, or nil where there is no
// such one: it is read alone, since there is nothing else to be exact about.
func (s *Shard) Alone() *Replica {
	if len(s.Replicas) < 2 || len(s.Replicas) > trust.MaxReplicas {
		return nil
	}
	if part := only(s.present(time.Now())); part != 0 {
		return s.Replicas[bits.TrailingZeros64(part)]
	}
	return nil
}

// wholes orders the replicas that can be asked: n whole ones first, none where the group's targets
// may move and are not taken for settled. Without an error there is one at least.
func (s *Shard) wholes(ctx context.Context, from, until int64, now time.Time, settled bool) (order []*Replica, n int, err error) {
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
	if len(s.Replicas) > trust.MaxReplicas {
		return order, 0, nil
	}
	if out := s.leftOut(from, until, now, settled); out != 0 || s.differ(from, until) || !settled && s.Divides(until) {
		s.tryFailing(ctx, s.all()&^out, now)
		return order, 0, nil
	}
	mask := uint64(0)
	if s.Thanos() {
		s.tryFailing(ctx, s.all(), now)
		mask = s.fullest(time.Now())
	}
	if mask == 0 {
		if mask, err = s.holders(ctx, from, until, now); err != nil {
			return nil, 0, err
		}
	}
	if mask == 0 {
		return order, 0, nil
	}
	for i, r := range order {
		if mask&(1<<r.Index) != 0 {
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

// present is the set of replicas that take part: those that can be asked now. One that was away a
// moment ago takes no part yet, since nobody knows what it has missed, but where nobody else is
// left.
func (s *Shard) present(now time.Time) (part uint64) {
	silent := s.beats.Silent(now)
	var well uint64
	for i, r := range s.Replicas {
		rank, ok := r.rank(now)
		if !ok || rank >= 3 {
			continue
		}
		well |= 1 << i
	}
	if part = well &^ silent; part == 0 {
		return only(well)
	}
	return part
}

// noteAway notes that the replica's server is not there.
func (r *Replica) noteAway(now time.Time) {
	r.Shard.beats.Away(r.Index, now)
}

// Gone asks a server that has just failed to answer whether it is there at all, for two seconds at
// most. One that is not takes no part from then on, so that what is asked again is asked of those
// that are left. Where ctx ends before that is known, nothing is.
func (r *Replica) Gone(ctx context.Context) bool {
	if !r.gone(ctx) {
		return false
	}
	r.noteAway(time.Now())
	return true
}

// lateWaits is how long a replica's data is waited for, by refusing what the others are known to
// lack, once it does not answer. Then it counts as gone, and they have all there is.
const lateWaits = time.Minute

// holders is the set of replicas that are whole over the window; 0 where that is not known. A
// replica that does not answer takes no part, but what it was known to have is not nobody's for
// that: where the others lack it, the error is that of asking again, for a while.
func (s *Shard) holders(ctx context.Context, from, until int64, now time.Time) (uint64, error) {
	whole, lost, sure := s.holding(ctx, from, until, now)
	if lost != 0 && s.tryFailing(ctx, lost, now) { // one that began to fail meanwhile
		whole, lost, sure = s.holding(ctx, from, until, now)
	}
	if lost == 0 {
		return whole, nil
	}
	var names []string
	for i, r := range s.Replicas {
		if lost&(1<<i) != 0 {
			names = append(names, r.Name())
		}
	}
	lack := "lack"
	if !sure {
		lack = "may lack"
	}
	return 0, qerr.New(qerr.ShardFailed,
		"%s does not answer now, and the other replicas of shard %s %s some of what it has at that time; ask again, or for another time",
		strings.Join(names, ", "), s.Name(), lack)
}

// holding are the whole ones of those that take part. Where each of them lacks some of what those
// have that do not answer now, there are none, and lost are these; or may lack it, where that is
// not sure.
func (s *Shard) holding(ctx context.Context, from, until int64, now time.Time) (whole, lost uint64, sure bool) {
	part, w, known := s.find(ctx, from, until, now)
	if part == 0 {
		return s.doubtful(w, now)
	}
	whole = only(part)
	if known && bits.OnesCount64(part) > 1 {
		whole, _ = s.beats.Lookup(part, w, now)
	}
	late := s.late(part, time.Now())
	if whole == 0 || late == 0 {
		return whole, 0, true
	}
	if whole = s.beats.Without(whole, late, w, now); whole == 0 {
		lost = late
	}
	return whole, lost, true
}

// doubtful is holding where nobody takes part, and Well is one alone for that, the base. Those that
// failed too often, and could not be asked whether they answer (he who would have asked had no time
// for it), may all be well. Of several the base is as good as any other one only where that is
// known: else who is known to lack nothing is to be asked, or nobody for a while.
func (s *Shard) doubtful(w trust.Window, now time.Time) (whole, lost uint64, sure bool) {
	at := time.Now()
	base, err := s.Base()
	if err != nil || s.Group.Heartbeat == "" || base.doubt(at) < answersNothing { // those that are but silent are read together
		return 0, 0, true
	}
	failing, late := s.failing(s.all(), at), s.late(0, at)
	alone := uint64(1) << base.Index
	switch bits.OnesCount64(failing) {
	case 0: // nobody has found anybody who answers
		if s.beats.Without(alone, late, w, now) == 0 {
			lost = late &^ alone
		}
		return 0, lost, true
	case 1:
		whole, alone = failing, failing
	default:
		if whole, _ = s.beats.Lookup(failing, w, now); whole == 0 {
			return 0, failing & late &^ alone, false
		}
	}
	if whole = s.beats.Without(whole, late, w, now); whole == 0 {
		lost = late &^ alone
	}
	return whole, lost, true
}

// late are the replicas that take no part since they are silent, hang, or failed call after call,
// and have not been so for long. Who says of the last minute that it cannot has nothing to wait
// for.
func (s *Shard) late(part uint64, now time.Time) (late uint64) {
	for i, r := range s.Replicas {
		rank, ok := r.rank(now)
		_, hung := r.up.lagging(now)
		if !ok || part&(1<<i) != 0 || rank > answersNothing && !hung {
			continue
		}
		if s.beats.Late(i, now) < lateWaits {
			late |= 1 << i
		}
	}
	return late
}

// failing are those of the replicas that take no part for nothing else than that their breakers are
// open, and may be asked now.
func (s *Shard) failing(of uint64, now time.Time) uint64 {
	return s.failed(of&^s.beats.Silent(now), now)
}

// failed is failing of those that are silent, too.
func (s *Shard) failed(of uint64, now time.Time) uint64 {
	for i, r := range s.Replicas {
		rank, ok := r.rank(now)
		if _, hung := r.up.lagging(now); !ok || rank != answersNothing || hung || r.busy(now) != nil {
			of &^= 1 << i
		}
	}
	return of
}

// all is the set of the shard's replicas.
func (s *Shard) all() uint64 { return uint64(1)<<len(s.Replicas) - 1 }

// tryUnlessHeld is tryFailing, but where one that takes part is known to lack nothing that any of
// them has: then what they have is nothing to wait for.
func (s *Shard) tryUnlessHeld(ctx context.Context, of uint64, w trust.Window, asked bool, now time.Time) {
	failing := s.failing(of, time.Now())
	if failing == 0 {
		return
	}
	if part := s.present(time.Now()); part != 0 && asked && s.Group.Heartbeat != "" {
		if whole, known := s.beats.Lookup(part|failing, w, now); known && whole&part != 0 {
			return
		}
	}
	s.tryFailing(ctx, failing, now)
}

// find sees that all is known of the window that can be, and returns who takes part: also one that
// failed too often, if it answers now, since of what it has nothing may be known. Where known is
// false the window is not known by heartbeat.
func (s *Shard) find(ctx context.Context, from, until int64, now time.Time) (part uint64, w trust.Window, known bool) {
	w, known = trust.WindowOf(from, until, now)
	s.tryUnlessHeld(ctx, s.all()&^s.leftOut(from, until, now, false), w, known, now)
	part = s.present(time.Now())
	if bits.OnesCount64(part) < 2 {
		return part, w, true
	}
	if !known || s.Group.Heartbeat == "" {
		return part, w, false
	}
	h := s.beats
	if _, known = h.Lookup(part, w, now); known {
		return part, w, true
	}
	wait := wholeWait
	if dl, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(dl)/4)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errBeatBudget)
	defer cancel()
	if s.unanswered.spares(wait) {
		return part, w, false
	}
	done, ok := s.beatTurn(ctx, wait)
	if !ok {
		return part, w, false
	}
	defer done()
	if s.unanswered.spares(wait) { // who had the turn has found it out
		return part, w, false
	}
	if part = s.present(time.Now()); bits.OnesCount64(part) < 2 { // who had the turn has found out who is silent
		return part, w, true
	}
	left, err := h.Learn(ctx, s.askAll, part, w, now)
	if err != nil {
		return part, w, false
	}
	return left, w, true
}

// Covers tells whether those that are left have, between them, all of substance that the others
// have in the window, and whether that is known, as Whole knows it. They are replicas of the shard.
func (s *Shard) Covers(ctx context.Context, left, others []*Replica, from, until int64, now time.Time) (covers, known bool) {
	if len(s.Replicas) > trust.MaxReplicas || s.divided(from, until) || s.Unjudged() {
		return false, false
	}
	part, w, known := s.find(ctx, from, until, now)
	known = known && part != 0
	return known && s.beats.Covers(maskOf(left), maskOf(others), w, now), known
}

// divided tells whether the replicas differ, or may do so since the group's targets are being
// divided anew, which replicas learn of one after the other: what is known of them by their sums
// says nothing then.
func (s *Shard) divided(from, until int64) bool {
	return s.differ(from, until) || s.Divides(until)
}

// differ tells whether the replicas are known to scrape different targets, or to have done so in
// the window.
func (s *Shard) differ(from, until int64) bool { return s.split.Load() || s.Split(from, until) }

func maskOf(replicas []*Replica) (mask uint64) {
	for _, r := range replicas {
		mask |= 1 << r.Index
	}
	return mask
}

// Lack is a replica with the stretches in which it lacks what another one has, sorted.
type Lack struct {
	Replica *Replica
	Spans   []trust.Span
}

// Lacks tells for a window what each replica that takes part lacks in it, bucket by bucket; the
// last stretch may reach into the future. It is false where that is not known, as Whole has it. The
// answer is from what Whole of the same window has found.
func (s *Shard) Lacks(ctx context.Context, from, until int64, now time.Time) ([]Lack, bool) {
	if len(s.Replicas) == 1 || len(s.Replicas) > trust.MaxReplicas || s.Thanos() || s.divided(from, until) {
		return nil, len(s.Replicas) == 1 || s.Thanos() && s.fullest(time.Now()) != 0
	}
	part, w, known := s.find(ctx, from, until, now)
	if !known || part == 0 || s.beats.Without(part, s.late(part, time.Now()), w, now) != part {
		return nil, false
	}
	out := make([]Lack, 0, bits.OnesCount64(part))
	for _, r := range s.Replicas {
		if part&(1<<r.Index) != 0 {
			out = append(out, Lack{Replica: r})
		}
	}
	if len(out) < 2 {
		return out, true
	}
	spans, known := s.beats.Lacks(part, w, now)
	if !known {
		return nil, false
	}
	for i := range out {
		out[i].Spans = spans[out[i].Replica.Index]
	}
	return out, true
}

// only is the one replica that takes part, where there is one.
func only(part uint64) uint64 {
	if bits.OnesCount64(part) == 1 {
		return part
	}
	return 0
}
