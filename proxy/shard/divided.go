package shard

import (
	"slices"
	"time"
)

// Where a group gets another shard, or loses one, its targets are divided anew, and the servers
// learn that one after the other, as kubelet brings them their configuration: for some minutes a
// target is on two of them, or moves from one to the other, and that is seen only where the servers
// are compared, up to half a minute later. Aggregates of shards would count it twice meanwhile. So
// nothing is trusted to the shards of such a group for a while, nor is a replica taken for whole;
// Spillway evaluates its queries from the series of all of them, each once.

// dividesFor is how long a group's targets may move after its shards became more or fewer, and
// after two of them were last seen to scrape the same.
const dividesFor = 5 * time.Minute

// Divides tells whether the group's targets are being divided anew, as far as anybody knows: its
// shards became more or fewer not long ago.
func (g *Group) Divides() bool { return dividing(g.divided.Load(), time.Now()) }

// dividesIn tells whether they are, and a window that ends at until, in milliseconds, may hold some
// of that time.
func (g *Group) dividesIn(until int64) bool {
	since := g.divided.Load()
	return dividing(since, time.Now()) && until > time.Unix(0, since).Add(-dividesFor).UnixMilli()
}

func dividing(since int64, now time.Time) bool {
	return since != 0 && now.Sub(time.Unix(0, since)) < dividesFor
}

// inheritDivided takes over when the group's targets were divided last, in a topology that follows
// another one. One shard has them all.
func (g *Group) inheritDivided(was *Group, now time.Time) {
	switch n := g.living(now); {
	case n < 2:
	case n != was.living(now):
		g.divided.Store(time.Now().UnixNano())
	default:
		g.divided.Store(was.divided.Load())
	}
}

// living is how many shards answer for the present.
func (g *Group) living(now time.Time) (n int) {
	for _, s := range g.Shards {
		if s.lives(now) {
			n++
		}
	}
	return n
}

// noteDivided keeps a group that is being divided so as long as two of its shards were compared and
// scrape the same. It is for judge.
func (g *Group) noteDivided(sick []Sickness) {
	last, now := g.divided.Load(), time.Now()
	twice := slices.ContainsFunc(sick, func(s Sickness) bool { return s.Kind == SickOverlap || s.Kind == SickCopy })
	if twice && dividing(last, now) {
		g.divided.CompareAndSwap(last, now.UnixNano())
	}
}
