package shard

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestAHurriedCallerCallsNobodyGone: a caller with hardly any time left asks a busy server whether
// it is there, and has no answer in that time: the server takes part as before, and what it is
// known to have protects the others' gaps. One that is silent for as long as such a page may take
// is gone, and nothing of either question is left over.
func TestAHurriedCallerCallsNobodyGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap := time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)
		full, lacks := gapped(gap)
		var late atomic.Int64
		busy := beating(full)
		answer := busy.Answer
		busy.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if r.Path == "/-/ready" {
				time.Sleep(time.Duration(late.Load()))
			}
			return answer(r)
		}
		b := newBubble(t, busy, beating(lacks))
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, true, g)
		s := top.Groups[0].Shards[0]
		time.Sleep(17*time.Minute + 2*time.Second)
		whole := func(what string) {
			t.Helper()
			now := time.Now()
			r, is, err := s.Whole(t.Context(), gap.Add(-time.Hour).UnixMilli(), now.UnixMilli(), now)
			if err != nil || !is || r.Index != 0 {
				t.Errorf("%s: whole is not the first one alone: %t, %v", what, is, err)
			}
		}
		whole("before")
		late.Store(int64(time.Second))
		for _, left := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			began := time.Now()
			gone := s.Replicas[0].Gone(ctx)
			cancel()
			if took := time.Since(began); gone || took > left || s.present(time.Now()) != 3 {
				t.Errorf("%s left: gone %t after %s, and %02b take part", left, gone, took, s.present(time.Now()))
			}
			whole(left.String() + " left")
		}
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, leave)
		if s.Replicas[0].Gone(left) || s.present(time.Now()) != 3 {
			t.Error("gone, since the caller left")
		}
		if s.Replicas[0].Gone(t.Context()) {
			t.Error("gone, though it answers within the time for that")
		}
		late.Store(int64(3 * time.Second))
		if !s.Replicas[0].Gone(t.Context()) || s.present(time.Now()) != 2 {
			t.Error("not gone, though it shows nothing")
		}
		top.Close()
		b.close()
	})
}
