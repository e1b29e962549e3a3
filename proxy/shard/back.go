package shard

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// A server that was away for longer than its targets count may come back as another one: with other
// flags, or with targets that are another shard's by now. Until it was examined and compared again,
// no group that could have its series trusts anything to its shards.

// returns counts how often a server has come back. Topologies share it with the server, since more
// than one may probe it for a while; each keeps which of the returns it has compared
// (Replica.compared).
type returns struct {
	count    atomic.Int64 // of them
	examined atomic.Int64 // the last one that was examined after it
}

// changes counts the returns of all servers: while it stands, a topology that awaits nobody goes on
// awaiting nobody.
var changes atomic.Uint64

// isBack notes that the server is up, before anybody is told so. What is known of one that was away
// for a moment stands.
func (r *Replica) isBack() {
	if r.targets.Load().old() && r.Shard.topology.several() {
		r.up.returns.count.Add(1)
		changes.Add(1)
	}
}

// isExamined notes that the server was, at a time when it had come back so often; it tells whether
// it is to be compared for that.
func (r *Replica) isExamined(count int64) bool {
	for {
		last := r.up.returns.examined.Load()
		if last >= count {
			return r.compared.Load() < last
		}
		if r.up.returns.examined.CompareAndSwap(last, count) {
			return true
		}
	}
}

// returned is a server that is to be compared, and which of its returns that is about.
type returned struct {
	r     *Replica
	count int64
}

// back are the servers whose targets are to be read and compared, since they were examined after
// they came up.
func (t *Topology) back() (out []returned) {
	for r := range t.replicas() {
		if n := r.up.returns.examined.Load(); r.compared.Load() < n {
			out = append(out, returned{r, n})
		}
	}
	return out
}

// compareBack compares those that are back with what is known of the others. It tells how many they
// were.
func (t *Topology) compareBack(ctx context.Context) int {
	back := t.back()
	servers := make([]*Replica, len(back))
	for i, b := range back {
		servers[i] = b.r
	}
	t.readTargets(ctx, slices.Values(servers))
	t.judge(ctx, true, back...)
	return len(back)
}

// backLoop compares who comes back, at once: reading the targets of all takes its time.
func (t *Topology) backLoop(ctx context.Context) {
	for {
		select {
		case <-t.compare.back:
			t.compareBack(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Awaits tells whether a server that could hold series of the group is up again after a while, or
// for the first time, and was not compared with the others yet.
func (g *Group) Awaits() bool {
	if len(g.Shards) == 0 {
		return false
	}
	t := g.Shards[0].topology
	now := changes.Load()
	if t.compare.awaitsNone.Load() == now+1 {
		return false
	}
	none := true
	for r := range t.replicas() {
		if r.compared.Load() == r.up.returns.count.Load() {
			continue
		}
		none = false
		// One that is down again comes back anew.
		if (r.Shard.Group == g || g.mayShare(r.Shard)) && r.up.is() != Down {
			return true
		}
	}
	if none {
		t.compare.awaitsNone.Store(now + 1)
	}
	return false
}

// is the state of the server itself.
func (u *upstream) is() State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.health.state
}

// mayShare tells whether a series of the group may be on a shard of another one, for the same time.
func (g *Group) mayShare(s *Shard) bool {
	now := s.topology.opts.Clock()
	gf, gu := config.Span(g.From, g.Until, now)
	sf, su := s.Span(now)
	return max(gf, sf) < min(gu, su) && !apart(g.Labels, s.Group.Labels)
}

// answers notes that the server has answered what it was asked at the time.
func (u *upstream) answers(began time.Time) {
	at := began.UnixNano()
	for {
		last := u.answered.Load()
		if last >= at || u.answered.CompareAndSwap(last, at) {
			return
		}
	}
}

// tryDown asks a server whose readiness page has just failed with err whether it answers queries
// all the same, since nobody else may ask it: nil if it does, which is noted, else err. One that
// was silent is looked at as any silent one.
func (r *Replica) tryDown(ctx context.Context, err error) error {
	if errors.As(err, new(*dialError)) || errors.As(err, new(*startingError)) || qerr.From(err).Kind == qerr.Timeout {
		return err
	}
	if r.answersQuery(ctx, lagTimeout) == nil {
		return nil
	}
	return err
}

// addsNothing tells whether no answer can have anything of the server: it is not asked, or it is
// asked last and has answered nothing since it is down, or the last call to it failed. A readiness
// page may fail, be slower than a probe waits, or be forbidden, where queries are answered.
func (r *Replica) addsNothing(now time.Time) bool {
	rank, asked := r.rank(now)
	if !asked || rank < answersNothing {
		return !asked
	}
	r.up.mu.Lock()
	h := &r.up.health
	down, forbidden, since := h.state == Down, h.forbidden, h.since
	r.up.mu.Unlock()
	if down { // what it answered before says nothing, and before the first call failing is 0 too
		return !forbidden && r.up.answered.Load() < since.UnixNano()
	}
	return r.up.failing.Load() != 0
}

// noteGone notes which servers have been down for so long that what they said of themselves counts
// no more. The caller holds compare.mu.
func (t *Topology) noteGone() {
	now := time.Now()
	for r := range t.replicas() {
		r.up.mu.Lock()
		h := &r.up.health
		gone := h.state == Down && now.Sub(h.since) > targetsKeep
		r.up.mu.Unlock()
		if gone = gone && r.addsNothing(now); r.longGone.Swap(gone) != gone {
			learned.Add(1)
		}
	}
}
