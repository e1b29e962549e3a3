package admit

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

func TestBudgetBounds(t *testing.T) {
	pool := NewPool(1 << 20)
	b := NewBudget(pool, Limits{MaxSeries: 2, MaxSamples: 10, MaxBytes: 100})
	for range 2 {
		if err := b.AddSeries(1); err != nil {
			t.Fatal(err)
		}
	}
	qerrtest.Refused(t, b.AddSeries(1), qerr.TooExpensive, "max_series")
	if err := b.AddSamples(10); err != nil {
		t.Fatal(err)
	}
	qerrtest.Refused(t, b.AddSamples(1), qerr.TooExpensive, "max_samples")
	if err := b.AddBytes(100); err != nil {
		t.Fatal(err)
	}
	qerrtest.Refused(t, b.AddBytes(1), qerr.TooExpensive, "max_response_bytes")
	if err := b.Hold(1 << 20); err != nil {
		t.Fatal(err)
	}
	qerrtest.Refused(t, b.Hold(1), qerr.Overloaded, "memory.budget")
	if b.Series() != 3 || b.Samples() != 11 || b.Bytes() != 101 || b.Peak() != 1<<20 {
		t.Errorf("counters %d %d %d %d", b.Series(), b.Samples(), b.Bytes(), b.Peak())
	}
	b.Close()
	b.Close()
	if pool.InUse() != 0 {
		t.Errorf("pool has %d bytes in use after Close", pool.InUse())
	}
	if b.Hold(1) == nil {
		t.Error("Hold works on a closed budget")
	}
	b.Drop(1)
	if pool.InUse() != 0 {
		t.Errorf("pool has %d bytes in use after a late Drop", pool.InUse())
	}
}

func TestBudgetOneCannotTakeWhatOthersHold(t *testing.T) {
	pool := NewPool(4 * poolChunk)
	a, b := NewBudget(pool, Limits{}), NewBudget(pool, Limits{})
	defer b.Close()
	if err := a.Hold(3*poolChunk + 1); err != nil {
		t.Fatal(err)
	}
	qerrtest.Refused(t, b.Hold(1), qerr.Overloaded, "memory.budget")
	a.Close()
	if err := b.Hold(4 * poolChunk); err != nil {
		t.Errorf("after the other closed: %v", err)
	}
}

// TestBudgetReturnsEverything lets many goroutines do what they like, past Close too.
func TestBudgetReturnsEverything(t *testing.T) {
	seed := randseed.Of(t, 0)
	pool := NewPool(64 * poolChunk)
	var all sync.WaitGroup
	for i := range 8 {
		b := NewBudget(pool, Limits{})
		var users sync.WaitGroup
		for j := range 4 {
			r := rand.New(rand.NewPCG(seed, uint64(i*4+j)))
			users.Add(1)
			all.Go(func() {
				for k := range 2000 {
					if k == 1000 {
						users.Done()
					}
					switch n := r.Int64N(2 * poolChunk); r.IntN(3) {
					case 0:
						_ = b.Hold(n)
					case 1:
						b.Drop(n)
					default:
						_, _, _ = b.AddSeries(1), b.AddSamples(n), b.AddBytes(n)
					}
					if used := pool.InUse(); used < 0 || used > pool.Limit() {
						t.Errorf("pool has %d bytes in use", used)
					}
				}
			})
		}
		all.Go(func() { users.Wait(); b.Close() })
	}
	all.Wait()
	if pool.InUse() != 0 {
		t.Errorf("pool has %d bytes in use at the end", pool.InUse())
	}
}

func TestNilBudget(t *testing.T) {
	var b *Budget
	defer b.Close()
	b.Drop(1)
	if err := errors.Join(b.AddSeries(1), b.AddSamples(1), b.AddBytes(1), b.Hold(1)); err != nil {
		t.Error(err)
	}
	if b.Series()+b.Samples()+b.Bytes()+b.Peak()+b.Held() != 0 {
		t.Error("a nil budget counts")
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 17: "17B", 1024: "1KiB", 1536: "1536B", 64 << 20: "64MiB", 64<<20 + 1: "64.0MiB",
		3 << 30: "3GiB", 100 << 10: "100KiB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %s, want %s", n, got, want)
		}
	}
	if strings.Contains(FormatBytes(1<<62), "e") {
		t.Error(FormatBytes(1 << 62))
	}
}

// TestPoolChangesItsSize: what is taken stays taken; a smaller pool gives nothing until enough came
// back; and it is never more than the process has room for.
func TestPoolChangesItsSize(t *testing.T) {
	pool := NewPool(4 * poolChunk)
	a, b := NewBudget(pool, Limits{}), NewBudget(pool, Limits{})
	defer a.Close()
	defer b.Close()
	if err := a.Hold(3 * poolChunk); err != nil {
		t.Fatal(err)
	}
	pool.SetLimit(2 * poolChunk)
	if pool.InUse() != 3*poolChunk || pool.Limit() != 2*poolChunk {
		t.Errorf("%d of %d in use", pool.InUse(), pool.Limit())
	}
	qerrtest.Refused(t, b.Hold(1), qerr.Overloaded, "memory.budget")
	a.Close()
	if err := b.Hold(2 * poolChunk); err != nil {
		t.Error(err)
	}
	qerrtest.Refused(t, b.Hold(1), qerr.Overloaded, "memory.budget")
	pool.SetLimit(64 * poolChunk)
	pool.SetRoom(3 * poolChunk)
	if err := b.Hold(poolChunk); err != nil {
		t.Error(err)
	}
	err := b.Hold(1)
	qerrtest.Refused(t, err, qerr.Overloaded, "memory.budget")
	if e := qerr.From(err); e.Value != FormatBytes(3*poolChunk) || !strings.Contains(e.Message, FormatBytes(64*poolChunk)) {
		t.Errorf("it does not say what is in force and what was asked for: %+v", e)
	}
}

// TestOneHoldsHalf: a request that alone wants more than half of the pool is told so, and is not
// counted as a pool in want; in a small pool it may have all.
func TestOneHoldsHalf(t *testing.T) {
	pool := NewPool(smallPool)
	one, other := NewBudget(pool, Limits{}), NewBudget(pool, Limits{})
	defer one.Close()
	defer other.Close()
	if err := one.Hold(smallPool / 2); err != nil {
		t.Fatal(err)
	}
	err := one.Hold(1)
	qerrtest.Refused(t, err, qerr.Overloaded, "memory.budget")
	if e := qerr.From(err); e.Value != "4MiB" || !strings.Contains(e.Message, "alone") || strings.Contains(e.Advice, "again") {
		t.Errorf("it is not said that trying again is useless: %+v", e)
	}
	// Half of a pool is no whole number of chunks, mostly.
	odd := NewPool(smallPool + poolChunk)
	alone := NewBudget(odd, Limits{})
	defer alone.Close()
	if err := alone.Hold(odd.One() / poolChunk * poolChunk); err != nil {
		t.Fatal(err)
	}
	if e := qerr.From(alone.Hold(1)); e == nil || !strings.Contains(e.Message, "alone") || strings.Contains(e.Advice, "again") {
		t.Errorf("of half a chunk more: %+v", e)
	}
	if got := pool.high.get(time.Now(), pool.InUse()); got > smallPool {
		t.Errorf("%d of %d are said to have been wanted", got, smallPool)
	}
	if err := other.Hold(smallPool / 4); err != nil {
		t.Errorf("another one: %v", err)
	}
	little := NewPool(smallPool / 2)
	all := NewBudget(little, Limits{})
	defer all.Close()
	if err := all.Hold(smallPool / 2); err != nil {
		t.Errorf("a small pool: %v", err)
	}
}

// TestSmallBudgetsFindRoom: large ones fill the pool up to its last eighth, which is for others,
// and get nothing more while memory is tight.
func TestSmallBudgetsFindRoom(t *testing.T) {
	pool := NewPool(64 * poolChunk)
	one, other, small := NewBudget(pool, Limits{}), NewBudget(pool, Limits{}), NewBudget(pool, Limits{})
	defer one.Close()
	defer other.Close()
	defer small.Close()
	if err := one.Hold(64 * poolChunk); err != nil {
		t.Errorf("one alone: %v", err)
	}
	one.Drop(34 * poolChunk)
	if err := other.Hold(25 * poolChunk); err != nil {
		t.Fatal(err)
	}
	qerrtest.Refused(t, other.Hold(2*poolChunk), qerr.Overloaded, "memory.budget")
	if err := small.Hold(3 * poolChunk); err != nil {
		t.Errorf("a small one beside two that fill the pool: %v", err)
	}
	other.Close()
	pool.Tighten(qerr.Overload("memory.heap", "1GiB", time.Second, "advice", "tight"))
	err := one.Hold(2 * poolChunk)
	wantSeen := qerr.From(err)
	if wantSeen == nil || wantSeen.Bound != "memory.heap" || wantSeen.Seen == "" {
		t.Errorf("a large one while memory is tight: %v", err)
	}
	if err := small.Hold(1); err != nil {
		t.Errorf("a small one while memory is tight: %v", err)
	}
	pool.Tighten(nil)
	if err := one.Hold(2 * poolChunk); err != nil {
		t.Error(err)
	}
}

// Memory that is held for a while is charged for that while, whatever else is held meanwhile.
func TestByteSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(NewPool(1<<30), Limits{})
		time.Sleep(time.Second)
		if err := b.Hold(100); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := b.Hold(50); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		b.Drop(100)
		time.Sleep(2 * time.Second)
		if got := b.ByteSeconds(); got != 100*2+150+50*2 {
			t.Errorf("%v byte seconds", got)
		}
		b.Close()
		time.Sleep(time.Second)
		if got := b.ByteSeconds(); got != 450 {
			t.Errorf("%v byte seconds after the end", got)
		}
	})
}
