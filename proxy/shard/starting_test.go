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
			!strings.Contains(e.Advice, "wait until it is ready") ||
			Busy(e).Kind != qerr.Unavailable || Busy(e).RetryAfter != 5*time.Second {
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

// TestReadinessAloneIsNoStart: a server whose readiness page alone answers 503, whatever its log
// is said to be, goes on being asked, alone and where its copy fails.
func TestReadinessAloneIsNoStart(t *testing.T) {
	for name, routes := range map[string][]fakeshard.Route{
		"its log is read": {walreplay(13), unavailable("/api/v1/status/buildinfo")}, "its API is well": {walreplay(5)},
		"no log": {walreplay(3)}, "a log of no length": {walreplay(0), unavailable("/api/v1/status/buildinfo")}, "nothing of a log": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := fakeshard.Config{Routes: append([]fakeshard.Route{unavailable("/-/ready")}, routes...)}
				b := newBubble(t, cfg, cfg, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Script: "status 500"}}})
				defer b.close()
				alone, pair := group(b.urls[0]), group(b.urls[1:]...)
				pair.Name = "heron"
				top := build(t, Options{Dial: b.dial}, true, alone, pair)
				defer top.Close()
				time.Sleep(20 * time.Second)
				for i, g := range top.Groups {
					if _, err := ask(t.Context(), g.Shards[0], seriesRequest); err != nil {
						t.Errorf("group %d: %v", i, err)
					}
				}
				if i := top.Status()[0]; i.State != Down || i.Starting != "" {
					t.Errorf("%+v", i)
				}
			})
		})
	}
}

// walreplay says that of a log from 3 to 13 so much was read; 0 is that there is none.
func walreplay(current int) fakeshard.Route {
	low, high := 3, 13
	if current == 0 {
		low, high = 0, 0
	}
	return fakeshard.Route{
		Path:   "/api/v1/status/walreplay",
		Script: fmt.Sprintf(`header Content-Type application/json; send '{"status":"success","data":{"min":%d,"max":%d,"current":%d}}'`, low, high, current),
	}
}

func unavailable(path string) fakeshard.Route {
	return fakeshard.Route{Path: path, Script: "status 503; send 'Service Unavailable'"}
}
