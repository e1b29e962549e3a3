package plan

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestDivide: between two cuts one replica is whole for every step or none is for any, as looked at
// step by step; and no run is cut where the replica that reaches furthest need not change.
func TestDivide(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	for range 3000 {
		g := merge.Grid{Start: 1_000_000 + rng.Int64N(1000), Step: 1 + rng.Int64N(700)}
		g.End = g.Start + g.Step*rng.Int64N(60) + rng.Int64N(g.Step)
		back := Window{From: rng.Int64N(3000), Until: rng.Int64N(200) - 100}
		back.From += back.Until
		lacks := make([]shard.Lack, 1+rng.IntN(3))
		for i := range lacks {
			at := g.Start - 4000
			for range rng.IntN(4) {
				at += rng.Int64N(9000)
				s := trust.Span{From: at}
				at += 1 + rng.Int64N(4000)
				s.Until = at
				if rng.IntN(8) == 0 {
					s.Until = 1<<63 - 1
				}
				lacks[i].Spans = append(lacks[i].Spans, s)
				if s.Until == 1<<63-1 {
					break
				}
			}
		}
		whole := func(r, step int) bool {
			for _, s := range lacks[r].Spans {
				if at := g.Time(step); at-back.Until > s.From && at-back.From <= s.Until {
					return false
				}
			}
			return true
		}
		cuts, bad := map[int]bool{0: true}, make([]bool, g.Len())
		divide(g, back, lacks, cuts, bad)
		holding := func() map[int]bool {
			all := map[int]bool{}
			for r := range lacks {
				all[r] = true
			}
			return all
		}
		left, none := map[int]bool{}, false
		for i := range g.Len() {
			if cuts[i] {
				if i > 0 && !bad[i] && !none { // somebody had to change
					for r := range left {
						if whole(r, i) {
							t.Fatalf("a cut at %d, where replica %d goes on", i, r)
						}
					}
				}
				left, none = holding(), bad[i]
			}
			if bad[i] != none {
				t.Fatalf("step %d: nobody is whole in a part of a stretch", i)
			}
			some := false
			for r := range lacks {
				if !whole(r, i) {
					delete(left, r)
				} else {
					some = true
				}
			}
			if some == bad[i] || !bad[i] && len(left) == 0 {
				t.Fatalf("step %d: some replica is whole: %t, marked as one that none is for: %t, %d hold the stretch", i, some, bad[i], len(left))
			}
		}
	}
}

func TestTied(t *testing.T) {
	for text, want := range map[string]bool{
		`sum(rate(m[5m]))`: false, `m offset 5m`: false, `m offset -5m`: false, `max_over_time(rate(m[1m])[10m:])`: false,
		`m > 1 or n`: false, `{__name__="m"}`: false,
		`m @ 5`: true, `m @ start()`: true, `rate(m[5m] @ end())`: true, `max_over_time(m[10m:1m] @ start())`: true, `start()+m`: true,
		`range()*m`: true, `label_replace(m, "a", "b", "", "")`: true,
		`max_over_time((m or n)[10m:])`: true, `max_over_time((m or m offset 5m)[10m:])`: false,
		`max_over_time((m or vector(0))[10m:])`: true, `max_over_time((rate(m[5m]) or n)[10m:])`: true,
		`max_over_time((rate(m[5m]) or rate(n[5m]))[10m:])`:            false,
		`max_over_time((sum(m) / sum(n) or vector(0))[1h:1m])`:         false,
		`avg_over_time((sum by (job) (m) or sum by (job) (n))[1d:5m])`: false, `count_over_time((absent(m) or absent(n))[1h:1m])`: false,
		`sum_over_time(((m > bool 1) or (n > bool 1))[1h:1m])`: false, `sum_over_time((m > 1 or n > 1)[1h:1m])`: true,
		`sum_over_time((2 < m or topk(3, n))[1h:1m])`: true, `sum_over_time((m and n or m)[1h:1m])`: false,
		`sum_over_time((last_over_time(m[5m]) or sort(n))[1h:1m])`: true, `sum_over_time((-m or -n)[1h:1m])`: false,
		`sum_over_time((sum by (__name__) (m) or sum without (job) (n))[1h:1m])`: true,
		`max_over_time((m / n)[10m:])`:                                           false,
		`max_over_time(sum(m)[10m:]) or n`:                                       false, `-(m or n)`: false,
		`{job="x"}`: true, `{__name__=~"m|n"}`: true, `info(m)`: true, `m[step()]`: true, `sum({__name__!=""})`: true,
	} {
		e, err := tree.Parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tied(e); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// TestDividedIsStretched: of a range that reaches into the time since a group got another shard the
// steps that read that time are apart, and they alone are raw.
func TestDividedIsStretched(t *testing.T) {
	g := threePairs(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var top *shard.Topology
	began := time.Now()
	for n := 2; n <= 3; n++ {
		of := g
		of.Shards = g.Shards[:n]
		next, err := shard.New([]config.Group{of}, shard.Options{}, top)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		if top = next; n == 3 {
			began = time.Now()
		}
		awaitTrust(ctx, t, top)
	}
	for text, last := range map[string]time.Duration{ // before the shard came, at which a step is whole
		"sum(up)": 0, "sum(up offset 10m)": -10 * time.Minute, "sum(rate(up[5m]))": 0,
	} {
		now := time.Now().Add(-last + time.Minute)
		v, q := NewView(top, time.Now()), rangeOf(t, text, now)
		p, err := v.Query(ctx, q)
		if err != nil || p.Cause != CauseSick {
			t.Fatalf("%s: all of it is %s, %v", text, p.Cause, err)
		}
		pieces := v.Stretches(ctx, q)
		if len(pieces) != 2 {
			t.Fatalf("%s: %d pieces", text, len(pieces))
		}
		if got := pieces[0].Grid.Len() + pieces[1].Grid.Len(); got != q.Grid.Len() {
			t.Errorf("%s: %d steps of %d", text, got, q.Grid.Len())
		}
		after := time.UnixMilli(pieces[1].Grid.Start).Add(last).Sub(began)
		if after < -5*time.Second || after > 45*time.Second {
			t.Errorf("%s: the second one begins %s after the shard came", text, after)
		}
		for i, want := range []Mode{ModePush, ModeRaw} {
			if p, err := v.Query(ctx, pieces[i]); err != nil || p.Mode != want {
				t.Errorf("%s: piece %d is %s (%s), %v; want %s", text, i, p.Mode, p.Cause, err, want)
			}
		}
	}
}
