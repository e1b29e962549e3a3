package shard

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
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
		g := group(bub.urls[0])
		g.Shards = append(g.Shards, group(bub.urls[1]).Shards...)
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
		g := group(bub.urls[0])
		g.Shards = append(g.Shards, group(bub.urls[1]).Shards...)
		top := build(t, Options{Dial: bub.dial}, true, g)
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
