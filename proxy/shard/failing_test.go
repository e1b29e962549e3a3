package shard

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestOpenBreakersAreAskedAgain: what a replica has whose breaker is open, and what the other one
// is known to lack, is not nobody's: it is asked whether it is well. Where all breakers are open
// each is. One that says that it is not is not waited for.
func TestOpenBreakersAreAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		open    int // so many breakers are
		refuses bool
		want    int
	}{{"one", 1, false, 0}, {"both", 2, false, 0}, {"one that says that it cannot", 1, true, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gap := time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)
				full, lacks := gapped(gap)
				cfg := beating(full)
				var refuses atomic.Bool
				answer := cfg.Answer
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					a, ok := answer(r)
					if refuses.Load() && strings.HasPrefix(r.Form.Get("query"), "sum") {
						a = fakeshard.Answer{Status: 503, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no")}
					}
					return a, ok
				}
				b := newBubble(t, cfg, beating(lacks))
				g := group(b.urls...)
				g.Heartbeat = "up"
				top := build(t, Options{Dial: b.dial}, true, g)
				s := top.Groups[0].Shards[0]
				time.Sleep(17*time.Minute + 2*time.Second)
				whole := func() (int, bool, error) {
					r, is, err := s.Whole(t.Context(), gap.Add(-time.Hour).UnixMilli(), gap.Add(2*time.Hour).UnixMilli(), time.Now())
					if err != nil {
						return -1, false, err
					}
					return r.Index, is, nil
				}
				if got, is, err := whole(); got != 0 || !is || err != nil {
					t.Fatalf("before: replica %d, %t, %v", got, is, err)
				}
				refuses.Store(tc.refuses)
				for _, r := range s.Replicas[:tc.open] {
					for range breakerFailures {
						r.up.breaker.failure(time.Now())
					}
				}
				s.base.Store(1)
				if got, is, err := whole(); got != tc.want || !is || err != nil {
					t.Errorf("replica %d, %t, %v", got, is, err)
				}
				if state := s.Replicas[0].up.breaker.current(time.Now()); (state == Closed) == tc.refuses {
					t.Errorf("its breaker is %s", state)
				}
				top.Close()
				b.close()
			})
		})
	}
}
