package shard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestMute: a server that hangs and has no sound copy costs the first requests their time; once
// that is known they fail at once, naming it and since when, and it is asked again as soon as it
// answers a small query.
func TestMute(t *testing.T) {
	query := &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(0)}
	for _, tc := range []struct {
		name  string
		sound int    // replicas
		hung  string // what hangs: a route's path, empty for all
		idle  bool   // nobody has to find it out: the readiness page hangs too
	}{
		{"the API of one", 1, "/api/v1/*", false},
		{"all of one", 1, "", true},
		{"the API of both", 2, "/api/v1/*", false},
		{"all of both", 2, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, make([]fakeshard.Config, tc.sound)...)
				defer b.close()
				top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				one := func() (time.Duration, error) {
					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()
					began := time.Now()
					_, err := ask(ctx, s, query)
					return time.Since(began), err
				}
				if _, err := one(); err != nil {
					t.Fatal(err)
				}
				for _, f := range b.fakes {
					if err := f.Set("", fakeshard.Route{Path: tc.hung, Script: "stall"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(30 * time.Second) // probes alone find out that all of it hangs
				if !tc.idle {
					if took, err := one(); kindOf(err) == "ok" || took < 20*time.Second {
						t.Errorf("the first request: %v after %s", err, took)
					}
				}
				before := b.count(0, "/api/v1/query")
				for range 5 {
					took, err := one()
					if kindOf(err) != "shard_failed" || !errors.Is(err, errMute) || took > 3*time.Second ||
						!strings.Contains(err.Error(), s.Replicas[0].Name()) {
						t.Errorf("once it is known: %v after %s", err, took)
					}
				}
				if !s.Ejected() {
					t.Error("a partial answer would wait for it")
				}
				if n := b.count(0, "/api/v1/query") - before; n > 1 {
					t.Errorf("%d calls went to a server that is known to be silent", n)
				}
				for _, f := range b.fakes {
					if err := f.Set(""); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(muteTimeout + 2*lagEvery)
				if took, err := one(); err != nil || took != 0 {
					t.Errorf("once it answers again: %v after %s", err, took)
				}
			})
		})
	}
}

// TestSlowIsNotMute: a server that takes long for all it is asked, but answers, is waited for.
func TestSlowIsNotMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/query", Script: "delay 4s; answer"}}})
		defer b.close()
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		defer top.Close()
		for i := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			if _, err := ask(ctx, top.Groups[0].Shards[0],
				&endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(0)}); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			cancel()
		}
	})
}

// TestOthersFailureIsNotCharged: a call that ends because another server failed says nothing about
// its own server.
func TestOthersFailureIsNotCharged(t *testing.T) {
	reg := prometheus.NewRegistry()
	r, fake := one(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Script: "stall"}}}, Options{Registerer: reg})
	other := qerr.New(qerr.ShardFailed, "jaguar/10.0.0.9:9090 cannot be reached")
	other.Shards = []string{"jaguar/10.0.0.9:9090"}
	for i := range breakerFailures {
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() { // ends with the call, which the test waits for
			_, err := readAll(ctx, r, seriesRequest, CallOptions{})
			result <- err
		}()
		wait, stop := context.WithTimeout(t.Context(), patience)
		if err := fake.WaitSeen(wait, seriesPath, i+1); err != nil {
			t.Fatal(err)
		}
		stop()
		cancel(other)
		if err := <-result; !errors.Is(err, other) {
			t.Errorf("got %v", err)
		}
	}
	if state := r.up.breaker.current(time.Now()); state != Closed {
		t.Errorf("breaker %s", state)
	}
	if what, _ := r.Trouble(); what != "" {
		t.Errorf("the server %s", what)
	}
	if n := testutil.ToFloat64(r.up.metrics.requests.WithLabelValues(append(r.labels(), "canceled")...)); n != breakerFailures {
		t.Errorf("%g calls counted as canceled, not %d", n, breakerFailures)
	}
}

// TestMuteAfterReload: a reload while a server is mute does not leave it mute for ever: it is
// looked at by the new configuration too, without a call that would not be made.
func TestMuteAfterReload(t *testing.T) {
	query := &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(0)}
	for _, replicas := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, make([]fakeshard.Config, replicas)...)
			defer b.close()
			o := Options{Dial: b.dial}
			top := build(t, o, true, group(b.urls...))
			one := func(top *Topology) error {
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				_, err := ask(ctx, top.Groups[0].Shards[0], query)
				return err
			}
			for _, f := range b.fakes {
				if err := f.Set("", fakeshard.Route{Path: "/api/v1/*", Script: "stall"}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				_ = one(top)
			}
			if err := one(top); !errors.Is(err, errMute) {
				t.Fatalf("%d replicas: not mute: %v", replicas, err)
			}
			next, err := New([]config.Group{group(b.urls...)}, o, top)
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			next.Start(t.Context())
			time.Sleep(100 * time.Millisecond)
			top.Close()
			time.Sleep(time.Minute)
			for _, f := range b.fakes {
				if err := f.Set(""); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute) // nobody asks for anything
			for _, r := range next.Groups[0].Shards[0].Replicas {
				if at := r.Mute(); !at.IsZero() {
					t.Errorf("%s of %d is mute since %s, a minute after it answers again", r.Name(), replicas, at)
				}
			}
			if err := one(next); err != nil {
				t.Errorf("%d replicas: %v", replicas, err)
			}
		})
	}
}
