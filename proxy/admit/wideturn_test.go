package admit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWideOfOneUser: one user's wide calls, of which the next one always waits for places of the
// address, do not stop others of the same address and lane whose turn comes first; and his own have
// their turn.
func TestWideOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var mu sync.Mutex
		var wide, n int
		var sum time.Duration
		var wg sync.WaitGroup
		again := func(flow uint64, places int, hold, pause time.Duration, had func(waited time.Duration)) {
			wg.Go(func() {
				time.Sleep(time.Duration(flow) * 333 * time.Millisecond)
				for ctx.Err() == nil {
					began := time.Now()
					p, err := g.Wait(ctx, Asker{Peer: "grafana", Flow: flow}, places)
					if err != nil {
						return
					}
					mu.Lock()
					had(time.Since(began))
					mu.Unlock()
					time.Sleep(hold)
					g.Leave(&p, p.Places())
					time.Sleep(pause)
				}
			})
		}
		for range 4 {
			again(1, 12, 10*time.Second, 0, func(time.Duration) { wide++ })
		}
		for flow := range 6 {
			again(uint64(2+flow), 1, 100*time.Millisecond, 2*time.Second, func(d time.Duration) { sum, n = sum+d, n+1 })
		}
		wg.Wait()
		if mean := sum / time.Duration(n); mean > 200*time.Millisecond || wide < 50 {
			t.Errorf("others of the address wait for %s on average, and there were %d wide calls in ten minutes", mean, wide)
		}
	})
}

// TestWideOfAFullAddressInABoundedLane: who wants no more than the share of his lane has his turn,
// though the lane may have few places more and others take them, and his address has all that it
// may in another lane, which it takes again at once.
func TestWideOfAFullAddressInABoundedLane(t *testing.T) {
	for i, most := range []int{3, 4, 5, 6, 3, 4, 5, 6} {
		others := 1 + i/4 // how many places each of the others takes
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(24, 20, []Lane{{Name: "batch", Share: 0.125, Most: most}, {Name: "default", Share: 0.875}})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			again := func(a Asker, n int, hold time.Duration, callers int) {
				for i := range callers {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 37 * time.Millisecond)
						for ctx.Err() == nil {
							p, err := g.Wait(ctx, a, n)
							if err != nil {
								return
							}
							time.Sleep(hold)
							g.Leave(&p, p.Places())
						}
					})
				}
			}
			again(Asker{Peer: "one", Flow: 1}, 1, 1009*time.Millisecond, 30)
			again(Asker{Peer: "two", Lane: "batch", Flow: 2}, others, 1013*time.Millisecond, 10)
			time.Sleep(10 * time.Second)
			began := time.Now()
			p, err := g.Wait(ctx, Asker{Peer: "one", Lane: "batch", Flow: 3}, 3)
			if d := time.Since(began); err != nil || d > 10*time.Second {
				t.Errorf("with %d places at most, beside others of %d, it waits for %s: %v", most, others, d, err)
			}
			g.Leave(&p, p.Places())
			cancel()
			wg.Wait()
		})
	}
}

// TestWideOfAFullAddress: who wants no more places than the share of his lane has his turn though
// his address has as many as it may have, all of them another lane's wide calls that take turns:
// when one of these ends it is the other lane that lacks places most, and when it is his own lane's
// turn his address has none left.
func TestWideOfAFullAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(18, 12, []Lane{{Name: "batch", Share: 0.1124}, {Name: "default", Share: 0.8876}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		again := func(lane string, flow uint64, n int, hold time.Duration) *time.Duration {
			longest := new(time.Duration)
			wg.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					p, err := g.Wait(ctx, Asker{Lane: lane, Peer: fmt.Sprint(flow % 3), Flow: flow}, n)
					*longest = max(*longest, time.Since(began))
					if err != nil {
						return
					}
					time.Sleep(hold)
					g.Leave(&p, p.Places())
				}
			})
			return longest
		}
		var all []*time.Duration
		for flow, c := range []struct {
			batch, other         int
			holdBatch, holdOther time.Duration
		}{
			{2, 13, 734, 980},
			{2, 13, 1131, 560},
			{2, 1, 985, 982},
			{1, 15, 1287, 672},
			{1, 1, 1336, 501},
			{1, 1, 1255, 986},
		} {
			all = append(all, again("batch", uint64(flow), c.batch, c.holdBatch*time.Millisecond),
				again("default", uint64(flow), c.other, c.holdOther*time.Millisecond))
		}
		wg.Wait()
		for i, longest := range all {
			if *longest > 30*time.Second {
				t.Errorf("caller %d waits for %s", i, *longest)
			}
		}
	})
}

// TestWideBehindOneOfItsLane: who waits because none of his lane passes who is first there keeps
// nothing of his address meanwhile: its other lanes do not stand still for what another address, or
// the lane's own calls, hold.
func TestWideBehindOneOfItsLane(t *testing.T) {
	for _, c := range []struct {
		name, first  string // the address of who is first
		other, batch int    // places that the address holds, that the lane does
	}{
		{"his address has too many", "other", 8, 1},
		{"his lane has too many", "", 0, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(24, 10, []Lane{{Name: "batch", Share: 0.25, Most: 6}, {Name: "default", Share: 0.75}})
			order := make(chan string, 4)
			// Only what somebody has while others wait counts as what his flow has had.
			all := take(t, g, Asker{}, 21)
			another := waits(t, g, Asker{}, 1, "another", order)
			others := []*Place{take(t, g, Asker{Lane: "batch", Flow: 1}, c.batch)}
			g.Leave(all, 21)
			if another(); <-order != "another" {
				t.Fatal("the others have not begun")
			}
			walls := take(t, g, Asker{Peer: "grafana"}, 8)
			if c.other > 0 {
				others = append(others, take(t, g, Asker{Peer: c.first}, c.other))
			}
			wide := waits(t, g, Asker{Peer: "grafana", Lane: "batch", Flow: 1}, 3, "wide", order)
			first := waits(t, g, Asker{Peer: c.first, Lane: "batch", Flow: 2}, 5, "first", order)
			dashboard := waits(t, g, Asker{Peer: "grafana", Flow: 2}, 7, "dashboard", order)
			g.Leave(walls, 7)
			synctest.Wait()
			if len(order) != 1 {
				t.Fatalf("%s: %d of 24 places are held, and of the address that holds one nobody is let in", c.name, g.Held())
			}
			if got := <-order; got != "dashboard" {
				t.Errorf("%s: it is the turn of %s", c.name, got)
			}
			for _, p := range others {
				g.Leave(p, p.Places())
			}
			var wg sync.WaitGroup
			for _, leave := range []func(){first, wide, dashboard} {
				wg.Go(leave)
			}
			wg.Wait() // all had their turn
			if g.Leave(walls, 1); g.Held() != 0 {
				t.Errorf("%s: %d places are held at the end", c.name, g.Held())
			}
		})
	}
}

// TestWideThatLacksBoth: likewise where he lacks room at his address too, whoever of them comes
// last: the lane of who may go on stands before the one that decides it.
func TestWideThatLacksBoth(t *testing.T) {
	for _, last := range []string{"dashboard", "first"} {
		t.Run(last, func(t *testing.T) { wideThatLacksBoth(t, last) })
	}
}

func wideThatLacksBoth(t *testing.T, last string) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(30, 10, []Lane{{Name: "dash", Share: 0.1}, {Name: "batch", Share: 0.25, Most: 6}, {Name: "default", Share: 0.5}})
		order := make(chan string, 4)
		all := take(t, g, Asker{}, 24)
		another := waits(t, g, Asker{}, 4, "another", order)
		running := take(t, g, Asker{Lane: "batch", Flow: 1}, 1)
		g.Leave(all, 24)
		if another(); <-order != "another" {
			t.Fatal("the others have not begun")
		}
		held := []*Place{running, take(t, g, Asker{Peer: "grafana"}, 8), take(t, g, Asker{Peer: "other"}, 8)}
		wide := waits(t, g, Asker{Peer: "grafana", Lane: "batch", Flow: 1}, 3, "wide", order)
		var first, dashboard func()
		if last == "first" {
			dashboard = waits(t, g, Asker{Peer: "grafana", Lane: "dash", Flow: 3}, 2, "dashboard", order)
			if len(order) != 0 {
				t.Fatalf("places are kept for nobody with %d of 30 held", g.Held())
			}
		}
		first = waits(t, g, Asker{Peer: "other", Lane: "batch", Flow: 2}, 5, "first", order)
		if last == "dashboard" {
			dashboard = waits(t, g, Asker{Peer: "grafana", Lane: "dash", Flow: 3}, 2, "dashboard", order)
		}
		if len(order) != 1 {
			t.Fatalf("%d are let in with %d of 30 held", len(order), g.Held())
		}
		if got := <-order; got != "dashboard" {
			t.Errorf("it is the turn of %s", got)
		}
		for _, p := range held {
			g.Leave(p, p.Places())
		}
		var wg sync.WaitGroup
		for _, leave := range []func(){first, wide, dashboard} {
			wg.Go(leave)
		}
		wg.Wait()
		if g.Held() != 0 {
			t.Errorf("%d places are held at the end", g.Held())
		}
	})
}
