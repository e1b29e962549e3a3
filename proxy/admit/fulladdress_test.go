package admit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// overloaded is a gate that people, scripts and rules ask for half an hour.
type overloaded struct {
	g   *Gate
	ctx context.Context
	wg  sync.WaitGroup
}

func newOverloaded(t *testing.T) (*overloaded, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	return &overloaded{g: NewGate(24, 20, nil), ctx: ctx}, cancel
}

// loops has so many callers who ask again as soon as they have had a place for a second, and calls
// had each time.
func (o *overloaded) loops(a Asker, callers int, had func()) {
	for i := range callers {
		o.wg.Go(func() {
			time.Sleep(time.Duration(i) * 37 * time.Millisecond)
			for o.ctx.Err() == nil {
				p, err := o.g.Wait(o.ctx, a, 1)
				if err != nil {
					return
				}
				had()
				time.Sleep(1009 * time.Millisecond)
				o.g.Leave(&p, 1)
			}
		})
	}
}

// opens has a dashboard's panels asked at once, of n places each, every so often, each given up
// after 25 s.
func (o *overloaded) opens(a Asker, n, panels int, every time.Duration, had, late *atomic.Int64) {
	for i := range panels {
		o.wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for o.ctx.Err() == nil {
				o.wg.Go(func() {
					ctx, done := context.WithTimeout(o.ctx, 25*time.Second)
					defer done()
					p, err := o.g.Wait(ctx, a, n)
					if err != nil {
						late.Add(1)
						return
					}
					had.Add(1)
					time.Sleep(1009 * time.Millisecond)
					o.g.Leave(&p, n)
				})
				time.Sleep(every)
			}
		})
	}
}

// TestNewcomersOfAFullAddress: an address that has had as many places as it may have for twenty
// minutes, beside another one that has the rest, is asked by somebody new: he has his turn like
// those who were there before.
func TestNewcomersOfAFullAddress(t *testing.T) {
	for _, c := range []struct{ dashboards, places int }{{24, 1}, {40, 1}, {40, 3}, {40, 7}, {40, 10}} {
		synctest.Test(t, func(t *testing.T) {
			o, cancel := newOverloaded(t)
			defer cancel()
			var old, late, fresh, one, unserved atomic.Int64
			for i := range c.dashboards {
				time.Sleep(97 * time.Millisecond)
				o.opens(Asker{Peer: "grafana", Flow: uint64(10 + i)}, c.places, 12, 10*time.Second, &old, &late)
			}
			o.loops(Asker{Peer: "ruler", Flow: 1}, 6, func() {})
			time.Sleep(20 * time.Minute)
			old.Store(0)
			o.opens(Asker{Peer: "grafana", Flow: 5000}, c.places, 12, 30*time.Second, &fresh, &unserved)
			o.opens(Asker{Peer: "grafana", Flow: 6000}, 1, 1, 30*time.Second, &one, &unserved)
			o.wg.Wait()
			// In the last ten minutes each of the others has its part of 600 s of as many calls as
			// go at a time, and so has the new one, if it wants that many.
			calls := 20 / c.places
			if least := int64(9 * calls * 600 / c.dashboards / 10 * c.dashboards); old.Load() < least*95/100 {
				t.Errorf("%+v: those that were there before have %d calls, want %d", c, old.Load(), least)
			}
			want := int64(230)
			if c.places > 1 {
				want = min(want, int64(calls*600/(c.dashboards+2)*7/10))
			}
			if fresh.Load() < want || one.Load() < 19 {
				t.Errorf("%+v: a new one has %d of 240 calls, want %d, and a single query %d of 20; %d had no place in 25 s",
					c, fresh.Load(), want, one.Load(), unserved.Load())
			}
		})
	}
}

// TestNewAddresses: who has had what a full address leaves owes nothing of it to new addresses,
// however many users they have; nor is the full one owed anything.
func TestNewAddresses(t *testing.T) {
	for _, c := range []struct{ peers, flows int }{{1, 1}, {1, 40}, {40, 1}} {
		synctest.Test(t, func(t *testing.T) {
			o, cancel := newOverloaded(t)
			defer cancel()
			var old, rules, fresh atomic.Int64
			for i := range 40 {
				o.loops(Asker{Peer: "grafana", Flow: uint64(10 + i)}, 12, func() { old.Add(1) })
			}
			var mu sync.Mutex
			var last time.Time
			var longest time.Duration
			o.loops(Asker{Peer: "ruler", Flow: 1}, 6, func() {
				mu.Lock()
				defer mu.Unlock()
				if !last.IsZero() {
					longest = max(longest, time.Since(last))
				}
				last = time.Now()
				rules.Add(1)
			})
			time.Sleep(15 * time.Minute)
			old.Store(0)
			for i := range c.peers {
				for j := range c.flows {
					o.loops(Asker{Peer: string(rune('A' + i)), Flow: uint64(1000 + 100*i + j)}, 3, func() { fresh.Add(1) })
				}
			}
			o.wg.Wait()
			// What each flow would have by turns, in calls, of 24 places in 15 minutes.
			turns := int64(24 * 900 / (41 + c.peers*c.flows))
			if n := fresh.Load() / int64(c.peers*c.flows); n < turns*9/10 {
				t.Errorf("%+v: each of the new ones has %d calls, want %d", c, n, turns)
			}
			if n := old.Load() / 40; n < turns*7/10 {
				t.Errorf("%+v: each of the old ones has %d calls, want %d", c, n, turns)
			}
			if longest > 15*time.Second {
				t.Errorf("%+v: the rules have nothing for %s", c, longest)
			}
		})
	}
}

// TestSteadyFlowOwesNothing: who has used what others left idle, for twenty minutes, has his turn
// when many come who leave nothing idle.
func TestSteadyFlowOwesNothing(t *testing.T) {
	for _, c := range []struct {
		newcomers int
		most      time.Duration
	}{{5, 3 * time.Second}, {20, 8 * time.Second}, {60, 20 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			o, cancel := newOverloaded(t)
			defer cancel()
			var mu sync.Mutex
			var last time.Time
			var longest time.Duration
			o.loops(Asker{Peer: "one", Flow: 1}, 60, func() {
				mu.Lock()
				defer mu.Unlock()
				if !last.IsZero() {
					longest = max(longest, time.Since(last))
				}
				last = time.Now()
			})
			for i := range 5 {
				o.loops(Asker{Peer: "one", Flow: uint64(10 + i)}, 1, func() { time.Sleep(100 * time.Millisecond) })
			}
			time.Sleep(20 * time.Minute)
			for i := range c.newcomers {
				o.loops(Asker{Peer: "one", Flow: uint64(100 + i)}, 20, func() {})
			}
			o.wg.Wait()
			if longest > c.most {
				t.Errorf("%d come, and who was there has nothing for %s", c.newcomers, longest)
			}
		})
	}
}

// TestLongWideCalls: who always has a call waiting that takes ten places for twenty seconds, and
// short ones beside, waits two minutes for each, beside many with short ones, and is not let in as
// often as they are.
func TestLongWideCalls(t *testing.T) {
	for _, beside := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			o, cancel := newOverloaded(t)
			defer cancel()
			const flows, hold = 60, 20 * time.Second
			var short, long atomic.Int64
			for i := range flows {
				o.loops(Asker{Peer: string(rune('a' + i%4)), Flow: uint64(100 + i)}, 3, func() { short.Add(1) })
			}
			wide := Asker{Peer: "wide", Flow: 1}
			o.loops(wide, beside, func() {})
			for range 2 { // one waits when the other one ends
				o.wg.Go(func() {
					for o.ctx.Err() == nil {
						p, err := o.g.Wait(o.ctx, wide, 10)
						if err != nil {
							return
						}
						long.Add(1)
						time.Sleep(hold)
						o.g.Leave(&p, 10)
					}
				})
			}
			o.wg.Wait()
			// 24 places for half an hour, by turns.
			turns := 24 * 1800 / float64(flows+1)
			if had := float64(long.Load()) * 10 * hold.Seconds(); long.Load() < 8 || had > 5*turns {
				t.Errorf("%d beside: the long calls had %.0f seconds of places in %d calls; by turns it were %.0f", beside, had, long.Load(), turns)
			}
			if had := float64(short.Load()) * 1.009 / flows; had < 0.8*turns {
				t.Errorf("%d beside: each of the short ones had %.0f seconds of places; by turns it were %.0f", beside, had, turns)
			}
		})
	}
}
