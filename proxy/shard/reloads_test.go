package shard

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// slowTargets is a server that takes four seconds to tell its targets; while is is true it refuses
// to.
func slowTargets(p *patient, is *atomic.Bool) fakeshard.Config {
	cfg := p.config()
	answer := cfg.Answer
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up" {
			time.Sleep(4 * time.Second)
			if is.Load() {
				return fakeshard.Answer{Status: http.StatusServiceUnavailable, Body: []byte("busy")}, true
			}
		}
		return answer(r)
	}
	return cfg
}

// fit tells whether nothing is wrong with a group but that its shards change all the time.
func fit(g *Group) bool { return len(g.Sick()) == 0 && !g.Awaits() }

// TestSickOverReloads: shards are put into force faster than the targets of all can be read, for
// long. What was found wrong between two servers that stay stands until it is seen to be mended, or
// until one of them has not told its targets for a while, however often it was asked.
func TestSickOverReloads(t *testing.T) {
	const servers = 18 // the last one comes and goes
	for _, tc := range []struct {
		name     string
		last     int // where the targets of the last one that stays begin
		replicas bool
		kind     string
	}{
		{"copy", 10 * (servers - 3), false, SickCopy},
		{"overlap", 10*(servers-3) + 9, false, SickOverlap},
		{"split", 500, true, SickSplit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mute, never atomic.Bool
				var cfgs []fakeshard.Config
				var ps []*patient
				for i := range servers {
					p, is := &patient{series: ups(10*i, 10*i+10, "x")}, &never
					switch i {
					case servers - 2:
						p.series, is = ups(tc.last, tc.last+10, "x"), &mute
					case servers - 1:
						p.series = ups(1000, 1010, "x")
					}
					ps, cfgs = append(ps, p), append(cfgs, slowTargets(p, is))
				}
				bub := newBubble(t, cfgs...)
				defer bub.close()
				o := Options{Dial: bub.dial}
				of := func(i int) config.Group {
					g := sharded(bub.urls[:servers-1]...)
					if tc.replicas {
						g = sharded(bub.urls[:servers-3]...)
						g.Shards = append(g.Shards, group(bub.urls[servers-3:servers-1]...).Shards...)
					}
					if i%2 == 1 {
						g.Shards = append(g.Shards, group(bub.urls[servers-1]).Shards...)
					}
					return g
				}
				top := build(t, o, true, of(0))
				defer func() { top.Close() }()
				reloads := 0
				// reload has other shards put into force each 12 s, and tells after how long the
				// group's servers fitted together.
				reload := func(within time.Duration) time.Duration {
					for began := time.Now(); time.Since(began) < within; {
						reloads++
						next, err := New([]config.Group{of(reloads)}, o, top)
						if err != nil {
							t.Fatal(err)
						}
						next.Start(t.Context())
						wait, cancel := context.WithTimeout(t.Context(), 2*time.Second)
						_ = next.WaitFirstProbe(wait)
						cancel()
						top.Close()
						top = next
						for range 10 {
							if time.Sleep(time.Second); fit(top.Groups[0]) {
								return time.Since(began)
							}
						}
					}
					return within
				}
				seen := func() {
					t.Helper()
					if s := top.Groups[0].Sick(); len(s) != 1 || s[0].Kind != tc.kind {
						t.Fatalf("%v", s)
					}
				}
				time.Sleep(time.Minute)
				seen()
				if took := reload(15 * time.Minute); took < 15*time.Minute {
					t.Errorf("trusted after %s of reloads, though nothing was mended", took)
				}
				seen()
				ps[servers-2].set(func(p *patient) {
					p.series = ups(600, 610, "x")
					if tc.replicas {
						p.series = ups(10*(servers-3), 10*(servers-3)+10, "x")
					}
				})
				if took := reload(15 * time.Minute); took > 2*time.Minute {
					t.Errorf("mended, and not trusted for %s", took)
				}
				ps[servers-2].set(func(p *patient) { p.series = ups(tc.last, tc.last+10, "x") })
				time.Sleep(2 * time.Minute)
				seen()
				mute.Store(true)
				if took := reload(time.Hour); took < targetsKeep || took > targetsKeep+3*time.Minute {
					t.Errorf("one that does not tell its targets any more is held against the group for %s", took)
				}
			})
		})
	}
}

// TestReadWhileReloaded: a server tells its targets while another topology has been made, and the
// one that asked is not gone yet. It has told them to both.
func TestReadWhileReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var never atomic.Bool
		bub := newBubble(t, slowTargets(&patient{series: ups(0, 10, "x")}, &never), slowTargets(&patient{series: ups(10, 20, "x")}, &never))
		defer bub.close()
		o := Options{Dial: bub.dial}
		top := build(t, o, false, sharded(bub.urls...))
		top.Start(t.Context()) // and begins to ask
		time.Sleep(2 * time.Second)
		next, err := New([]config.Group{sharded(bub.urls...)}, o, top)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		for r := range next.replicas() {
			if r.knownTargets() != nil {
				t.Errorf("%s has told its targets before it could", r.Name())
			}
		}
		time.Sleep(3 * time.Second)
		top.Close()
		for r := range next.replicas() {
			if n := len(r.knownTargets()); n != 10 {
				t.Errorf("%s has told its 10 targets while the topology was made: %d are known", r.Name(), n)
			}
		}
	})
}
