package shard

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// lateTargets is a server that takes so many nanoseconds to tell its targets.
func lateTargets(p *patient, takes *atomic.Int64) fakeshard.Config {
	cfg := p.config()
	answer := cfg.Answer
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up" {
			time.Sleep(time.Duration(takes.Load()))
		}
		return answer(r)
	}
	return cfg
}

// reloadsEachSix puts other shards into force each six seconds, the last server being there each
// second time, until the group is trusted or not as is said. It tells how long that took, within an
// hour at most, and the last topology.
func reloadsEachSix(t *testing.T, top *Topology, o Options, urls []string, trusted bool) (time.Duration, *Topology) {
	t.Helper()
	began := time.Now()
	for i := 1; time.Since(began) < time.Hour; i++ {
		g := sharded(urls[:len(urls)-1]...)
		if i%2 == 1 {
			g = sharded(urls...)
		}
		next, err := New([]config.Group{g}, o, top)
		if err != nil {
			t.Fatal(err)
		}
		next.Start(t.Context())
		wait, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_ = next.WaitFirstProbe(wait)
		cancel()
		top.Close()
		top = next
		if time.Sleep(6 * time.Second); fit(top.Groups[0]) == trusted {
			break
		}
	}
	return time.Since(began), top
}

// TestSlowTargetsOverReloads: four servers take longer to tell their targets than shards stay in
// force, so that each question to them is cut off. What begins or is mended between two others is
// seen all the same, and what was wrong with one of the four stands for a while and not for ever.
func TestSlowTargetsOverReloads(t *testing.T) {
	const servers, slow = 14, 4 // the last one comes and goes
	for _, tc := range []struct {
		name            string
		of              int // the server whose targets are, or were, those of the next one too
		begins, changes bool
		least, most     time.Duration
	}{
		{"an overlap of quick ones is mended", servers - 3, false, true, 0, time.Minute},
		{"an overlap of quick ones begins", servers - 3, true, true, 0, time.Minute},
		{"one of slow ones stays for a while", 0, false, false, targetsUnread - 2*time.Minute, targetsUnread + 2*time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var takes, little atomic.Int64
				takes.Store(int64(100 * time.Millisecond))
				little.Store(int64(100 * time.Millisecond))
				var cfgs []fakeshard.Config
				var ps []*patient
				for i := range servers {
					p, of := &patient{series: ups(10*i, 10*i+10, "x")}, &little
					if !tc.begins && i == tc.of+1 {
						p.series = ups(10*i-1, 10*i+9, "x")
					}
					if i < slow {
						of = &takes
					}
					ps, cfgs = append(ps, p), append(cfgs, lateTargets(p, of))
				}
				bub := newBubble(t, cfgs...)
				defer bub.close()
				o := Options{Dial: bub.dial}
				top := build(t, o, true, sharded(bub.urls[:servers-1]...))
				defer func() { top.Close() }()
				time.Sleep(time.Minute)
				if top.Groups[0].Trusted() != tc.begins {
					t.Fatalf("at first: %v", top.Groups[0].Sick())
				}
				takes.Store(int64(9 * time.Second))
				if tc.changes {
					from := 10*tc.of + 10
					if tc.begins {
						from--
					}
					ps[tc.of+1].set(func(p *patient) { p.series = ups(from, from+10, "x") })
				}
				took, last := reloadsEachSix(t, top, o, bub.urls, !tc.begins)
				if top = last; took < tc.least || took > tc.most {
					t.Errorf("after %s: %v", took, top.Groups[0].Sick())
				}
			})
		})
	}
}
