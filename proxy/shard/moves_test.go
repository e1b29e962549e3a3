package shard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
