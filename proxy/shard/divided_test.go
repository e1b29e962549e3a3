package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// dividingRig is a group whose shards come and go.
type dividingRig struct {
	t    *testing.T
	o    Options
	bub  *bubble
	top  *Topology
	ps   []*patient
	urls []string
}

func newDividingRig(t *testing.T, lookedUp bool) *dividingRig {
	r := &dividingRig{t: t}
	var cfgs []fakeshard.Config
	for i := range 3 {
		p := &patient{series: ups(10*i, 10*i+10, "x")}
		r.ps, cfgs = append(r.ps, p), append(cfgs, p.config())
	}
	r.bub = newBubble(t, cfgs...)
	r.urls, r.o = r.bub.urls, Options{Dial: r.bub.dial, FactsEvery: 10 * time.Second}
	r.top = build(t, r.o, true, r.group(lookedUp, 2))
	return r
}

func (r *dividingRig) group(lookedUp bool, n int) config.Group {
	g := sharded(r.urls[:n]...)
	if lookedUp {
		g.ShardsFrom.Files = []string{"shards.yml"}
	}
	return g
}

func (r *dividingRig) reload(g config.Group) {
	r.t.Helper()
	next, err := New([]config.Group{g}, r.o, r.top)
	if err != nil {
		r.t.Fatal(err)
	}
	next.Start(context.Background())
	if err := next.WaitFirstProbe(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	r.top.Close()
	r.top = next
	time.Sleep(time.Second)
}

func (r *dividingRig) divides(what string, want bool) {
	r.t.Helper()
	synctest.Wait()
	if g := r.top.Groups[0]; g.Divides(time.Now().UnixMilli()) != want {
		r.t.Errorf("%s: divides %t, sick %v", what, !want, g.Sick())
	}
}

func (r *dividingRig) close() { r.top.Close(); r.bub.close() }

// TestDividedAnew: when a group's shards become more, its targets may move for two minutes, and for
// five after two shards were seen to scrape the same. A reload that leaves their number says
// nothing, nor does a shard for another time, nor the first configuration.
func TestDividedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDividingRig(t, false)
		defer r.close()
		r.divides("at the start", false)
		r.reload(r.group(false, 2))
		r.divides("the same shards", false)
		past := r.group(false, 3)
		past.Shards[2].Until = config.Moment{Set: true, Abs: time.Now().Add(-time.Hour)}
		r.reload(past)
		r.divides("a shard for the past", false)

		r.reload(r.group(false, 3))
		r.divides("another shard", true)
		if r.top.Groups[0].Divides(time.Now().Add(-time.Minute).UnixMilli()) || !r.top.Groups[0].Trusted() {
			t.Error("what ended before is in doubt, or all that is asked")
		}
		r.reload(r.group(false, 3))
		r.divides("a reload meanwhile", true)
		time.Sleep(dividesFor)
		r.divides("nobody scrapes what another one does", false)

		r.reload(r.group(false, 2))
		r.divides("a shard less", true)
		r.ps[0].set(func(p *patient) { p.series = ups(0, 11, "x") }) // one that the second has too
		time.Sleep(dividesFor)
		r.divides("two scrape the same", true)
		r.ps[0].set(func(p *patient) { p.series = ups(0, 10, "x") })
		time.Sleep(time.Minute)
		if s := r.top.Groups[0].Sick(); len(s) > 0 {
			t.Errorf("it is over: %v", s)
		}
		r.divides("they did a minute ago", true)
		time.Sleep(movesFor)
		r.divides("in the end", false)

		r.reload(r.group(false, 1))
		r.divides("one shard has all of them", false)
	})
}

// TestDividesNoLonger: an overlap that was there before, or that stays, keeps nothing in doubt for
// ever; who is no longer found was kept for so long that nothing moves any more.
func TestDividesNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDividingRig(t, true)
		defer r.close()
		r.ps[1].set(func(p *patient) { p.series = ups(9, 20, "x") })
		time.Sleep(time.Minute)
		r.reload(r.group(true, 3))
		r.divides("another shard", true)
		time.Sleep(dividesFor)
		r.divides("two did scrape the same before", false)
		r.reload(r.group(true, 2))
		r.divides("a server that was kept, and let go", false)

		r.ps[1].set(func(p *patient) { p.series = ups(10, 20, "x") })
		time.Sleep(time.Minute)
		r.reload(r.group(true, 3))
		r.ps[2].set(func(p *patient) { p.series = ups(19, 30, "x") })
		time.Sleep(movesMost - time.Minute)
		r.divides("a new overlap that stays", true)
		time.Sleep(time.Minute)
		r.divides("that is another trouble", false)
		if len(r.top.Groups[0].Sick()) == 0 {
			t.Error("it is forgotten")
		}
	})
}

// TestReplicasLearnOneByOne: while a group's targets are divided anew no replica of its shards is
// whole, since one has its configuration before the other. Of what was long before they are.
func TestReplicasLearnOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cfgs []fakeshard.Config
		for i := range 3 {
			for range 2 {
				cfgs = append(cfgs, (&patient{series: ups(10*i, 10*i+10, "x")}).config())
			}
		}
		bub := newBubble(t, cfgs...)
		defer bub.close()
		pairs := func(n int) config.Group {
			g := group(bub.urls[:2]...)
			for i := 1; i < n; i++ {
				g.Shards = append(g.Shards, group(bub.urls[2*i:2*i+2]...).Shards...)
			}
			return g
		}
		o := Options{Dial: bub.dial, FactsEvery: 10 * time.Second}
		old := build(t, o, true, pairs(2))
		defer old.Close()
		top, err := New([]config.Group{pairs(3)}, o, old)
		if err != nil {
			t.Fatal(err)
		}
		top.Start(context.Background())
		defer top.Close()
		s := top.Groups[0].Shards[0]
		divided := func(from, until time.Duration) bool {
			now := time.Now()
			return s.divided(now.Add(-from).UnixMilli(), now.Add(-until).UnixMilli())
		}
		time.Sleep(time.Minute)
		if !divided(time.Hour, 0) || !divided(time.Hour, 50*time.Second) || divided(time.Hour, 2*time.Minute) {
			t.Error("what reaches into it is not known, and what does not is")
		}
		if old.Groups[0].Shards[0].divided(0, time.Now().UnixMilli()) {
			t.Error("a topology of before does not know of it")
		}
		time.Sleep(dividesFor)
		if divided(time.Hour, 0) {
			t.Error("after five minutes they have learned of it")
		}
	})
}
