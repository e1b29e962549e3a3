package admit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWideOfAnotherLane: while one address's wide call waits for places of the address, its other
// lanes have their own share, and no more; and the wide one has its turn all the same, though they
// take each place again that they give back.
func TestWideOfAnotherLane(t *testing.T) {
	for _, c := range []struct {
		wide        int
		least, most int // places of the other lane meanwhile
	}{
		{12, 7, 7}, // of 7.2
		{17, 6, 6}, // three of them are kept and do not count; three more leave it its 17 of 20
		{20, 3, 3}, // only those
	} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(24, 20, []Lane{{Name: "oncall", Share: 0.3}, {Name: "default", Share: 0.7}})
			grafana := func(lane string, flow uint64) Asker { return Asker{Peer: "grafana", Lane: lane, Flow: flow} }
			order := make(chan string, 64)
			walls := take(t, g, grafana("default", 1), 16)
			wide := waits(t, g, grafana("default", 2), c.wide, "wide", order)
			narrow := waits(t, g, grafana("default", 3), 1, "narrow", order)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if p, err := g.Wait(ctx, grafana("oncall", 1), 1); err == nil {
							time.Sleep(time.Second)
							g.Leave(&p, 1)
						}
					}
				})
			}
			for range 20 {
				time.Sleep(300 * time.Millisecond)
				synctest.Wait()
				if n := g.Lanes()[0].Held; n < c.least || n > c.most {
					t.Errorf("beside one of %d the other lane holds %d places, not %d to %d", c.wide, n, c.least, c.most)
				}
			}
			for range 16 {
				if time.Sleep(100 * time.Millisecond); len(order) > 0 && walls.Places() > 20-c.wide {
					t.Errorf("%s goes with %d places held beside it", <-order, walls.Places())
				}
				g.Leave(walls, 1)
			}
			time.Sleep(2 * time.Second)
			if len(order) == 0 {
				t.Fatalf("the one of %d never goes", c.wide)
			}
			if got := <-order; got != "wide" {
				t.Errorf("%s goes before the wide one", got)
			}
			wide()
			narrow()
			cancel()
			wg.Wait()
			if g.Held() != 0 || g.Peers() != 0 {
				t.Errorf("%d places are held at the end, %d peers are remembered", g.Held(), g.Peers())
			}
		})
	}
}

// TestLaneBehindAWideOneLosesNothing: a lane whose only waiters are kept by another lane's wide
// call of their address does not count as one that wants nothing.
func TestLaneBehindAWideOneLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, []Lane{{Name: "oncall", Share: 0.3}, {Name: "default", Share: 0.7}})
		order := make(chan string, 64)
		walls := take(t, g, Asker{Peer: "grafana"}, 16)
		kept := take(t, g, Asker{Peer: "grafana", Lane: "oncall"}, 3)
		wide := waits(t, g, Asker{Peer: "grafana", Flow: 2}, 20, "wide", order)
		oncall := waits(t, g, Asker{Peer: "grafana", Lane: "oncall"}, 1, "oncall", order)
		before := g.lane("oncall").worked(g.now())
		for range 100 { // of another address, which raises what lanes are lifted to
			for _, flow := range []uint64{7, 8} {
				p, err := g.Wait(t.Context(), Asker{Peer: "other", Flow: flow}, 1)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				g.Leave(&p, 1)
			}
		}
		l := g.lane("oncall")
		if own := float64(l.held) / l.nominal * 200e9; l.worked(g.now())-before > own*1.01 || g.work < 2*own {
			t.Errorf("%.0f s of work are counted, and it had %.0f; the last that was served had %.0f", (l.worked(g.now())-before)/1e9, own/1e9, g.work/1e9)
		}
		g.Leave(walls, 16)
		if got := <-order; got != "wide" {
			t.Error(got)
		}
		wide()
		oncall()
		g.Leave(kept, 3)
	})
}

// TestNarrowBehindAWideOne: what is kept for a lane is for its next call that is narrow enough,
// though the first of its own flow or of another one wants more; and that one has its turn as soon
// as others have given back what they borrowed. Where it wants all that there can be, nobody
// passes.
func TestNarrowBehindAWideOne(t *testing.T) {
	for _, c := range []struct {
		wide int
		flow uint64 // of those behind
		pass int
	}{{5, 1, 3}, {5, 2, 3}, {12, 1, 3}, {14, 1, 1}, {15, 1, 0}, {15, 2, 0}} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(24, 24, []Lane{{Name: "rules", Share: 0.25}, {Name: "default", Share: 0.75}})
			order := make(chan string, 64)
			others := take(t, g, Asker{}, 21)
			var leave []func()
			leave = append(leave, waits(t, g, Asker{Lane: "rules", Flow: 1}, c.wide, "wide", order))
			for range 4 {
				leave = append(leave, waits(t, g, Asker{Lane: "rules", Flow: c.flow}, 1, "narrow", order))
			}
			if n := len(order); n != c.pass {
				t.Errorf("behind one of %d places %d calls pass, not %d", c.wide, n, c.pass)
			}
			for range c.pass {
				<-order
			}
			g.Leave(others, 21)
			var wg sync.WaitGroup
			for _, f := range leave {
				wg.Go(f)
			}
			wg.Wait() // all had their turn
			if g.Held() != 0 {
				t.Errorf("%d places are held at the end", g.Held())
			}
		})
	}
}

// TestRefusalOfAWideOne: who finds no place learns what it wanted, what is held of what it might
// have had, and who is ahead.
func TestRefusalOfAWideOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, []Lane{{Name: "oncall", Share: 0.25}, {Name: "batch", Share: 0.1, Most: 4}, {Name: "default", Share: 0.65}})
		refused := func(a Asker, n int, want Refusal) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := g.Wait(ctx, a, n)
			var r *Refusal
			if !errors.As(err, &r) {
				t.Fatalf("got %v", err)
			}
			got := *r
			if got.err = nil; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		p := take(t, g, Asker{Peer: "x"}, 10)
		refused(Asker{Peer: "x"}, 12, Refusal{Why: PeerFull, Most: 20, Wants: 12, Held: 10})
		refused(Asker{Peer: "y"}, 12, Refusal{Why: AllHeld, Most: 20, Wants: 12, Held: 10})
		b := take(t, g, Asker{Lane: "batch"}, 2)
		refused(Asker{Lane: "batch"}, 3, Refusal{Why: LaneFull, Most: 4, Wants: 3, Held: 2})
		order := make(chan string, 8)
		wide := waits(t, g, Asker{Peer: "y", Flow: 1}, 12, "wide", order)
		refused(Asker{Peer: "z", Flow: 2}, 1, Refusal{Why: AllHeld, Most: 21, Wants: 1, Held: 12, Ahead: 12, Others: 1})
		refused(Asker{Peer: "y", Flow: 1}, 1, Refusal{Why: AllHeld, Most: 21, Wants: 1, Held: 12, Ahead: 12, Others: 1})
		g.Leave(p, 10)
		// y holds 12: its second call of 12 is ahead of another of its flow, of no other one
		second := waits(t, g, Asker{Peer: "y", Flow: 1}, 12, "second", order)
		refused(Asker{Peer: "y", Flow: 1}, 1, Refusal{Why: PeerFull, Most: 20, Wants: 1, Held: 12, Ahead: 12, Others: 1})
		g.Leave(take(t, g, Asker{Peer: "z"}, 1), 1)
		wide()
		second()
		g.Leave(b, 2)
		// One that waits for its address, in a lane that it leaves no room for anybody else.
		p = take(t, g, Asker{Peer: "x"}, 17)
		four := waits(t, g, Asker{Peer: "x", Lane: "batch", Flow: 1}, 4, "four", order)
		refused(Asker{Peer: "y", Lane: "batch", Flow: 2}, 1, Refusal{Why: AllHeld, Most: 21, Wants: 1, Held: 17, Ahead: 4, Others: 1})
		g.Leave(p, 17)
		four()
	})
}

// TestMaxWaitOfSeveralDoors: who has waited at one door has what is left of his lane's time at the
// next, and where nothing is left he has a place that is free, and no other.
func TestMaxWaitOfSeveralDoors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lanes := []Lane{{Name: "default", Share: 1, MaxWait: 6 * time.Second}}
		a, b := NewGate(1, 1, lanes), NewGate(1, 1, lanes)
		atA, atB := take(t, a, Asker{}, 1), take(t, b, Asker{}, 1)
		began := time.Now()
		me := Asker{Began: began}
		time.AfterFunc(4*time.Second, func() { a.Leave(atA, 1) })
		p, err := a.Wait(t.Context(), me, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Leave(&p, 1)
		var r *Refusal
		if _, err = b.Wait(t.Context(), me, 1); !errors.As(err, &r) || r.MaxWait != 6*time.Second || time.Since(began) != 6*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.Sleep(time.Second)
		if _, err = b.Wait(t.Context(), me, 1); !errors.As(err, &r) || time.Since(began) != 7*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		b.Leave(atB, 1)
		if p, err = b.Wait(t.Context(), me, 1); err != nil {
			t.Fatal(err)
		}
		b.Leave(&p, 1)
	})
}
