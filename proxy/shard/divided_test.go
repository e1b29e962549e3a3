package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// TestDividedAnew: when a group's shards become more or fewer, nothing is trusted to them for five
// minutes, and as long as two are seen to scrape the same. A reload that leaves their number says
// nothing, nor does a shard for another time, nor the first configuration.
func TestDividedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}, &patient{series: ups(20, 30, "c")}
		bub := newBubble(t, a.config(), b.config(), c.config())
		defer bub.close()
		o := Options{Dial: bub.dial, FactsEvery: 10 * time.Second}
		top := build(t, o, true, sharded(bub.urls[:2]...))
		defer func() { top.Close() }()
		reload := func(g config.Group) {
			t.Helper()
			next, err := New([]config.Group{g}, o, top)
			if err != nil {
				t.Fatal(err)
			}
			next.Start(context.Background())
			if err := next.WaitFirstProbe(context.Background()); err != nil {
				t.Fatal(err)
			}
			top.Close()
			top = next
			time.Sleep(time.Second)
		}
		trusts := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if g := top.Groups[0]; g.Trusted() != want {
				t.Errorf("%s: trusted %t, sick %v, divides %t", what, !want, g.Sick(), g.Divides())
			}
		}
		trusts("at the start", true)
		reload(sharded(bub.urls[:2]...))
		trusts("the same shards", true)
		past := sharded(bub.urls...)
		past.Shards[2].Until = config.Moment{Set: true, Abs: time.Now().Add(-time.Hour)}
		reload(past)
		trusts("a shard for the past", true)

		reload(sharded(bub.urls...))
		trusts("another shard", false)
		time.Sleep(dividesFor - 10*time.Second)
		trusts("its targets may move yet", false)
		reload(sharded(bub.urls...))
		trusts("a reload meanwhile", false)
		time.Sleep(20 * time.Second)
		trusts("after five minutes", true)

		reload(sharded(bub.urls[:2]...))
		trusts("a shard less", false)
		a.set(func(p *patient) { p.series = ups(0, 11, "a") }) // one that b has too
		time.Sleep(dividesFor)
		trusts("two scrape the same", false)
		a.set(func(p *patient) { p.series = ups(0, 10, "a") })
		time.Sleep(time.Minute)
		if s := top.Groups[0].Sick(); len(s) > 0 {
			t.Errorf("it is over: %v", s)
		}
		trusts("they did a minute ago", false)
		time.Sleep(dividesFor)
		trusts("in the end", true)

		reload(sharded(bub.urls[:1]...))
		trusts("one shard has all of them", true)
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
		if !divided(time.Hour, 0) || !divided(time.Hour, 4*time.Minute) || divided(time.Hour, 6*time.Minute) {
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

// TestMendedAtOnce: an overlap for which no change of the shards is the reason is over when it is.
func TestMendedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 11, "a")}, &patient{series: ups(10, 20, "a")}
		bub := newBubble(t, a.config(), b.config())
		defer bub.close()
		top := build(t, Options{Dial: bub.dial, FactsEvery: 10 * time.Second}, true, sharded(bub.urls...))
		defer top.Close()
		if top.Groups[0].Trusted() {
			t.Fatal("not seen")
		}
		a.set(func(p *patient) { p.series = ups(0, 10, "a") })
		time.Sleep(30 * time.Second)
		if g := top.Groups[0]; !g.Trusted() {
			t.Errorf("sick %v, divides %t", g.Sick(), g.Divides())
		}
	})
}
