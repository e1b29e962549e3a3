package shard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestCallsShareAShardsBudget: what calls hold together, as estimated, is within the shard's
// budget; what is more waits its turn, and one that is alone goes however much it is.
func TestCallsShareAShardsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial, MaxCalls: 24, Budget: 24 << 20, Lanes: []admit.Lane{
			{Name: "oncall", Share: 0.25}, {Name: "batch", Share: 0.125, Most: 3}, {Name: "default", Share: 0.625},
		}}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		from := func(lane, peer string) context.Context {
			return identity.With(t.Context(), identity.Request{Lane: lane, Peer: peer})
		}
		for _, c := range []struct {
			held  int64
			seats int
		}{{0, 1}, {1, 1}, {1 << 20, 1}, {1<<20 + 1, 2}, {5 << 20, 5}, {10 << 20, 10}, {11 << 20, 10}, {1 << 60, 10}} {
			if n := s.seats(c.held); n != c.seats {
				t.Errorf("%d bytes are %d places wide, not %d", c.held, n, c.seats)
			}
		}
		enter := func(ctx context.Context, held int64) func() {
			t.Helper()
			leave, err := s.Enter(ctx, held)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		first, second := enter(from("default", "192.0.2.1"), 8<<20), enter(from("default", "192.0.2.2"), 8<<20)
		third := make(chan func(), 1)
		go func() { third <- enter(from("default", "192.0.2.3"), 8<<20) }()
		synctest.Wait()
		if len(third) > 0 || s.calls.Held() != 16 { // of 24 MiB, 4 are kept for others
			t.Errorf("%d places are held, and the third goes: %t", s.calls.Held(), len(third) > 0)
		}
		enter(from("oncall", "192.0.2.4"), 1<<20)() // at once, of what is kept
		first()
		synctest.Wait()
		if len(third) != 1 || s.calls.Held() != 16 {
			t.Fatalf("%d places are held when the first has left", s.calls.Held())
		}
		second()
		(<-third)()
		for _, lane := range []string{"default", "oncall", "batch"} {
			ctx, cancel := context.WithTimeout(from(lane, "192.0.2.9"), time.Second)
			leave, err := s.Enter(ctx, 1<<40)
			if err != nil {
				t.Errorf("a call that is alone in %s has no place: %s", lane, err)
				cancel()
				continue
			}
			leave()
			cancel()
		}
		if s.calls.Held() != 0 || top.crowd.all.Held() != 0 {
			t.Errorf("%d places are held at the end, %d of the process'", s.calls.Held(), top.crowd.all.Held())
		}
	})
}

// TestDefaultBudget: by default the largest query that is let through takes half of the places that
// its address may have.
func TestDefaultBudget(t *testing.T) {
	cfg, err := config.Parse([]byte("groups: [{name: a, labels: {cluster: a}, shards: [{replicas: [{url: \"http://a:9090\"}]}]}]"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := cfg.Limits
	top := build(t, Options{MaxCalls: l.ReplicaCalls, Budget: l.ShardBudget}, false, cfg.Groups...)
	s := top.Groups[0].Shards[0]
	for held, want := range map[int64]int{
		l.MaxShardBytes: 10, l.ShardBudget: 10, 1 << 30 / 24 * 9: 9, 1 << 30 / 24: 1, 1<<30/24 + 1: 2, 1 << 62: 10,
	} {
		if n := s.seats(held); n != want {
			t.Errorf("%d bytes are %d places wide, not %d", held, n, want)
		}
	}
	s.topology.opts.Budget = 1 << 62
	if n := s.seats(1 << 60); n != 6 {
		t.Errorf("a quarter of a budget without bound is %d places wide", n)
	}
}

// TestOneCallLeavesItsAddressRoom: however few places there are, one call takes no more than half
// of what its address may have, so that another one of the same Grafana goes beside it.
func TestOneCallLeavesItsAddressRoom(t *testing.T) {
	for _, places := range []int{2, 3, 6, 12, 24} { // 12 as where two Spillways share a server
		top := build(t, Options{MaxCalls: places, Budget: 512 << 20}, false, group("http://a:9090"))
		s := top.Groups[0].Shards[0]
		ctx, cancel := context.WithTimeout(identity.With(t.Context(), identity.Request{Lane: "default", Peer: "192.0.2.1"}), time.Second)
		leave, err := s.Enter(ctx, 512<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.calls.Held(); places > 6 && n != ofPeer(places)/2 {
			t.Errorf("one call takes %d of %d places", n, places)
		}
		beside, err := s.Enter(ctx, 0)
		if err != nil {
			t.Fatalf("of %d places: %v", places, err)
		}
		beside()
		leave()
		cancel()
	}
}

// TestRefusalsOfWideCalls: a call that found no place is told how many it takes, of how much
// memory, how many are held, and who is ahead; not that calls are under way of which there are
// fewer.
func TestRefusalsOfWideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial, MaxCalls: 24, Budget: 1 << 30, Lanes: []admit.Lane{
			{Name: "oncall", Share: 0.25}, {Name: "batch", Share: 0.125, Most: 3}, {Name: "default", Share: 0.625},
		}}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		who := "jaguar[0] (" + s.Replicas[0].host + ") has "
		from := func(lane, peer string) context.Context {
			return identity.With(t.Context(), identity.Request{Lane: lane, Peer: peer})
		}
		refused := func(ctx context.Context, held int64, value, message, advice string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := s.Enter(ctx, held)
			var e *qerr.Error
			message = who + message + ", and there was no room for this one before its deadline (it waited 9.75s)"
			if !errors.As(err, &e) || e.Value != value || e.Message != message || !strings.Contains(e.Advice, advice) ||
				len(e.Shards) != 1 {
				t.Errorf("got %v, of %v\nwant %s", err, e.Shards, message)
			}
		}
		leave, err := s.Enter(from("default", "192.0.2.1"), 512<<20)
		if err != nil {
			t.Fatal(err)
		}
		more, err := s.Enter(from("default", "192.0.2.1"), 80<<20)
		if err != nil {
			t.Fatal(err)
		}
		small, err := s.Enter(from("batch", "192.0.2.9"), 0)
		if err != nil {
			t.Fatal(err)
		}
		refused(from("default", "192.0.2.1"), 512<<20, "20",
			"12 of its 24 places held for 192.0.2.1, which may have 20, this call takes 10 of them (about 427 MiB of the 1GiB that all calls together may make a server hold)", "limits.shard_budget")
		refused(from("default", "192.0.2.2"), 400<<20, "21",
			"13 of its 24 places held and 3 kept for other lanes, this call takes 10 of them (about 427 MiB of the 1GiB that all calls together may make a server hold)", "narrower")
		refused(from("batch", "192.0.2.2"), 100<<20, "3",
			"1 of its 24 places held for the caller's lane, which may have 3, this call takes 3 of them (about 128 MiB of the 1GiB that all calls together may make a server hold)", "narrower")
		ahead := make(chan func(), 1)
		go func() {
			leave, err := s.Enter(from("default", "192.0.2.3"), 512<<20)
			if err != nil {
				t.Error(err)
			}
			ahead <- leave
		}()
		synctest.Wait()
		refused(from("default", "192.0.2.4"), 0, "21",
			"13 of its 24 places held and 3 kept for other lanes, one that takes 10 is ahead of it", "try again in a moment")
		r := s.Replicas[0]
		r.up.mu.Lock()
		r.up.health.state = Down
		r.up.mu.Unlock()
		short, cancel := context.WithTimeout(from("default", "192.0.2.4"), time.Second)
		defer cancel()
		var e *qerr.Error
		if _, err := s.Enter(short, 0); !errors.As(err, &e) || len(e.Shards) != 1 {
			t.Errorf("that a shard that is down had no room is not its loss: %v", err)
		}
		leave()
		more()
		(<-ahead)()
		small()
	})
}

// TestMaxWaitIsForAllGates: a call of a lane with max_wait waits no longer than that at all the
// gates that it passes, of several shards, of its class and of the process; the error is about
// nobody's shard, and says when to come again.
func TestMaxWaitIsForAllGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial, MaxCalls: 1, ReadSlots: 1, OpenFiles: 64, Lanes: []admit.Lane{
			{Name: "default", Share: 1, MaxWait: 6 * time.Second},
		}}, false, group(b.urls[0]), config.Group{
			Name: "heron", Labels: map[string]string{"cluster": "heron"}, Shards: group(b.urls[1]).Shards,
		})
		one, two := top.Groups[0].Shards[0], top.Groups[1].Shards[0]
		all, reads := top.crowd.all, one.Replicas[0].up.gates.heavy
		within := func(*Shard) context.Context { return t.Context() }
		none := func(*Shard) int64 { return 0 }
		for name, c := range map[string]struct {
			first, then *gate // the one that is free after 4 s, and the one that is not
			enter       func() error
		}{
			"two shards": {two.calls, one.calls, func() error {
				_, err := top.EnterAll(t.Context(), within, none, []*Shard{one, two})
				return err
			}},
			"a shard and the process": {one.calls, all, func() error { _, err := one.Enter(t.Context(), 0); return err }},
			"shards and the process": {two.calls, all, func() error {
				_, err := top.EnterAll(t.Context(), within, none, []*Shard{one, two})
				return err
			}},
			"a class and a shard": {reads, one.calls, func() error {
				_, err := one.Replicas[0].enter(t.Context(), try{CallOptions: CallOptions{Class: Heavy}})
				return err
			}},
		} {
			first, _ := c.first.Try(admit.Asker{}, c.first.Places())
			then, _ := c.then.Try(admit.Asker{}, c.then.Places())
			time.AfterFunc(4*time.Second, func() { c.first.Leave(&first, first.Places()) })
			began := time.Now()
			var e *qerr.Error
			if err := c.enter(); !errors.As(err, &e) || time.Since(began) != 6*time.Second || e.Kind != qerr.Overloaded ||
				len(e.Shards) > 0 || e.RetryAfter != 3*time.Second || !strings.Contains(e.Message, "within 6s, the max_wait of its lane") {
				t.Errorf("%s: after %s: %v", name, time.Since(began), err)
			}
			c.then.Leave(&then, then.Places())
			if one.calls.Held()+two.calls.Held()+all.Held()+reads.Held() != 0 {
				t.Errorf("%s: a place is held at the end", name)
			}
		}
	})
}
