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
)

// gateDoor is a gate as one request sees it.
type gateDoor struct {
	g     *Gate
	a     Asker
	n     int
	place Place
}

func (d *gateDoor) Try() (ok bool) { d.place, ok = d.g.Try(d.a, d.n); return ok }
func (d *gateDoor) Wait() (err error) {
	d.place, err = d.g.Wait(context.Background(), d.a, d.n)
	return err
}
func (d *gateDoor) Leave()     { d.g.Leave(&d.place, d.place.Places()) }
func (d *gateDoor) Wide() bool { return d.n > 1 }

// TestFanOutKeepsItsTurn: beside crowds of the same flow that each wait at one door, who wants a
// place at each of several doors waits about as long as they do: he is not last each time that he
// comes back.
func TestFanOutKeepsItsTurn(t *testing.T) {
	for _, doors := range []int{2, 4, 8} {
		synctest.Test(t, func(t *testing.T) {
			var wg sync.WaitGroup
			var stop atomic.Bool
			var all []*gateDoor
			for range doors {
				g := NewGate(24, 24, nil)
				all = append(all, &gateDoor{g: g, n: 1})
				for i := range 72 { // each place is wanted by three, for about a second
					wg.Go(func() {
						for k := 0; !stop.Load(); k++ {
							p, err := g.Wait(context.Background(), Asker{Flow: 1, Arrived: time.Now().UnixNano()}, 1)
							if err != nil {
								t.Error(err)
								return
							}
							time.Sleep(time.Second + time.Duration((i*37+k*11)%100)*time.Millisecond)
							g.Leave(&p, 1)
						}
					})
				}
			}
			time.Sleep(10 * time.Second)
			began := time.Now()
			for _, d := range all {
				d.a = Asker{Flow: 1, Arrived: began.UnixNano()}
			}
			if err := EnterAll(all); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a fan-out over %d doors waited %s, where one call waits about 2 s", doors, took)
			}
			leave(all)
			stop.Store(true)
			wg.Wait()
			for _, d := range all {
				if d.g.Held() != 0 {
					t.Errorf("%d places are held at the end", d.g.Held())
				}
			}
		})
	}
}

// TestWideFanOut: who wants several places at each of several doors, of which others take each
// again as soon as it is free, has all of them before long: a few waits, not one after the other in
// vain.
func TestWideFanOut(t *testing.T) {
	for _, n := range []int{2, 6, 10} {
		synctest.Test(t, func(t *testing.T) {
			const doors, times = 8, 20
			ctx, cancel := context.WithCancel(t.Context())
			rng := rand.New(rand.NewPCG(1, 2))
			var wg sync.WaitGroup
			var all []*gateDoor
			for range doors {
				g := NewGate(24, 20, nil)
				all = append(all, &gateDoor{g: g, n: n})
				for c := range 30 {
					each := time.Duration(300+rng.IntN(400)) * time.Millisecond
					wg.Go(func() {
						for ctx.Err() == nil {
							p, err := g.Wait(ctx, Asker{Peer: fmt.Sprint(c % 3), Flow: uint64(c % 10)}, 1)
							if err != nil {
								return
							}
							time.Sleep(each)
							g.Leave(&p, 1)
						}
					})
				}
			}
			time.Sleep(5 * time.Second)
			sum := time.Duration(0)
			for range times {
				began := time.Now()
				for _, d := range all {
					d.a = Asker{Peer: "me", Flow: 99, Arrived: began.UnixNano()}
				}
				if err := EnterAll(all); err != nil {
					t.Fatal(err)
				}
				sum += time.Since(began)
				time.Sleep(500 * time.Millisecond)
				leave(all)
				time.Sleep(time.Second)
			}
			t.Logf("%d places at each of %d doors: %s on average", n, doors, sum/times)
			if sum/times > 3*time.Second {
				t.Errorf("who wants %d places at each of %d doors waits for %s on average", n, doors, sum/times)
			}
			cancel()
			wg.Wait()
		})
	}
}

// TestPushedOutIsForgotten: of flows that lost their last waiter to a newcomer nothing stays, and
// where each flow has one waiter the newcomer is the one to go.
func TestPushedOutIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 1, nil)
		p, _ := g.Try(Asker{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range maxLane + 2000 {
			wg.Go(func() { _, _ = g.Wait(ctx, Asker{Flow: uint64(i + 1)}, 1) }) // in vain
		}
		synctest.Wait()
		if n, _ := g.Waiting(); n != maxLane {
			t.Errorf("%d wait", n)
		}
		cancel()
		wg.Wait()
		g.Leave(&p, 1)
		if n := len(g.lanes[0].flows); n > 0 {
			t.Errorf("%d flows are remembered", n)
		}
	})
}
