package shard

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestRetryAfterIsKept: a server that asked to be left alone is, until the time has passed; who
// needs it is told so at once, as the server told it, and when to come again. Its breaker stays
// closed.
func TestRetryAfterIsKept(t *testing.T) {
	for _, tc := range []struct {
		script string
		kind   qerr.Kind
		after  time.Duration
	}{
		{"header Retry-After 30; error 429 too_many_requests busy", qerr.Overloaded, 30 * time.Second},
		{"header Retry-After 3600; error 429 too_many_requests busy", qerr.Overloaded, time.Minute},
		{"header Retry-After 30; status 503; send x", qerr.Unavailable, 30 * time.Second},
	} {
		for _, replicas := range []int{1, 2} {
			synctest.Test(t, func(t *testing.T) {
				cfg := fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Nth: 1, Script: tc.script}}}
				b := newBubble(t, []fakeshard.Config{cfg, cfg}[:replicas]...)
				defer b.close()
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				for i, left := range []time.Duration{tc.after, tc.after, tc.after - 20*time.Second} {
					if i == 2 {
						time.Sleep(20 * time.Second)
					}
					began := time.Now()
					_, err := ask(ctx, s, seriesRequest)
					e := Busy(qerr.From(err))
					if e.Kind != tc.kind || e.RetryAfter != left || !strings.Contains(e.Message, left.String()) ||
						!strings.Contains(e.Message, s.Replicas[0].Name()) || time.Since(began) != 0 {
						t.Errorf("%s, %d replicas, call %d: after %s %v, Retry-After %s, not %s", tc.script, replicas, i, time.Since(began), err, e.RetryAfter, left)
					}
				}
				for i := range replicas {
					if n := b.count(i, seriesPath); n != 1 {
						t.Errorf("%s: replica %d of %d saw %d calls, not one", tc.script, i, replicas, n)
					}
				}
				time.Sleep(tc.after - 20*time.Second)
				ctx, cancel = context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				if _, err := ask(ctx, s, seriesRequest); err != nil || s.Replicas[0].up.breaker.current(time.Now()) != Closed {
					t.Errorf("once the time has passed: %v, breaker %s", err, s.Replicas[0].up.breaker.current(time.Now()))
				}
			})
		}
	}
}

// TestRetryAfterOfAPage: that one page of a server's own is refused for a while, again and again,
// takes the server from nobody.
func TestRetryAfterOfAPage(t *testing.T) {
	for _, path := range []string{"/api/v1/status/config", "/api/v1/status/flags", "/metrics"} {
		for _, status := range []string{"status 503", "error 429 too_many_requests busy"} {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: path, Script: "header Retry-After 120; " + status}}})
				defer b.close()
				top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
				defer top.Close()
				for range 20 {
					time.Sleep(30 * time.Second)
					if _, err := ask(t.Context(), top.Groups[0].Shards[0], seriesRequest); err != nil {
						t.Fatalf("%s, %s: %v", path, status, err)
					}
				}
				if b.count(0, path) < 2 {
					t.Errorf("%s was asked %d times", path, b.count(0, path))
				}
			})
		}
	}
}

// TestRetryAfterOfASpillway: what a Spillway refuses is one request. Who sent it is told so, in its
// words and with its time, and the others are asked of it as before.
func TestRetryAfterOfASpillway(t *testing.T) {
	heavy := &endpoint.Request{ID: endpoint.Query, Query: "heavy", Time: endpoint.At(0)}
	for _, tc := range []struct {
		script, said string
		kind         qerr.Kind
		after        time.Duration
	}{
		{"header Retry-After 30; error 429 too_many_requests 'more than half of it'", "more than half of it", qerr.Overloaded, 30 * time.Second},
		{"header Retry-After 15; error 503 unavailable 'one of them is sick'", "one of them is sick", qerr.Unavailable, 15 * time.Second},
		{"header Retry-After 600; error 503 unavailable 'it ended a server'", "it ended a server", qerr.Unavailable, 10 * time.Minute},
	} {
		for _, replicas := range []int{1, 2} {
			synctest.Test(t, func(t *testing.T) {
				script := "header X-Spillway-Verdict refuse; " + tc.script
				cfg := fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/query", Query: heavy.Query, Script: script}}}
				b := newBubble(t, []fakeshard.Config{cfg, cfg}[:replicas]...)
				defer b.close()
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				for i := range 3 {
					_, err := ask(ctx, s, heavy)
					e := Busy(qerr.From(err))
					if e.Kind != tc.kind || e.RetryAfter != tc.after || !strings.Contains(e.Message, tc.said) || Unasked(err) ||
						strings.Contains(e.Message, "left alone") {
						t.Errorf("%s, %d replicas, call %d: %v, Retry-After %s", tc.script, replicas, i, err, e.RetryAfter)
					}
					if _, err := ask(ctx, s, seriesRequest); err != nil {
						t.Errorf("%s, %d replicas: another one's request after call %d: %v", tc.script, replicas, i, err)
					}
				}
				if state := s.Replicas[0].up.breaker.current(time.Now()); state != Closed {
					t.Errorf("%s: breaker %s", tc.script, state)
				}
			})
		}
	}
}

// TestBusyLeavesOthers: what is no wish to be asked later stays what it is.
func TestBusyLeavesOthers(t *testing.T) {
	for _, st := range []*StatusError{
		{Code: http.StatusTooManyRequests},
		{Code: http.StatusServiceUnavailable},
		{Code: http.StatusBadGateway, RetryAfter: time.Second},
	} {
		if e := qerr.Wrap(qerr.ShardFailed, st, "it failed"); Busy(e) != e {
			t.Errorf("%d with Retry-After %s became %s", st.Code, st.RetryAfter, Busy(e).Kind)
		}
	}
}
