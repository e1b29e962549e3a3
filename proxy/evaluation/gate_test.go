package evaluation

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// runs lets a turn work for so long, looking every millisecond.
func runs(t *Turn, d time.Duration) error {
	for range d / time.Millisecond {
		time.Sleep(time.Millisecond)
		if err := t.Look(); err != nil {
			return err
		}
	}
	return nil
}

// TestLongOnesLeaveAProcessor: sixteen evaluations of two seconds on four processors. Never more
// than three are at work once they are long.
func TestLongOnesLeaveAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4, nil)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				turn, err := g.Begin(t.Context(), "")
				if err != nil {
					t.Error(err)
					return
				}
				defer turn.End()
				if err := runs(turn, 2*time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(Slice + 5*time.Millisecond)
		most := 0
		for g.Running()+g.Waiting() > 0 {
			most = max(most, g.Running())
			time.Sleep(700 * time.Microsecond)
		}
		wg.Wait()
		if most != 3 {
			t.Errorf("%d long evaluations at once on four processors, want 3", most)
		}
	})
}

// TestWhoHasRunLeastGoesFirst: 64 evaluations that never end, and one of 200 ms: it is over soon,
// not after 64 turns of the others. A short one waits for nobody.
func TestWhoHasRunLeastGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(2, nil)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				turn, err := g.Begin(ctx, "")
				if err != nil {
					t.Error(err)
					return
				}
				defer turn.End()
				if err := runs(turn, time.Hour); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			})
		}
		time.Sleep(20 * time.Second)
		for _, c := range []struct{ takes, within time.Duration }{
			{5 * time.Millisecond, 5 * time.Millisecond},
			{200 * time.Millisecond, 600 * time.Millisecond},
		} {
			began := time.Now()
			turn, err := g.Begin(t.Context(), "")
			if err == nil {
				err = runs(turn, c.takes)
			}
			turn.End()
			if took := time.Since(began); err != nil || took > c.within {
				t.Errorf("%s beside 64 long ones: took %s, want at most %s; %v", c.takes, took, c.within, err)
			}
		}
		stop()
		wg.Wait()
		if g.Running() != 0 || g.Waiting() != 0 {
			t.Errorf("%d running and %d waiting at the end", g.Running(), g.Waiting())
		}
	})
}

// TestWhoBeganFirstEnds: evaluations keep coming that have always run less than one that needs a
// second: it ends nevertheless, also where a lane is full of others as old. Who waits in another
// lane is not behind all of these.
func TestWhoBeganFirstEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(2, nil)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					turn, err := g.Begin(ctx, "default")
					if err == nil {
						_ = runs(turn, 300*time.Millisecond)
					}
					turn.End()
				}
			})
		}
		time.Sleep(time.Second)
		ends := func(lane string, within time.Duration) {
			began := time.Now()
			limited, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			turn, err := g.Begin(limited, lane)
			if err == nil {
				err = runs(turn, time.Second)
			}
			turn.End()
			if took := time.Since(began); err != nil || took > within {
				t.Errorf("a second of work in lane %s took %s, want at most %s; %v", lane, took, within, err)
			}
		}
		ends("default", 6*time.Second)
		for range 64 {
			wg.Go(func() {
				turn, err := g.Begin(ctx, "default")
				if err == nil {
					_ = runs(turn, time.Hour)
				}
				turn.End()
			})
		}
		time.Sleep(10 * time.Second)
		ends("rules", 15*time.Second)
		stop()
		wg.Wait()
	})
}

// TestPartsOfOneEvaluation: what is evaluated in parts is as long as all of them, so that it leaves
// a processor to others, and goes behind who has run less.
func TestPartsOfOneEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(2, nil)
		ran := time.Duration(0)
		part := func() *Turn {
			turn, err := g.Begin(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}
			turn.After(ran)
			return turn
		}
		for range 3 {
			turn := part()
			time.Sleep(8 * time.Millisecond)
			ran = turn.Used()
			turn.End()
		}
		if ran != 24*time.Millisecond {
			t.Fatalf("ran for %s", ran)
		}
		first, second := part(), part()
		if err := first.Look(); err != nil {
			t.Fatal(err)
		}
		late := make(chan error, 1)
		go func() { late <- second.Look() }()
		synctest.Wait()
		if g.Running() != 1 || g.Waiting() != 1 {
			t.Errorf("%d running and %d waiting, want one of each: the other processor is for others", g.Running(), g.Waiting())
		}
		first.End()
		if err := <-late; err != nil {
			t.Error(err)
		}
		if second.End(); second.Used() != ran {
			t.Errorf("it has run for %s, want %s", second.Used(), ran)
		}
	})
}

// TestPlacesAreGivenBackWhileWaiting: who waits for a server holds no place.
func TestPlacesAreGivenBackWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, nil)
		first, err := g.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		first.Heavy()
		if err := first.Look(); err != nil {
			t.Fatal(err)
		}
		first.Pause()
		if g.Running() != 0 {
			t.Error("a paused evaluation holds a place")
		}
		second, err := g.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		second.Heavy()
		if err := second.Look(); err != nil {
			t.Fatal(err)
		}
		back := make(chan error, 1)
		go func() { back <- first.Look() }()
		synctest.Wait()
		if g.Waiting() != 1 {
			t.Error("two long ones at once on one processor")
		}
		second.End()
		if err := <-back; err != nil {
			t.Error(err)
		}
		first.End()
		first.End()
		if g.Running() != 0 {
			t.Errorf("%d running at the end", g.Running())
		}
	})
}

// TestNoPlaceBeforeTheDeadline: it is told in time for the answer, with the bound's name; and
// whoever left meanwhile is told that.
func TestNoPlaceBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		g := NewGate(1, func(d time.Duration) { waits = append(waits, d) })
		first, err := g.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		first.Heavy()
		if err := first.Look(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		second, err := g.Begin(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		second.Heavy()
		err = second.Look()
		var e *qerr.Error
		if !errors.As(err, &e) || e.Kind != qerr.Overloaded || e.Bound != policy.BoundEvaluations || e.RetryAfter == 0 || e.Value != "1" ||
			e.Seen == "" || e.Advice == "" {
			t.Errorf("no place: %#v", err)
		}
		if took := time.Since(began); took != 9750*time.Millisecond {
			t.Errorf("told after %s", took)
		}
		gone, leave := context.WithCancelCause(t.Context())
		third, err := g.Begin(gone, "")
		if err != nil {
			t.Fatal(err)
		}
		third.Heavy()
		go func() {
			time.Sleep(time.Second)
			leave(qerr.ErrClientLeft)
		}()
		if err := third.Look(); !errors.Is(err, qerr.ErrClientLeft) {
			t.Errorf("the client left: %v", err)
		}
		first.End()
		if len(waits) != 2 || waits[1] != time.Second || g.Running() != 0 || g.Waiting() != 0 {
			t.Errorf("waits %v, running %d, waiting %d", waits, g.Running(), g.Waiting())
		}
	})
}

// TestGateFollowsTheProcessors: a container's limit can be changed while it runs, and Go's
// processors with it.
func TestGateFollowsTheProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	g := NewGate(0, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // after which who finds no place is refused
	defer cancel()
	begin := func() *Turn {
		turn, err := g.Begin(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		turn.Heavy()
		if err := turn.Look(); err != nil {
			t.Fatal(err)
		}
		return turn
	}
	first, second := begin(), begin() // as many as three processors give places for
	defer first.End()
	defer second.End()
	runtime.GOMAXPROCS(4)
	defer begin().End()
	if n := g.Running(); n != 3 {
		t.Errorf("%d long evaluations run on four processors, not 3", n)
	}
}

// TestWhoIsReadyGoesFirst: on one processor whoever is ready has run when a long evaluation has
// looked once, and needs not wait until Go takes the processor away from it.
func TestWhoIsReadyGoesFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	turn, err := NewGate(1, nil).Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer turn.End()
	turn.Heavy()
	if err := turn.Look(); err != nil {
		t.Fatal(err)
	}
	const times = 200
	ran := 0
	for range times {
		var done atomic.Bool
		go done.Store(true)
		if err := turn.Look(); err != nil {
			t.Fatal(err)
		}
		if done.Load() {
			ran++
		}
		for !done.Load() {
			runtime.Gosched()
		}
	}
	if ran < times*9/10 {
		t.Errorf("of %d that were ready %d had run after a look", times, ran)
	}
}
