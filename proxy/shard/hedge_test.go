package shard

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// paced is a server that takes wait for each query but our own count(up); a negative wait is for
// ever, or until the test changes it.
func paced(wait func() time.Duration) fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if !strings.HasSuffix(r.Path, "/query") || r.Form.Get("query") == "up" {
			return fakeshard.Answer{}, false
		}
		for {
			d := wait()
			if r.Form.Get("query") == "count(up)" && d >= 0 {
				d = 0
			}
			if d >= 0 {
				time.Sleep(d)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		return fakeshard.Answer{
			Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: []byte(`{"status":"success","data":{"resultType":"vector","result":[]}}`),
		}, true
	}}
}

func steady(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

var sumRequest = &endpoint.Request{ID: endpoint.Query, Query: "sum(up)", Time: endpoint.At(1000)}

// hedged asks and reads the answer; it returns who answered and how long that took.
func hedged(ctx context.Context, s *Shard, replicas []*Replica, req *endpoint.Request, o CallOptions) (int, time.Duration, error) {
	start := time.Now()
	resp, err := s.Hedged(ctx, replicas, req, o)
	if err != nil {
		return -1, time.Since(start), err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return resp.Replica.Index, time.Since(start), err
}

func total(t *testing.T, c *prometheus.CounterVec, label ...string) int {
	t.Helper()
	return int(testutil.ToFloat64(c.WithLabelValues(label...)))
}

// TestHedge: once the usual time is known, a call that takes longer is asked of the other replica
// too; the loser's connection ends, its breaker learns nothing, and no slot stays taken.
func TestHedge(t *testing.T) {
	for _, class := range []Class{Light, Heavy} {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Int64
			slow.Store(int64(5 * time.Millisecond))
			b := newBubble(t, paced(func() time.Duration { return time.Duration(slow.Load()) }), paced(steady(5*time.Millisecond)))
			reg := prometheus.NewRegistry()
			top := build(t, Options{Dial: b.dial, Registerer: reg}, false, group(b.urls...))
			s := top.Groups[0].Shards[0]
			for range hedgeLearn {
				if who, took, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{Class: class}); err != nil || who != 0 ||
					took > 10*time.Millisecond {
					t.Fatalf("replica %d after %s: %v", who, took, err)
				}
			}
			slow.Store(int64(-1))
			who, took, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{Class: class})
			if err != nil || who != 1 || took > 200*time.Millisecond {
				t.Errorf("replica %d after %s: %v", who, took, err)
			}
			slow.Store(0)
			time.Sleep(time.Second) // the server's own
			for _, r := range s.Replicas {
				if r.up.breaker.current(time.Now()) != Closed || r.up.breaker.failures != 0 || r.InFlight() != 0 ||
					r.up.gates.of(Heavy).Held() != 0 {
					t.Errorf("%s: breaker %s after %d failures, %d calls, %d slots", r.Name(), r.up.breaker.current(time.Now()), r.up.breaker.failures,
						r.InFlight(), r.up.gates.of(Heavy).Held())
				}
			}
			m := top.metrics
			labels := s.Replicas[0].labels()
			if h, w, f := total(t, m.hedged, labels...), total(t, m.wins, labels...), total(t, m.failover, labels...); h != 1 || w != 1 ||
				f != 0 {
				t.Errorf("%d hedged, %d won, %d failovers", h, w, f)
			}
			if n := total(t, m.requests, append(labels, "canceled")...); n != 1 {
				t.Errorf("%d calls to the first replica were canceled", n)
			}
			if end := b.fakes[0].RequestsTo("/api/v1/query")[hedgeLearn].End; end != fakeshard.PeerClosed && end != fakeshard.PeerReset {
				t.Errorf("the slow call ended with %v", end)
			}
			top.Close()
			b.close()
		})
	}
}

// TestHedgeBudget: however many calls are slow, at most one in twenty is asked twice, and what was
// saved up.
func TestHedgeBudget(t *testing.T) {
	seed := randseed.Of(t, 0)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 1))
		wait := func() time.Duration { // one call in four takes ten to a thousand times as long
			mu.Lock()
			defer mu.Unlock()
			if rnd.IntN(4) > 0 {
				return 2 * time.Millisecond
			}
			return time.Duration(20+rnd.IntN(2000)) * time.Millisecond
		}
		b := newBubble(t, paced(wait), paced(wait))
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		const calls = 1000
		for range calls {
			order, err := s.Usable()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := hedged(t.Context(), s, order, sumRequest, CallOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for _, r := range s.Replicas {
			n += total(t, top.metrics.hedged, r.labels()...)
		}
		t.Logf("%d of %d calls were asked twice", n, calls)
		if n == 0 || n > calls/20+hedgeReserve {
			t.Errorf("%d of %d calls were asked twice", n, calls)
		}
		top.Close()
		b.close()
	})
}

// TestNoHedge: when nobody is asked twice.
func TestNoHedge(t *testing.T) {
	learned := func(s *Shard) {
		for range hedgeLearn {
			s.hedge.observe(hedgeInstant, 5*time.Millisecond)
		}
	}
	for _, tc := range []struct {
		name    string
		prepare func(*Shard)
		o       CallOptions
		only    int // how many replicas are whole; 0 is all
		wait    time.Duration
		second  int // requests to the second replica
	}{
		{name: "it is", prepare: learned, wait: time.Second, second: 1},
		{name: "too little is known", prepare: func(s *Shard) {
			for range hedgeLearn - 1 {
				s.hedge.observe(hedgeInstant, 5*time.Millisecond)
			}
		}, wait: time.Second},
		{name: "another class is known", prepare: func(s *Shard) {
			for range hedgeLearn {
				s.hedge.observe(hedgeRange, 5*time.Millisecond)
			}
		}, wait: time.Second},
		{name: "nothing is known, but this is far too long", prepare: func(*Shard) {}, wait: 3 * time.Second, second: 1},
		{name: "one replica", prepare: learned, only: 1, wait: time.Second},
		{name: "an unselective request", prepare: learned, o: CallOptions{Class: Unselective}, wait: time.Second},
		{name: "nothing saved", prepare: func(s *Shard) { learned(s); s.hedge.saved = 0.9 }, wait: time.Second},
		{name: "the other one is down", prepare: func(s *Shard) {
			learned(s)
			s.Replicas[1].markDown(errors.New("gone"), time.Now())
		}, wait: time.Second},
		{name: "the other one's breaker is open", prepare: func(s *Shard) {
			learned(s)
			for range breakerFailures {
				s.Replicas[1].up.breaker.failure(time.Now())
			}
		}, wait: time.Second},
		{name: "calls failed lately", prepare: func(s *Shard) {
			learned(s)
			for range failedLately + 1 {
				s.hedge.failed(time.Now())
			}
		}, wait: time.Second},
		{name: "calls failed long ago", prepare: func(s *Shard) {
			learned(s)
			for range failedLately + 1 {
				s.hedge.failed(time.Now().Add(-2 * failedHalf))
			}
		}, wait: time.Second, second: 1},
		{name: "the other one lags", prepare: func(s *Shard) { learned(s); s.setBehind(s.Replicas[1], false) }, wait: time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, paced(steady(tc.wait)), paced(steady(time.Millisecond)))
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				s := top.Groups[0].Shards[0]
				tc.prepare(s)
				replicas := s.Replicas
				if tc.only > 0 {
					replicas = replicas[:tc.only]
				}
				who, took, err := hedged(t.Context(), s, replicas, sumRequest, tc.o)
				if err != nil || who != tc.second || (took >= tc.wait) != (tc.second == 0) {
					t.Errorf("replica %d after %s: %v", who, took, err)
				}
				if n := b.count(1, "/api/v1/query"); n != tc.second {
					t.Errorf("the second replica saw %d requests, want %d", n, tc.second)
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestHedgedFailover: the rules of Do hold.
func TestHedgedFailover(t *testing.T) {
	for _, tc := range []struct {
		name, script, other string
		kind                string
		second              int
		says                string
	}{
		{name: "sound", script: "answer", kind: "ok"},
		{name: "500", script: "status 500; send x", kind: "ok", second: 1},
		{name: "429", script: "status 429; send x", kind: "ok", second: 1},
		{name: "closed", script: "close", kind: "ok", second: 1},
		{name: "login page", script: "garbage html", kind: "ok", second: 1},
		{name: "400", script: "error 400 bad_data no", kind: "bad_data"},
		{name: "422", script: "error 422 execution no", kind: "too_expensive"},
		{name: "401", script: "status 401; send no", kind: "ok", second: 1},
		{name: "503 timeout", script: "error 503 timeout no", kind: "timeout"},
		{name: "late 500", script: "delay 3s; status 500; send x", other: "delay 2s; answer", kind: "ok", second: 1},
		{name: "late 500 of the second", script: "delay 4s; answer", other: "delay 100ms; status 500; send x", kind: "ok", second: 1},
		{name: "late 400", script: "delay 3s; error 400 bad_data no", other: "delay 2s; answer", kind: "bad_data", second: 1},
		{name: "400 of the second", script: "stall", other: "error 400 bad_data no", kind: "bad_data", second: 1},
		{name: "401 of the second", script: "delay 3s; answer", other: "status 401; send no", kind: "ok", second: 1},
		{name: "both", script: "status 500; send x", other: "close", kind: "shard_failed", second: 1, says: "10.0.0.1:9090 answered with status 500; its log may tell why; then jaguar/10.0.0.2:9090 broke"},
		{
			name: "both, late", script: "delay 3s; status 500; send x", other: "delay 4s; close", kind: "shard_failed", second: 1,
			says: "; then jaguar/10.0.0.2:9090 broke",
		},
		{name: "both hang", script: "stall", other: "stall", kind: "timeout", second: 1, says: "; then jaguar/10.0.0.2:9090"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := fakeshard.Config{}
				if tc.other != "" {
					other = broken(tc.other)
				}
				b := newBubble(t, broken(tc.script), other)
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				s := top.Groups[0].Shards[0]
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				_, _, err := hedged(ctx, s, s.Replicas, sumRequest, CallOptions{})
				if kindOf(err) != tc.kind || err != nil && !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v, want %s with %q", err, tc.kind, tc.says)
				}
				if n := b.count(0, "/api/v1/query"); n != 1 {
					t.Errorf("the first saw %d requests", n)
				}
				if n := b.count(1, "/api/v1/query"); n != tc.second {
					t.Errorf("the second saw %d requests, want %d", n, tc.second)
				}
				synctest.Wait()
				for _, r := range s.Replicas {
					if r.InFlight() != 0 {
						t.Errorf("%s: %d calls left", r.Name(), r.InFlight())
					}
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestHedgedLeft: the client leaves while both are asked; both calls end at once, with its cause.
func TestHedgedLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, broken("stall"), broken("stall"))
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(qerr.ErrClientLeft) })
		_, took, err := hedged(ctx, s, s.Replicas, sumRequest, CallOptions{})
		if kindOf(err) != "canceled" || !errors.Is(err, qerr.ErrClientLeft) || took != 3*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		synctest.Wait()
		for i, r := range s.Replicas {
			if n := b.count(i, "/api/v1/query"); n != 1 || r.InFlight() != 0 || r.up.breaker.failures != 0 {
				t.Errorf("%s: asked %d times, %d calls left, %d failures", r.Name(), n, r.InFlight(), r.up.breaker.failures)
			}
		}
		top.Close()
		b.close()
	})
}

// TestHedgedTogether: both headers come in the same moment; one answer is taken and the other
// closed.
func TestHedgedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, paced(steady(hedgeBlind+100*time.Millisecond)), paced(steady(100*time.Millisecond)))
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		for range 50 {
			s.hedge.saved = 1
			s.hedge.spreads = [hedgeClasses]spread{}
			s.Replicas[0].up.lag.heard()
			if _, _, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, r := range s.Replicas {
				if r.InFlight() != 0 {
					t.Fatalf("%s: %d calls left", r.Name(), r.InFlight())
				}
			}
		}
		top.Close()
		b.close()
	})
}

// TestHedgerOutlivesReload: what was learned about calls stays while the shard's servers do.
func TestHedgerOutlivesReload(t *testing.T) {
	g := group("http://10.0.0.1:9090", "http://10.0.0.2:9090")
	old := build(t, Options{}, false, g)
	sick := []Sickness{{Kind: SickClock, Replica: "jaguar/10.0.0.1:9090", Text: "its clock"}}
	old.Groups[0].sick.Store(&sick)
	other := group("http://10.0.0.1:9090")
	other.Name = "ibis"
	top, err := New(append([]config.Group{g}, other), Options{}, old)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	if top.Groups[0].Shards[0].hedge != old.Groups[0].Shards[0].hedge || top.Groups[1].Shards[0].hedge == old.Groups[0].Shards[0].hedge {
		t.Error("what was learned went to the wrong shard")
	}
	if top.Groups[0].Trusted() || !top.Groups[1].Trusted() {
		t.Error("what was wrong is forgotten, or is held against another group")
	}
}

// TestSpread: the quantile is right but for a bucket's width, and changes are learned.
func TestSpread(t *testing.T) {
	var d spread
	for i := range 1000 {
		d.observe(time.Duration(i+1) * time.Millisecond)
	}
	for _, want := range []time.Duration{100, 500, 900} {
		q := float64(want) / 1000
		got := d.quantile(q)
		if got < want*time.Millisecond*8/10 {
			t.Errorf("quantile %g is %s", q, got)
		}
	}
	for range 2000 {
		d.observe(3 * time.Millisecond)
	}
	if got := d.quantile(hedgeQuantile); got < 3*time.Millisecond || got > 4*time.Millisecond {
		t.Errorf("after the change %s", got)
	}
	d = spread{}
	for _, extreme := range []time.Duration{-time.Hour, 0, time.Hour, 1 << 62} {
		d.observe(extreme)
	}
	if got := d.quantile(1); got < 40*time.Second {
		t.Errorf("most is %s", got)
	}
	h := newHedger()
	if usual, far := h.marks(hedgeOther); usual != 0 || far != hedgeBlind {
		t.Errorf("unlearned: %s, %s", usual, far)
	}
	for _, took := range []time.Duration{0, time.Millisecond, 40 * time.Millisecond, 2 * time.Second, time.Minute} {
		h := newHedger()
		for range hedgeLearn {
			h.observe(hedgeOther, took)
		}
		usual, far := h.marks(hedgeOther)
		if usual < hedgeFloor || usual > hedgeCeiling || far < usual || far > hedgeCeiling {
			t.Errorf("%s: %s, %s", took, usual, far)
		}
	}
}
