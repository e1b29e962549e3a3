package timers

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/randseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever is set, set again and stopped, in any order: what the runtime's own timers run, the
// set's run too, at the same time of the bubble's clock.
func TestAsTheRuntimesOwn(t *testing.T) {
	seed := randseed.Of(t, 0)
	for n := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, n))
			var s Set
			var mu sync.Mutex
			const count = 12
			ours, theirs := make([][]time.Time, count), make([][]time.Time, count)
			note := func(to *[]time.Time) func() {
				return func() {
					mu.Lock()
					*to = append(*to, time.Now())
					mu.Unlock()
				}
			}
			var a [count]*Timer
			var b [count]*time.Timer
			for i := range count {
				d := wait(r)
				a[i], b[i] = s.AfterFunc(d, note(&ours[i])), time.AfterFunc(d, note(&theirs[i]))
			}
			for range 60 {
				i := r.IntN(count)
				switch r.IntN(4) {
				case 0:
					if x, y := a[i].Stop(), b[i].Stop(); x != y {
						t.Errorf("seed %d, run %d: Stop of timer %d is %v, the runtime's %v", seed, n, i, x, y)
					}
				case 1:
					// Not at the very moment at which something goes off: who is first then is
					// chance.
					time.Sleep(time.Duration(r.IntN(3000))*time.Millisecond + time.Microsecond)
					synctest.Wait()
				default:
					d := wait(r)
					a[i].Reset(d)
					b[i].Reset(d)
				}
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for i := range count {
				if !slices.EqualFunc(ours[i], theirs[i], time.Time.Equal) {
					t.Errorf("seed %d, run %d: timer %d went off at %v, the runtime's at %v", seed, n, i, ours[i], theirs[i])
				}
			}
			if s.first != nil {
				t.Error("a timer that went off or was stopped is still held")
			}
		})
	}
}

// wait is short, a second or so, or long; whole milliseconds, so that many go off together.
func wait(r *rand.Rand) time.Duration {
	most := []int{20, 1100, 2000, 30_000}[r.IntN(4)]
	return time.Duration(1+r.IntN(most)) * time.Millisecond
}

// What is due together runs in the order of its times, however the timers were set: who waits a
// little less than another ends first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		var got []int
		for _, i := range rand.Perm(100) {
			s.AfterFunc(2*time.Second+time.Duration(i), func() { got = append(got, i) })
		}
		s.mu.Lock()
		s.alarm.Reset(3 * time.Second) // the machine is late: all are due by then
		s.mu.Unlock()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if len(got) != 100 || !slices.IsSorted(got) {
			t.Errorf("they ran in the order %v", got)
		}
	})
}

// A thousand requests that each set a few timers and stop them wake the runtime's timer once in the
// shortest wait, not once each.
func TestWakesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		var next time.Time
		moved := 0
		for range 1000 {
			a, b := s.AfterFunc(30*time.Second, func() { t.Error("it was stopped") }),
				s.AfterFunc(2*time.Second, func() { t.Error("it was stopped") })
			s.mu.Lock()
			if s.next != next {
				next = s.next
				moved++
			}
			s.mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			a.Stop()
			b.Stop()
		}
		// Ten seconds: five waits of two, each set for the long and then the short one at most.
		if moved > 12 {
			t.Errorf("the runtime's timer was set %d times in ten seconds", moved)
		}
	})
}

func TestWithDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		late := errors.New("too late")
		made := 0
		cause := func() error { made++; return late }
		for _, d := range []time.Duration{-1, 0, time.Millisecond, 3 * time.Second} {
			at := time.Now().Add(d)
			ctx, cancel := s.WithDeadline(t.Context(), at, cause)
			child, stop := context.WithCancel(ctx)
			if got, ok := child.Deadline(); !ok || !got.Equal(at) {
				t.Errorf("the deadline is %v", got)
			}
			if d > 0 && child.Err() != nil {
				t.Errorf("%s: it has ended at once", d)
			}
			<-child.Done()
			if context.Cause(child) != late || time.Now().Before(at) {
				t.Errorf("%s: it ended with %v", d, context.Cause(child))
			}
			stop()
			cancel()
		}
		ctx, cancel := s.WithDeadline(t.Context(), time.Now().Add(time.Minute), cause)
		cancel()
		if context.Cause(ctx) != context.Canceled || s.first != nil {
			t.Error("cancel does not end it, or leaves its timer behind")
		}
		parent, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		want, _ := parent.Deadline()
		ctx, cancel = s.WithDeadline(parent, time.Now().Add(time.Hour), cause)
		defer cancel()
		if got, _ := ctx.Deadline(); !got.Equal(want) || s.first != nil {
			t.Errorf("under an earlier deadline it is %v", got)
		}
		if made != 4 {
			t.Errorf("the cause was made %d times for 4 that were late", made)
		}
	})
}

// Under the race detector, on the real clock.
func TestConcurrently(t *testing.T) {
	var s Set
	var ran atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 300 {
				a := s.AfterFunc(time.Hour, func() { t.Error("it was stopped") })
				b := s.AfterFunc(time.Duration(i)*time.Microsecond, func() { ran.Add(1) })
				a.Reset(time.Hour)
				if !a.Stop() || a.Stop() {
					t.Error("Stop is wrong about a timer that was set")
				}
				if b.Stop() {
					ran.Add(1)
				}
			}
		})
	}
	for range 100 {
		wg.Add(1)
		s.AfterFunc(short+time.Duration(rand.IntN(200))*time.Millisecond, wg.Done)
	}
	wg.Wait()
	for deadline := time.Now().Add(time.Minute); ran.Load() != 8*300 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := ran.Load(); n != 8*300 {
		t.Errorf("%d of %d ran or were stopped", n, 8*300)
	}
}

// BenchmarkRequest sets and stops what a request does.
func BenchmarkRequest(b *testing.B) {
	waits := []time.Duration{2 * time.Minute, time.Minute, 5 * time.Second, 2 * time.Second}
	b.Run("timers", func(b *testing.B) {
		var s Set
		for b.Loop() {
			for _, d := range waits {
				s.AfterFunc(d, func() {}).Stop()
			}
		}
	})
	b.Run("runtime", func(b *testing.B) {
		for b.Loop() {
			for _, d := range waits {
				time.AfterFunc(d, func() {}).Stop()
			}
		}
	})
}
