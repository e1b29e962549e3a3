package shard

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestWellAgain: where the breakers of all replicas are open, the shard is not given up for that.
// Whoever could go without it has them asked whether they are well; one asks for all who come, and
// in vain once.
func TestWellAgain(t *testing.T) {
	for _, tc := range []struct {
		name, script string // to count(up)
		well         bool
		most         time.Duration
	}{
		{"well", "answer", true, 0},
		{"errors", "error 500 internal boom", false, 0},
		{"silent", "stall", false, wholeWait},
	} {
		for _, replicas := range []int{1, 2} {
			synctest.Test(t, func(t *testing.T) {
				cfg := fakeshard.Config{Routes: []fakeshard.Route{
					{Path: seriesPath, Script: "error 500 internal something"},
					{Path: "/api/v1/query", Query: "count(up)", Script: tc.script},
				}}
				b := newBubble(t, []fakeshard.Config{cfg, cfg}[:replicas]...)
				defer b.close()
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				if s.Ejected() || s.Failing() {
					t.Fatal("it fails before anything did")
				}
				for _, r := range s.Replicas {
					for range breakerFailures {
						r.up.breaker.failure(time.Now())
					}
				}
				if s.Ejected() || !s.Failing() {
					t.Errorf("%s: ejected %t, failing %t", tc.name, s.Ejected(), s.Failing())
				}
				began := time.Now()
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						if well := s.WellAgain(t.Context()); well != tc.well {
							t.Errorf("%s, %d replicas: well %t", tc.name, replicas, well)
						}
					})
				}
				all.Wait()
				if took := time.Since(began); took > tc.most {
					t.Errorf("%s, %d replicas: 20 waited for %s", tc.name, replicas, took)
				}
				if s.WellAgain(t.Context()) != tc.well || s.Failing() == tc.well {
					t.Errorf("%s, %d replicas: failing %t afterwards", tc.name, replicas, s.Failing())
				}
				for i := range replicas {
					if n := b.count(i, "/api/v1/query"); n != 1 {
						t.Errorf("%s: replica %d of %d was asked %d times", tc.name, i, replicas, n)
					}
				}
			})
		}
	}
}
