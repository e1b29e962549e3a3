package shard

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// beatingLate is a pair whose heartbeats are whole, and whose answers about a time come late by
// late nanoseconds, those about the last minute by lateTail.
func beatingLate(t *testing.T, late, lateTail *atomic.Int64) (*Shard, func()) {
	t.Helper()
	cfg := beating(func(_ string, end int64) (int64, int64) {
		if end == 0 {
			return 10, 40
		}
		return 10, 200
	})
	answer := cfg.Answer
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		a, ok := answer(r)
		switch {
		case r.Path == "/api/v1/query_range":
			time.Sleep(time.Duration(late.Load()))
		case ok:
			time.Sleep(time.Duration(lateTail.Load()))
		}
		return a, ok
	}
	b := newBubble(t, cfg, cfg)
	g := group(b.urls...)
	g.Heartbeat = "up"
	top := build(t, Options{Dial: b.dial}, true, g)
	return top.Groups[0].Shards[0], func() { top.Close(); b.close() }
}

// TestLongWindowsAreLearnedOnAndOn: a window of many questions, each of which is answered at once
// but all of which take longer than one request waits, is known after a few requests, and a caller
// who leaves while it is asked about keeps nobody from it.
func TestLongWindowsAreLearnedOnAndOn(t *testing.T) {
	for name, leaves := range map[string]time.Duration{"to the end": 0, "a caller leaves": 2500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late, lateTail atomic.Int64
				s, stop := beatingLate(t, &late, &lateTail)
				time.Sleep(17 * time.Minute)
				late.Store(int64(400 * time.Millisecond))
				began := time.Now()
				from, until := began.Add(-5*24*time.Hour).UnixMilli(), began.UnixMilli()
				if leaves > 0 {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(leaves, cancel)
					if _, whole, _ := s.Whole(ctx, from, until, time.Now()); whole {
						t.Fatal("the window was known before the caller left")
					}
				}
				known := false
				for range 5 {
					_, whole, err := s.Whole(t.Context(), from, until, time.Now())
					if err != nil {
						t.Fatal(err)
					}
					known = known || whole
				}
				if took := time.Since(began); !known || took > 30*time.Second {
					t.Errorf("known %t after %s", known, took)
				}
				stop()
			})
		})
	}
}

// TestNobodyWaitsInVainAgain: where one has waited for heartbeats in vain, those who have no more
// patience do not, whether the question or the turn to ask it was what he waited for.
func TestNobodyWaitsInVainAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		late, lateTail, limit time.Duration
	}{
		"in a hurry":                         {1600 * time.Millisecond, 0, 6 * time.Second},
		"in a great hurry":                   {1600 * time.Millisecond, 0, time.Second},
		"the background has the turn":        {4 * time.Second, 4 * time.Second, time.Minute},
		"it has, and somebody is in a hurry": {4 * time.Second, 4 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late, lateTail atomic.Int64
				s, stop := beatingLate(t, &late, &lateTail)
				time.Sleep(17 * time.Minute)
				late.Store(int64(tc.late))
				lateTail.Store(int64(tc.lateTail))
				if tc.lateTail > 0 {
					time.Sleep(2*time.Minute + 500*time.Millisecond) // nothing is fresh any more, and the background asks
				}
				began := time.Now()
				from, until := began.Add(-8*time.Hour).UnixMilli(), began.UnixMilli()
				for range 4 {
					ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
					_, whole, err := s.Whole(ctx, from, until, time.Now())
					_, known := s.Lacks(ctx, from, until, time.Now())
					if cancel(); err != nil || whole || known {
						t.Errorf("whole %t, known %t, %v", whole, known, err)
					}
				}
				if took, most := time.Since(began), min(wholeWait, tc.limit/4)+100*time.Millisecond; took > most {
					t.Errorf("waited for %s, want at most %s", took, most)
				}
				late.Store(0)
				lateTail.Store(0)
				time.Sleep(time.Minute)
				if _, whole, err := s.Whole(t.Context(), from, until, time.Now()); err != nil || !whole {
					t.Errorf("afterwards whole %t, %v", whole, err)
				}
				stop()
			})
		})
	}
}

// TestTheTurnIsFreeAgain: one has waited in vain for somebody who had the turn for long. When that
// one has ended, those who come at once wait for each other as ever.
func TestTheTurnIsFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late, lateTail atomic.Int64
		s, stop := beatingLate(t, &late, &lateTail)
		time.Sleep(17*time.Minute + beatEvery/2) // the background does not ask now
		from, until := time.Now().Add(-8*time.Hour).UnixMilli(), time.Now().UnixMilli()
		done, ok := s.beats.TryTurn()
		if !ok {
			t.Fatal("somebody has the turn")
		}
		ask := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, whole, err := s.Whole(ctx, from, until, time.Now())
			if err != nil {
				t.Error(err)
			}
			return whole
		}
		began := time.Now()
		for range 2 {
			if ask() {
				t.Error("who has waited in vain is told that the window is whole")
			}
		}
		if took := time.Since(began); took != wholeWait {
			t.Errorf("while another one has the turn two wait for %s together, want %s", took, wholeWait)
		}
		done()
		late.Store(int64(300 * time.Millisecond))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if !ask() {
					t.Error("one of those who came when the turn was free is not told that the window is whole")
				}
			})
		}
		all.Wait()
		stop()
	})
}
