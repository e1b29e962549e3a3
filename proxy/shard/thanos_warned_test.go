package shard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// TestWarnedOfStores: what a Thanos Query asks of all stores is whole, without a warning, while
// those that it warns of are those that fail, and each has a copy. Any other warning is a refusal.
func TestWarnedOfStores(t *testing.T) {
	const of = "receiving rules from rules client &{0xc000%d}: rpc error: code = Unavailable desc = error reading from server: EOF"
	warn := func(n ...int) (out []string) {
		for _, i := range n {
			out = append(out, fmt.Sprintf(of, i))
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		does  map[string]string
		warns []string
		kind  string
		asked int
	}{
		{"one of a pair fails", map[string]string{"a:1": "fail"}, warn(1), "ok", 1},
		{"one of a pair hangs, as its Prometheus does, and is given up", map[string]string{"a:1": "hang"}, warn(1), "ok", 1},
		{"one of each pair fails", map[string]string{"a:1": "fail", "b:10": "fail"}, warn(1, 2), "ok", 1},
		{
			"one connection warns twice",
			map[string]string{"a:1": "fail"},
			append(warn(1), strings.Replace(warn(1)[0], "EOF", "reset", 1)),
			"ok", 1,
		},
		{"one fails, and another one did", map[string]string{"a:1": "fail"}, warn(1, 2), "shard_failed", 2},
		{"two fail, and one was asked", map[string]string{"a:1": "fail", "b:1": "fail"}, warn(1), "shard_failed", 2},
		{"both of a pair fail", map[string]string{"a:1": "fail", "a:10": "fail"}, warn(1, 2), "shard_failed", 2},
		{"one without a copy fails", map[string]string{"c:1": "fail"}, warn(1), "shard_failed", 2},
		{"none fails", nil, warn(1), "shard_failed", 2},
		{"one that Thanos does not ask at the moment", map[string]string{"c:1": "quiet"}, warn(1), "shard_failed", 2},
		{"a store of a store fails", map[string]string{"a:1": "fail"}, append(warn(1), "No store matched"), "shard_failed", 2},
	} {
		for _, id := range []endpoint.ID{endpoint.Rules, endpoint.Targets, endpoint.Metadata, endpoint.QueryExemplars} {
			t.Run(fmt.Sprint(tc.name, ", ", id), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var f fakeStores
					cfg := f.config()
					path, asked := endpoint.Get(id).Path, 0
					stores := cfg.Answer
					cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
						if r.Path != path {
							return stores(r)
						}
						asked++
						a := answerJSON(http.StatusOK, fmt.Sprintf(`{"status":"success","data":{"groups":[]},"warnings":["%s"]}`, strings.Join(tc.warns, `","`)))
						a.Header.Set("Cache-Control", "no-store")
						return a, true
					}
					cfg.Routes = slices.DeleteFunc(cfg.Routes, func(r fakeshard.Route) bool { return r.Path == path })
					b := newBubble(t, cfg)
					defer b.close()
					top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
					defer top.Close()
					top.Refresh(t.Context())
					f.set(tc.does)
					asked = 0
					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()
					raw, err := readAll(ctx, top.Groups[0].Shards[0].Replicas[0], &endpoint.Request{ID: id, Query: "up"}, CallOptions{})
					if kindOf(err) != tc.kind || err == nil && string(raw) != `{"status":"success","data":{"groups":[]}}` ||
						err != nil && !strings.Contains(err.Error(), "could not read all of its stores") {
						t.Errorf("got %s, %v, want %s", raw, err, tc.kind)
					}
					for name, does := range tc.does {
						if err != nil && !strings.Contains(err.Error(), name) {
							t.Errorf("%v does not name %s, which %ss", err, name, does)
						}
					}
					if asked != tc.asked {
						t.Errorf("asked %d times, want %d", asked, tc.asked)
					}
					f.set(nil)
				})
			})
		}
	}
}

// TestLateNamesStores: what had not come at the deadline names the stores that are away, whether
// their copies are well or not, and those that failed a moment ago, and no others.
func TestLateNamesStores(t *testing.T) {
	for _, tc := range []struct {
		name   string
		away   map[string]string // by Thanos' page
		failed string            // when it was asked; deaf: nobody could be asked
		ago    time.Duration
		names  []string
	}{
		{"none", nil, "", 0, nil},
		{"one of a pair", map[string]string{"a:1": "gone"}, "", 0, []string{"a:1"}},
		{"both of a pair", map[string]string{"a:1": "gone", "a:10": "gone"}, "", 0, []string{"a:1", "a:10"}},
		{"one of a pair, and one without a copy", map[string]string{"c:1": "gone", "b:1": "gone"}, "", 0, []string{"b:1", "c:1"}},
		{"one failed", nil, "c:1", 0, []string{"c:1"}},
		{"one failed, and another is away", map[string]string{"a:1": "gone"}, "c:1", time.Second, []string{"a:1", "c:1"}},
		{"one failed long ago", nil, "c:1", failingFor, nil},
		{"Spillway had too little of its processors", nil, "deaf", 0, nil},
		{"one failed, as the other Thanos Query knows", nil, "other c:1", 0, []string{"c:1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f fakeStores
				cfg := f.config()
				failed, other := strings.CutPrefix(tc.failed, "other ")
				path, stores, over := endpoint.Get(endpoint.Rules).Path, cfg.Answer, make(chan struct{})
				cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
					if r.Path == path {
						<-over
					}
					return stores(r)
				}
				b := newBubble(t, cfg, cfg)
				defer b.close()
				defer close(over)
				top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
				defer top.Close()
				top.Refresh(t.Context())
				both := top.Groups[0].Shards[0].Replicas
				ask := func(r *Replica, req *endpoint.Request) error {
					ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
					defer cancel()
					_, err := readAll(ctx, r, req, CallOptions{})
					return err
				}
				switch failed {
				case "":
				case "deaf":
					both[0].up.stores.deaf = time.Now()
				default:
					f.set(map[string]string{failed: "fail"})
					who := both[0]
					if other {
						who = both[1]
					}
					if err := ask(who, &endpoint.Request{ID: endpoint.Query, Query: "count(up)"}); err == nil {
						t.Fatalf("%s fails and nobody was told", failed)
					}
					f.set(nil)
					time.Sleep(tc.ago)
				}
				f.setAway(tc.away)
				err := ask(both[0], &endpoint.Request{ID: endpoint.Rules})
				if kindOf(err) != "timeout" {
					t.Fatalf("%v, want a timeout", err)
				}
				if deaf := strings.Contains(err.Error(), "too little of its processors"); deaf != (failed == "deaf") {
					t.Errorf("%v: it says that nobody could be asked: %v", err, deaf)
				}
				for name := range holds {
					if got, want := thanos.SpokenOf(err.Error(), []string{name})[name] != "", slices.Contains(tc.names, name); got != want {
						t.Errorf("%v names %s: %v, want %v", err, name, got, want)
					}
				}
			})
		})
	}
}
