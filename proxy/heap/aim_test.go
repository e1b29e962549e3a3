package heap

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestAim: the limit follows what requests claim and what is found alive twice, never what one
// collection found, and comes down again; shares are those of its most.
func TestAim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.now = Reading{Live: 20 * mib, Other: 10 * mib, Limit: 1 << 62}
		var limits []int64
		r.o.set = func(limit int64) { limits = append(limits, limit/mib) }
		claimed := int64(0)
		r.SetAim(&Aim{
			Most: 500 * mib, Claimed: func() int64 { return claimed },
			Room: func(claimed int64) int64 { return 100*mib + 2*claimed },
		})
		says := func(what string, want ...int64) {
			t.Helper()
			r.locked(func() {
				if !slices.Equal(limits, want) {
					t.Errorf("%s: the limit was set to %v MiB, want %v", what, limits, want)
				}
				limits = nil
			})
		}
		says("at the start", 100)
		q := r.Join(weighs(mib), func(error) { t.Error("ended") })
		r.goOn(3)
		says("nothing changes")
		r.locked(func() { claimed = 50 * mib })
		r.goOn(3)
		says("claimed", 200)
		r.locked(func() { claimed = 1000 * mib })
		r.goOn(3)
		says("claimed more than there is room for", 500)
		r.locked(func() { claimed = 0 })
		r.goOn(3)
		says("given back", 100)
		for range 3 { // garbage that one collection took for alive
			r.live(300 * mib)
			r.goOn(1)
			r.live(20 * mib)
			r.goOn(1)
		}
		says("alive once")
		r.live(190 * mib)
		r.goOn(3)
		says("alive and not claimed", 225)
		if _, ceiling := r.Now(); ceiling != 500*mib || r.Limit() != 500*mib {
			t.Errorf("held against %d MiB, the limit is %d", ceiling/mib, r.Limit()/mib)
		}
		if len(r.pressed) != 0 {
			t.Errorf("pressed at 200 of 500 MiB: %v", r.pressed)
		}
		r.live(20 * mib)
		r.goOn(1)
		q.Leave()
		r.goOn(1)
		says("when all have left", 100)
		r.SetAim(&Aim{Most: 50 * mib, Claimed: func() int64 { return 0 }, Room: func(int64) int64 { return 100 * mib }})
		says("a smaller most", 50)
		r.SetAim(nil)
		says("left alone")
		if r.Limit() != 1<<62 {
			t.Errorf("without an aim the limit is %d", r.Limit())
		}
	})
}
