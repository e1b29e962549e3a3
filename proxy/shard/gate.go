package shard

import (
	"context"
	"errors"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
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

// gate admits at most so many calls at once, fairly by lanes (admit.Gate). It belongs to a
// replica's upstream, to a shard, or to the crowd of all, and outlives a reload, so a reload never
// resets anyone's place.
type gate struct {
	*admit.Gate
	bound  string
	what   string // it is a gate of, one of them
	advice string
}

func newGate(n int, lanes []admit.Lane, bound, what, advice string) *gate {
	return &gate{Gate: admit.NewGate(n, ofPeer(n), lanes), bound: bound, what: what, advice: advice}
}

// resize changes the number of places, of those who wait as well.
func (g *gate) resize(n int) {
	if g.Places() != n {
		g.SetPlaces(n, ofPeer(n))
	}
}

// asker is who asks in ctx, and began to. What the proxy asks for itself has no address, and no
// share of one.
func asker(ctx context.Context, began time.Time) admit.Asker {
	who := identity.From(ctx)
	return admit.Asker{Lane: who.Lane, Flow: who.Flow, Peer: who.Peer, Arrived: who.Arrived, Began: began}
}

// acquire waits for a slot until shortly before the deadline of ctx, so that there is time to say
// that there was none, and for as long as the lane lets one wait who began then. The caller calls
// release exactly once if the error is nil.
func (g *gate) acquire(ctx context.Context, name string, began time.Time) (release func(), err error) {
	p, ok := g.AtOnce(asker(ctx, began), 1)
	if ok {
		return func() { g.Leave(&p, 1) }, nil
	}
	if p, err = g.wait(ctx, 1, began); err == nil {
		return func() { g.Leave(&p, 1) }, nil
	}
	r := (*admit.Refusal)(nil)
	if !errors.As(err, &r) || canceled(ctx, r) {
		return nil, qerr.From(context.Cause(ctx))
	}
	most, whose := r.Most, ""
	switch {
	case r.Why == admit.PeerFull && most < g.Places():
		whose = " for " + identity.From(ctx).Peer + ", as many of its " + itoa(g.Places()) + " as one address may have"
	case r.Why == admit.LaneFull:
		whose = " for the caller's lane, as many as that may have"
	}
	e := qerr.Overload(g.bound, itoa(most), tryAgain(r), g.advice,
		"%s is asked at most %s at once%s, and %s", name, count(int64(most), g.what), whose, outcome(r, began))
	if r.Why == admit.FlowFull {
		e.Message = name + " has no room for this one: " + outcome(r, began)
	}
	e.Seen = count(int64(r.Others), "other") + " waiting"
	if r.MaxWait == 0 { // else it is nothing about the shard
		e.Shards = []string{name}
	}
	return nil, e
}

// tryAgain is when who found no place may ask again. One who was told so before his deadline
// leaves those some time who were there.
func tryAgain(r *admit.Refusal) time.Duration { return max(time.Second, r.MaxWait/2) }

// wait waits for n places until shortly before the deadline of ctx.
func (g *gate) wait(ctx context.Context, n int, began time.Time) (admit.Place, error) {
	if dl, ok := ctx.Deadline(); ok {
		remaining := time.Until(dl)
		wait, cancel := context.WithTimeout(ctx, remaining-margin(remaining)/2)
		defer cancel()
		return g.Wait(wait, asker(ctx, began), n)
	}
	return g.Wait(ctx, asker(ctx, began), n)
}

// canceled tells whether a wait ended for another reason than that its time was over.
func canceled(ctx context.Context, r *admit.Refusal) bool {
	return r.Why != admit.FlowFull && ctx.Err() != nil && qerr.From(context.Cause(ctx)).Kind != qerr.Timeout && !qerr.TimedOut(ctx)
}

// outcome is what became of a wait that was in vain.
func outcome(r *admit.Refusal, began time.Time) string {
	if r.Why == admit.FlowFull {
		return count(int64(r.Most), "call") + " of the same caller wait there already, as many as may"
	}
	if r.MaxWait > 0 {
		return "there was no room for this one within " + r.MaxWait.String() + ", the max_wait of its lane"
	}
	return "there was no room for this one before its deadline (it waited " + waited(began).String() + ")"
}

// gates are the gates of one replica, by class.
type gates struct {
	heavy, unselective *gate
}

// make makes the gates, unless they are there.
func (g *gates) make(heavy int, lanes []admit.Lane) {
	if g.heavy == nil {
		g.heavy = newGate(heavy, lanesOfReads(lanes), "read_slots", "remote read",
			"try again in a moment, or ask for fewer series at once; for good, have the shards evaluate it (explain tells what keeps it from them) or record it there by a rule, or raise limits.read_slots and the servers' --storage.remote.read-concurrent-limit together")
	}
	if g.unselective == nil {
		g.unselective = newGate(maxUnselective, nil, "unselective_slots", "unselective request",
			"name a metric in the selector, such as kube_pod_info{namespace=\"…\"}; such requests need no slot")
	}
}

// waiting is how many calls wait at the gates.
func (g *gates) waiting() int {
	reads, _ := g.heavy.Waiting()
	unselective, _ := g.unselective.Waiting()
	return reads + unselective
}

func (g *gates) of(c Class) *gate {
	switch c {
	case Heavy:
		return g.heavy
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
