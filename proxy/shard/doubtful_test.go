package shard

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// within is a caller with so much time left, who leaves after leaves, where that is not 0.
func within(t *testing.T, left, leaves time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), left)
	t.Cleanup(cancel)
	if leaves > 0 {
		time.AfterFunc(leaves, cancel)
	}
	return ctx
}

// TestWhoLeavesHasNotWaited: the breakers are open of the replica that has everything, or of both,
// and the one who asks whether they answer leaves. The next one is answered from the one that has
// everything: not from the other one, and not with an error.
func TestWhoLeavesHasNotWaited(t *testing.T) {
	for name, open := range map[string][]int{"one": {0}, "both": {0, 1}} {
		for how, together := range map[string]bool{"afterwards": false, "meanwhile": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGaps(t, 2, "up")
					from, until := g.over()
					wholeIsTheFirst(t, g) // so that all is known
					g.open(open...)
					g.s.base.Store(1)
					g.late(300 * time.Millisecond)
					left := make(chan struct{})
					go func() {
						defer close(left)
						_, _, _ = g.ordered(within(t, time.Minute, 20*time.Millisecond), from, until)
					}()
					if synctest.Wait(); !together {
						<-left
					}
					wholeIsTheFirst(t, g)
					if state := g.s.Replicas[0].up.breaker.current(time.Now()); state != Closed {
						t.Errorf("its breaker is %s", state)
					}
					<-left
					g.late(0)
					g.stop()
				})
			})
		}
	}
}

// TestAllBreakersAreOpen: nobody can be asked in time whether he answers. Who is known to have
// everything is asked, or nobody, and never the one that lacks some, or may; and not for long.
func TestAllBreakersAreOpen(t *testing.T) {
	for _, tc := range []struct {
		name    string
		known   bool // who lacks what
		left    time.Duration
		trying  bool // another one has the turn to ask those that failed
		beating bool // another one has the turn to compare the others
	}{
		{name: "in a hurry", known: true, left: time.Second},
		{name: "in a hurry, and nothing is known", left: time.Second},
		{name: "another one asks", known: true, left: time.Minute, trying: true},
		{name: "another one asks, and nothing is known", left: 4 * time.Second, trying: true},
		{name: "the others are compared", known: true, left: time.Minute, beating: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGaps(t, 2, "up")
				from, until := g.over()
				if tc.known {
					wholeIsTheFirst(t, g)
				}
				g.open(0, 1)
				g.s.base.Store(1)
				g.late(300 * time.Millisecond)
				free := func() {}
				if tc.beating {
					done, ok := g.s.beats.TryTurn()
					if !ok {
						t.Fatal("somebody has the turn")
					}
					free = done
				}
				if tc.trying {
					t := &trying{of: g.s.all(), began: time.Now(), done: make(chan struct{})}
					g.s.tries.now = t
					free = func() { g.s.tries.end(t) }
				}
				order, whole, err := g.ordered(within(t, tc.left, 0), from, until)
				switch {
				case tc.known:
					if err != nil || whole != 1 || order[0] != 0 {
						t.Errorf("%d of %v are whole: %v", whole, order, err)
					}
				case err == nil || !strings.Contains(err.Error(), "may lack some of what it has"):
					t.Errorf("%d of %v are whole: %v", whole, order, err)
				}
				free()
				time.Sleep(breakerOpenFor)
				if _, _, err := g.ordered(within(t, tc.left, 0), from, until); err != nil {
					t.Errorf("%s later: %v", breakerOpenFor, err)
				}
				g.late(0)
				g.stop()
			})
		})
	}
}

// TestEachIsTriedForItself: that one was asked in vain whether it answers keeps nobody from asking
// the other one.
func TestEachIsTriedForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGaps(t, 2, "up")
		wholeIsTheFirst(t, g)
		since := g.gap.Add(2 * time.Hour).UnixMilli()
		_, _, _ = g.ordered(t.Context(), since, time.Now().UnixMilli())
		g.tail[0].Store(int64(time.Minute))
		g.open(0)
		from, until := g.over()
		if _, _, err := g.ordered(within(t, 10*time.Second, 0), from, until); err == nil {
			t.Error("over what the other one lacks there is no error")
		}
		g.open(1)
		order, whole, err := g.ordered(within(t, 10*time.Second, 0), since, g.gap.Add(4*time.Hour).UnixMilli())
		if err != nil || whole != 1 || order[0] != 1 {
			t.Errorf("%d of %v are whole: %v", whole, order, err)
		}
		if state := g.s.Replicas[1].up.breaker.current(time.Now()); state != Closed {
			t.Errorf("its breaker is %s", state)
		}
		g.late(0)
		g.stop()
	})
}

// TestTheLastOneAnswers: the replica that has everything has been dead for hours, and a caller in a
// hurry finds the other one's breaker open: that is asked, as the only one there is. Where both are
// there and answer nothing, what one lacks is refused for a minute.
func TestTheLastOneAnswers(t *testing.T) {
	t.Run("dead for hours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGaps(t, 2, "up")
			from, until := g.over()
			wholeIsTheFirst(t, g)
			g.fakes[0].Close()
			time.Sleep(3 * time.Hour)
			for _, late := range []time.Duration{0, 300 * time.Millisecond, time.Minute} {
				g.late(late)
				g.open(1)
				for _, left := range []time.Duration{time.Second, time.Minute} {
					if order, _, err := g.ordered(within(t, left, 0), from, until); err != nil || order[0] != 1 {
						t.Errorf("%s late, %s left: %v, %v", late, left, order, err)
					}
				}
			}
			g.late(0)
			g.stop()
		})
	})
	t.Run("both answer nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGaps(t, 2, "up")
			from, until := g.over()
			wholeIsTheFirst(t, g)
			g.late(time.Minute)
			began, errs := time.Now(), 0
			for time.Since(began) < lateWaits+20*time.Second {
				g.open(0, 1)
				g.s.base.Store(1)
				order, _, err := g.ordered(within(t, 20*time.Second, 0), from, until)
				switch after := time.Since(began); {
				case err != nil && after > lateWaits+5*time.Second:
					t.Errorf("after %s: %v", after, err)
				case err != nil:
					errs++
				case after < lateWaits && order[0] != 0:
					t.Errorf("after %s %v are read", after, order)
				}
				time.Sleep(time.Second)
			}
			if errs == 0 {
				t.Error("nothing was refused")
			}
			g.late(0)
			g.stop()
		})
	})
}
