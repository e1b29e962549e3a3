package shard

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// Where a group gets another shard its targets may be divided anew, and the servers learn that one
// after the other, as kubelet brings them their configuration: for some minutes a target is on two
// of them, or moves from one to the other, and that is seen only where the servers are compared, up
// to half a minute later. Aggregates of shards would count it twice meanwhile. So what reads that
// time trusts nothing to the shards of such a group for a while, nor takes a replica for whole;
// Spillway evaluates it from the series of all of them, each once. What a Thanos Query has part in
// cannot be evaluated here, and goes on as it is.
//
// A new shard that divides them scrapes at once what the others scrape too. Where no two are seen
// to, nothing is divided, and it is over soon.

const (
	// dividesFor is how long a group's targets may be divided anew, as far as anybody knows, after
	// its shards became more.
	dividesFor = 2 * time.Minute
	// movesFor is the same after two of its shards were last seen to scrape the same meanwhile, and
	// movesMost after its shards became more at most: an overlap that stays is another trouble.
	movesFor, movesMost = 5 * time.Minute, 20 * time.Minute
)

// dividing is when a group's shards became more, and until when its targets may move, both in
// nanoseconds since 1970; 0 is never.
type dividing struct {
	since, until atomic.Int64
	// lapped tells that two of its shards scraped the same before already.
	lapped atomic.Bool
}

// Divides tells whether the group's targets are being divided anew, as far as anybody knows, and a
// window that ends at until, in milliseconds, may hold some of that time.
func (g *Group) Divides(until int64) bool {
	_, divides := g.dividedSince(until)
	return divides
}

// dividedSince is Divides, and when that began, in milliseconds.
func (g *Group) dividedSince(until int64) (since int64, divides bool) {
	end := g.dividing.until.Load()
	since = time.Unix(0, g.dividing.since.Load()).UnixMilli()
	return since, end != 0 && time.Now().UnixNano() < end && until >= since
}

// Divides is that of its group, where the shard scrapes: a Thanos Query does not.
func (s *Shard) Divides(until int64) bool { return !s.Thanos() && s.Group.Divides(until) }

// DividedSince is Divides, and when that began, in milliseconds.
func (s *Shard) DividedSince(until int64) (since int64, divides bool) {
	since, divides = s.Group.dividedSince(until)
	return since, divides && !s.Thanos()
}

// inheritDividing takes over what is known of that in a topology that follows another one. One
// shard has all targets. Who was looked up and goes was kept for a while; what it had is elsewhere
// by then.
func (g *Group) inheritDividing(was *Group, now time.Time, log *slog.Logger) {
	n, before := g.living(now), was.living(now)
	g.dividing.since.Store(was.dividing.since.Load())
	g.dividing.until.Store(was.dividing.until.Load())
	g.dividing.lapped.Store(was.dividing.lapped.Load())
	if n < 2 || n == before || n < before && g.LookedUp {
		return
	}
	at := time.Now()
	if at.UnixNano() > was.dividing.until.Load() { // else it goes on
		g.dividing.since.Store(at.UnixNano())
		g.dividing.lapped.Store(was.laps())
	}
	g.dividing.until.Store(max(was.dividing.until.Load(), at.Add(dividesFor).UnixNano()))
	log.Info("the group's shards became more or fewer, and its targets may move between them; what reads them now is evaluated in Spillway for a while",
		slog.String("group", g.Name), slog.Int("before", before), slog.Int("shards", n), slog.Duration("for", dividesFor))
}

// living is how many shards answer for the present, but for those of Thanos, which scrape nothing.
func (g *Group) living(now time.Time) (n int) {
	for _, s := range g.Shards {
		if s.lives(now) && !s.Thanos() {
			n++
		}
	}
	return n
}

// laps tells whether two of its shards scraped the same when the servers were last compared.
func (g *Group) laps() bool {
	return slices.ContainsFunc(g.Sick(), func(s Sickness) bool { return !s.elsewhere && (s.Kind == SickOverlap || s.Kind == SickCopy) })
}

// noteDividing keeps a group that is being divided so as long as two of its shards scrape the same
// that did not before. It is for judge, after what it has found is known.
func (g *Group) noteDividing() {
	d, now := &g.dividing, time.Now()
	since, end := time.Unix(0, d.since.Load()), d.until.Load()
	if now.UnixNano() < end && !d.lapped.Load() && g.laps() {
		d.until.CompareAndSwap(end, max(end, min(now.Add(movesFor).UnixNano(), since.Add(movesMost).UnixNano())))
	}
}
