package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
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
		}{{0, 1}, {1, 1}, {1 << 20, 1}, {1<<20 + 1, 2}, {5 << 20, 5}, {24 << 20, 24}, {1 << 60, 24}} {
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
