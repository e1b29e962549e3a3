package shard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	commonconfig "github.com/prometheus/common/config"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestFaults is what each thing that a server can do wrong comes to. Every error must name group
// and host:port.
func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		kind         string
		says         string
		calls        int // requests that the server sees
		max          int64
	}{
		{name: "healthy", script: "answer", kind: "ok", calls: 1},
		{name: "gzip", script: "gzip on; answer", kind: "ok", calls: 1},
		{name: "F3 reset before headers", script: "reset", kind: "shard_failed", says: "before it answered", calls: 2},
		{name: "F3 close before headers", script: "close", kind: "shard_failed", says: "before it answered", calls: 2},
		{name: "F3 reset in the body", script: `flush; send '{"status":'; reset`, kind: "shard_failed", says: "answer", calls: 1},
		{name: "F4 truncated chunks", script: `send '{"status":'; truncate`, kind: "shard_failed", says: "cut its answer short", calls: 1},
		{
			name: "F4 truncated length", script: `length 1000; send '{"status":'; close`, kind: "shard_failed",
			says:  "cut its answer short",
			calls: 1,
		},
		{name: "F5 garbage", script: "garbage bytes", kind: "shard_failed", says: "not JSON", calls: 1},
		{name: "F5 empty", script: "garbage empty", kind: "shard_failed", says: "not JSON", calls: 1},
		{name: "F5 not HTTP", script: "garbage wire", kind: "shard_failed", says: "before it answered", calls: 1},
		{name: "F6 huge", script: "generate 1GiB", kind: "too_expensive", says: "max_response_bytes", calls: 1, max: 1 << 20},
		{name: "F7 bomb", script: "gzip bomb 1GiB", kind: "shard_failed", says: "gzip", calls: 1},
		{name: "F7 bad gzip", script: "gzip bad; answer", kind: "shard_failed", says: "gzip", calls: 1},
		{name: "F7 double gzip", script: "gzip double; answer", kind: "shard_failed", says: "gzip", calls: 1},
		{name: "F7 cut gzip", script: "gzip cut; answer", kind: "shard_failed", says: "cut its answer short", calls: 1},
		{name: "F8 login page", script: "garbage html", kind: "shard_failed", says: "not JSON", calls: 1},
		{
			name: "F9 400", script: "error 400 bad_data 'invalid parameter \"match[]\"'", kind: "bad_data",
			says: `invalid parameter "match[]"`, calls: 1,
		},
		{name: "F9 400 of another", script: "status 400; garbage html", kind: "shard_failed", says: "status 400", calls: 1},
		{name: "F9 422", script: "error 422 execution 'query processing would load too many samples'", kind: "too_expensive", says: "too many samples", calls: 1},
		{name: "F9 503 timeout", script: "error 503 timeout 'query timed out in expression evaluation'", kind: "timeout", says: "timed out in", calls: 1},
		{name: "F9 422 timeout", script: "error 422 execution 'expanding series: context deadline exceeded'", kind: "timeout", says: "expanding series", calls: 1},
		{name: "F9 503", script: "status 503; send 'starting up'", kind: "shard_failed", says: "status 503", calls: 1},
		{name: "F9 500", script: "error 500 internal 'it broke'", kind: "shard_failed", says: "it broke", calls: 1},
		{name: "F9 502 html", script: "status 502; garbage html", kind: "shard_failed", says: "status 502", calls: 1},
		{name: "F9 429", script: "status 429; header Retry-After 30; send x", kind: "shard_failed", says: "429", calls: 1},
		{name: "401", script: "status 401; send no", kind: "shard_failed", says: "credentials", calls: 1},
		{name: "404", script: "status 404; send no", kind: "shard_failed", says: "does not serve series", calls: 1},
		{name: "204", script: "status 204", kind: "shard_failed", says: "204", calls: 1},
		{name: "endless error body", script: "status 500; generate 1GiB", kind: "shard_failed", says: "status 500", calls: 1},
		{name: "F10 redirect to itself", script: "redirect", kind: "shard_failed", says: "redirects", calls: 1},
		{name: "headers without end", script: "flood 1MiB; answer", kind: "shard_failed", says: "before it answered", calls: 1},
		{name: "encoding nobody asked for", script: "header Content-Encoding br; answer", kind: "shard_failed", says: "encoding", calls: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, fake := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Script: tc.script}}}, Options{})
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			got, err := readAll(ctx, r, seriesRequest, CallOptions{MaxBytes: tc.max})
			if kindOf(err) != tc.kind {
				t.Fatalf("got %v, want %s", err, tc.kind)
			}
			if err == nil {
				if !bytes.Contains(got, []byte(`"success"`)) {
					t.Errorf("got %q", got)
				}
			} else {
				e := qerr.From(err)
				if !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%q does not say %q", err, tc.says)
				}
				if e.Kind != qerr.BadData && (e.Kind != qerr.TooExpensive || e.Bound != "") &&
					(!strings.Contains(e.Message, "jaguar/"+strings.TrimPrefix(fake.URL(), "http://")) || len(e.Shards) != 1) {
					t.Errorf("%q does not name the replica; Shards %q", e.Message, e.Shards)
				}
				if strings.Contains(e.Message, "<html") {
					t.Errorf("the body went into the public sentence: %q", e.Message)
				}
			}
			if err := fake.WaitIdle(ctx); err != nil {
				t.Fatal(err)
			}
			if n := len(fake.RequestsTo("/api/v1/series")); n != tc.calls {
				t.Errorf("the server saw %d requests, want %d", n, tc.calls)
			}
			if n := r.InFlight(); n != 0 {
				t.Errorf("%d calls in flight at the end", n)
			}
		})
	}
}

// TestHeadersWithoutEnd: who asks with a password bounds an answer's header too.
func TestHeadersWithoutEnd(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Script: "flood 1MiB; answer"}}})
	g := group(fake.URL())
	g.Shards[0].Replicas[0].HTTPClient.BasicAuth = &commonconfig.BasicAuth{Username: "u", Password: "p"}
	r := build(t, Options{}, false, g).Groups[0].Shards[0].Replicas[0]
	_, err := readAll(t.Context(), r, seriesRequest, CallOptions{})
	if kindOf(err) != "shard_failed" || !strings.Contains(err.Error(), "the header of the answer is too large") {
		t.Errorf("got %v", err)
	}
}

// TestStallUntilTheDeadline is F1 and F2 with no time to spare: a little before the deadline the
// call ends by it, and names the replica.
func TestStallUntilTheDeadline(t *testing.T) {
	for name, script := range map[string]string{"F1 before headers": "stall", "F2 mid-body": `send '{"status":"success","data":['; stall`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Script: script}}})
				defer b.close()
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				defer top.Close()
				r := top.Groups[0].Shards[0].Replicas[0]
				const limit = 1500 * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				_, err := readAll(ctx, r, seriesRequest, CallOptions{})
				if took := time.Since(start); took < limit-margin(limit) || took > limit {
					t.Errorf("the call took %s, its deadline was %s", took, limit)
				}
				if e := qerr.From(err); kindOf(err) != "timeout" || !strings.Contains(err.Error(), "deadline") ||
					!strings.Contains(e.Message, r.Name()) || len(e.Shards) != 1 {
					t.Errorf("got %v; Shards %q", err, e.Shards)
				}
				if err := b.fakes[0].WaitIdle(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := b.count(0, seriesPath); n != 1 || r.InFlight() != 0 {
					t.Errorf("the server saw %d requests, %d calls are in flight at the end", n, r.InFlight())
				}
			})
		})
	}
}

// TestStall is F2 with time to spare: the progress timeout ends the call long before the request's
// deadline.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := fakeshard.NewMemory()
		fake, err := fakeshard.New(fakeshard.Config{Listener: mem, Routes: []fakeshard.Route{
			{Path: "/api/v1/series", Nth: 1, Script: `send '{"status":"success",'; delay 9s; send '"data":['; stall`},
			{Path: "/api/v1/series", Nth: 2, Script: `drip 8B/9s; answer`},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer fake.Close()
		top := build(t, Options{Dial: mem.DialContext}, false, group("http://shard.invalid:9090"))
		defer top.Close()
		r := top.Groups[0].Shards[0].Replicas[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, err = readAll(ctx, r, seriesRequest, CallOptions{})
		if kindOf(err) != "shard_failed" || !strings.Contains(err.Error(), "stalled") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 19*time.Second {
			t.Errorf("the call took %s, want 9 s and the progress timeout", took)
		}
		if _, err := readAll(ctx, r, seriesRequest, CallOptions{}); err != nil {
			t.Errorf("a slow but steady body: %v", err)
		}
	})
}

// TestTimeoutIsSent: the shard's share is always less than ours, and a client's lower wish stands.
func TestTimeoutIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		defer top.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		for _, tc := range []struct {
			own    time.Duration
			lo, hi time.Duration
		}{
			{0, 7 * time.Second, 7900 * time.Millisecond},
			{2 * time.Second, 2 * time.Second, 2 * time.Second},
			{time.Hour, 7 * time.Second, 7900 * time.Millisecond},
		} {
			req := &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(4000), Timeout: tc.own}
			if _, err := readAll(ctx, top.Groups[0].Shards[0].Replicas[0], req, CallOptions{}); err != nil {
				t.Fatal(err)
			}
			all := b.fakes[0].RequestsTo("/api/v1/query")
			sent := all[len(all)-1].Form.Get("timeout")
			d, err := time.ParseDuration(sent)
			if err != nil {
				d, err = time.ParseDuration(sent + "s")
			}
			if err != nil || d < tc.lo || d > tc.hi {
				t.Errorf("own timeout %s: sent %q, want %s to %s", tc.own, sent, tc.lo, tc.hi)
			}
			if req.Timeout != tc.own {
				t.Error("the caller's request was changed")
			}
		}
	})
}

// TestClientLeaves: the cause is kept, the server sees the connection end, and the linger is
// measured.
func TestClientLeaves(t *testing.T) {
	for _, tc := range []struct{ name, script string }{
		{"headers", "stall"},
		{"body", `send '{"status":"success","data":['; stall`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			r, fake := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Script: tc.script}}},
				Options{Registerer: reg})
			ctx, cancel := context.WithCancelCause(context.Background())
			result := make(chan error, 1)
			go func() { // ends with the call, which the test waits for
				_, err := readAll(ctx, r, seriesRequest, CallOptions{})
				result <- err
			}()
			wait, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			if err := fake.WaitSeen(wait, "/api/v1/series", 1); err != nil {
				t.Fatal(err)
			}
			cancel(qerr.ErrClientLeft)
			err := <-result
			if kindOf(err) != "canceled" || !errors.Is(err, qerr.ErrClientLeft) {
				t.Errorf("got %v", err)
			}
			if err := fake.WaitIdle(wait); err != nil {
				t.Fatal(err)
			}
			if end := fake.RequestsTo("/api/v1/series")[0].End; !end.PeerLeft() {
				t.Errorf("the server saw %s", end)
			}
			if n := testutil.CollectAndCount(r.up.metrics.linger); n != 1 {
				t.Errorf("%d series of cancel_linger, want 1", n)
			}
		})
	}
}

// TestKilled: an error as the context's cause comes out as it is.
func TestKilled(t *testing.T) {
	r, _ := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Script: "stall"}}}, Options{})
	killed := qerr.New(qerr.Unavailable, "killed by an operator")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(20*time.Millisecond, func() { cancel(killed) })
	if _, err := readAll(ctx, r, seriesRequest, CallOptions{}); !errors.Is(err, killed) {
		t.Errorf("got %v", err)
	}
}

// TestCloseEarly: giving an answer up closes its connection and drains nothing; reading it to its
// end keeps the connection.
func TestCloseEarly(t *testing.T) {
	r, fake := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Nth: 1, Script: "generate 10GiB"}}}, Options{})
	resp, err := r.Do(context.Background(), seriesRequest, CallOptions{MaxBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(resp.Body.Close(), resp.Body.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Error("a closed body can be read")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := fake.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	if sent := fake.RequestsTo("/api/v1/series")[0].Sent; sent > 64<<20 {
		t.Errorf("%d bytes were sent to nobody", sent)
	}
	for range 3 {
		if _, err := readAll(ctx, r, seriesRequest, CallOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := fake.Accepted(); n != 2 {
		t.Errorf("%d connections, want one that was closed and one that was used three times", n)
	}
}

// TestMaxBytes: a body of exactly the bound is fine, one byte more is not.
func TestMaxBytes(t *testing.T) {
	const text = `{"status":"success","data":[]}`
	r, _ := one(t, fakeshard.Config{Routes: []fakeshard.Route{{
		Path:   "/api/v1/series",
		Script: "header Content-Type application/json; send '" + text + "'",
	}}}, Options{})
	if got, err := readAll(context.Background(), r, seriesRequest, CallOptions{MaxBytes: int64(len(text))}); err != nil ||
		string(got) != text {
		t.Errorf("at the bound: %q, %v", got, err)
	}
	_, err := readAll(context.Background(), r, seriesRequest, CallOptions{MaxBytes: int64(len(text)) - 1})
	if e := qerr.From(err); e == nil || e.Bound != "max_response_bytes" {
		t.Errorf("over the bound: %v", err)
	}
}

// TestRedirectSendsNothing: the other host never hears of us, nor of our credentials.
func TestRedirectSendsNothing(t *testing.T) {
	other := fakeshard.Start(t, fakeshard.Config{})
	r, fake := one(t, fakeshard.Config{Routes: []fakeshard.Route{{
		Path:   "/api/v1/series",
		Script: "redirect " + other.URL() + "/api/v1/series 307",
	}}}, Options{})
	r.up.headers["X-Scope-Orgid"] = "a"
	if _, err := readAll(context.Background(), r, seriesRequest, CallOptions{}); kindOf(err) != "shard_failed" {
		t.Errorf("got %v", err)
	}
	if other.Seen() != 0 {
		t.Error("the redirect was followed")
	}
	if h := fake.Requests()[0].Header; h.Get("X-Scope-OrgID") != "a" || h.Get("Accept-Encoding") != "gzip" {
		t.Errorf("the server saw %v", h)
	}
}

// TestGarbageGoesToTheLog and nowhere else, escaped.
func TestGarbageGoesToTheLog(t *testing.T) {
	var log bytes.Buffer
	r, _ := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Script: "header Content-Type application/json; send 'SECRET\n'"}}},
		Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, err := readAll(context.Background(), r, seriesRequest, CallOptions{})
	if e := qerr.From(err); e == nil || strings.Contains(e.Error(), "SECRET") || !strings.Contains(log.String(), "SECRET") {
		t.Errorf("error %v, log %s", err, log.String())
	}
}

// TestMalformed: what a decoder finds counts against the replica although the body had come to its
// end.
func TestMalformed(t *testing.T) {
	r, _ := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Script: "garbage shape"}}}, Options{})
	for range breakerFailures {
		resp, err := r.Do(context.Background(), seriesRequest, CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		if e := resp.Malformed(errors.New("data is no list")); e.Kind != qerr.ShardFailed || len(e.Shards) != 1 {
			t.Errorf("got %v", e)
		}
		resp.Body.Close()
	}
	if state := r.up.breaker.current(time.Now()); state != Open {
		t.Errorf("breaker %s", state)
	}
}

// TestUnreachable is F11: nobody listens, or the name has no address.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	r := build(t, Options{}, false, group("http://"+addr)).Groups[0].Shards[0].Replicas[0]
	if _, err := readAll(context.Background(), r, seriesRequest, CallOptions{}); kindOf(err) != "shard_failed" ||
		!strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("got %v", err)
	}
}

// TestDialTimeout: packets that go nowhere cost the dial timeout and no more.
func TestDialTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		top := build(t, Options{Dial: hole}, false, group("http://10.0.0.1:9090"))
		defer top.Close()
		start := time.Now()
		_, err := readAll(t.Context(), top.Groups[0].Shards[0].Replicas[0], seriesRequest, CallOptions{})
		if kindOf(err) != "shard_failed" || !strings.Contains(err.Error(), "no connection within 5s") ||
			time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// lateContext is one whose deadline has passed and whose timer has not run yet.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// TestDeadlineBeforeItsTimer: what breaks at the deadline breaks by it, though the connection may
// notice before the context does.
func TestDeadlineBeforeItsTimer(t *testing.T) {
	r, _ := one(t, fakeshard.Config{}, Options{})
	for name, broke := range map[string]error{"dial": &dialError{os.ErrDeadlineExceeded}, "answer": os.ErrDeadlineExceeded} {
		for _, passed := range []bool{true, false} {
			at, want := time.Now().Add(time.Hour), "shard_failed"
			if passed {
				at, want = time.Now(), "timeout"
			}
			c := &call{r: r, parent: lateContext{t.Context(), at}, ctx: t.Context(), answered: name == "answer"}
			if e := c.explain(broke, nil); kindOf(e) != want || !slices.Equal(e.Shards, []string{r.Name()}) {
				t.Errorf("%s, deadline passed %t: want %s, got %v of %v", name, passed, want, e, e.Shards)
			}
		}
	}
}

// TestLastGoodAddresses: a name that resolved once is used on when the resolver fails, for ten
// minutes from then, however long nobody has looked it up before.
func TestLastGoodAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled []string
		d := newDialer(5*time.Second, func(_ context.Context, _, addr string) (net.Conn, error) {
			dialled = append(dialled, addr)
			if addr == "10.0.0.1:9090" {
				return nil, errors.New("refused")
			}
			c, _ := net.Pipe()
			return c, nil
		})
		var healthy atomic.Bool // read by the look-up's own goroutine
		d.resolve = func(ctx context.Context, _ string) ([]string, error) {
			if healthy.Load() {
				return []string{"10.0.0.1", "10.0.0.2"}, nil
			}
			<-ctx.Done() // a resolver that hangs
			return nil, ctx.Err()
		}
		for _, step := range []struct {
			after   time.Duration
			healthy bool
			want    string
		}{
			{0, true, "10.0.0.2:9090"},
			{time.Minute, false, "10.0.0.2:9090"},
			{dnsKeep / 2, false, "10.0.0.2:9090"},
			{dnsKeep / 2, false, ""},
			{time.Minute, true, "10.0.0.2:9090"},
			{24 * time.Hour, false, "10.0.0.2:9090"}, // a connection was kept all night
			{dnsKeep - 20*time.Second, false, "10.0.0.2:9090"},
			{20 * time.Second, false, ""},
			{time.Minute, true, "10.0.0.2:9090"},
			{time.Hour, false, "10.0.0.2:9090"},
			{5 * time.Hour, false, "10.0.0.2:9090"}, // it failed once, and nobody has looked it up since
		} {
			time.Sleep(step.after) // the bubble's clock
			healthy.Store(step.healthy)
			dialled = nil
			conn, err := d.dial(t.Context(), "tcp", "shard.invalid:9090")
			if (err == nil) != (step.want != "") || step.want != "" && dialled[len(dialled)-1] != step.want {
				t.Errorf("after %s: %v, dialled %q", step.after, err, dialled)
			}
			if conn != nil {
				conn.Close()
			}
		}
	})
}

// TestRemoteRead: the types of remote read are accepted for it, and a body without an end is not.
func TestRemoteRead(t *testing.T) {
	for _, tc := range []struct{ script, kind string }{
		{"header Content-Type application/x-streamed-protobuf; send x", "ok"},
		{"header Content-Type application/x-protobuf; header Content-Encoding snappy; send x", "ok"},
		{"header Content-Type application/x-streamed-protobuf; unframed; send x", "shard_failed"},
		{"header Content-Type application/json; send x", "shard_failed"},
	} {
		// A server that says 200 to anything: the request's own form is the endpoint package's
		// affair.
		r, _ := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/read", Script: tc.script}}}, Options{})
		build := writerOf(http.MethodPost, "/api/v1/read")
		resp, err := r.attempt(context.Background(), endpoint.Read, build, try{CallOptions: CallOptions{Class: Heavy}})
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if kindOf(err) != tc.kind {
			t.Errorf("%s: got %v, want %s", tc.script, err, tc.kind)
		}
		if held := r.up.gates.of(Heavy).Held(); held != 0 {
			t.Errorf("%s: %d slots still held", tc.script, held)
		}
	}
}

// TestTrace: a call for a request that is traced is a span, its context goes along as W3C has it,
// and nothing else does.
func TestTrace(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
	r, fake := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/series", Nth: 2, Script: "status 500; send x"}}},
		Options{TracerProvider: tp, UserAgent: "Spillway/test"})
	ctx, request := tp.Tracer("test").Start(t.Context(), "request")
	for range 2 {
		_, _ = readAll(ctx, r, seriesRequest, CallOptions{Plain: true}) // the second fails
	}
	spans := rec.Ended()
	request.End()
	if len(spans) != 2 || spans[0].Name() != "shard series" || spans[1].Status().Code != codes.Error {
		t.Fatalf("spans %v", spans)
	}
	h := fake.Requests()[0].Header
	if want := "00-" + spans[0].SpanContext().TraceID().String() + "-" + spans[0].SpanContext().SpanID().String() +
		"-01"; h.Get("Traceparent") != want {
		t.Errorf("traceparent %q, want %q", h.Get("Traceparent"), want)
	}
	if h.Get("User-Agent") != "Spillway/test" || h.Get("Accept-Encoding") != "identity" {
		t.Errorf("headers %v", h)
	}
}
