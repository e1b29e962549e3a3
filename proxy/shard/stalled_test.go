package shard

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestAHurriedStallIsNobodysFailure: a body in which nothing comes for as long as its caller can
// wait, while a copy could be asked, ends the call. It says nothing against the server, which may
// be busy, and is asked itself. A pause of less than a second ends nothing while there is time, and
// one of the progress timeout counts as ever.
func TestAHurriedStallIsNobodysFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const begins = `send '{"status":"success","data":['; `
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		r := s.Replicas[0]
		time.Sleep(time.Second)
		for _, tc := range []struct {
			name, script string
			left, took   time.Duration
			kind         string
		}{
			{"a pause of 900 ms", begins + `delay 900ms; send ']}'`, 2 * time.Second, 900 * time.Millisecond, "ok"},
			{"a pause until its deadline", begins + `stall`, 800 * time.Millisecond, 0, "timeout"},
			{"a stall", begins + `stall`, 6 * time.Second, 2 * time.Second, "shard_failed"},
			{"a stall with less time", begins + `stall`, 2 * time.Second, time.Second, "shard_failed"},
		} {
			if err := b.fakes[0].Set("", fakeshard.Route{Path: "/api/v1/series", Script: tc.script}); err != nil {
				t.Fatal(err)
			}
			for range 2 * breakerFailures {
				ctx, cancel := context.WithTimeout(t.Context(), tc.left)
				began := time.Now()
				_, err := readAll(ctx, r, seriesRequest, CallOptions{Spare: true})
				took := time.Since(began)
				cancel()
				if kindOf(err) != tc.kind || tc.took != 0 && took.Round(10*time.Millisecond) != tc.took || took > tc.left {
					t.Errorf("%s: %v after %s, want %s after %s", tc.name, err, took, tc.kind, tc.took)
				}
				stalled := tc.kind == "shard_failed"
				if HurriedStall(err) != stalled || stalled && !strings.Contains(err.Error(), "stalled") {
					t.Errorf("%s: %v", tc.name, err)
				}
			}
			rank, ok := r.rank(time.Now())
			if calm, failing := r.up.breaker.calm(), r.up.failing.Load(); !ok || rank != 0 || !calm || failing != 0 || r.Lagging() {
				t.Errorf("%s: rank %d, breaker calm %t, failing since %d, lagging %t", tc.name, rank, calm, failing, r.Lagging())
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a third of it is more than the progress timeout
		defer cancel()
		_, err := readAll(ctx, r, seriesRequest, CallOptions{Spare: true})
		calm, failing := r.up.breaker.calm(), r.up.failing.Load()
		if !Stalled(err) || HurriedStall(err) || calm || failing == 0 || !r.Lagging() {
			t.Errorf("%v, breaker calm %t, failing since %d, lagging %t", err, calm, failing, r.Lagging())
		}
		top.Close()
		b.close()
	})
}
