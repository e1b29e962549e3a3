package admit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// TestWideHaveTheirTurn: whatever lanes, addresses and widths there are, and though all of them ask
// again as soon as they have had their places, nobody waits for ever who wants no more at a time
// than the share of his lane, if each lane has a place of its own.
func TestWideHaveTheirTurn(t *testing.T) {
	seed := randseed.Of(t, 0)
	had := 0
	for i := range 400 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		synctest.Test(t, func(t *testing.T) {
			m := newMix(t, rng, i)
			g := m.g
			for _, l := range m.lanes {
				if l.Share*float64(g.Places()) < 1 {
					return // it has no place that is its own
				}
			}
			had++
			m.wide = 2
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var mu sync.Mutex
			longest, who := time.Duration(0), ""
			var wg sync.WaitGroup
			for l := range len(m.lanes) {
				for c := range 6 {
					a := Asker{Lane: m.lanes[l].Name, Peer: fmt.Sprint(c % 3), Flow: uint64(c)}
					n, hold := 1, time.Duration(500+rng.IntN(1000))*time.Millisecond
					if rng.IntN(2) == 0 {
						n = 1 + rng.IntN(max(1, int(m.lanes[l].Share*float64(g.Places()))))
					}
					wg.Go(func() {
						for ctx.Err() == nil {
							began := time.Now()
							p, err := g.Wait(ctx, a, n)
							mu.Lock()
							if d := time.Since(began); d > longest {
								longest, who = d, fmt.Sprintf("%+v, who wants %d of %d", a, n, g.Places())
							}
							mu.Unlock()
							if err != nil {
								return
							}
							if m.look(); t.Failed() {
								cancel()
							}
							time.Sleep(hold)
							g.Leave(&p, p.Places())
						}
					})
				}
			}
			wg.Wait()
			if longest > 2*time.Minute { // the longest of 8,000 mixes was below 30 s
				t.Errorf("the mix %d of the seed %d: %s waited for %s; the lanes are %+v", i, seed, who, longest, m.lanes)
			}
		})
		if t.Failed() {
			return
		}
	}
	if had < 100 {
		t.Errorf("only %d mixes were tried", had)
	}
}

// TestWideBesideNewcomers: a user whose wide call has just been has his next turn though others of
// his address, who have had nothing yet, ask without end, so that some always wait.
func TestWideBesideNewcomers(t *testing.T) {
	for _, fresh := range []bool{false, true} { // each call is of a user who was not there before
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(24, 20, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var flow atomic.Uint64
			flow.Store(100)
			for i := range 60 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 17 * time.Millisecond)
					mine := uint64(2 + i)
					for ctx.Err() == nil {
						if fresh {
							mine = flow.Add(1)
						}
						p, err := g.Wait(ctx, Asker{Peer: "grafana", Flow: mine}, 1)
						if err != nil {
							return
						}
						time.Sleep(509 * time.Millisecond)
						g.Leave(&p, 1)
					}
				})
			}
			time.Sleep(10 * time.Second)
			var wide atomic.Int64
			for range 2 {
				wg.Go(func() {
					for ctx.Err() == nil {
						p, err := g.Wait(ctx, Asker{Peer: "grafana", Flow: 1}, 12)
						if err != nil {
							return
						}
						wide.Add(1)
						time.Sleep(time.Second)
						g.Leave(&p, p.Places())
					}
				})
			}
			wg.Wait()
			// A sixtieth of 20 places is the share of each: a call of 12 for a second every 36.
			if wide.Load() < 20 {
				t.Errorf("newcomers %v: only %d wide calls in 20 minutes", fresh, wide.Load())
			}
		})
	}
}

// TestWideWithinItsShare: a call that takes several places, no more than its lane's share, waits no
// longer beside a wall of calls of its own address in another lane than until that gives back what
// it borrowed, however many of these have waited before it.
func TestWideWithinItsShare(t *testing.T) {
	for _, wide := range []int{0, 40, 100} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(24, 20, []Lane{{Name: "oncall", Share: 0.2}, {Name: "rules", Share: 0.2}, {Name: "default", Share: 0.6}})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var served [2]atomic.Int64
			for i := range 100 {
				n := 1
				if i < wide {
					n = 3
				}
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 11 * time.Millisecond)
					for ctx.Err() == nil {
						p, err := g.Wait(ctx, Asker{Lane: "default", Peer: "grafana", Flow: uint64(10 + i)}, n)
						if err != nil {
							return
						}
						served[n/3].Add(1)
						time.Sleep(1003 * time.Millisecond)
						g.Leave(&p, p.Places())
					}
				})
			}
			time.Sleep(20 * time.Second)
			longest := time.Duration(0)
			for range 50 {
				began := time.Now()
				p, err := g.Wait(ctx, Asker{Lane: "oncall", Peer: "grafana", Flow: 1}, 3)
				if err != nil {
					t.Fatal(err)
				}
				longest = max(longest, time.Since(began))
				time.Sleep(time.Second)
				g.Leave(&p, p.Places())
				time.Sleep(1700 * time.Millisecond)
			}
			if longest > 2*time.Second {
				t.Errorf("beside %d wide calls it waits for %s", wide, longest)
			}
			cancel()
			wg.Wait()
			if wide > 0 && served[1].Load() < 100 || wide < 100 && served[0].Load() < 100 {
				t.Errorf("of the wall %d narrow calls and %d wide ones were served", served[0].Load(), served[1].Load())
			}
		})
	}
}

// TestTurnsThatCrossed: where waiters of one address and lane have equal work, and one of them came
// back from another door before one of its own flow, the search for whose turn it is ends.
func TestTurnsThatCrossed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(100, 4, []Lane{{Name: "default", Share: 1, Most: 6}})
		held := take(t, g, Asker{Peer: "p"}, 4)
		var wg sync.WaitGroup
		wait := func(a Asker, n int) (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				if p, err := g.Wait(ctx, a, n); err == nil {
					g.Leave(&p, p.Places())
				}
			})
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		gone := wait(Asker{Peer: "p", Flow: 1}, 1)
		wait(Asker{Peer: "p", Flow: 2, Arrived: 2000}, 1)
		wait(Asker{Peer: "p", Flow: 3}, 2)
		wait(Asker{Peer: "q", Flow: 4}, 2)
		gone()
		wait(Asker{Peer: "p", Flow: 2, Arrived: 1000}, 2)
		g.Leave(held, 1)
		synctest.Wait()
		g.Leave(held, 3)
		wg.Wait()
		if g.Held() != 0 {
			t.Errorf("%d places are held at the end", g.Held())
		}
	})
}

// TestSteadyFlowAndNewcomers: a flow that has always been queued, and has had what others left
// idle, is served like those that come later.
func TestSteadyFlowAndNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		var late atomic.Bool
		var served [3]atomic.Int64
		callers := func(flow uint64, n int, after, pause time.Duration) {
			for i := range n {
				wg.Go(func() {
					time.Sleep(after + time.Duration(i)*13*time.Millisecond)
					for ctx.Err() == nil {
						p, err := g.Wait(ctx, Asker{Peer: "one", Flow: flow}, 1)
						if err != nil {
							return
						}
						if late.Load() && flow < 3 {
							served[flow].Add(1)
						}
						time.Sleep(1009 * time.Millisecond)
						g.Leave(&p, 1)
						time.Sleep(pause)
					}
				})
			}
		}
		callers(0, 60, 0, 0)
		for flow := range 5 {
			callers(uint64(10+flow), 1, time.Second, 100*time.Millisecond)
		}
		callers(1, 60, 30*time.Minute, 0)
		callers(2, 60, 30*time.Minute, 0)
		time.Sleep(32 * time.Minute)
		late.Store(true)
		wg.Wait()
		if a, b := served[0].Load(), served[1].Load(); a < b*8/10 {
			t.Errorf("in 13 minutes the steady flow was served %d times, and a newcomer %d times", a, b)
		}
	})
}
