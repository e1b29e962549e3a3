package server

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// ruledPair is a shard of a whole replica, which the front stands before, and of one, the other,
// with a gap of 12 minutes that the proxy knows of. The ruler asks about the gap: what the whole
// one has comes to 800.
type ruledPair struct {
	*rig
	now          time.Time
	front, other *fakeshard.Shard
}

func newRuledPair(t *testing.T, o shard.Options, limits string) *ruledPair {
	t.Helper()
	p := &ruledPair{now: time.Now().Truncate(time.Second)}
	server := func(name string, skip func(int, time.Time) bool) *fakeshard.Shard {
		held := scraped(40, p.now.Add(-40*time.Minute), p.now, 2*time.Second, skip)
		behind := promShard(t, labels.FromStrings("replica", name), held).URL()
		return fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
			return forward(behind, r), true
		}})
	}
	p.front = server("a", nil)
	p.other = server("b", func(_ int, at time.Time) bool {
		return at.After(p.now.Add(-30*time.Minute)) && at.Before(p.now.Add(-18*time.Minute))
	})
	config := replicasConfig("    heartbeat: up\n", p.front.URL(), p.other.URL())
	s, base := startProxy(t, t.Context(), config+limits, func(opts *Options) { opts.shards = o })
	p.rig = &rig{t: t, s: s, url: base, client: newClient(t)}
	for range 3 {
		if got := p.rule(0); got != "" {
			t.Fatalf("before: %s", got)
		}
	}
	return p
}

// ask asks at the time of the gap, or about it.
func (p *ruledPair) ask(path, what string, more ...string) *reply {
	form := url.Values{"query": {what}, "time": {stamp(p.now.Add(-22 * time.Minute))}}
	if path == "/api/v1/series" {
		form = url.Values{"match[]": {what}, "start": {stamp(p.now.Add(-25 * time.Minute))}, "end": {stamp(p.now.Add(-22 * time.Minute))}}
	}
	return p.rig.ask(p.request(context.Background(), asking{path: path, form: form}, more...))
}

// rule asks what a ruler asks, the nth time; it returns what is wrong with the answer.
func (p *ruledPair) rule(n int) string {
	got := p.ask("/api/v1/query", fmt.Sprintf("sum(sum_over_time(up[5m])) + %d - %[1]d", n))
	if got.status != 200 || len(got.message.Warnings) > 0 || !strings.Contains(string(got.body), `"800"`) {
		return fmt.Sprintf("%d %.400s", got.status, got.body)
	}
	return ""
}

// ruleWhile is the ruler, for as long as f runs and a while longer.
func (p *ruledPair) ruleWhile(f func()) {
	p.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	var wrong []string
	asked := 0
	for end := false; !end; asked++ {
		select {
		case <-done:
			end = true
			for range 20 {
				asked++
				if got := p.rule(asked); got != "" {
					wrong = append(wrong, got)
				}
			}
		default:
			time.Sleep(50 * time.Millisecond)
		}
		if got := p.rule(asked); got != "" {
			wrong = append(wrong, got)
		}
	}
	if len(wrong) > 0 {
		p.t.Errorf("of %d answers to the ruler %d are wrong: %s", asked, len(wrong), wrong[0])
	}
}

// TestOneCallerTakesNoReplicaAway: what one caller asks takes too long on the only replica that has
// all of it, or fails there each time. Others lose nothing by that: they are answered from it, as
// before, and never from one that is known to lack some.
func TestOneCallerTakesNoReplicaAway(t *testing.T) {
	for _, tc := range []struct {
		name, path, script string
		both               bool // and on the other one
	}{
		{"queries that take too long", "/api/v1/query", "delay 30s; answer", false},
		{"series that take too long", "/api/v1/series", "delay 30s; answer", false},
		{"an error of the server", "/api/v1/query", "error 500 internal something", false},
		{"an error of both", "/api/v1/query", "error 500 internal something", true},
		{"canceled there", "/api/v1/query", "error 503 canceled query was canceled in query execution", false},
		{"a broken connection", "/api/v1/query", "reset", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newRuledPair(t, shard.Options{HeaderTimeout: time.Second}, limits(ample))
			route := fakeshard.Route{Path: tc.path, Script: tc.script}
			if tc.path == "/api/v1/query" {
				route.Query = "up"
			}
			if err := p.front.Set("", route); err != nil {
				t.Fatal(err)
			}
			if tc.both {
				if err := p.other.Set("", route); err != nil {
					t.Fatal(err)
				}
			}
			p.ruleWhile(func() {
				var all sync.WaitGroup
				for i := range 8 {
					all.Go(func() {
						got := p.ask(tc.path, "up", "timeout", "2s", "lookback_delta", fmt.Sprintf("%ds", 300+i))
						if got.status == 200 && len(got.message.Warnings) == 0 {
							t.Errorf("who asks it is told nothing: %.300s", got.body)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// TestOneCallerTakesNoShardAway: heavy queries of one caller on the only replica of a shard leave
// it out of nobody's partial answers.
func TestOneCallerTakesNoShardAway(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "g", replicas: []int{1, 1}}}, limits(ample), func(o *Options) {
		o.shards = shard.Options{HeaderTimeout: time.Second}
	})
	slow := func(query string) fakeshard.Route {
		return fakeshard.Route{Path: "/api/v1/query", Query: query, Script: "delay 30s; answer"}
	}
	if err := r.shards["g"][0][0].Set("", slow(`up{x="1"}`), slow(`up{x="1",cluster="g"}`)); err != nil {
		t.Fatal(err)
	}
	ask := func(query string, more ...string) *reply {
		return r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {query}}}, more...))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if got := ask(`up{x="1"}`, "timeout", "2s", "lookback_delta", fmt.Sprintf("%ds", 300+i)); got.status != 503 {
					t.Errorf("the heavy query: %d %.300s", got.status, got.body)
				}
			})
		}
		all.Wait()
	}()
	for rest := 20; rest > 0; {
		select {
		case <-done:
			rest--
		case <-time.After(50 * time.Millisecond):
		}
		if got := ask("up", "partial_response", "true"); got.status != 200 || len(got.message.Warnings) > 0 {
			t.Fatalf("%d %.500s", got.status, got.body)
		}
	}
}

// TestBreakersLeaveNoShardOut: five queries of one caller that fail on the only replica of a shard
// leave it out of nobody's partial answers, though its breaker is open: it is asked whether it is
// well. Where it is not, they go without it.
func TestBreakersLeaveNoShardOut(t *testing.T) {
	for _, tc := range []struct {
		name string
		well bool
	}{{"one caller's queries fail", true}, {"all queries fail", false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []rigGroup{{name: "g", replicas: []int{1, 1}}}, limits(ample)+"partial_response: warn\n")
			bad := r.shards["g"][0][0]
			ask := func(query string, more ...string) *reply {
				return r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {query}}}, more...))
			}
			if err := bad.Set("", fakeshard.Route{Path: "/api/v1/query", Query: `up{x="1"}`, Script: "status 504; send x"},
				fakeshard.Route{Path: "/api/v1/query", Query: `up{x="1",cluster="g"}`, Script: "status 504; send x"}); err != nil {
				t.Fatal(err)
			}
			if !tc.well {
				if err := bad.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "status 504; send x"}); err != nil {
					t.Fatal(err)
				}
			}
			open := func() bool { return r.s.state.Load().top.Status()[0].Breaker == shard.Open }
			for range 8 {
				for i := 0; !open() && i < 20; i++ {
					ask(`up{x="1"}`, "lookback_delta", fmt.Sprintf("%ds", 300+i))
				}
				if !open() {
					t.Fatal("the breaker is not open")
				}
				if got := ask("up"); got.status != 200 || (len(got.message.Warnings) == 0) != tc.well {
					t.Fatalf("%d %.500s", got.status, got.body)
				}
			}
		})
	}
}
