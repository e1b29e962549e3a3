package shard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// TestNoCheckGoesUnseen: a health check of a store that fails between two looks at the page, which
// calls the store well before and after, is told by the times of its successes; an answer of that
// time is asked for again. Where none fails a query is asked once, however long it takes and
// however long nobody has asked before.
func TestNoCheckGoesUnseen(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails func(check int) bool // every five seconds
		takes time.Duration
		idle  time.Duration // between two probes
		asked int
		says  string
		every time.Duration // endpoint.info-timeout; 0 is the default
	}{
		{"none fails", func(int) bool { return false }, time.Second, 5 * time.Second, 1, "", 0},
		{"none fails for long", func(int) bool { return false }, 60 * time.Second, time.Hour, 1, "", 0},
		{"after a long silence", func(int) bool { return false }, time.Second, time.Hour, 1, "", 0},
		{"one before", func(check int) bool { return check == 23 }, time.Second, time.Hour, 1, "", 0},
		{"one meanwhile", func(check int) bool { return check == 25 }, 20 * time.Second, 5 * time.Second, 2, "", 0},
		{
			"every other one", func(check int) bool { return check%2 == 1 }, 20 * time.Second, 5 * time.Second, 1 + aroundTries,
			"was not read often enough", 0,
		},
		{"checks are rarer", func(check int) bool { return check%2 == 1 }, 20 * time.Second, 5 * time.Second, 1, "", 10 * time.Second},
	} {
		for _, id := range []endpoint.ID{endpoint.Query, endpoint.Rules} {
			t.Run(fmt.Sprint(tc.name, ", ", id), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					flags := map[string]string{}
					if tc.every > 0 {
						flags["endpoint.info-timeout"] = tc.every.String()
					}
					req := &endpoint.Request{ID: id}
					if id == endpoint.Query {
						req.Query = "up"
					}
					cfg := fakeThanos(flags, fakeshard.Route{Path: req.Path(), Script: "delay " + tc.takes.String() + "; answer"})
					cfg.Routes = append([]fakeshard.Route{}, cfg.Routes...)
					for i := range cfg.Routes {
						if cfg.Routes[i].Path == storesPath {
							cfg.Routes[i].Path = "/nowhere"
						}
					}
					cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
						if r.Path != storesPath {
							return fakeshard.Answer{}, false
						}
						check := int(time.Since(start) / thanos.Checks)
						for tc.fails(check) {
							check--
						}
						line := store("s1", "", jaguarA)
						line = strings.Replace(line, "2026-10-01T00:00:00Z",
							start.Add(time.Duration(check)*thanos.Checks).Format(time.RFC3339Nano), 1)
						return answerJSON(http.StatusOK, `{"status":"success","data":{"sidecar":[`+line+`]}}`), true
					}
					b := newBubble(t, cfg)
					defer b.close()
					top := build(t, Options{Dial: b.dial, ProbeInterval: tc.idle, ProgressTimeout: time.Hour}, true, thanosGroup(b.urls...))
					defer top.Close()
					time.Sleep(122 * time.Second)
					_, err := readAll(t.Context(), top.Groups[0].Shards[0].Replicas[0], req, CallOptions{})
					want := tc.asked
					if id == endpoint.Rules {
						want = min(want, 2)
					}
					n := 0
					for _, r := range b.fakes[0].RequestsTo(req.Path()) {
						if r.Form.Get("query") == req.Query { // and not whether it answers at all
							n++
						}
					}
					if n != want {
						t.Errorf("asked %d times, want %d", n, want)
					}
					if tc.says == "" && err != nil ||
						tc.says != "" && (kindOf(err) != "shard_failed" || !strings.Contains(err.Error(), tc.says)) {
						t.Errorf("got %v, want %q", err, tc.says)
					}
				})
			})
		}
	}
}
