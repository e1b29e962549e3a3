package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// crowdOf is a rig of n shards that answer at path when they are told to go, by whatever steps
// then.
func crowdOf(t *testing.T, n int, path, steps string) *rig {
	r := newRig(t, manyShards(n), limits(10*patience))
	for _, s := range r.all() {
		if err := s.Set("", alive, fakeshard.Route{Path: path, Script: "wait go; " + steps}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// askedAt is how often the shards have been asked at the path, but for the proxy's own questions.
func (r *rig) askedAt(path string) (n int) {
	for _, s := range r.all() {
		n += len(askedOf(s, path))
	}
	return n
}

// boarded waits until so many requests are under way, and all but the first wait for its answer.
func (r *rig) boarded(n int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d requests are in flight, and all but one wait", n), func() bool {
		waiting, all := 0, r.queries()
		for _, q := range all {
			if q.Doing == workWait.String() {
				waiting++
			}
		}
		return len(all) == n && waiting == n-1
	})
}

// arrived waits until each shard has been asked at the path once more than before: requests board
// an answer before its calls have reached the shards.
func (r *rig) arrived(path string, before int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range r.all() {
		if err := s.WaitSeen(ctx, path, before/len(r.all())+1); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) release() {
	for _, s := range r.all() {
		s.Release("go")
	}
}

// All that may be shared is asked of the shards once, however many ask it, and each is answered as
// one is who asks alone.
func TestIdenticalRequestsAreAskedOnce(t *testing.T) {
	const crowd = 8
	at := stamp(time.Now().Add(-time.Minute))
	for _, a := range askings() {
		if !a.id.JSON() {
			continue
		}
		if a.id.Span() == endpoint.SpanInstant {
			a.form.Set("time", at)
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}, {name: "heron", replicas: []int{1}}}, roomy(10*patience))
			before := r.askedAt(a.at)
			alone := r.ask(r.request(context.Background(), a))
			if alone.status != http.StatusOK {
				t.Fatal(alone)
			}
			once := r.askedAt(a.at) - before
			before += once
			for _, s := range r.all() {
				if err := s.Set("", fakeshard.Route{Path: a.at, Script: "wait go; answer"}); err != nil {
					t.Fatal(err)
				}
			}
			replies := make(chan *reply, crowd)
			for range crowd {
				go func() { replies <- r.ask(r.request(context.Background(), a)) }()
			}
			r.boarded(crowd)
			r.release()
			ids := map[string]bool{}
			var first *reply
			clocked := slices.Contains([]endpoint.ID{endpoint.Rules, endpoint.Targets, endpoint.StatusTSDB}, a.id)
			for range crowd {
				got := <-replies
				if first == nil {
					first = got
				}
				same := bytes.Equal(got.body, alone.body)
				if clocked { // the shards' clocks have gone on since one asked alone
					same = bytes.Equal(digits.ReplaceAll(got.body, nil), digits.ReplaceAll(alone.body, nil))
				}
				if got.status != alone.status || !same || got.err != nil {
					t.Errorf("%s, alone %s", got, alone)
				}
				if !bytes.Equal(got.body, first.body) {
					t.Errorf("%s, another one %s", got, first)
				}
				for _, h := range []string{"Content-Type", "Content-Length", verdictHeader, "X-Content-Type-Options"} {
					if got.header.Get(h) != alone.header.Get(h) {
						t.Errorf("%s: %q, alone %q", h, got.header.Get(h), alone.header.Get(h))
					}
				}
				ids[got.header.Get("X-Spillway-Request-Id")] = true
			}
			if len(ids) != crowd {
				t.Errorf("%d ids of %d requests", len(ids), crowd)
			}
			if n := r.askedAt(a.at) - before; n > once { // which may have seen once and for all what a server can
				t.Errorf("the shards were asked %d times by %d, and %d times by one", n, crowd, once)
			}
			if n := r.metric("spillway_shared_answers_total", "endpoint="+string(a.id)); n != crowd-1 {
				t.Errorf("%v answers were shared, want %d", n, crowd-1)
			}
			r.idle()
		})
	}
}

// alikeQuery is asked by all in the tests below.
func alikeQuery() asking {
	return asking{path: "/api/v1/query", form: url.Values{"query": {"up"}, "time": {stamp(time.Now())}}, at: "/api/v1/query"}
}

// Whoever came first may leave: the others are answered, and nothing is asked again. When the last
// one has left, the shards' work ends.
func TestSharedAnswersAndLeaving(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("RST %v", reset), func(t *testing.T) {
			t.Parallel()
			a := alikeQuery()
			r := crowdOf(t, 2, a.at, "answer")
			before := r.askedAt(a.at)
			first := r.call(r.request(context.Background(), a))
			r.arrived(a.at, before)
			second := make(chan *reply, 1)
			go func() { second <- r.ask(r.request(context.Background(), a)) }()
			r.boarded(2)
			first.leave(reset)
			time.Sleep(100 * time.Millisecond) // what it would have ended has ended
			r.release()
			if got := <-second; got.status != http.StatusOK || got.err != nil || len(got.message.Data) == 0 {
				t.Error(got)
			}
			if n := r.askedAt(a.at) - before; n != 2 {
				t.Errorf("the shards were asked %d times, want once each", n)
			}
			r.eventually("the one that left is counted", func() bool { return r.metric("spillway_cancellations_total") == 1 })
			r.idle()
		})
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		a := alikeQuery()
		r := crowdOf(t, 2, a.at, "stall")
		before := r.askedAt(a.at)
		var all []*caller
		for range 4 {
			all = append(all, r.call(r.request(context.Background(), a)))
		}
		r.boarded(4)
		r.arrived(a.at, before)
		if n := r.askedAt(a.at) - before; n != 2 {
			t.Errorf("the shards were asked %d times, want once each", n)
		}
		r.release()
		for i, c := range all {
			for _, s := range r.all() {
				if recs := askedOf(s, a.at); !recs[len(recs)-1].Ended.IsZero() {
					t.Errorf("the work ended when %d of %d had left", i, len(all))
				}
			}
			c.leave(true)
			time.Sleep(20 * time.Millisecond)
		}
		r.idle()
		r.eventually("all are counted", func() bool { return r.metric("spillway_cancellations_total") == 4 })
	})
}

// What goes wrong is told to all that waited, in the words that one is told who asks alone, and
// with a status: no byte of the failed answer has been written to anybody.
func TestSharedFailures(t *testing.T) {
	for _, c := range []struct {
		name, steps string
		shards      int
		ask         asking
	}{
		{name: "refused by the shards", steps: "status 400", shards: 2, ask: alikeQuery()},
		{name: "broken", steps: "status 500", shards: 2, ask: alikeQuery()},
		{name: "reset at the end of much", steps: "limit 3MiB reset; generate 10GiB", shards: 1, ask: alikeQuery()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := crowdOf(t, c.shards, c.ask.at, c.steps)
			replies := make(chan *reply, 4)
			for range 4 {
				go func() { replies <- r.ask(r.request(context.Background(), c.ask)) }()
			}
			r.boarded(4)
			r.release()
			var texts []string
			for range 4 {
				got := <-replies
				if got.err != nil || got.status < 400 || got.message.Error == "" {
					t.Errorf("%s", got)
				}
				texts = append(texts, fmt.Sprint(got.status, got.message.Error))
			}
			if slices.Sort(texts); texts[0] != texts[3] {
				t.Errorf("told differently: %q", texts)
			}
			if n := strings.Count(texts[0], "failing for"); n > 1 {
				t.Errorf("said %d times since when it fails: %s", n, texts[0])
			}
			r.idle()
			for _, line := range r.log.atLeast(slog.LevelError) {
				t.Errorf("logged: %s", line)
			}
		})
	}
}

// A client that reads nothing keeps only itself waiting, and each is written in the coding that it
// asked for.
func TestSharedAnswersAtTheirOwnPace(t *testing.T) {
	a := alikeQuery()
	r := newRig(t, manyShards(1), limits(10*patience))
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: a.at, Script: "generate 4MiB"}); err != nil {
		t.Fatal(err)
	}
	alone := r.askKeeping(1<<30, r.request(context.Background(), a))
	if alone.size < 4<<20 || alone.err != nil {
		t.Fatal(alone)
	}
	if err := s.Set("", fakeshard.Route{Path: a.at, Script: "wait go; generate 4MiB"}); err != nil {
		t.Fatal(err)
	}
	before := r.askedAt(a.at)
	r.call(r.request(context.Background(), a)) // never reads
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.WaitSeen(ctx, a.at, before+1); err != nil {
		t.Fatal(err)
	}
	type done struct {
		body []byte
		err  error
	}
	replies := make(chan done, 4)
	for i := range 4 {
		req := r.request(context.Background(), a)
		if i%2 == 0 {
			req.Header.Set("Accept-Encoding", "gzip")
		}
		go func() {
			body, err := decoded(r.client.Do(req))
			replies <- done{body, err}
		}()
	}
	r.boarded(5)
	r.release()
	for range 4 {
		if got := <-replies; got.err != nil || !bytes.Equal(got.body, alone.body) {
			t.Errorf("%d bytes, want %d: %v", len(got.body), alone.size, got.err)
		}
	}
	if n := r.askedAt(a.at) - before; n != 1 {
		t.Errorf("the shard was asked %d times", n)
	}
}

// What is too large to be kept is answered to each as if it were alone, and when it is asked again,
// whatever time it is about, nobody waits in vain.
func TestLargeAnswersAreNotShared(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience)+"memory: {budget: 16MiB}\n") // of which kept ones take 2 MiB
	s := r.all()[0]
	for round := range 2 {
		a := alikeQuery()
		before := r.askedAt(a.at)
		gate := fmt.Sprint("go", round)
		if err := s.Set("", alive, fakeshard.Route{Path: a.at, Script: "wait " + gate + "; generate 3MiB"}); err != nil {
			t.Fatal(err)
		}
		replies := make(chan *reply, 2)
		for range 2 {
			go func() { replies <- r.ask(r.request(context.Background(), a)) }()
		}
		if round == 0 {
			r.boarded(2)
		}
		r.eventually("as many are asked at first as may be", func() bool { return r.askedAt(a.at)-before == 1+round })
		s.Release(gate)
		for range 2 {
			if got := <-replies; got.status != http.StatusOK || got.err != nil || got.size < 3<<20 {
				t.Errorf("round %d: %s", round, got)
			}
		}
		if n := r.askedAt(a.at) - before; n != 2 {
			t.Errorf("round %d: asked %d times by two", round, n)
		}
	}
	r.idle()
}

// decoded is the body of an answer, which is compressed where that was asked for.
func decoded(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	want := resp.Request.Header.Get("Accept-Encoding")
	if got := resp.Header.Get("Content-Encoding"); got != want {
		return nil, fmt.Errorf("coded as %q, want %q", got, want)
	}
	if want == "" {
		return io.ReadAll(resp.Body)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// TestWhatIsIdentical: whatever an answer depends on tells requests apart.
func TestWhatIsIdentical(t *testing.T) {
	at, s := endpoint.At(1000), &Server{now: time.Now}
	base := func() *exchange {
		x := &exchange{st: &state{}, s: s, ctx: identity.With(context.Background(), identity.Request{Peer: "10.0.0.1"})}
		x.dec = &policy.Decision{Deadline: time.Second, Request: &endpoint.Request{ID: endpoint.Query, Query: "up", Time: at}}
		return x
	}
	st := &state{}
	same := base()
	same.st = st
	seen := map[string]string{same.key(): "the base"}
	again := base()
	again.st, again.uid, again.began = st, "another", time.Now()
	if again.key() != same.key() {
		t.Errorf("%q and %q are of the same request", again.key(), same.key())
	}
	for name, change := range map[string]func(*exchange){
		"another configuration": func(x *exchange) { x.st = &state{cfg: &config.Config{}} },
		"another lane":          func(x *exchange) { x.lane = "oncall" },
		"a tenant":              func(x *exchange) { x.tenant = &tenant.Tenant{Tenant: config.Tenant{Name: "a"}} },
		"another tenant":        func(x *exchange) { x.tenant = &tenant.Tenant{Tenant: config.Tenant{Name: "b"}} },
		"another address": func(x *exchange) {
			x.ctx = identity.With(context.Background(), identity.Request{Peer: "10.0.0.2"})
		},
		"less time":        func(x *exchange) { x.dec.Deadline /= 2 },
		"partial":          func(x *exchange) { x.partial = true },
		"an alert rule":    func(x *exchange) { x.alerting = true },
		"another query":    func(x *exchange) { x.dec.Request.Query = "down" },
		"another instant":  func(x *exchange) { x.dec.Request.Time = endpoint.At(1001) },
		"another lookback": func(x *exchange) { x.dec.Request.LookbackDelta = time.Minute },
		"a limit":          func(x *exchange) { x.dec.Request.Limit = 1 },
		"stats":            func(x *exchange) { x.dec.Request.Stats = "all" },
		"another endpoint": func(x *exchange) { x.dec.Request.ID, x.dec.Request.Time = endpoint.QueryExemplars, endpoint.Time{} },
		"series":           func(x *exchange) { x.id, x.dec.Request.ID = endpoint.Series, endpoint.Series },
		"an inventory": func(x *exchange) {
			x.id, x.dec.Request.ID, x.caller.Inventory = endpoint.Series, endpoint.Series, true
		},
	} {
		x := base()
		x.st = st
		change(x)
		key := x.key()
		if was, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same key %q", name, was, key)
		}
		seen[key] = name
	}
	for name, change := range map[string]func(*exchange){
		"now":             func(x *exchange) { x.dec.Request.Time = endpoint.Time{} },
		"explained":       func(x *exchange) { x.account = &account{} },
		"of this process": func(x *exchange) { x.inner = true },
		"remote read":     func(x *exchange) { x.dec.Request.ID = endpoint.Read },
		"federation":      func(x *exchange) { x.dec.Request.ID = endpoint.Federate },
		"local":           func(x *exchange) { x.dec.Request.ID = endpoint.FormatQuery },
	} {
		x := base()
		x.st = st
		if change(x); x.key() != "" {
			t.Errorf("%s: %q, want no key", name, x.key())
		}
	}
}

// Two tenants ask the same thing at the same time: each is answered for itself. Rules are narrowed
// after they were read, so that only the key of what is shared tells the tenants apart there.
func TestTenantsShareNothing(t *testing.T) {
	w := newTenantWorld(t)
	at := url.Values{"query": {"count(requests_total)"}, "time": {stamp(time.Now())}}
	for path, form := range map[string]url.Values{"/api/v1/query": at, "/api/v1/rules": nil} {
		type one struct{ who, body string }
		answers := make(chan one, 200)
		for i := range cap(answers) {
			who := []string{"research", "all"}[i%2]
			go func() { answers <- one{who, string(w.ask(who, http.MethodGet, path, form, nil).body)} }()
		}
		got := map[string]string{}
		for range cap(answers) {
			a := <-answers
			if a.who == "research" && strings.Contains(a.body, canary) {
				t.Fatalf("%s: research is told what is not its own: %.300s", path, a.body)
			}
			got[a.who] = a.body
		}
		if got["research"] == got["all"] {
			t.Errorf("%s: both are told %.300s", path, got["all"])
		}
	}
}
