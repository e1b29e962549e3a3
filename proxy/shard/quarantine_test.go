package shard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestBreakerOfServersIsNotSentOn: a query on which a server ended is not sent to its copy, is
// refused for a minute, and is tried once then. What was done too soon to be the cause goes on to
// the copy, and so does all of a server that is still there.
func TestBreakerOfServersIsNotSentOn(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		gone         bool
		kind         string
		copies       int // calls that the copy sees
	}{
		{"it ended over the query", "delay 3s; reset", true, "unavailable", 0},
		{"it ended in the same moment", "reset", true, "ok", 1},
		{"it is still there", "delay 3s; reset", false, "ok", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				routes := []fakeshard.Route{{Path: "/api/v1/query", Query: "killer", Script: tc.script}}
				if tc.gone {
					routes = append(routes, fakeshard.Route{Path: "/-/ready", Script: "reset"})
				}
				b := newBubble(t, fakeshard.Config{Routes: routes},
					fakeshard.Config{Queries: map[string]string{"killer": `{"resultType":"vector","result":[]}`}})
				defer b.close()
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				one := func(text string) error {
					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()
					_, err := ask(ctx, s, &endpoint.Request{ID: endpoint.Query, Query: text, Time: endpoint.At(0)})
					return err
				}
				if err := one("killer"); kindOf(err) != tc.kind || b.count(1, "/api/v1/query") != tc.copies {
					t.Errorf("%v, the copy saw %d calls", err, b.count(1, "/api/v1/query"))
				}
				if tc.kind == "ok" {
					return
				}
				if err := one("killer"); !isHeld(err) || b.count(1, "/api/v1/query") != 0 {
					t.Errorf("once more: %v, the copy saw %d calls", err, b.count(1, "/api/v1/query"))
				}
				if err := one("1+1"); err != nil {
					t.Errorf("another query: %v", err)
				}
				time.Sleep(heldFor)
				s.base.Store(1) // whoever is asked now is sound
				for range 2 {
					if err := one("killer"); err != nil {
						t.Errorf("after a minute: %v", err)
					}
				}
			})
		})
	}
}

// ended is a shard whose servers end over queries.
type ended struct {
	t *testing.T
	b *bubble
	s *Shard
}

func newEnded(t *testing.T, replicas int) *ended {
	b := newBubble(t, make([]fakeshard.Config, replicas)...)
	top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
	t.Cleanup(func() {
		top.Close()
		b.close()
	})
	return &ended{t, b, top.Groups[0].Shards[0]}
}

func (e *ended) ask(text string) error {
	ctx, cancel := context.WithTimeout(e.t.Context(), 25*time.Second)
	defer cancel()
	_, err := ask(ctx, e.s, &endpoint.Request{ID: endpoint.Query, Query: text, Time: endpoint.At(0)})
	return err
}

// end asks a server for the texts, one a second, and ends it two seconds after the last; it is back
// when all callers have what they get.
func (e *ended) end(replica int, texts ...string) (got []error) {
	e.t.Helper()
	routes := []fakeshard.Route{{Path: "/-/ready", Script: "reset"}}
	for i, text := range texts {
		routes = append(routes, fakeshard.Route{
			Path: "/api/v1/query", Query: text,
			Script: fmt.Sprintf("delay %ds; reset", len(texts)-i+1),
		})
	}
	if err := e.b.fakes[replica].Set("", routes...); err != nil {
		e.t.Fatal(err)
	}
	e.s.base.Store(int32(replica))
	got = make([]error, len(texts))
	var all sync.WaitGroup
	for i, text := range texts {
		all.Go(func() { got[i] = e.ask(text) })
		time.Sleep(time.Second)
	}
	all.Wait()
	if err := e.b.fakes[replica].Set(""); err != nil {
		e.t.Fatal(err)
	}
	return got
}

// left is for how long the text is refused.
func (e *ended) left(text string) time.Duration {
	req := &endpoint.Request{ID: endpoint.Query, Query: text}
	trial, err := e.s.topology.metrics.held.admit(e.s.Replicas[0], req)
	if trial {
		e.s.topology.metrics.held.tried(e.s.Replicas[0], req)
	}
	if err == nil {
		return 0
	}
	return qerr.From(err).RetryAfter
}

func sums(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("%d+1", i))
	}
	return texts
}

// TestLongestAreHeld: of many queries that were under way when a server ended, those that had run
// longest are held, and the others go on to its copy.
func TestLongestAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, texts := newEnded(t, 2), sums(10)
		for i, err := range e.end(0, texts...) {
			if held := i < maxSuspects; isHeld(err) != held || !held && err != nil {
				t.Errorf("query %d: %v", i, err)
			}
		}
		if n := e.b.count(1, "/api/v1/query"); n != len(texts)-maxSuspects {
			t.Errorf("the copy saw %d calls", n)
		}
		for i, text := range texts {
			if left := e.left(text); left > heldFor || (left > 0) != (i < maxSuspects) {
				t.Errorf("query %d is refused for %s", i, left)
			}
		}
	})
}

// TestAnsweredIsInnocent: what was under way when one server of a pair ended, was answered, and was
// under way again when the other one ended, is refused for a minute at most, as if nothing had
// been.
func TestAnsweredIsInnocent(t *testing.T) {
	for _, n := range []int{maxSuspects, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, rules := newEnded(t, 2), sums(n)
				e.end(0, rules...)
				time.Sleep(heldFor)
				for _, text := range rules {
					if err := e.ask(text); err != nil {
						t.Errorf("a minute later: %v", err)
					}
				}
				e.end(1, rules...)
				time.Sleep(heldFor)
				for _, text := range rules {
					if err := e.ask(text); err != nil {
						t.Errorf("a minute after the second end: %v", err)
					}
				}
			})
		})
	}
}

// TestHeldForLonger: a query that has broken every replica of its shard, with no answer in between,
// is refused for ten minutes; for one minute while a replica has not broken over it.
func TestHeldForLonger(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int
		ends     []int // servers that end over it, a minute apart
		want     time.Duration
	}{
		{"the one server once", 1, []int{0}, heldFor},
		{"the one server twice", 1, []int{0, 0}, heldLonger},
		{"one of a pair twice", 2, []int{0, 0}, heldFor},
		{"both of a pair", 2, []int{0, 1}, heldLonger},
		{"two of three", 3, []int{0, 1}, heldFor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnded(t, tc.replicas)
				for i, replica := range tc.ends {
					if i > 0 {
						time.Sleep(heldFor)
					}
					if got := e.end(replica, "1+1"); !isHeld(got[0]) {
						t.Fatalf("end %d: %v", i, got[0])
					}
				}
				if left := e.left("1+1"); left > tc.want || left < tc.want-10*time.Second {
					t.Errorf("refused for another %s", left)
				}
				time.Sleep(tc.want)
				if err := e.ask("1+1"); err != nil || e.left("1+1") != 0 {
					t.Errorf("after that: %v", err)
				}
			})
		})
	}
}

// TestHeldSays: the refusal says what was seen, that the copy is up and not asked on purpose, and
// until when; it does not blame the query.
func TestHeldSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock begins at midnight UTC
		e := newEnded(t, 2)
		e.end(0, "1+1")
		for text, want := range map[string]string{
			"1+1": "jaguar/10.0.0.1:9090 ended at 00:00:02 UTC while this query, and no other of Spillway's, ran there; until 00:01:02 UTC it is not sent to jaguar/10.0.0.2:9090, which is up",
		} {
			err := qerr.From(e.ask(text))
			if err.Message != want {
				t.Errorf("got  %s\nwant %s", err.Message, want)
			}
			if !strings.HasPrefix(err.Advice, "if jaguar/10.0.0.1:9090 was restarted on purpose or its node died, nothing is wrong with the query") {
				t.Errorf("advice: %s", err.Advice)
			}
		}
		time.Sleep(heldFor)
		e.end(1, "0+1", "1+1", "2+1")
		err := qerr.From(e.ask("1+1"))
		for _, part := range []string{
			"jaguar/10.0.0.2:9090 ended at 00:01:06 UTC while 3 queries of Spillway's, this one among them, ran there", "after jaguar/10.0.0.1:9090 had ended over it too",
			"until 00:11:06 UTC it is not sent to jaguar/10.0.0.1:9090, which is up",
		} {
			if !strings.Contains(err.Message, part) {
				t.Errorf("%q lacks %q", err.Message, part)
			}
		}
	})
}

// TestOurFaultInATrial: a fault of ours in the one call that tries a text, or a replica, is nothing
// that was learned of either: the next call tries anew. Nor does the call keep a place.
func TestOurFaultInATrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnded(t, 2)
		if got := e.end(0, "killer"); !isHeld(got[0]) {
			t.Fatalf("it is not held: %v", got)
		}
		time.Sleep(heldFor)
		synctest.Wait()
		r := e.s.Replicas[1]
		r.up.breaker.mu.Lock()
		r.up.breaker.state = HalfOpen
		r.up.breaker.mu.Unlock()
		req := &endpoint.Request{ID: endpoint.Query, Query: "killer", Time: endpoint.At(0)}
		fault := func(context.Context, *url.URL, time.Duration) (*http.Request, error) { panic("a fault of ours") }
		for range 3 * r.up.opts.MaxCalls { // more than there are places
			ok, trial := r.up.breaker.allow(time.Now())
			if !ok || !trial {
				t.Fatalf("the replica is not tried: %v, %v", ok, trial)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the fault is hidden")
					}
				}()
				_, err := r.careful(t.Context(), req, fault, try{trial: trial})
				t.Errorf("the call came to an end: %v", err)
			}()
		}
		if n := r.up.inflight.Load(); n != 0 {
			t.Errorf("%d calls are under way", n)
		}
		e.s.base.Store(1)
		if err := e.ask("killer"); err != nil {
			t.Errorf("the next one is not tried: %v", err)
		}
	})
}
