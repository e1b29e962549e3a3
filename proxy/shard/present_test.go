package shard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestWhoCannotBeAskedTakesNoPart: of a pair the replica that is read dies, says that it cannot, or
// is silent for heartbeats alone. The other one is whole from the first request on, which waits no
// longer than a request's patience, and is charged with nothing. Back again, the first lacks what
// it did not scrape until that lies before the window.
func TestWhoCannotBeAskedTakesNoPart(t *testing.T) {
	const dead, refuses, silent = 1, 2, 3
	for _, tc := range []struct {
		name string
		how  int32
		most time.Duration // that the first request takes
	}{
		{"dead", dead, 0}, {"says that it cannot", refuses, 0}, {"silent", silent, wholeWait},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var how atomic.Int32
				var died, back atomic.Int64 // Unix milliseconds
				full := func(_ string, end int64) (int64, int64) {
					if end == 0 {
						return 10, 40
					}
					return 10, 200
				}
				cfg := beating(func(job string, end int64) (int64, int64) {
					n, samples := full(job, end)
					if end == 0 || died.Load() == 0 || end <= died.Load() ||
						back.Load() > 0 && end-trust.Bucket.Milliseconds() >= back.Load() {
						return n, samples
					}
					return n, samples / 2
				})
				answer := cfg.Answer
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					a, ok := answer(r)
					if ok && how.Load() == refuses {
						a = fakeshard.Answer{Status: 503, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no")}
					}
					for (ok || r.Form.Get("query") == minuteQuery) && how.Load() == silent {
						time.Sleep(time.Second)
					}
					return a, ok
				}
				b := newBubble(t, cfg, beating(full))
				g := group(b.urls...)
				g.Heartbeat = "up"
				var mu sync.Mutex
				var conns []net.Conn // to the first replica
				top := build(t, Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !strings.HasSuffix(b.urls[0], addr) {
						return b.dial(ctx, network, addr)
					}
					mu.Lock()
					defer mu.Unlock()
					if how.Load() == dead {
						return nil, errors.New("connection refused")
					}
					c, err := b.dial(ctx, network, addr)
					if err == nil {
						conns = append(conns, c)
					}
					return c, err
				}}, true, g)
				s := top.Groups[0].Shards[0]
				whole := func(window time.Duration) int {
					t.Helper()
					now := time.Now()
					r, whole, err := s.Whole(t.Context(), now.Add(-window).UnixMilli(), now.UnixMilli(), now)
					if err != nil || !whole {
						t.Fatalf("whole %t, %v", whole, err)
					}
					return r.Index
				}
				time.Sleep(17 * time.Minute)
				if got := whole(10 * time.Minute); got != 0 || s.Alone() != nil {
					t.Errorf("before: replica %d, alone %t", got, s.Alone() != nil)
				}

				died.Store(time.Now().UnixMilli())
				how.Store(tc.how)
				if mu.Lock(); tc.how == dead { // it has no connections, not even those in use just now
					for _, c := range conns {
						c.Close()
					}
				}
				mu.Unlock()
				time.Sleep(trust.Fresh + time.Second) // what was found before is believed until then
				began := time.Now()
				if got, took := whole(3*time.Hour), time.Since(began); got != 1 || took > tc.most {
					t.Errorf("gone: replica %d after %s", got, took)
				}
				if status := top.Status(); s.Alone() == nil || status[0].Whole || status[0].HeartbeatError == "" && status[0].State == Up ||
					!status[1].Whole || status[1].HeartbeatError != "" || status[1].Breaker != Closed {
					t.Errorf("gone: alone %t, %+v", s.Alone() != nil, status)
				}

				time.Sleep(13 * time.Minute)
				back.Store(time.Now().UnixMilli())
				how.Store(0)
				time.Sleep(time.Minute)
				if status := top.Status(); s.Alone() != nil || status[0].Whole || status[0].LackingSince.IsZero() ||
					status[0].HeartbeatError != "" || !status[1].Whole || !status[1].LackingSince.IsZero() {
					t.Errorf("back: alone %t, %+v", s.Alone() != nil, status)
				}
				if got := whole(10 * time.Minute); got != 1 {
					t.Errorf("back: replica %d", got)
				}
				time.Sleep(2 * trust.Bucket)
				if status := top.Status(); !status[0].Whole || !status[0].LackingSince.IsZero() {
					t.Errorf("a closed bucket later: %+v", status[0])
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestTheHealthyOneIsNotCharged: while one replica's heartbeat fails, the other's question goes on
// and is counted for neither its breaker nor its errors.
func TestTheHealthyOneIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := func(string, int64) (int64, int64) { return 10, 200 }
		slow := beating(full)
		answer := slow.Answer
		slow.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			a, ok := answer(r)
			if ok {
				time.Sleep(200 * time.Millisecond) // the other one has failed long before
			}
			return a, ok
		}
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/api/v1/query", Script: "status 500; send no"},
			{Path: "/api/v1/query_range", Script: "status 500; send no"},
		}}, slow)
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, true, g)
		s := top.Groups[0].Shards[0]
		time.Sleep(time.Minute)
		now := time.Now()
		r, whole, err := s.Whole(t.Context(), now.UnixMilli()-3600_000, now.UnixMilli(), now)
		if err != nil || !whole || r.Index != 1 {
			t.Errorf("whole %t, %v", whole, err)
		}
		if i := top.Status(); i[1].Breaker != Closed || i[1].HeartbeatError != "" || i[0].HeartbeatError == "" {
			t.Errorf("%+v", i)
		}
		top.Close()
		b.close()
	})
}

// TestSlowIsNotAbsent: who is only too slow with what was long ago is there all the same, and the
// other one, which lacks some of it, is not taken for whole; what is known of both stays known.
func TestSlowIsNotAbsent(t *testing.T) {
	for name, tc := range map[string]struct {
		late, limit time.Duration
		known       bool
	}{
		"in a hurry":              {1200 * time.Millisecond, 4 * time.Second, false},
		"in a great hurry":        {300 * time.Millisecond, time.Second, false},
		"within the grace":        {1900 * time.Millisecond, 0, true},
		"beyond the grace":        {2100 * time.Millisecond, 0, false},
		"beyond it, with a limit": {2600 * time.Millisecond, time.Minute, false},
		"beyond all there is":     {time.Minute, time.Minute, false},
		"at once":                 {0, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				gap := start.Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)
				full, lacks := gapped(gap)
				cfg := beating(full)
				var late atomic.Int64
				answer := cfg.Answer
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					if r.Path == "/api/v1/query_range" {
						time.Sleep(time.Duration(late.Load()))
					}
					return answer(r)
				}
				b := newBubble(t, beating(lacks), cfg)
				g := group(b.urls...)
				g.Heartbeat = "up"
				top := build(t, Options{Dial: b.dial}, true, g)
				s := top.Groups[0].Shards[0]
				time.Sleep(17 * time.Minute)
				late.Store(int64(tc.late))
				ctx, cancel := t.Context(), func() {}
				if tc.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
				}
				defer cancel()
				now := time.Now()
				r, whole, err := s.Whole(ctx, gap.UnixMilli(), gap.Add(2*time.Hour).UnixMilli(), now)
				if err != nil || whole && r.Index != 1 {
					t.Errorf("whole %t: replica %d, %v", whole, r.Index, err)
				}
				if whole != tc.known {
					t.Errorf("whole %t, want %t", whole, tc.known)
				}
				if part := s.present(time.Now()); part != 3 {
					t.Errorf("%b take part", part)
				}
				if tc.late > beatGrace { // it is not waited for again and again
					began := time.Now()
					_, whole, err := s.Whole(t.Context(), gap.UnixMilli(), gap.Add(2*time.Hour).UnixMilli(), time.Now())
					_, known := s.Lacks(t.Context(), gap.UnixMilli(), gap.Add(2*time.Hour).UnixMilli(), time.Now())
					if took := time.Since(began); whole || known || err != nil || took > 100*time.Millisecond {
						t.Errorf("the next ones: whole %t, known %t, %v, after %s", whole, known, err, took)
					}
				}
				late.Store(0)
				time.Sleep(time.Minute)
				r, whole, err = s.Whole(t.Context(), gap.UnixMilli(), gap.Add(2*time.Hour).UnixMilli(), time.Now())
				if err != nil || !whole || r.Index != 1 {
					t.Errorf("afterwards whole %t: replica %d, %v", whole, r.Index, err)
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestNobodyWaitsForASilentOne: of a pair one replica falls silent for heartbeats while nobody
// asks, so that the background work finds it out. Whenever a request comes, also in the middle of
// that, it gets the other one as whole, within its patience.
func TestNobodyWaitsForASilentOne(t *testing.T) {
	for offset := -2 * beatEvery; offset < 2*beatEvery; offset += 700 * time.Millisecond {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var silent atomic.Bool
				full := func(_ string, end int64) (int64, int64) {
					if end == 0 {
						return 10, 40
					}
					return 10, 200
				}
				cfg := beating(full)
				answer := cfg.Answer
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					a, ok := answer(r)
					for (ok || r.Form.Get("query") == minuteQuery) && silent.Load() {
						time.Sleep(time.Second)
					}
					return a, ok
				}
				b := newBubble(t, cfg, beating(full))
				g := group(b.urls...)
				g.Heartbeat = "up"
				top := build(t, Options{Dial: b.dial}, true, g)
				s := top.Groups[0].Shards[0]
				time.Sleep(17*time.Minute + 500*time.Millisecond) // just after the background has asked
				silent.Store(true)
				time.Sleep(trust.Fresh + offset)
				began := time.Now()
				r, whole, err := s.Whole(t.Context(), began.Add(-3*time.Hour).UnixMilli(), began.UnixMilli(), began)
				if err != nil || !whole || r.Index != 1 {
					t.Errorf("whole %t, %v", whole, err)
				}
				if took := time.Since(began); took > wholeWait {
					t.Errorf("it took %s", took)
				}
				silent.Store(false)
				time.Sleep(2 * time.Second)
				top.Close()
				b.close()
			})
		})
	}
}
