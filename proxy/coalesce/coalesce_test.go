package coalesce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
)

// caller is somebody who asks, as the server does: the leader writes its answer in pieces.
type caller struct {
	got  bytes.Buffer
	meta string
	err  error
	lead bool
	own  bool // it asked for itself
}

// world is a group and the pool that answers are charged to.
type world struct {
	t     *testing.T
	group Group[string]
	pool  *admit.Pool
	all   sync.WaitGroup
	works atomic.Int64 // how many answers were made
}

func newWorld(t *testing.T, pool int64) *world { return &world{t: t, pool: admit.NewPool(pool)} }

// ask asks for the key, of which pieces are made with a second before each; fail ends the work
// after them. ctx ends when the caller leaves.
func (w *world) ask(ctx context.Context, key string, pieces []string, fail error) *caller {
	c := &caller{}
	w.all.Go(func() {
		work, stop := context.WithCancel(context.Background())
		defer stop()
		f, lead := w.group.Join(key, "", time.Now(), 10*time.Second, w.pool, stop)
		if c.lead = lead; !lead {
			a, err := f.Wait(ctx)
			if errors.Is(err, ErrLarge) || errors.Is(err, ErrAbandoned) {
				c.own = true
				w.works.Add(1)
				c.err = produce(ctx, pieces, fail, c.got.Write)
				return
			}
			if c.err = err; err == nil {
				c.write(a)
			}
			return
		}
		defer context.AfterFunc(ctx, func() {
			if !f.Left() {
				stop()
			}
		})()
		w.works.Add(1)
		err := produce(work, pieces, fail, func(p []byte) (int, error) {
			return f.Write(p, func(p []byte) (int, error) {
				if ctx.Err() != nil {
					return 0, ctx.Err()
				}
				return c.got.Write(p)
			})
		})
		if c.err = err; errors.Is(err, context.Canceled) {
			f.Abandon()
			return
		}
		if a := f.Land("about "+key, err); a != nil {
			c.write(a)
		}
	})
	return c
}

func (c *caller) write(a *Answer[string]) {
	defer a.Release()
	c.meta = a.Meta
	for _, p := range a.Chunks {
		c.got.Write(p)
	}
}

func produce(ctx context.Context, pieces []string, fail error, write func([]byte) (int, error)) error {
	for _, p := range pieces {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := write([]byte(p)); err != nil {
			return err
		}
	}
	return fail
}

// settled waits for all, and looks for what is left behind.
func (w *world) settled() {
	w.t.Helper()
	w.all.Wait()
	if n := w.group.Len(); n != 0 {
		w.t.Errorf("%d flights are left", n)
	}
	if n := w.pool.InUse(); n != 0 || w.group.kept != 0 {
		w.t.Errorf("%d bytes are left, and %d of kept answers", n, w.group.kept)
	}
}

func (w *world) gets(c *caller, want string) {
	w.t.Helper()
	if c.err != nil || c.got.String() != want {
		w.t.Errorf("got %.40q, %v; want %.40q", c.got.String(), c.err, want)
	}
}

func later(d time.Duration) { time.Sleep(d) }

const ms = time.Millisecond

// Those that come before the first byte are given the leader's answer; who comes later, or asks for
// something else, has one made for itself.
func TestSharedUntilTheFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t, 1<<30), t.Context()
		first := w.ask(ctx, "a", []string{"one", "two"}, nil)
		later(10 * ms)
		second := w.ask(ctx, "a", []string{"x"}, nil)
		other := w.ask(ctx, "b", []string{"y"}, nil)
		later(1100 * ms)
		late := w.ask(ctx, "a", []string{"three"}, nil)
		w.settled()
		w.gets(first, "onetwo")
		w.gets(second, "onetwo")
		w.gets(other, "y")
		w.gets(late, "three")
		if second.meta != "about a" || second.lead || !late.lead || w.works.Load() != 3 {
			t.Errorf("meta %q, second leads %t, late leads %t, %d answers were made", second.meta, second.lead, late.lead, w.works.Load())
		}
	})
}

// An answer that nobody waits for is neither copied nor charged.
func TestAloneHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0) // a pool that gives nothing
		c := w.ask(t.Context(), "a", []string{strings.Repeat("x", MaxBytes), strings.Repeat("y", MaxBytes)}, nil)
		w.settled()
		if c.got.Len() != 2*MaxBytes || c.meta != "" {
			t.Errorf("%d bytes, meta %q", c.got.Len(), c.meta)
		}
	})
}

// A flight is joined while it is young. The older one goes on for those that it has.
func TestYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t, 1<<30), t.Context()
		slow := make([]string, 30) // 30 s before its first byte that matters
		slow[29] = "old"
		work := func() []string { return []string{strings.Join(slow, "")} }
		f, lead := w.group.Join("a", "", time.Now(), 10*time.Second, w.pool, func() {})
		if !lead {
			t.Fatal("the first one does not lead")
		}
		later(10 * time.Second)
		joined := w.ask(ctx, "a", work(), nil)
		synctest.Wait()
		later(time.Second)
		anew := w.ask(ctx, "a", []string{"new"}, nil)
		later(500 * ms)
		with := w.ask(ctx, "a", nil, nil)
		synctest.Wait()
		_, _ = f.Write([]byte("old"), nil)
		f.Land("", nil).Release()
		w.settled()
		w.gets(joined, "old")
		w.gets(anew, "new")
		w.gets(with, "new")
	})
}

// The leader's caller leaves, and the others are answered all the same. When all have left the work
// ends.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1<<30)
		pieces := []string{"one", "two", "three"}
		leader, leave := context.WithCancel(t.Context())
		first := w.ask(leader, "a", pieces, nil)
		later(10 * ms)
		second := w.ask(t.Context(), "a", nil, nil)
		later(10 * ms)
		leave()
		w.settled()
		w.gets(second, "onetwothree")
		if !first.lead || w.works.Load() != 1 {
			t.Errorf("%d answers were made", w.works.Load())
		}

		begun := time.Now()
		leader, leave = context.WithCancel(t.Context())
		follower, follow := context.WithCancel(t.Context())
		first = w.ask(leader, "b", pieces, nil)
		later(10 * ms)
		second = w.ask(follower, "b", nil, nil)
		later(10 * ms)
		leave()
		later(1500 * ms) // the answer is being kept
		follow()
		w.settled()
		if took := time.Since(begun); took > 1600*ms {
			t.Errorf("the work went on for %s, though all had left", took)
		}
		if !errors.Is(first.err, context.Canceled) || !errors.Is(second.err, context.Canceled) {
			t.Errorf("%v, %v", first.err, second.err)
		}
	})
}

// A leader that leaves before anybody has joined is nobody's answer, and neither is one that was
// joined when it was ended already.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1<<30)
		f, _ := w.group.Join("a", "", time.Now(), time.Second, w.pool, func() {})
		if f.Left() {
			t.Error("nobody waits")
		}
		second := w.ask(t.Context(), "a", []string{"own"}, nil)
		f.Abandon()
		w.all.Wait()
		w.gets(second, "own")

		f, _ = w.group.Join("b", "", time.Now(), time.Second, w.pool, func() {})
		third := w.ask(t.Context(), "b", []string{"own"}, nil)
		synctest.Wait()
		f.Abandon()
		w.settled()
		w.gets(third, "own")
		if !third.own {
			t.Error("the third did not ask for itself")
		}
	})
}

// What fails fails for all, and nothing of the answer reaches anybody who waited.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, broken := newWorld(t, 1<<30), errors.New("broken")
		first := w.ask(t.Context(), "a", []string{"half"}, broken)
		later(10 * ms)
		second := w.ask(t.Context(), "a", nil, nil)
		w.settled()
		for _, c := range []*caller{first, second} {
			if !errors.Is(c.err, broken) || c.got.Len() != 0 {
				t.Errorf("%v, %q", c.err, c.got.String())
			}
		}
	})
}

// An answer that is too large, or for which there is no memory, is not kept: the leader writes it
// through, whole, and the others ask for themselves before they have had a byte.
func TestTooLargeToKeep(t *testing.T) {
	piece := strings.Repeat("x", MaxBytes/2)
	for _, c := range []struct {
		name string
		pool int64
	}{{"too large", 1 << 30}, {"more than an eighth of the pool", 4 * MaxBytes}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, ctx := newWorld(t, c.pool), t.Context()
				first := w.ask(ctx, "a", []string{piece, piece, "end"}, nil)
				later(10 * ms)
				second := w.ask(ctx, "a", []string{"own"}, nil)
				w.settled()
				w.gets(first, piece+piece+"end")
				w.gets(second, "own")
				if !second.own {
					t.Error("the second did not ask for itself")
				}
			})
		})
	}
}

// What is kept is its address' like anything else it has: where it has all that one may have,
// nothing is kept for it, and what it leaves is there for others.
func TestKeptByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 512<<20)
		var has []*admit.Budget
		for full := false; !full; {
			b := admit.NewBudget(w.pool, admit.Limits{}).By("192.0.2.1")
			has, full = append(has, b), b.Hold(1<<20) != nil
		}
		for _, c := range []struct {
			from string
			kept bool
		}{{"192.0.2.1", false}, {"192.0.2.2", true}} {
			f, _ := w.group.Join(c.from, c.from, time.Now(), time.Second, w.pool, func() {})
			if second, lead := w.group.Join(c.from, c.from, time.Now(), time.Second, w.pool, func() {}); second != f || lead {
				t.Fatal("it is not joined")
			}
			_, _ = f.Write(make([]byte, 1<<20), func(p []byte) (int, error) { return len(p), nil })
			a := f.Land("", nil)
			if (a != nil) != c.kept || f.Large() { // a moment later there may be room
				t.Errorf("for %s an answer is kept: %t; it is large by itself: %t", c.from, a != nil, f.Large())
			}
			if a != nil {
				a.Release()
				a.Release()
			}
		}
		for _, b := range has {
			b.Close()
		}
		w.settled()
	})
}

// However many answers are kept for those that read slowly, they take an eighth of the pool: others
// go on as if alone.
func TestKeptTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 16<<20)
		var flights []*Flight[string]
		var answers []*Answer[string]
		wrote := 0
		for i := range 8 {
			key := fmt.Sprint(i)
			f, _ := w.group.Join(key, "", time.Now(), time.Second, w.pool, func() {})
			second, lead := w.group.Join(key, "", time.Now(), time.Second, w.pool, func() {})
			if second != f || lead {
				t.Fatal("it is not joined")
			}
			_, _ = f.Write(make([]byte, 1<<20), func(p []byte) (int, error) { wrote++; return len(p), nil })
			flights = append(flights, f)
			if a := f.Land("", nil); a != nil {
				answers = append(answers, a)
			}
		}
		if len(answers) != 2 || wrote != 6 || w.pool.InUse() > 3<<20 {
			t.Errorf("%d answers of 1 MiB are kept, %d were written through, and %d bytes are in use of 16 MiB", len(answers), wrote, w.pool.InUse())
		}
		if flights[7].Large() || flights[0].Large() {
			t.Error("an answer that could be kept a moment later is large by itself")
		}
		for _, a := range answers { // the leader has written it, and who waited
			a.Release()
			a.Release()
		}
		w.settled()
	})
}

// Callers come, fail and leave as chance has it. Nobody gets another key's answer, half of one, or
// none though it stayed; and nothing is left.
func TestAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 0))
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, []int64{1 << 30, 2 << 20}[rng.IntN(2)])
			type one struct {
				c      *caller
				key    string
				leaves bool
			}
			var all []one
			broken := errors.New("broken")
			for range 1 + rng.IntN(20) {
				n := rng.IntN(3)
				o := one{key: fmt.Sprint(n), leaves: rng.IntN(3) == 0}
				ctx := context.Background()
				if o.leaves {
					var leave context.CancelFunc
					ctx, leave = context.WithTimeout(ctx, rnd(rng, 6))
					defer leave()
				}
				o.c = w.ask(ctx, o.key, answers[n], []error{nil, nil, broken}[n])
				all = append(all, o)
				later(rnd(rng, 2))
			}
			w.settled()
			for i, o := range all {
				n := int(o.key[0] - '0')
				want := strings.Join(answers[n], "")
				got := o.c.got.String()
				switch {
				case n == 2 && errors.Is(o.c.err, broken):
					if !strings.HasPrefix(want, got) {
						t.Errorf("caller %d got %.40q", i, got)
					}
				case o.c.err == nil && n != 2:
					if got != want && !(o.leaves && got == "") {
						t.Errorf("caller %d of %q got %.40q", i, o.key, got)
					}
				case !o.leaves:
					t.Errorf("caller %d of %q stayed: %v", i, o.key, o.c.err)
				}
			}
		})
	}
}

// answers are what is answered to the keys 0, 1 and 2, of which the last one fails at its end.
var answers = [][]string{
	{"zero", strings.Repeat("0", 64<<10), "end"},
	{strings.Repeat("1", 128<<10), strings.Repeat("2", 200<<10)},
	{"two", "fails"},
}

func rnd(rng *rand.Rand, seconds int) time.Duration {
	return time.Duration(rng.Int64N(int64(seconds) * int64(time.Second)))
}
