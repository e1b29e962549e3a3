package shard

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestHungReplica is one replica of a pair that stops answering queries, its readiness page sound
// or not: after a few requests nobody waits any more, calls in flight are not left until their
// deadline, and once it answers again it is asked again.
func TestHungReplica(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ready bool
	}{{"queries alone", true}, {"all of it", false}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Bool
				pace := func() time.Duration {
					if hung.Load() {
						return -1
					}
					return 20 * time.Millisecond
				}
				cfg := paced(pace)
				answer := cfg.Answer
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					for !tc.ready && hung.Load() {
						time.Sleep(50 * time.Millisecond)
					}
					return answer(r)
				}
				b := newBubble(t, cfg, paced(steady(20*time.Millisecond)))
				top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
				s := top.Groups[0].Shards[0]
				call := func() (int, time.Duration) {
					t.Helper()
					order, err := s.Usable()
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()
					who, took, err := hedged(ctx, s, order, sumRequest, CallOptions{})
					if err != nil {
						t.Error(err)
					}
					return who, took
				}
				for range 200 {
					call()
					time.Sleep(10 * time.Millisecond)
				}
				hung.Store(true)
				var all sync.WaitGroup
				times := make([]time.Duration, 40)
				for i := range times { // all of them in the moment in which it hangs
					all.Go(func() { _, times[i] = call() })
				}
				all.Wait()
				slices.Sort(times)
				t.Logf("in flight at once: %s, median %s, most %s", times[0], times[len(times)/2], times[len(times)-1])
				if most := times[len(times)-1]; most > 5*time.Second {
					t.Errorf("a call in flight took %s", most)
				}
				for i := range 200 {
					if who, took := call(); who != 1 || took > 200*time.Millisecond {
						t.Fatalf("call %d afterwards: replica %d after %s", i, who, took)
					}
					time.Sleep(200 * time.Millisecond)
				}
				if i := top.Status()[0]; !i.Lagging && i.State == Up {
					t.Errorf("status %+v", i)
				}
				hung.Store(false)
				time.Sleep(30 * time.Second)
				if i := top.Status()[0]; i.Lagging || i.State != Up || i.Breaker != Closed {
					t.Errorf("mended: status %+v", i)
				}
				if rank, ok := s.Replicas[0].rank(time.Now()); rank != 0 || !ok {
					t.Errorf("mended: rank %d, %t", rank, ok)
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestHungWithoutSavings: a replica that hangs when nothing may be asked twice, one call after the
// other.
func TestHungWithoutSavings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		b := newBubble(t, paced(func() time.Duration {
			if hung.Load() {
				return -1
			}
			return 20 * time.Millisecond
		}), paced(steady(20*time.Millisecond)))
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		for range 100 {
			if _, _, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		hung.Store(true)
		s.hedge.mu.Lock()
		s.hedge.saved = -100
		s.hedge.mu.Unlock()
		var all sync.WaitGroup
		for range lagAfter {
			all.Go(func() {
				who, took, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{})
				if err != nil || who != 1 || took > hedgeFarFloor+lagTimeout+time.Second {
					t.Errorf("replica %d after %s: %v", who, took, err)
				}
			})
		}
		all.Wait()
		if lagging, silent := s.Replicas[0].up.lagging(time.Now()); !lagging || !silent {
			t.Error("nothing is held against the replica")
		}
		hung.Store(false)
		top.Close()
		b.close()
	})
}

// TestSilentWithoutHedge: calls that are not hedged show that a replica hangs too, and go on to
// another one.
func TestSilentWithoutHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int64
		hung.Store(-1)
		b := newBubble(t, paced(func() time.Duration { return time.Duration(hung.Load()) }), paced(steady(time.Millisecond)))
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		var all sync.WaitGroup
		for range lagAfter {
			all.Go(func() {
				start := time.Now()
				name, err := ask(t.Context(), s, sumRequest)
				if took := time.Since(start); err != nil || name != s.Replicas[1].Name() || took > 8*time.Second {
					t.Errorf("%s after %s: %v", name, took, err)
				}
			})
		}
		all.Wait()
		if rank, _ := s.Replicas[0].rank(time.Now()); rank != 3 {
			t.Errorf("rank %d", rank)
		}
		top.Close()
		for _, r := range s.Replicas {
			if r.InFlight() != 0 {
				t.Errorf("%s: %d calls left", r.Name(), r.InFlight())
			}
		}
		hung.Store(0)
		b.close()
	})
}

// TestHalfAnswers: a replica that sends its header and stops in the body is seen to hang as well,
// by the calls that wait for it or by the heartbeat's.
func TestHalfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/query", Script: "limit 40 stall; answer"}}},
			fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		// after a third of the time, so that another one can be asked
		if name, err := ask(ctx, s, sumRequest); kindOf(err) != "shard_failed" {
			t.Errorf("%s, %v", name, err)
		}
		cancel()
		for range 20 {
			start := time.Now()
			name, err := ask(t.Context(), s, sumRequest)
			if took := time.Since(start); err != nil || name != s.Replicas[1].Name() || took > time.Second {
				t.Errorf("%s after %s: %v", name, took, err)
			}
			time.Sleep(time.Second)
		}
		well, err := s.Well()
		if err != nil || len(well) != 1 || well[0].Index != 1 {
			t.Errorf("well are %v, %v", well, err)
		}
		top.Close()
		b.close()
	})
}

// TestSlowReplicaIsLeft: a replica that answers, but always long after the other one would, costs a
// few calls.
func TestSlowReplicaIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		slow.Store(int64(5 * time.Millisecond))
		b := newBubble(t, paced(func() time.Duration { return time.Duration(slow.Load()) }), paced(steady(5*time.Millisecond)))
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		call := func() (int, time.Duration) {
			order, err := s.Usable()
			if err != nil {
				t.Fatal(err)
			}
			who, took, err := hedged(t.Context(), s, order, sumRequest, CallOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return who, took
		}
		for range 100 {
			call()
		}
		slow.Store(int64(time.Second))
		long := 0
		for range 100 {
			if who, took := call(); took > 200*time.Millisecond || who == 0 {
				long++
			}
		}
		if long > lagAfter {
			t.Errorf("%d of 100 calls took long", long)
		}
		top.Close()
		b.close()
	})
}

// TestSlowIsNotHung: calls that take long on a server that answers our own question are borne, and
// one replica always remains.
func TestSlowIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64
		slow.Store(int64(20 * time.Millisecond))
		pace := func() time.Duration { return time.Duration(slow.Load()) }
		b := newBubble(t, paced(pace), paced(pace))
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		for range 100 {
			if _, _, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		slow.Store(int64(8 * time.Second))
		s.hedge.mu.Lock()
		s.hedge.saved = -100
		s.hedge.mu.Unlock()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if who, took, err := hedged(t.Context(), s, s.Replicas, sumRequest, CallOptions{}); err != nil || who != 0 ||
					took < 8*time.Second {
					t.Errorf("replica %d after %s: %v", who, took, err)
				}
			})
		}
		all.Wait()
		if s.Replicas[0].Lagging() {
			t.Error("the replica was set behind")
		}
		if !s.setBehind(s.Replicas[0], true) || s.setBehind(s.Replicas[1], true) {
			t.Error("not one replica of two was left")
		}
		top.Close()
		b.close()
	})
}
