package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// TestCheckMoves: servers that answer, or did until a short while ago, are not given up for such as
// do not. It takes five seconds at most, however many hang, and no longer than until one answers.
func TestCheckMoves(t *testing.T) {
	const many = 70 // new servers, of which all hang that are not said to answer
	for _, tc := range []struct {
		name    string
		answers int           // which new one does, from 1; 0: none
		away    time.Duration // for how long the old one has been
		change  func(old, next *config.Group)
		want    string // in the error; empty: taken
		unasked bool
		within  time.Duration
	}{
		{name: "all hang", want: "10.0.0.2:9090 did not answer within 1.666", within: 5 * time.Second},
		{name: "the first one answers", answers: 1, within: time.Second},
		{name: "the last one answers", answers: many, within: 5 * time.Second},
		{name: "the old one was there just now", away: 4 * time.Minute, want: "and 65 more", within: 5 * time.Second},
		{name: "the old one has gone", away: 6 * time.Minute, unasked: true},
		{
			name: "they are looked up", change: func(_, next *config.Group) { next.ShardsFrom.Files = config.Paths{"servers.json"} },
			unasked: true,
		},
		{
			name: "they were looked up", change: func(old, _ *config.Group) { old.ShardsFrom.Files = config.Paths{"servers.json"} },
			want: "group jaguar: ", within: 5 * time.Second,
		},
		{name: "another group", change: func(_, next *config.Group) { next.Name = "ibis" }, unasked: true},
		{
			name: "one stays", change: func(old, next *config.Group) { next.Shards = append(next.Shards, old.Shards...) }, unasked: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfgs := make([]fakeshard.Config, 1+many)
				for i := range cfgs[1:] {
					if i+1 != tc.answers {
						cfgs[i+1].Routes = []fakeshard.Route{{Script: "stall"}}
					}
				}
				b := newBubble(t, cfgs...)
				defer b.close()
				o := Options{Dial: b.dial}
				old, next := group(b.urls[0]), group(b.urls[1:]...)
				if tc.change != nil {
					tc.change(&old, &next)
				}
				top := build(t, o, true, old)
				defer top.Close()
				if tc.away > 0 {
					if err := b.fakes[0].Set("", fakeshard.Route{Script: "status 503"}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(tc.away)
				}
				moved, err := New([]config.Group{next}, o, top)
				if err != nil {
					t.Fatal(err)
				}
				defer moved.Close()
				began := time.Now()
				err = moved.CheckMoves(t.Context(), top)
				if took := time.Since(began); took > tc.within {
					t.Errorf("it took %s", took)
				}
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) ||
					errors.As(err, new(*UnreachedError)) != (err != nil) {
					t.Error(err)
				}
				if n := b.count(1, "/-/ready"); (n == 0) != tc.unasked {
					t.Errorf("the new ones were asked %d times", n)
				}
			})
		})
	}
}

// TestCheckMovesEnds: who waits for the answers no longer has neither a yes nor a no.
func TestCheckMovesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{Routes: []fakeshard.Route{{Script: "stall"}}})
		defer b.close()
		o := Options{Dial: b.dial}
		top := build(t, o, true, group(b.urls[0]))
		defer top.Close()
		moved, err := New([]config.Group{group(b.urls[1])}, o, top)
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Close()
		errEnd := errors.New("the end")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errEnd) })
		began := time.Now()
		if err := moved.CheckMoves(ctx, top); !errors.Is(err, errEnd) || errors.As(err, new(*UnreachedError)) ||
			time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestCheckMovesToOthers: a server that is ready and refuses queries is another program, or lets
// nobody in without the right password; one that is busy, slow or starting is there.
func TestCheckMovesToOthers(t *testing.T) {
	query := func(script string) []fakeshard.Route {
		return []fakeshard.Route{{Path: "/api/v1/query", Script: script}}
	}
	login := `header Content-Type text/html; send '<html>log in</html>'`
	for _, tc := range []struct {
		name   string
		routes [][]fakeshard.Route // of each new server
		want   string              // in the error; empty: taken
		within time.Duration
	}{
		{
			"a sidecar's port",
			[][]fakeshard.Route{query("status 404; send '404 page not found'")},
			"does not serve the API of a Prometheus (status 404)", 0,
		},
		{"an API that is gone", [][]fakeshard.Route{query("error 410 gone 'use v2'")}, "410", 0},
		{
			"readiness is open, the rest is not",
			[][]fakeshard.Route{query("status 401; send hunter2")},
			"refuses Spillway's credentials with status 401", 0,
		},
		{"forbidden", [][]fakeshard.Route{query("status 403")}, "403", 0},
		{"not by GET", [][]fakeshard.Route{query("status 405")}, "405", 0},
		{"to a login page", [][]fakeshard.Route{query("redirect http://login.example/")}, "redirects", 0},
		{"a page for whatever is asked", [][]fakeshard.Route{{{Script: login}}}, "not JSON", 0},
		{
			"JSON of something else",
			[][]fakeshard.Route{query("header Content-Type application/json; send '{}'")},
			`has the status ""`, 0,
		},
		{
			"one of each",
			[][]fakeshard.Route{query("status 404"), query("status 401"), {{Script: login}}, {{Script: "status 500"}}},
			"status 500", 0,
		},
		{"one of them answers", [][]fakeshard.Route{query("status 404"), query("status 401"), nil}, "", 0},
		{"one of them is slow", [][]fakeshard.Route{query("status 404"), query("stall")}, "", lagTimeout},
		{"queries hang", [][]fakeshard.Route{query("stall")}, "", lagTimeout},
		{"it has no room", [][]fakeshard.Route{query("status 503; header Retry-After 5")}, "", 0},
		{"a gateway before a busy one", [][]fakeshard.Route{query("status 504; send '<html>'")}, "", 0},
		{"500", [][]fakeshard.Route{query("error 500 internal 'disk'")}, "", 0},
		{"429", [][]fakeshard.Route{query("status 429")}, "", 0},
		{"the query fails", [][]fakeshard.Route{query("error 422 execution 'too many samples'")}, "", 0},
		{"it breaks off", [][]fakeshard.Route{query("reset")}, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfgs := make([]fakeshard.Config, 1, 1+len(tc.routes))
				for _, r := range tc.routes {
					cfgs = append(cfgs, fakeshard.Config{Routes: r})
				}
				b := newBubble(t, cfgs...)
				defer b.close()
				var log strings.Builder
				o := Options{Dial: b.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				top := build(t, o, true, group(b.urls[0]))
				defer top.Close()
				moved, err := New([]config.Group{group(b.urls[1:]...)}, o, top)
				if err != nil {
					t.Fatal(err)
				}
				defer moved.Close()
				began, said := time.Now(), log.Len()
				err = moved.CheckMoves(t.Context(), top)
				if took := time.Since(began); took > tc.within {
					t.Errorf("it took %s", took)
				}
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) ||
					errors.As(err, new(*UnreachedError)) != (err != nil) || err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Error(err)
				}
				if log.Len() != said { // it is asked at each look at the file
					t.Errorf("it is logged, too: %s", log.String()[said:])
				}
			})
		})
	}
}

// TestCheckMovesOfManySlowQueries: queries that take long keep no other group's servers from being
// asked, and where many refuse them it is known of all.
func TestCheckMovesOfManySlowQueries(t *testing.T) {
	const many = 200
	for _, tc := range []struct {
		name, script string
		groups       int
		want         string
	}{
		{"a group each, and slow", "stall", many, ""},
		{"far away, and the wrong password", "delay 1200ms; status 401", 1, "status 401"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfgs := make([]fakeshard.Config, tc.groups+many)
				for i := range many {
					cfgs[tc.groups+i].Routes = []fakeshard.Route{{Path: "/api/v1/query", Script: tc.script}}
				}
				b := newBubble(t, cfgs...)
				defer b.close()
				var old, next []config.Group
				for i := range tc.groups {
					each := many / tc.groups
					was, is := group(b.urls[i]), group(b.urls[tc.groups+i*each:][:each]...)
					was.Name = fmt.Sprint("g", i)
					is.Name = was.Name
					old, next = append(old, was), append(next, is)
				}
				o := Options{Dial: b.dial, Registerer: prometheus.NewRegistry()}
				top := build(t, o, true, old...)
				defer top.Close()
				time.Sleep(2 * time.Second)
				moved, err := New(next, o, top)
				if err != nil {
					t.Fatal(err)
				}
				defer moved.Close()
				began := time.Now()
				err = moved.CheckMoves(t.Context(), top)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%.1000v", err)
				}
			})
		})
	}
}
