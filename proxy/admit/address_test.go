package admit

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

// TestOneAddressLeavesMemory: however many answers one address has and does not read, another one
// finds room, also one that came later; and what an address has is told to nobody but itself.
func TestOneAddressLeavesMemory(t *testing.T) {
	pool := NewPool(512 << 20)
	var slow []*Budget
	refused := 0
	for range 17 {
		b := NewBudget(pool, Limits{}).By("192.0.2.1")
		slow = append(slow, b)
		if err := b.Hold(30 << 20); err != nil {
			refused++
			qerrtest.Refused(t, err, qerr.Overloaded, "memory.budget")
			if e := qerr.From(err); e.Value != "384MiB" || !strings.Contains(e.Message, "from this address") {
				t.Errorf("it is not said that its address has too much: %+v", e)
			}
		}
	}
	if refused != 17-12 {
		t.Errorf("%d of 17 that want 30 MiB are refused, want %d", refused, 17-12)
	}
	other, nobody := NewBudget(pool, Limits{}).By("192.0.2.2"), NewBudget(pool, Limits{}).By("")
	if err := other.Hold(64 << 20); err != nil {
		t.Errorf("another address: %v", err)
	}
	if err := nobody.Hold(1 << 20); err != nil {
		t.Errorf("who has no address: %v", err)
	}
	if n := len(pool.addresses.of); n != 2 {
		t.Errorf("%d addresses are known, want 2", n)
	}
	slow[0].Drop(20 << 20)
	if err := slow[16].Hold(20 << 20); err != nil {
		t.Errorf("the last one, once it has given some back: %v", err)
	}
	for _, b := range append(slow, other, nobody) {
		b.Close()
		b.Close()
	}
	if len(pool.addresses.of) > 0 || pool.InUse() != 0 {
		t.Errorf("in the end %d addresses are known, and %d bytes in use", len(pool.addresses.of), pool.InUse())
	}
	little := NewBudget(NewPool(smallPool/2), Limits{}).By("192.0.2.1")
	defer little.Close()
	if err := little.Hold(smallPool / 2); err != nil {
		t.Errorf("a small pool: %v", err)
	}
	if err := little.Hold(1); err == nil || strings.Contains(err.Error(), "address") {
		t.Errorf("in a small pool an address has no part: %v", err)
	}
}

// TestOneAddressLeavesSmalls: what needs little finds some where large requests of its own address
// have filled its part.
func TestOneAddressLeavesSmalls(t *testing.T) {
	pool := NewPool(512 << 20)
	var all []*Budget
	budget := func() *Budget {
		all = append(all, NewBudget(pool, Limits{}).By("192.0.2.1"))
		return all[len(all)-1]
	}
	first, second, small := budget(), budget(), budget()
	if err := first.Hold(256 << 20); err != nil {
		t.Error(err)
	}
	for n := 0; ; n++ {
		err := second.Hold(1 << 20)
		if err == nil {
			continue
		}
		if e := qerr.From(err); n < 32 || !strings.Contains(e.Message, "from this address") {
			t.Errorf("after %d MiB: %+v", n, e)
		}
		break
	}
	if err := small.Hold(16 << 20); err != nil {
		t.Errorf("who needs little: %v", err)
	}
	for _, b := range all {
		b.Close()
	}
}

// TestAddressesAddUp: whatever many goroutines do, no address has more than its part, all is given
// back, and none is remembered.
func TestAddressesAddUp(t *testing.T) {
	seed := randseed.Of(t, 0)
	pool := NewPool(2 * smallPool)
	names := []string{"192.0.2.1", "192.0.2.1", "2001:db8::/64", ""}
	var all sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for range 300 {
				b := NewBudget(pool, Limits{}).By(names[r.IntN(len(names))])
				for range r.IntN(20) {
					if n := r.Int64N(8 * poolChunk); r.IntN(3) > 0 {
						_ = b.Hold(n)
					} else {
						b.Drop(n)
					}
					if b.address != nil && (b.address.taken.Load() > most(pool.Limit(), false) || b.address.taken.Load() < 0) {
						t.Errorf("an address has %d bytes", b.address.taken.Load())
					}
				}
				b.Close()
			}
		})
	}
	all.Wait()
	if len(pool.addresses.of) > 0 || pool.InUse() != 0 {
		t.Errorf("in the end %d addresses are known, and %d bytes in use", len(pool.addresses.of), pool.InUse())
	}
}
