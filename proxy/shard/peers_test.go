package shard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// from is a context of a request that came from the address.
func from(ctx context.Context, peer string) context.Context {
	return identity.With(ctx, identity.Request{Peer: peer})
}

// TestOnePeerLeavesPlaces: a caller whose calls never end has five sixths of a shard's places, and
// everybody else is answered at once. The next call of his own waits, and is told why. When his
// calls end, nothing of him is left.
func TestOnePeerLeavesPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, broken("wait go; answer"))
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		share := maxCalls - maxCalls/sparePart
		if share != 20 {
			t.Errorf("the share is %d of %d; docs/bounds/replica_calls.md says 20 of 24", share, maxCalls)
		}
		results := make(chan error, maxCalls)
		hog := from(t.Context(), "192.0.2.1")
		for range maxCalls {
			go func() { // ends with its call; the results are counted below
				_, err := readAll(hog, s.Replicas[0], seriesRequest, CallOptions{})
				results <- err
			}()
		}
		synctest.Wait()
		if n := b.fakes[0].InFlight(); n != share {
			t.Errorf("one peer has %d calls at the server, want %d", n, share)
		}
		for i := range maxCalls - share { // and each of the places that are left is somebody else's
			leave, err := s.Enter(from(t.Context(), fmt.Sprintf("192.0.2.%d", 2+i)), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		ctx, cancel := context.WithTimeout(hog, time.Second)
		defer cancel()
		_, err := s.Enter(ctx, 0)
		e := qerr.From(err)
		if e == nil || e.Bound != "replica_calls" || e.Value != "20" || !strings.Contains(e.Message, "has 20 places held for 192.0.2.1, as many of its 24 as one address may have") {
			t.Errorf("got %v", err)
		}
		b.fakes[0].Release("go")
		for range maxCalls - share { // those that waited
			b.fakes[0].Release("go")
		}
		for range maxCalls {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if n := s.calls.Peers(); n != maxCalls-share {
			t.Errorf("%d peers are remembered at the shard, want those %d that hold a place", n, maxCalls-share)
		}
		top.Close()
		b.close()
	})
}

// TestNoPeerNoShare: what the proxy asks for itself, and a gate of a few places, know no share; a
// request over more shards than a peer may have process places takes those.
func TestNoPeerNoShare(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{})
	top := build(t, Options{}, false, group(fake.URL()))
	s := top.Groups[0].Shards[0]
	for range maxCalls {
		leave, err := s.Enter(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	if g := newGate(5, nil, "x", "", ""); g.OfPeer() != 5 {
		t.Errorf("of 5 places one peer may have %d", g.OfPeer())
	}
	g := newGate(12, nil, "x", "", "")
	ctx := from(t.Context(), "2001:db8::1")
	place, err := g.take(ctx, s, 12, time.Now())
	if err != nil || place.Places() != g.OfPeer() {
		t.Fatal(place.Places(), err)
	}
	for range g.OfPeer() { // taken at once, given one by one
		g.Leave(&place, 1)
	}
	g.Leave(&place, 1) // has none
	if _, ok := g.Try(admit.Asker{}, 12); g.Held() != 12 || g.Peers() != 0 || !ok {
		t.Errorf("%d are held at the end, %d peers remembered", g.Held(), g.Peers())
	}
}

// TestOnePeerLeavesReadSlots: whoever asks too much leaves a read slot to others, waits for his own
// in order, and is told why; Spillway's own reads have no address. Nothing of him is left.
func TestOnePeerLeavesReadSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(readSlots, nil, "read_slots", "remote read", "")
		hog := from(t.Context(), "192.0.2.1")
		var held []func()
		for range g.OfPeer() {
			release, err := g.acquire(hog, "x", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		order := make(chan int, 2)
		for i := range 2 {
			go func() { // ends when it has had its slot
				if release, err := g.acquire(hog, "x", time.Now()); err == nil {
					order <- i
					release()
				}
			}()
			synctest.Wait()
		}
		for _, ctx := range []context.Context{from(t.Context(), "192.0.2.2"), t.Context()} {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			release, err := g.acquire(soon, "x", time.Now())
			if cancel(); err != nil {
				t.Fatal(err)
			}
			release()
		}
		late, cancel := context.WithTimeout(hog, time.Second)
		defer cancel()
		_, err := g.acquire(late, "x", time.Now())
		if e := qerr.From(err); e == nil || e.Value != "7" || !strings.Contains(e.Message, "7 remote reads at once for 192.0.2.1, as many of its 8 as") {
			t.Errorf("got %v", err)
		}
		held[0]() // one place, which goes from the first to the second
		a, b := <-order, <-order
		for _, release := range held[1:] {
			release()
		}
		if a != 0 || b != 1 {
			t.Errorf("those who waited came in the order %d, %d", a, b)
		}
		synctest.Wait()
		if _, ok := g.Try(admit.Asker{}, readSlots); g.Held() != readSlots || g.Peers() != 0 || !ok {
			t.Errorf("%d are held at the end, %d peers remembered", g.Held(), g.Peers())
		}
	})
}
