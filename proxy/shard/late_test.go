package shard

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestBusyIsNotGone: of a pair one replica lost an hour of yesterday, and the other one, which all
// work goes to, is too busy to say anything about the last minute. The first is not taken for whole
// over what it lacks: that is refused for a minute, also where the busy one hangs altogether. Over
// what it does not lack it is whole, and over all once the other one has been silent for longer.
func TestBusyIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap := time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)
		full, lacks := gapped(gap)
		busy := beating(full)
		var late, refuses atomic.Bool
		answer := busy.Answer
		busy.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if late.Load() && strings.HasPrefix(r.Form.Get("query"), "sum") {
				time.Sleep(4 * time.Second)
			}
			a, ok := answer(r)
			if ok && refuses.Load() {
				a = fakeshard.Answer{Status: 503, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no")}
			}
			return a, ok
		}
		b := newBubble(t, busy, beating(lacks))
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, true, g)
		s := top.Groups[0].Shards[0]
		time.Sleep(17 * time.Minute)
		whole := func(from, until time.Time) (int, bool, error) {
			r, is, err := s.Whole(t.Context(), from.UnixMilli(), until.UnixMilli(), time.Now())
			if err != nil {
				return -1, false, err
			}
			return r.Index, is, nil
		}
		since := gap.Add(-time.Hour)
		if got, is, err := whole(since, time.Now()); got != 0 || !is || err != nil {
			t.Fatalf("before: replica %d, %t, %v", got, is, err)
		}
		late.Store(true)
		time.Sleep(trust.Fresh + 3*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		now := time.Now()
		_, _, _ = s.Whole(ctx, now.Add(-time.Minute).UnixMilli(), now.UnixMilli(), now)
		if part := s.present(time.Now()); part != 2 {
			t.Fatalf("who is silent takes part: %02b", part)
		}
		first := s.Replicas[0]
		refused := func(what string) {
			t.Helper()
			if _, _, err := whole(since, time.Now()); err == nil || !strings.Contains(err.Error(), first.Name()+" does not answer now") {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("over what it lacks")
		if lacks, known := s.Lacks(t.Context(), since.UnixMilli(), time.Now().UnixMilli(), time.Now()); known {
			t.Errorf("over what it lacks: %v is known of who lacks what", lacks)
		}
		if got, is, err := whole(gap.Add(2*time.Hour), time.Now()); got != 1 || !is || err != nil {
			t.Errorf("over what it does not lack: replica %d, whole %t, %v", got, is, err)
		}
		s.setBehind(first, true)
		refused("the other one hangs")
		if got, is, err := whole(gap.Add(2*time.Hour), time.Now()); got != 1 || !is || err != nil {
			t.Errorf("the other one hangs: replica %d, whole %t, %v", got, is, err)
		}
		late.Store(false)
		time.Sleep(time.Minute)
		if got, is, err := whole(since, time.Now()); got != 0 || !is || err != nil {
			t.Errorf("it answers again: replica %d, whole %t, %v", got, is, err)
		}
		late.Store(true)
		for range 6 {
			time.Sleep(10 * time.Second)
			_, _, _ = whole(time.Now().Add(-time.Minute), time.Now())
		}
		time.Sleep(lateWaits)
		_, _, _ = whole(time.Now().Add(-time.Minute), time.Now())
		if got, is, err := whole(since, time.Now()); got != 1 || !is || err != nil {
			t.Errorf("silent for long: replica %d, whole %t, %v", got, is, err)
		}
		late.Store(false)
		time.Sleep(time.Minute)
		refuses.Store(true)
		time.Sleep(trust.Fresh + time.Second)
		_, _, _ = whole(time.Now().Add(-time.Minute), time.Now())
		if got, is, err := whole(since, time.Now()); got != 1 || !is || err != nil {
			t.Errorf("who says that it cannot is waited for: replica %d, whole %t, %v", got, is, err)
		}
		top.Close()
		b.close()
	})
}
