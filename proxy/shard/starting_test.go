package shard

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// starter is a Prometheus that reads its log while reads has segments of it, and answers then.
func starter(reads *atomic.Int64) fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		left := reads.Load()
		switch {
		case left == 0 || r.Path == metricsPage:
			return fakeshard.Answer{}, false
		case r.Path == "/api/v1/status/walreplay" && left > 0:
			return fakeshard.Answer{
				Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: fmt.Appendf(nil, `{"status":"success","data":{"min":3,"max":13,"current":%d}}`, 13-left),
			}, true
		}
		return fakeshard.Answer{
			Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: []byte("Service Unavailable\n"),
		}, true
	}}
}

// TestOneThatReadsItsLogIsNotAsked: neither alone nor beside a copy; it is asked again within
// seconds of being ready. One that only says 503 is asked last, as it was.
func TestOneThatReadsItsLogIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, broken := share(0), share(0), share(0)
		b := newBubble(t, starter(one), starter(two), fakeshard.Config{}, starter(broken))
		defer b.close()
		alone, pair, other := group(b.urls[0]), group(b.urls[1:3]...), group(b.urls[3])
		pair.Name, other.Name = "heron", "stork"
		top := build(t, Options{Dial: b.dial}, true, alone, pair, other)
		defer top.Close()
		s, p, o := top.Groups[0].Shards[0], top.Groups[1].Shards[0], top.Groups[2].Shards[0]
		one.Store(7)
		two.Store(10)
		broken.Store(-1)
		time.Sleep(12 * time.Second)
		asked := b.count(0, seriesPath)
		_, err := ask(t.Context(), s, seriesRequest)
		if e := qerr.From(err); e == nil || b.count(0, seriesPath) != asked ||
			!strings.Contains(e.Message, "has been started and reads its log, of which it has read 3 of 10 segments") ||
			!strings.Contains(e.Advice, "wait until it is ready") {
			t.Errorf("asked %d times: %v", b.count(0, seriesPath)-asked, err)
		}
		if gone := s.Gone(); !strings.Contains(gone, "reads its log") || s.Sound() {
			t.Errorf("%q, sound: %t", gone, s.Sound())
		}
		i := top.Status()[0]
		if i.State != Down || !strings.Contains(i.Starting, "3 of 10 segments") || !strings.Contains(i.Error, i.Starting) {
			t.Errorf("%+v", i)
		}
		who, err := ask(t.Context(), p, seriesRequest)
		if err != nil || !strings.HasSuffix(who, "10.0.0.3:9090") || b.count(1, seriesPath) != 0 {
			t.Errorf("%s has answered: %v", who, err)
		}
		if all, err := p.Usable(); len(all) != 1 {
			t.Errorf("%d are usable: %v", len(all), err)
		}
		if _, err := ask(t.Context(), o, seriesRequest); err == nil || b.count(3, seriesPath) == 0 {
			t.Errorf("one that says nothing but 503 was asked %d times: %v", b.count(3, seriesPath), err)
		}
		one.Store(0)
		two.Store(0)
		broken.Store(0)
		time.Sleep(6 * time.Second)
		for i, s := range []*Shard{s, p, o} {
			if _, err := ask(t.Context(), s, seriesRequest); err != nil || !s.Sound() {
				t.Errorf("shard %d is ready: %v", i, err)
			}
		}
		if i = top.Status()[0]; i.State != Up || i.Starting != "" {
			t.Errorf("%+v", i)
		}
	})
}
