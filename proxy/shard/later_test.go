package shard

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestLaterIsNotNever: the replica that has everything answers one query with 503 and Retry-After.
// It is left alone for so long, and the other one, which lacks an hour, is not whole for that.
// Over what nobody lacks that one answers. One that asks for more time on and on counts after a
// minute as one that says that it cannot.
func TestLaterIsNotNever(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "not known": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGaps(t, 2, "up")
				from, until := g.over()
				if known {
					wholeIsTheFirst(t, g)
				}
				g.is.Store(asksToWait)
				if _, err := g.s.Replicas[0].Do(t.Context(), sumRequest, CallOptions{}); err == nil {
					t.Fatal("it was answered")
				}
				g.is.Store(answers)
				g.s.base.Store(1)
				for range 29 { // while it is left alone
					order, whole, err := g.ordered(t.Context(), from, until)
					if err != nil || whole > 0 && order[0] != 0 || known && whole == 0 {
						t.Errorf("%d of %v are whole: %v", whole, order, err)
					}
					now := time.Now().UnixMilli()
					if order, _, err = g.ordered(t.Context(), now-30*60_000, now); err != nil || order[0] != 1 {
						t.Errorf("over what nobody lacks %v are read: %v", order, err)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(2*beatEvery + 2*time.Second)
				wholeIsTheFirst(t, g)
				g.stop()
			})
		})
	}
	t.Run("on and on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGaps(t, 2, "up")
			from, until := g.over()
			wholeIsTheFirst(t, g)
			g.is.Store(asksToWait)
			time.Sleep(lateWaits - beatEvery)
			if order, whole, err := g.ordered(t.Context(), from, until); err != nil || whole != 1 || order[0] != 0 {
				t.Errorf("within a minute %d of %v are whole: %v", whole, order, err)
			}
			time.Sleep(lateWaits)
			others := 0
			for range 60 {
				order, _, err := g.ordered(t.Context(), from, until)
				if err != nil {
					t.Error(err)
				} else if order[0] == 1 {
					others++
				}
				time.Sleep(time.Second)
			}
			if others < 50 { // once in ten seconds it is asked itself
				t.Errorf("after a minute the other one answers %d of 60", others)
			}
			g.is.Store(answers)
			time.Sleep(time.Minute)
			wholeIsTheFirst(t, g)
			g.stop()
		})
	})
}

// TestWhoAsksToWaitIsNotTried: one whose breaker is open, and that asks to be left alone, is not
// asked whether it answers, and once that time is over it is.
func TestWhoAsksToWaitIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGaps(t, 2, "up")
		from, until := g.over()
		wholeIsTheFirst(t, g)
		g.is.Store(asksToWait)
		_, _ = g.s.Replicas[0].Do(t.Context(), sumRequest, CallOptions{})
		g.is.Store(answers)
		g.open(0)
		for range 3 {
			if _, _, err := g.ordered(t.Context(), from, until); err == nil {
				t.Error("over what the other one lacks there is no error")
			}
		}
		time.Sleep(30 * time.Second)
		g.open(0)
		wholeIsTheFirst(t, g)
		g.stop()
	})
}

// TestWhoAsksToWaitHoldsNobodyUp: one of a pair asks to be left alone, and what was known of the
// last minute is not fresh any more. That the other one is whole is not known then, and it is not
// asked about that by each request anew, one after the other.
func TestWhoAsksToWaitHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGaps(t, 2, "up")
		g.is.Store(asksToWait)
		_, _ = g.s.Replicas[0].Do(t.Context(), sumRequest, CallOptions{})
		g.tail[1].Store(int64(100 * time.Millisecond))
		time.Sleep(trust.Fresh + 5*time.Second)
		asked := g.askedOf(1)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				began := time.Now()
				order, whole, err := g.ordered(t.Context(), began.Add(-30*time.Minute).UnixMilli(), began.UnixMilli())
				if err != nil || whole > 0 {
					t.Errorf("%d of %v are whole: %v", whole, order, err)
				}
				if took := time.Since(began); took > 200*time.Millisecond {
					t.Errorf("request %d waited for %s", i, took)
				}
			})
		}
		all.Wait()
		if n := g.askedOf(1) - asked; n > 1 {
			t.Errorf("the other one was asked %d times", n)
		}
		g.is.Store(answers)
		g.tail[1].Store(0)
		time.Sleep(30*time.Second + 2*beatEvery)
		wholeIsTheFirst(t, g)
		g.stop()
	})
}

// TestWhoAsksToWaitIsAskedThen: the one that asked to be left alone for a moment is asked again
// once that is over, by the first request, and not ten seconds later.
func TestWhoAsksToWaitIsAskedThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGaps(t, 2, "up")
		g.wait.Store(2)
		g.is.Store(asksToWait)
		from, until := g.over()
		for range 2 { // of the first one, which is asked, and of one that is not
			if order, whole, err := g.ordered(t.Context(), from, until); err != nil || whole > 0 {
				t.Errorf("%d of %v are whole: %v", whole, order, err)
			}
		}
		g.is.Store(answers)
		time.Sleep(2*time.Second + 10*time.Millisecond)
		wholeIsTheFirst(t, g)
		g.stop()
	})
}
