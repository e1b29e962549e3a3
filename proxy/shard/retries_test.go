package shard

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestRetriesOfOneShardAreNotOthers: servers without a copy that are restarted, and others that
// fail all they are asked, leave what a pair needs that loses one of its servers in the same
// minute.
func TestRetriesOfOneShardAreNotOthers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		restart bool // the lone server resets what it has, and then nothing listens
	}{{"a lone server is restarted", true}, {"a lone server resets all", false}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, broken("reset"), broken("delay 100ms; reset"), fakeshard.Config{})
				defer b.close()
				var refused atomic.Bool
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					if refused.Load() && addr == "10.0.0.1:9090" {
						return nil, syscall.ECONNREFUSED
					}
					conn, err := b.dial(ctx, network, addr)
					if tc.restart && addr == "10.0.0.1:9090" {
						refused.Store(true)
					}
					return conn, err
				}
				lone, pair := group(b.urls[0]), group(b.urls[1:]...)
				lone.Name, lone.Labels = "lone", nil
				top := build(t, Options{Dial: dial}, false, lone, pair)
				defer top.Close()
				for range 40 {
					refused.Store(false)
					if _, err := ask(t.Context(), top.Groups[0].Shards[0], seriesRequest); kindOf(err) != "shard_failed" {
						t.Fatalf("the lone server: %v", err)
					}
				}
				var all sync.WaitGroup
				var failed atomic.Int32
				for range maxCalls {
					all.Go(func() {
						if _, err := ask(t.Context(), top.Groups[1].Shards[0], seriesRequest); err != nil {
							failed.Add(1)
						}
					})
				}
				if all.Wait(); failed.Load() > 0 {
					t.Errorf("%d of %d requests were not asked of the copy", failed.Load(), maxCalls)
				}
			})
		})
	}
}

// TestRetriesOfAFleet: where many shards fail all they are asked, all requests together ask little
// twice.
func TestRetriesOfAFleet(t *testing.T) {
	all := newRetries()
	calls, again := 0, 0
	shards := make([]*Shard, 400)
	for i := range shards {
		shards[i] = &Shard{hedge: newHedger(), topology: &Topology{metrics: &metrics{again: all, retriesRefused: newRetriesRefused()}}}
	}
	boom := &StatusError{Code: 500}
	for range 10 {
		for _, s := range shards {
			calls++
			all.earn()
			s.hedge.again.earn()
			if s.MayRetry(1) {
				again++
				s.Wasted(qerr.Wrap(qerr.ShardFailed, boom, "it failed"))
			}
		}
	}
	if 10*again > calls {
		t.Errorf("%d of %d calls were made twice", again, calls)
	}
}

// TestRefusalsUseUpNoRetries: what no copy of any shard serves leaves what is there for servers
// that die.
func TestRefusalsUseUpNoRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := broken("status 404; send no")
		b := newBubble(t, no, no, no, no, fakeshard.Config{})
		defer b.close()
		first, second, sound := group(b.urls[:2]...), group(b.urls[2:4]...), group(b.urls[4])
		first.Name, first.Labels = "first", nil
		second.Name, second.Labels = "second", map[string]string{"cluster": "second"}
		top := build(t, Options{Dial: b.dial}, false, first, second, sound)
		defer top.Close()
		for i := range 20 {
			s := top.Groups[i%2].Shards[0]
			if _, err := ask(t.Context(), s, seriesRequest); kindOf(err) != "shard_failed" || b.count(2*(i%2)+1, "/api/v1/series") == 0 {
				t.Fatalf("what nobody serves: %v", err)
			}
			if n := s.hedge.failuresAt(time.Now()); n > 0 {
				t.Errorf("%g count as failures", n)
			}
		}
		if !top.Groups[2].Shards[0].MayRetry(1) {
			t.Error("nothing is left for a shard that was never asked")
		}
	})
}

// TestRefusedRequestIsNoFailure: what a Spillway refuses of one request is no failure of its
// server and wastes no retries, and what it has no room for is not sent to it again. What a server
// says of all requests is, and so is what a Spillway failed at.
func TestRefusedRequestIsNoFailure(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		failure      bool
		calls        int // to a server alone, of one request
	}{
		{"one request, full", "header X-Spillway-Verdict refuse; status 429; header Retry-After 1; send no", false, 1},
		{"one request, later", "header X-Spillway-Verdict refuse; status 503; header Retry-After 1; send no", false, 2},
		{"full", "status 429; send no", true, 1},
		{"failing", "header X-Spillway-Verdict exact; status 502; send no", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				no := broken(tc.script)
				b := newBubble(t, no, no, no)
				defer b.close()
				lone, pair := group(b.urls[0]), group(b.urls[1:]...)
				lone.Name, lone.Labels = "lone", nil
				top := build(t, Options{Dial: b.dial}, false, lone, pair)
				defer top.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := ask(ctx, top.Groups[0].Shards[0], seriesRequest); err == nil || b.count(0, "/api/v1/series") != tc.calls {
					t.Errorf("%d calls to the lone server: %v", b.count(0, "/api/v1/series"), err)
				}
				s := top.Groups[1].Shards[0]
				for range 2 {
					if resp, err := s.Hedged(ctx, s.Replicas, seriesRequest, CallOptions{}); err == nil {
						t.Fatal(resp.Body.Close())
					}
				}
				if n := s.hedge.failuresAt(time.Now()); n > 0 != tc.failure {
					t.Errorf("%g count as failures", n)
				}
				if more := s.MayRetry(shardBurst - 10); more == tc.failure {
					t.Errorf("the shard may be asked once more as ever: %t", more)
				}
			})
		})
	}
}
