package shard

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Class is how expensive a call is for the server that serves it. It chooses the gate that the call
// passes.
type Class uint8

const (
	// Light is every call that the server bounds by itself or that is cheap: it passes no gate.
	Light Class = iota
	// Heavy is a call that holds one of the server's own scarce slots: remote read, whose gate in
	// Prometheus is ten wide.
	Heavy
	// Unselective is a metadata call whose selectors select nothing in particular, so that the
	// server visits every series of its head.
	Unselective
)

// maxUnselective is how many unselective calls one replica serves at once. How many Heavy ones it
// does is Options.ReadSlots.
const maxUnselective = 2

// gate admits at most n calls at once and the others in the order in which they came. It belongs to
// a replica's upstream, or to the crowd of all, and outlives a reload, so a reload never resets
// anyone's place.
type gate struct {
	sem     *semaphore.Weighted
	size    int
	bound   string
	what    string // it is a gate of, one of them
	advice  string
	waiting atomic.Int64
	held    atomic.Int64
	waited  atomic.Int64 // nanoseconds, of all together
	peers   peers        // who holds a place or waits for one; unused where one may have all
}

func newGate(n int, bound, what, advice string) *gate {
	return &gate{sem: semaphore.NewWeighted(int64(n)), size: n, bound: bound, what: what, advice: advice}
}

// acquire waits for a slot, first among those of the same peer, then among all, until shortly
// before the deadline of ctx, so that there is time to say that there was none. The caller calls
// release exactly once if the error is nil.
func (g *gate) acquire(ctx context.Context, name string) (release func(), err error) {
	wait := ctx
	if dl, ok := ctx.Deadline(); ok {
		remaining := time.Until(dl)
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, remaining-margin(remaining)/2)
		defer cancel()
	}
	var p *peer
	most, whose := g.size, ""
	if g.share() < g.size {
		p = g.join(ctx, 1)
	}
	began := time.Now()
	g.waiting.Add(1)
	if p != nil {
		if err = p.sem.Acquire(wait, 1); err != nil {
			most, whose = g.share(), " for "+p.name+", as many of its "+itoa(g.size)+" as one address may have"
		}
	}
	if err == nil {
		if err = g.sem.Acquire(wait, 1); err != nil && p != nil {
			p.sem.Release(1)
		}
	}
	others := g.waiting.Add(-1)
	if err != nil {
		if p != nil {
			g.part(p, 1)
		}
		if ctx.Err() == nil || qerr.TimedOut(ctx) {
			e := qerr.Overload(g.bound, itoa(most), time.Second, g.advice,
				"%s is asked at most %s at once%s, and there was no room for this one before its deadline (it waited %s)", name, count(int64(most), g.what), whose, waited(began))
			e.Seen = count(others, "other") + " waiting"
			e.Shards = []string{name}
			return nil, e
		}
		return nil, qerr.From(context.Cause(ctx))
	}
	g.held.Add(1)
	return func() {
		g.held.Add(-1)
		g.sem.Release(1)
		if p != nil {
			p.sem.Release(1)
			g.part(p, 1)
		}
	}, nil
}

// gates are the gates of one replica, by class.
type gates struct {
	heavy       atomic.Pointer[gate] // another one after a reload that changes its size: who is through the old one stays
	unselective *gate
}

// size makes the gates, or a new one in place of one that is to have another size.
func (g *gates) size(heavy int) {
	if old := g.heavy.Load(); old == nil || old.size != heavy {
		g.heavy.Store(newGate(heavy, "read_slots", "remote read",
			"try again in a moment, or ask for fewer series at once; for good, have the shards evaluate it (explain tells what keeps it from them) or record it there by a rule, or raise limits.read_slots and the servers' --storage.remote.read-concurrent-limit together"))
	}
	if g.unselective == nil {
		g.unselective = newGate(maxUnselective, "unselective_slots", "unselective request",
			"name a metric in the selector, such as kube_pod_info{namespace=\"…\"}; such requests need no slot")
	}
}

func (g *gates) of(c Class) *gate {
	switch c {
	case Heavy:
		return g.heavy.Load()
	case Unselective:
		return g.unselective
	default:
		return nil
	}
}

// count is a number of things, in words.
func count(n int64, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return itoa64(n) + " " + of + "s"
}

// waited is how long somebody has waited, as exactly as anybody wants to know.
func waited(since time.Time) time.Duration { return time.Since(since).Round(10 * time.Millisecond) }
