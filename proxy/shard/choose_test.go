package shard

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// bubble is a set of servers in memory, for tests under synctest. The i-th is
// http://10.0.0.<i+1>:9090.
type bubble struct {
	fakes []*fakeshard.Shard
	dial  DialFunc
	urls  []string
}

func newBubble(t *testing.T, cfgs ...fakeshard.Config) *bubble {
	t.Helper()
	b := &bubble{}
	byAddr := map[string]*fakeshard.Memory{}
	for i, cfg := range cfgs {
		mem := fakeshard.NewMemory()
		cfg.Listener = mem
		f, err := fakeshard.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		addr := fmt.Sprintf("10.0.0.%d:9090", i+1)
		byAddr[addr] = mem
		b.fakes = append(b.fakes, f)
		b.urls = append(b.urls, "http://"+addr)
	}
	b.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return byAddr[addr].DialContext(ctx, network, addr)
	}
	return b
}

// close ends the servers; the topology is closed before.
func (b *bubble) close() {
	for _, f := range b.fakes {
		f.Close()
	}
}

func (b *bubble) count(i int, path string) int { return len(b.fakes[i].RequestsTo(path)) }

func ask(ctx context.Context, s *Shard, req *endpoint.Request) (string, error) {
	resp, err := s.Do(ctx, req, CallOptions{})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	buf := make([]byte, 64<<10)
	for {
		if _, err := resp.Body.Read(buf); err != nil {
			if err.Error() == "EOF" {
				return resp.Replica.Name(), nil
			}
			return "", err
		}
	}
}

const seriesPath = "/api/v1/series"

func broken(script string) fakeshard.Config {
	return fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Script: script}, {Path: "/api/v1/query", Script: script}}}
}

// TestFailover is what a second replica is for, and what it is not for.
func TestFailover(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		req          *endpoint.Request
		kind         string
		first        int           // requests to the broken replica
		second       int           // and to the sound one
		took         time.Duration // of the bubble's clock
	}{
		{name: "sound", script: "answer", kind: "ok", first: 1},
		{name: "500", script: "status 500; send x", kind: "ok", first: 1, second: 1},
		{name: "503", script: "status 503; header Retry-After 1; send x", kind: "ok", first: 1, second: 1},
		{name: "429", script: "status 429; send x", kind: "ok", first: 1, second: 1},
		{name: "closed", script: "close", kind: "ok", first: 1, second: 1},
		{name: "login page", script: "garbage html", kind: "ok", first: 1, second: 1},
		{name: "hangs", script: "stall", kind: "ok", first: 1, second: 1, took: 5 * time.Second},
		{name: "400", script: "error 400 bad_data no", kind: "bad_data", first: 1},
		{name: "422", script: "error 422 execution no", kind: "too_expensive", first: 1},
		{name: "401", script: "status 401; send no", kind: "ok", first: 1, second: 1},
		{name: "403", script: "status 403; send no", kind: "ok", first: 1, second: 1},
		{name: "404", script: "status 404; send no", kind: "ok", first: 1, second: 1},
		{name: "405", script: "status 405; send no", kind: "ok", first: 1, second: 1},
		{name: "503 timeout", script: "error 503 timeout no", kind: "timeout", first: 1},
		{
			// A query may compute as long as its deadline lets it: silence does not mean that the
			// server hangs.
			name: "slow query", script: "delay 20s; answer", req: &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(0)},
			kind: "ok", first: 1, took: 20 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, broken(tc.script), fakeshard.Config{})
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				req := tc.req
				if req == nil {
					req = seriesRequest
				}
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				start := time.Now()
				_, err := ask(ctx, top.Groups[0].Shards[0], req)
				if kindOf(err) != tc.kind {
					t.Errorf("got %v, want %s", err, tc.kind)
				}
				path := req.Path()
				if f, s := b.count(0, path), b.count(1, path); f != tc.first || s != tc.second {
					t.Errorf("the replicas saw %d and %d requests, want %d and %d", f, s, tc.first, tc.second)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestBothFail: the error names both servers.
func TestBothFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, broken("close"), broken("status 500; send x"))
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		_, err := ask(t.Context(), top.Groups[0].Shards[0], seriesRequest)
		e := qerr.From(err)
		if e == nil || e.Kind != qerr.ShardFailed || len(e.Shards) != 2 {
			t.Fatalf("got %v", err)
		}
		for _, host := range []string{"jaguar/10.0.0.1:9090 broke", "jaguar/10.0.0.2:9090 answered with status 500"} {
			if !strings.Contains(e.Message, host) {
				t.Errorf("%q does not say %q", e.Message, host)
			}
		}
		if b.count(0, seriesPath) != 1 || b.count(1, seriesPath) != 1 {
			t.Errorf("the replicas saw %d and %d requests", b.count(0, seriesPath), b.count(1, seriesPath))
		}
		top.Close()
		b.close()
	})
}

// TestClientLeavesWhileDialling: the call ends at once, whatever the network does.
func TestClientLeavesWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		top := build(t, Options{Dial: hole}, false, group("http://10.0.0.1:9090", "http://10.0.0.2:9090"))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(qerr.ErrClientLeft) })
		start := time.Now()
		_, err := ask(ctx, top.Groups[0].Shards[0], seriesRequest)
		if kindOf(err) != "canceled" || time.Since(start) != time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		time.Sleep(5 * time.Second) // the dial's own bound
		synctest.Wait()
		top.Close()
	})
}

// TestSticky: the replica that served last serves on, also when the first listed is well again.
func TestSticky(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Nth: 1, Script: "close"}}}, fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		for range 3 {
			name, err := ask(t.Context(), top.Groups[0].Shards[0], seriesRequest)
			if err != nil || name != "jaguar/10.0.0.2:9090" {
				t.Errorf("%s, %v", name, err)
			}
		}
		if base, err := top.Groups[0].Shards[0].Base(); err != nil || base.Index != 1 {
			t.Errorf("base %v, %v", base, err)
		}
		top.Close()
		b.close()
	})
}

// TestSingleRetries: with nobody else to ask, a broken connection and a short Retry-After are tried
// again, once.
func TestSingleRetries(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		kind         string
		calls        int
		took         time.Duration
	}{
		{"closed", "close", "ok", 2, 0},
		{"Retry-After that fits", "status 503; header Retry-After 3; send x", "ok", 2, 3 * time.Second},
		{"Retry-After that does not", "status 503; header Retry-After 9; send x", "shard_failed", 1, 0},
		{"500", "status 500; send x", "shard_failed", 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Nth: 1, Script: tc.script}}})
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				_, err := ask(ctx, top.Groups[0].Shards[0], seriesRequest)
				if n := b.count(0, seriesPath); kindOf(err) != tc.kind || n != tc.calls || time.Since(start) != tc.took {
					t.Errorf("%d calls in %s: %v", n, time.Since(start), err)
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestBreaker: five failures move the shard to its other replica for good; with the server sound
// again the breaker closes by itself within 20 s, and where both are broken both are still asked.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Nth: 1, To: 20, Script: "status 500; send x"}}},
			fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		r := s.Replicas[0]
		for range breakerFailures {
			if _, err := readAll(t.Context(), r, seriesRequest, CallOptions{}); err == nil {
				t.Fatal("no error")
			}
		}
		if state := r.up.breaker.current(time.Now()); state != Open {
			t.Errorf("breaker %s after %d failures", state, breakerFailures)
		}
		if base, err := s.Base(); err != nil || base.Index != 1 {
			t.Errorf("base %v, %v", base, err)
		}
		start := time.Now()
		for r.up.breaker.current(time.Now()) != Closed {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("closed after %s", took)
		}
		// One more failure opens it again: the probe alone is not trusted.
		if _, err := readAll(t.Context(), r, seriesRequest, CallOptions{}); err == nil || r.up.breaker.current(time.Now()) != Open {
			t.Errorf("%v, breaker %s", err, r.up.breaker.current(time.Now()))
		}
		top.Close()
		b.close()
	})
}

func TestBreakerNeverTakesTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Nth: 1, To: 8, Script: "status 500; send x"}}})
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		for range 8 {
			if _, err := ask(t.Context(), s, seriesRequest); kindOf(err) != "shard_failed" {
				t.Errorf("got %v", err)
			}
		}
		if _, err := ask(t.Context(), s, seriesRequest); err != nil {
			t.Errorf("the only replica is sound again and was not asked: %v", err)
		}
		if state := s.Replicas[0].up.breaker.current(time.Now()); state != Closed {
			t.Errorf("breaker %s after a success", state)
		}
		top.Close()
		b.close()
	})
}

// TestGates: the third unselective call waits, in order, and gets 429 when its deadline comes
// first.
func TestGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, broken("wait go; answer"))
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		r := top.Groups[0].Shards[0].Replicas[0]
		o := CallOptions{Class: Unselective}
		results := make(chan error, 3)
		for range 3 {
			go func() { // ends with its call; the results are counted below
				_, err := readAll(t.Context(), r, seriesRequest, o)
				results <- err
			}()
		}
		synctest.Wait()
		if n := b.fakes[0].InFlight(); n != maxUnselective {
			t.Errorf("%d calls at the server, want %d", n, maxUnselective)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := readAll(ctx, r, seriesRequest, o)
		if e := qerr.From(err); e == nil || e.Kind != qerr.Overloaded || e.Bound == "" || !strings.Contains(e.Message, r.Name()) ||
			ctx.Err() != nil {
			t.Errorf("got %v, context %v", err, ctx.Err())
		}
		left, leave := context.WithCancelCause(t.Context())
		leave(qerr.ErrClientLeft)
		if _, err := readAll(left, r, seriesRequest, o); kindOf(err) != "canceled" {
			t.Errorf("got %v", err)
		}
		b.fakes[0].Release("go")
		for range 3 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if held, waiting := r.up.gates.unselective.Held(), r.up.gates.waiting(); held != 0 || waiting != 0 {
			t.Errorf("%d held, %d waiting at the end", held, waiting)
		}
		top.Close()
		b.close()
	})
}
