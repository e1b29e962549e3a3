package admit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFirst: while a lane that is first has a place others get none, until a quarter of a second
// has gone by, but for what is kept for them; it itself and others like it go on.
func TestFirst(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		oncall []time.Duration // how long its calls last that begin at 0 s, 100 ms and so on
		want   time.Duration   // until somebody else is let in
	}{
		"nobody":            {nil, 0},
		"a short call":      {[]time.Duration{50 * time.Millisecond}, 50 * time.Millisecond},
		"a long call":       {[]time.Duration{10 * time.Second}, 250 * time.Millisecond},
		"one after another": {[]time.Duration{110 * ms, 110 * ms, 40 * ms}, 240 * ms},
		"two long calls":    {[]time.Duration{10 * time.Second, 10 * time.Second}, 350 * time.Millisecond},
		"the older leaves":  {[]time.Duration{120 * time.Millisecond, 70 * time.Millisecond}, 170 * time.Millisecond},
		"the younger does":  {[]time.Duration{10 * time.Second, 20 * time.Millisecond}, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(8, 8, []Lane{
					{Name: "oncall", Share: 0.5, Keep: 1, First: true},
					{Name: "rules", Share: 0.25, Keep: 1},
					{Name: "default", Share: 0.25},
				})
				var wg sync.WaitGroup
				for i, hold := range c.oncall {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
						p := take(t, g, Asker{Lane: "oncall"}, 1)
						time.Sleep(hold)
						g.Leave(p, 1)
					})
				}
				synctest.Wait()
				rules := take(t, g, Asker{Lane: "rules"}, 2)
				if _, ok := g.Try(Asker{Lane: "rules"}, 1); ok && c.oncall != nil {
					t.Error("rules have more than what is kept for them")
				}
				if _, ok := g.Try(Asker{}, 2); ok && c.oncall != nil { // one is kept for this lane
					t.Error("a try passes")
				}
				one := take(t, g, Asker{}, 1)
				if c.oncall == nil {
					g.Leave(one, 1)
				}
				began := time.Now()
				p, err := g.Wait(t.Context(), Asker{}, 1)
				if err != nil || time.Since(began) != c.want {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				g.Leave(&p, 1)
				g.Leave(one, one.Places())
				wg.Wait()
				g.Leave(rules, 2)
				if len(g.first.took) > 0 {
					t.Errorf("%d calls are remembered", len(g.first.took))
				}
			})
		})
	}
}

// TestFirstCredit: a lane that is first uses up its credit while others wait, not while its own
// calls wait for one another: then it keeps the next of the others waiting as ever.
func TestFirstCredit(t *testing.T) {
	for _, c := range []struct {
		waits string // the lane of which somebody always waits
		want  bool   // that rules wait then
	}{{"oncall", true}, {"default", false}} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(8, 8, []Lane{
				{Name: "oncall", Share: 0.25, Most: 1, First: true},
				{Name: "rules", Share: 0.25, Keep: -1},
				{Name: "default", Share: 0.5, Most: 1},
			})
			ctx, cancel := context.WithTimeout(t.Context(), 1410*time.Millisecond) // on-call's credit is a second and a third
			defer cancel()
			other := take(t, g, Asker{}, 1)
			var wg sync.WaitGroup
			crowd := func(a Asker, n int) {
				for range n {
					wg.Go(func() {
						for ctx.Err() == nil {
							if p, err := g.Wait(ctx, a, 1); err == nil {
								time.Sleep(30 * time.Millisecond)
								g.Leave(&p, 1)
							}
						}
					})
				}
			}
			crowd(Asker{Lane: "oncall"}, 1)
			crowd(Asker{Lane: c.waits}, 1)
			time.Sleep(1400 * time.Millisecond)
			began := time.Now()
			p, err := g.Wait(t.Context(), Asker{Lane: "rules"}, 1)
			if d := time.Since(began); err != nil || d > 0 != c.want {
				t.Errorf("%s waits all the time: rules wait %s then: %v", c.waits, d, err)
			}
			wg.Wait()
			g.Leave(&p, 1)
			g.Leave(other, 1)
		})
	}
}

// TestFirstNoMore: a configuration in which no lane is first lets in who waits for that.
func TestFirstNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4, 4, []Lane{{Name: "oncall", Share: 0.5, First: true}, {Name: "default", Share: 0.1}})
		p := take(t, g, Asker{Lane: "oncall"}, 2)
		order := make(chan string, 1)
		leave := waits(t, g, Asker{}, 1, "default", order)
		if synctest.Wait(); len(order) > 0 {
			t.Error("it is not first")
		}
		g.SetLanes([]Lane{{Name: "oncall", Share: 0.5}, {Name: "default", Share: 0.1}})
		if synctest.Wait(); len(order) != 1 {
			t.Error("somebody waits for a lane that is first no more")
		}
		<-order
		leave()
		g.Leave(p, 2)
		if len(g.first.took) > 0 || g.Held() != 0 {
			t.Errorf("%d calls are remembered, %d places held", len(g.first.took), g.Held())
		}
	})
}

// TestFirstLeavesTime: a lane that is first and asks without end keeps others waiting for its share
// of the time, and no more: they hold what is theirs for the rest of it, those who want several
// places too, and nobody of them waits for longer than it takes the lane to have its credit again.
func TestFirstLeavesTime(t *testing.T) {
	for _, c := range []struct {
		name         string
		share        float64
		each, others time.Duration // how long calls last
		seats        int           // of others
	}{
		{"short calls", 0.5, 20 * time.Millisecond, 50 * time.Millisecond, 1},
		{"short calls beside long ones", 0.5, 20 * time.Millisecond, 3 * time.Second, 1},
		{"long calls", 0.5, 2 * time.Second, time.Second, 1},
		{"short calls beside wide ones", 0.5, 20 * time.Millisecond, 100 * time.Millisecond, 3},
		{"a small lane", 0.125, 20 * time.Millisecond, 50 * time.Millisecond, 1},
		{"all of the share", 1, 20 * time.Millisecond, 50 * time.Millisecond, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(8, 8, []Lane{{Name: "oncall", Share: c.share, Keep: 0.5, First: true}, {Name: "default", Share: 1 - c.share}})
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				var had, longest atomic.Int64
				crowd := func(a Asker, n int, each time.Duration, others bool) {
					for i := range 12 {
						wg.Go(func() {
							time.Sleep(time.Duration(i) * 7 * time.Millisecond)
							for ctx.Err() == nil {
								began := time.Now()
								p, err := g.Wait(ctx, a, n)
								if err != nil {
									return
								}
								if others {
									longest.Store(max(longest.Load(), int64(time.Since(began))))
									had.Add(int64(p.Places()) * int64(each))
								}
								time.Sleep(each)
								g.Leave(&p, p.Places())
							}
						})
					}
				}
				crowd(Asker{Lane: "oncall"}, 1, c.each, false)
				crowd(Asker{}, c.seats, c.others, true)
				wg.Wait()
				places, own := time.Duration(had.Load()).Seconds()/(30*time.Minute).Seconds(), (1-c.share)*8*(1-c.share)
				t.Logf("others had %.2f places, %.2f are theirs, and waited for %s at most", places, own, time.Duration(longest.Load()))
				if places < own || places == 0 {
					t.Errorf("others have held %.2f places, and %.2f are their own for the time that is left", places, own)
				}
				if most := 60 * time.Second; longest.Load() > int64(most) {
					t.Errorf("somebody waited for %s", time.Duration(longest.Load()))
				}
			})
		})
	}
}
