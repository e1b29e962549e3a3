package shard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// away is a server that can be away for a while: it is not ready, as one that replays its log.
func away(cfg fakeshard.Config, is *atomic.Bool) fakeshard.Config {
	answer := cfg.Answer
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if is.Load() {
			return fakeshard.Answer{Status: http.StatusServiceUnavailable, Body: []byte("starting")}, true
		}
		return answer(r)
	}
	return cfg
}

// sharded is a group of servers, each a shard.
func sharded(urls ...string) config.Group {
	g := group(urls[0])
	for _, u := range urls[1:] {
		g.Shards = append(g.Shards, group(u).Shards...)
	}
	return g
}

// TestBackIsCompared: a server that was away for longer than its targets count is a copy of another
// shard still, or has become one. From the moment it is up again nothing of the groups that it
// could share series with is trusted, until it was compared; of other groups all is.
func TestBackIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}, &patient{series: ups(0, 10, "c")}
		var is, busy atomic.Bool
		slow := away(b.config(), &is)
		answer := slow.Answer
		slow.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if busy.Load() && strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up" {
				time.Sleep(3 * time.Second)
			}
			return answer(r)
		}
		bub := newBubble(t, a.config(), slow, c.config())
		defer bub.close()
		g := sharded(bub.urls[:2]...)
		g.Labels = map[string]string{"cluster": "one"}
		other := group(bub.urls[2])
		other.Name, other.Labels = "other", map[string]string{"cluster": "two"}
		top := build(t, Options{Dial: bub.dial}, true, g, other)
		defer top.Close()
		if !top.Groups[0].Trusted() || !top.Groups[1].Trusted() {
			t.Fatalf("%v, %v", top.Groups[0].Sick(), top.Groups[1].Sick())
		}
		is.Store(true)
		time.Sleep(10 * time.Minute)
		if r := top.Groups[0].Shards[1].Replicas[0]; r.State() != Down || !top.Groups[0].Trusted() {
			t.Fatalf("%s, %v", r.State(), top.Groups[0].Sick())
		}
		b.set(func(p *patient) { p.series = ups(0, 10, "b") }) // another volume, another shard's targets
		is.Store(false)
		busy.Store(true)
		var seen []string
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if !top.Groups[1].Trusted() {
				t.Fatal("a group that cannot have its series is not trusted")
			}
			state := "sick"
			switch g := top.Groups[0]; {
			case top.Groups[0].Shards[1].Replicas[0].State() != Up:
				state = "away"
			case g.Trusted():
				state = "trusted"
			case len(g.Sick()) == 0:
				state = "awaited"
			}
			if len(seen) == 0 || seen[len(seen)-1] != state {
				seen = append(seen, state)
			}
		}
		if got, want := strings.Join(seen, " "), "away awaited sick"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestGoneEngine: what a server said of its engine that is down for long does not make the group
// sick once the others are upgraded, nor does it decide what is usual; back with its old flags it
// differs from the moment it is up.
func TestGoneEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}
		var is atomic.Bool
		bub := newBubble(t, away(a.config(), &is), b.config()) // the one that is listed first is what is usual of two
		defer bub.close()
		top := build(t, Options{Dial: bub.dial}, true, sharded(bub.urls...))
		defer top.Close()
		is.Store(true)
		time.Sleep(time.Minute)
		b.set(func(p *patient) { p.flags = map[string]string{"enable-feature": "promql-delayed-name-removal"} })
		time.Sleep(time.Minute)
		if s := top.Groups[0].Sick(); len(s) != 1 || s[0].Kind != SickEngine {
			t.Errorf("away for two minutes: %v", s)
		}
		time.Sleep(time.Hour)
		if s := top.Groups[0].Sick(); len(s) > 0 {
			t.Errorf("away for an hour: %v", s)
		}
		is.Store(false)
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if top.Groups[0].Shards[0].Replicas[0].State() == Up && top.Groups[0].Trusted() {
				t.Fatal("trusted though the engine of a server that is up differs")
			}
		}
		if s := top.Groups[0].Sick(); len(s) != 1 || s[0].Kind != SickEngine {
			t.Errorf("back: %v", s)
		}
	})
}

// TestOwnLabelsAge: a server that tells no more what it stores under the names of its group's
// labels is not known to store none for ever.
func TestOwnLabelsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bub := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/api/v1/label/cluster/values", Nth: 1, Script: `header Content-Type application/json; send '{"status":"success","data":[]}'`},
			{Path: "/api/v1/label/cluster/values", Nth: 2, To: 10_000, Script: "status 403; send no"},
		}})
		defer bub.close()
		g := group(bub.urls[0])
		g.Labels = map[string]string{"cluster": "jaguar"}
		top := build(t, Options{Dial: bub.dial}, true, g)
		defer top.Close()
		r := top.Groups[0].Shards[0].Replicas[0]
		if !r.Clean() || !r.LabelsAgree() {
			t.Fatal("not known to begin with")
		}
		time.Sleep(time.Minute)
		if !r.Clean() || !r.LabelsAgree() {
			t.Error("forgotten at once")
		}
		time.Sleep(3 * time.Minute)
		if r.Clean() || r.LabelsAgree() {
			t.Error("believed for ever")
		}
	})
}

// TestOwnLabelsOfNoData: an answer without a list of values does not tell that there are none.
func TestOwnLabelsOfNoData(t *testing.T) {
	for body, want := range map[string]bool{
		`{"status":"success","data":[]}`: true, `{"status":"success","data":null}`: false, `{"status":"success"}`: false,
	} {
		script := `header Content-Type application/json; send '` + body + `'`
		a := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/label/cluster/values", Script: script}}})
		g := group(a.URL())
		g.Labels = map[string]string{"cluster": "jaguar"}
		top := build(t, Options{}, true, g)
		awaitExamined(t, top.Groups[0])
		if r := top.Groups[0].Shards[0].Replicas[0]; r.Clean() != want || r.LabelsAgree() != want {
			t.Errorf("%s: clean %t, agrees %t", body, r.Clean(), r.LabelsAgree())
		}
	}
}

// TestReloadsWhileReading: servers are replaced faster than the targets of all can be read. Those
// that are new are compared with what is known of the others, so that the group is trusted most of
// the time.
func TestReloadsWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers = 16
		var cfgs []fakeshard.Config
		for i := range servers {
			cfg := (&patient{series: ups(10*i, 10*i+10, "x")}).config()
			answer := cfg.Answer
			cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
				if strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up" {
					time.Sleep(4 * time.Second)
				}
				return answer(r)
			}
			cfgs = append(cfgs, cfg)
		}
		bub := newBubble(t, cfgs...)
		defer bub.close()
		o := Options{Dial: bub.dial}
		of := func(last int) config.Group {
			return sharded(append(bub.urls[:servers-2:servers-2], bub.urls[last])...)
		}
		top := build(t, o, true, of(servers-1))
		defer func() { top.Close() }()
		trusted, looked := 0, 0
		for i := range 20 {
			next, err := New([]config.Group{of(servers - 1 - i%2)}, o, top)
			if err != nil {
				t.Fatal(err)
			}
			next.Start(t.Context())
			wait, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_ = next.WaitFirstProbe(wait)
			cancel()
			top.Close()
			top = next
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				if looked++; top.Groups[0].Trusted() {
					trusted++
				}
			}
		}
		if trusted < looked/2 {
			t.Errorf("trusted %d times of %d", trusted, looked)
		}
	})
}

// TestDownAndAsked: a server whose readiness page is forbidden answers queries all the same, and is
// held against the others as before. Of one that was taken away an ingress answers 404 to
// everything: it is gone, whatever it once said of its engine.
func TestDownAndAsked(t *testing.T) {
	for _, tc := range []struct {
		name    string
		status  int
		page    string // what has the status; empty for everything
		trusted bool
	}{
		{"its readiness page is forbidden", http.StatusForbidden, "/-/ready", false},
		{"an ingress without it", http.StatusNotFound, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}
				b.flags = map[string]string{"query.lookback-delta": "1m"}
				var is atomic.Bool
				cfg := b.config()
				answer := cfg.Answer
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					if is.Load() && strings.HasSuffix(r.Path, tc.page) {
						return fakeshard.Answer{Status: tc.status, Body: []byte("no")}, true
					}
					return answer(r)
				}
				bub := newBubble(t, a.config(), cfg)
				defer bub.close()
				top := build(t, Options{Dial: bub.dial}, true, sharded(bub.urls...))
				defer top.Close()
				if top.Groups[0].Trusted() {
					t.Fatal("not seen to begin with")
				}
				is.Store(true)
				time.Sleep(20 * time.Minute)
				if r := top.Groups[0].Shards[1].Replicas[0]; r.State() != Down || top.Groups[0].Trusted() != tc.trusted {
					t.Errorf("%s, %v", r.State(), top.Groups[0].Sick())
				}
			})
		})
	}
}

// twice is a configuration of servers, each a shard, and the same before it, which lives on.
func twice(t *testing.T, servers ...fakeshard.Config) (top *Topology, end func()) {
	t.Helper()
	bub := newBubble(t, servers...)
	o := Options{Dial: bub.dial}
	old := build(t, o, true, sharded(bub.urls...))
	top, err := New([]config.Group{sharded(bub.urls...)}, o, old)
	if err != nil {
		t.Fatal(err)
	}
	top.Start(t.Context())
	return top, func() {
		top.Close()
		old.Close()
		bub.close()
	}
}

// TestBackInTwoTopologies: while an old configuration lives on, both probe a server; whichever sees
// first that it is back, the one in force compares it before it trusts it. One that goes down again
// is not awaited.
func TestBackInTwoTopologies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}
		var is atomic.Bool
		top, end := twice(t, a.config(), away(b.config(), &is))
		defer end()
		r := top.Groups[0].Shards[1].Replicas[0]
		for round := range 10 {
			is.Store(true)
			b.set(func(p *patient) { p.series = ups(10, 20, "b") })
			time.Sleep(10 * time.Minute)
			if !top.Groups[0].Trusted() {
				t.Fatalf("round %d: not trusted while it is away: %v, awaits %t", round, top.Groups[0].Sick(), top.Groups[0].Awaits())
			}
			b.set(func(p *patient) { p.series = ups(0, 10, "b") })
			is.Store(false)
			for range 200 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if r.State() == Up && top.Groups[0].Trusted() {
					t.Fatalf("round %d: up, a copy, and trusted", round)
				}
			}
		}
		is.Store(true)
		time.Sleep(10 * time.Minute)
		r.up.returns.count.Add(1) // it was up for a moment, which nobody examined
		changes.Add(1)
		if top.Groups[0].Awaits() {
			t.Error("a server that is down is awaited")
		}
	})
}

// TestTrustIsCheap: it is asked for each selector of each query, of each server.
func TestTrustIsCheap(t *testing.T) {
	var urls []string
	for i := range 100 {
		urls = append(urls, fmt.Sprintf("http://a%d:1", i))
	}
	g := build(t, Options{}, false, hashed(urls...)).Groups[0]
	believe(g)
	if !g.HashmodTrusted() || !g.Trusted() {
		t.Fatal("not trusted")
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = g.HashmodTrusted(), g.Trusted() }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// BenchmarkTrust is that of 800 servers.
func BenchmarkTrust(b *testing.B) {
	var urls []string
	for i := range 800 {
		urls = append(urls, fmt.Sprintf("http://a%d:1", i))
	}
	top, err := New([]config.Group{homed(urls, "kube_(pod|node)_.+", "kube_namespace_.+", "kube_x")}, Options{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer top.Close()
	g := top.Groups[0]
	believe(g)
	trustShardNames(g)
	b.Run("hashmod", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = g.HashmodTrusted()
		}
	})
	for name, ms := range map[string][]*labels.Matcher{
		"prune by hash": append(named1("up"), labels.MustNewMatcher(labels.MatchEqual, "node", "a")),
		"prune by name": named1("kube_pod_info"), "prune nothing": named1("up"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = prune(g, ms)
			}
		})
	}
	b.Run("group", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = g.Trusted()
		}
	})
}

// TestBackIsSeenByBoth: while an old configuration lives on, it may be the one that examines a
// server which is back; the one in force compares it soon all the same.
func TestBackIsSeenByBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}
		var is atomic.Bool
		top, end := twice(t, a.config(), away(b.config(), &is))
		defer end()
		r := top.Groups[0].Shards[1].Replicas[0]
		for round := range 8 {
			is.Store(true)
			time.Sleep(10 * time.Minute)
			is.Store(false)
			var up time.Time
			for range 3000 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if r.State() == Up && up.IsZero() {
					up = time.Now()
				}
				if !up.IsZero() && top.Groups[0].Trusted() {
					break
				}
			}
			if took := time.Since(up); took > 10*time.Second {
				t.Errorf("round %d: awaited for %s", round, took)
			}
		}
	})
}

// TestRelabelledIsCompared: a reload that gives groups other labels may make shards of them that
// hold the same. They are compared before anything is trusted, however long that takes.
func TestRelabelledIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(0, 10, "b")}
		var busy atomic.Bool
		slow := b.config()
		answer := slow.Answer
		slow.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if busy.Load() && strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up" {
				time.Sleep(3 * time.Second)
			}
			return answer(r)
		}
		bub := newBubble(t, a.config(), slow)
		defer bub.close()
		g, h := group(bub.urls[0]), group(bub.urls[1])
		h.Name = "other"
		g.Labels, h.Labels = map[string]string{"cluster": "one"}, map[string]string{"cluster": "two"}
		o := Options{Dial: bub.dial}
		old := build(t, o, true, g, h)
		defer old.Close()
		time.Sleep(time.Minute)
		busy.Store(true)
		g.Labels, h.Labels = nil, nil
		top, err := New([]config.Group{g, h}, o, old)
		if err != nil {
			t.Fatal(err)
		}
		top.Start(t.Context())
		defer top.Close()
		wait, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = top.WaitFirstProbe(wait)
		for range 100 {
			if top.Groups[0].Trusted() || top.Groups[1].Trusted() {
				t.Fatal("trusted, though both scrape the same")
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if s := top.Groups[1].Sick(); len(s) != 1 || s[0].Kind != SickCopy {
			t.Errorf("%v", s)
		}
	})
}
