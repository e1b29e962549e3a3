package shard

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestBelied: a replica that answers when it is asked whether it does, and then fails too often
// again, is left out of what all are read for while its breaker is open, and is named: to ask it
// once more says nothing. A minute after its answer it is asked again. Where nobody else takes part
// it is asked each time.
func TestBelied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...)) // without a heartbeat
		defer top.Close()
		s := top.Groups[0].Shards[0]
		one, other := s.Replicas[1], s.Replicas[0]
		fails := func(r *Replica) {
			for range breakerFailures {
				r.up.breaker.failure(time.Now())
			}
		}
		read := func(what string, asked int, state BreakerState, left ...*Replica) {
			t.Helper()
			now := time.Now()
			from, until := now.Add(-time.Hour).UnixMilli(), now.UnixMilli()
			if wholes, err := s.Wholes(t.Context(), from, until, now); err != nil || len(wholes) > 0 {
				t.Errorf("%s: %d are whole, %v", what, len(wholes), err)
			}
			if got := s.LeftOut(t.Context(), from, until, now, false); !slices.Equal(got, left) {
				t.Errorf("%s: %d are left out, want %d", what, len(got), len(left))
			}
			if is := one.up.breaker.current(now); is != state || b.count(1, "/api/v1/query") != asked {
				t.Errorf("%s: its breaker is %s, and it was asked %d times; want %s, %d", what, is, b.count(1, "/api/v1/query"), state, asked)
			}
			well, err := s.Well()
			if err != nil || slices.Contains(well, one) == (state == Open) {
				t.Errorf("%s: %d are read, %v", what, len(well), err)
			}
		}
		read("before", 0, Closed)
		fails(one)
		read("it failed too often", 1, Closed)
		fails(one)
		read("it did again", 1, Open, one)
		time.Sleep(breakerOpenFor)
		read("it may be tried", 1, HalfOpen)
		one.up.breaker.failure(time.Now())
		read("it failed once more", 1, Open, one)
		fails(other)
		read("so did the other one", 2, Closed)
		fails(one)
		read("for the third time", 2, Open, one)
		time.Sleep(vouchedFor)
		one.up.breaker.failure(time.Now())
		read("a minute later", 3, Closed)
	})
}

// TestBeliedIsNeeded: with a heartbeat it is left out where nobody is whole with it either, and
// asked again where it lacks nothing that the other one has.
func TestBeliedIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap := time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)
		_, first := gapped(gap)
		_, second := gapped(gap.Add(2 * time.Hour))
		b := newBubble(t, beating(first), beating(second))
		defer b.close()
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, true, g)
		defer top.Close()
		s := top.Groups[0].Shards[0]
		one := s.Replicas[1]
		time.Sleep(17*time.Minute + beatEvery/2) // the background does not ask now
		read := func(what string, until time.Time, whole, left int, state BreakerState) {
			t.Helper()
			now := time.Now()
			from := gap.Add(-time.Hour).UnixMilli()
			wholes, err := s.Wholes(t.Context(), from, until.UnixMilli(), now)
			if err != nil || len(wholes) != whole {
				t.Errorf("%s: %d are whole, %v; want %d", what, len(wholes), err, whole)
			}
			covers, known := s.Covers(t.Context(), s.Replicas[:1], s.Replicas[1:], from, until.UnixMilli(), now)
			out := s.LeftOut(t.Context(), from, until.UnixMilli(), now, false)
			if is := one.up.breaker.current(now); is != state || len(out) != left || covers || !known {
				t.Errorf("%s: its breaker is %s, covers %t %t; want %s, and %d left out", what, is, covers, known, state, left)
			}
		}
		near, far := gap.Add(90*time.Minute), gap.Add(4*time.Hour)
		read("before, where it is whole", near, 1, 0, Closed)
		read("before, where nobody is", far, 0, 0, Closed)
		for n := range 2 {
			for range breakerFailures {
				one.up.breaker.failure(time.Now())
			}
			if n > 0 {
				read("it failed again, where nobody is whole", far, 0, 1, Open)
			}
			read("it failed, where it is whole", near, 1, 0, Closed)
		}
	})
}
