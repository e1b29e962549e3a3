package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// relink loads a configuration in which the replicas of a rig are the urls.
func (r *rig) relink(file string, urls ...string) {
	r.t.Helper()
	text := "groups:\n  - name: jaguar\n    shards:\n      - replicas:\n"
	for _, u := range urls {
		text += fmt.Sprintf("          - {url: %q}\n", u)
	}
	writeText(r.t, file, text)
	if err := r.s.Reload(); err != nil {
		r.t.Fatal(err)
	}
}

// A replica whose url leads back to Spillway fails at once, and is said: without it each request
// asks itself, boards its own answer, and hangs until its deadline.
func TestServersThatAreSpillwayItself(t *testing.T) {
	ask := func(r *rig) *reply {
		a := asking{path: "/api/v1/query", form: url.Values{"query": {"up"}, "time": {stamp(time.Now())}}}
		return r.ask(r.request(t.Context(), a))
	}
	expect := func(what string, got *reply) {
		t.Helper()
		if got.status != http.StatusBadGateway || !strings.Contains(got.message.Error, "has come through this Spillway already") {
			t.Errorf("%s: %s", what, got)
		}
	}
	t.Run("alone", func(t *testing.T) {
		r, file := reloadable(t)
		r.relink(file, r.url)
		expect("its own url", ask(r))
		r.idle()
	})
	t.Run("beside one that is none", func(t *testing.T) {
		r, file := reloadable(t)
		r.relink(file, r.url, r.all()[0].URL())
		if got := ask(r); got.status != http.StatusOK || !strings.Contains(string(got.message.Data), "jaguar-0") {
			t.Error(got)
		}
		r.idle()
	})
	t.Run("by another one", func(t *testing.T) {
		a, fileA := reloadable(t)
		b, fileB := reloadable(t)
		b.relink(fileB, a.all()[0].URL())
		a.relink(fileA, b.url) // one behind the other is no circle
		if got := ask(a); got.status != http.StatusOK || !strings.Contains(string(got.message.Data), "jaguar-0") {
			t.Error(got)
		}
		b.relink(fileB, a.url)
		expect("round two", ask(a))
		a.idle()
		b.idle()
	})
}

// What a client writes as the way of its request reaches no server unless a Spillway could have
// written it.
func TestClientsCannotMakeUpAWay(t *testing.T) {
	r := newRig(t, manyShards(1), limits(ample))
	s := r.all()[0]
	other := strings.Repeat("0a", 8)
	for _, c := range []struct {
		said, want string
		status     int
	}{
		{"", r.s.id, 200},
		{"1.1 nginx", r.s.id, 200},
		{other, other + "," + r.s.id, 200},
		{other + ", " + other, r.s.id, 200},
		{strings.Repeat("a", 1<<12), r.s.id, 200},
		{strings.Repeat(other+",", 8) + other, "", 400},
		{other + "," + r.s.id, "", 502},
	} {
		a := asking{path: "/api/v1/labels", form: url.Values{"match[]": {"up"}}}
		before := s.RequestsTo(a.path)
		req := r.request(t.Context(), a)
		req.Header.Set(identity.HeaderVia, c.said)
		got := r.ask(req)
		if got.status != c.status {
			t.Errorf("%.40q: %s", c.said, got)
		}
		asked := s.RequestsTo(a.path)[len(before):]
		if (len(asked) == 0) != (c.status != 200) {
			t.Errorf("%.40q: asked %d times", c.said, len(asked))
		}
		for _, rec := range asked {
			if via := rec.Header.Get(identity.HeaderVia); via != c.want {
				t.Errorf("%.40q: the server was told %q, want %q", c.said, via, c.want)
			}
		}
	}
}

// TestMadeUpWayBeforeAnother: a way so long that the Spillway behind this one refuses it is its
// client's mistake, and no failure of that Spillway, which is asked by everybody.
func TestMadeUpWayBeforeAnother(t *testing.T) {
	r := newRig(t, manyShards(1), limits(ample))
	s, outer := startProxy(t, t.Context(), "groups: [{name: far, shards: [{replicas: [{url: '"+r.url+"'}]}]}]\n"+limits(ample))
	front := *r
	front.url = outer
	for range 8 {
		req := front.request(t.Context(), asking{path: "/api/v1/labels", form: url.Values{"match[]": {"up"}}})
		req.Header.Set(identity.HeaderVia, strings.Repeat(strings.Repeat("0a", 8)+",", 7)+strings.Repeat("0b", 8))
		if got := front.ask(req); got.status != http.StatusBadRequest || !strings.Contains(got.message.Error, identity.HeaderVia) {
			t.Error(got)
		}
	}
	if state := s.state.Load().top.Status()[0].Breaker; state != shard.Closed {
		t.Errorf("the breaker is %s", state)
	}
}
