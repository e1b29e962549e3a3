package shard

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestABaseThatHangsIsLeft: a replica whose queries hang while it answers count(up), as one whose
// disk is dead under its blocks, is no reason to ask it first for ever.
func TestABaseThatHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		queries := func(hangs bool) fakeshard.Config {
			return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
				if !strings.HasSuffix(r.Path, "/query") {
					return fakeshard.Answer{}, false
				}
				for hangs && hung.Load() && r.Form.Get("query") != "count(up)" {
					time.Sleep(50 * time.Millisecond)
				}
				return fakeshard.Answer{Status: http.StatusOK, Body: []byte(`{"status":"success","data":{"resultType":"vector","result":[]}}`)}, true
			}}
		}
		b := newBubble(t, queries(true), queries(false))
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		time.Sleep(time.Second)
		s.base.Store(0)
		hung.Store(true)
		for i := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			began := time.Now()
			resp, err := s.Do(ctx, sumRequest, CallOptions{})
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			cancel()
			if took := time.Since(began); i > 0 && (err != nil || took > time.Second) {
				t.Errorf("call %d took %s: %v", i, took, err)
			}
			time.Sleep(time.Second)
		}
		if _, at := s.Replicas[0].rank(time.Now()); !at || s.Replicas[0].up.breaker.current(time.Now()) != "closed" {
			t.Errorf("it takes no part: breaker %s", s.Replicas[0].up.breaker.current(time.Now()))
		}
		hung.Store(false)
		top.Close()
		b.close()
	})
}

// TestTriedInVain: a replica that failed too often and is slow about its last minute is asked once
// for all, and those that take part are compared as before.
func TestTriedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gap := time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)
		full, lacks := gapped(gap)
		var slow atomic.Bool
		var asked atomic.Int64
		cfgs := []fakeshard.Config{beating(full), beating(lacks), beating(lacks)}
		answer := cfgs[0].Answer
		cfgs[0].Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if slow.Load() && strings.HasSuffix(r.Path, "/query") && strings.HasPrefix(r.Form.Get("query"), "sum by") {
				asked.Add(1)
				time.Sleep(4 * time.Second)
			}
			return answer(r)
		}
		b := newBubble(t, cfgs...)
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, true, g)
		s := top.Groups[0].Shards[0]
		time.Sleep(17*time.Minute + 2*time.Second)
		ordered := func(from, until time.Time) (whole int, took time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			_, whole, err = s.Ordered(ctx, from.UnixMilli(), until.UnixMilli(), time.Now())
			return whole, time.Since(began), err
		}
		if whole, _, err := ordered(gap.Add(-time.Hour), gap.Add(2*time.Hour)); err != nil || whole != 1 {
			t.Fatalf("%d are whole over the gap: %v", whole, err)
		}
		slow.Store(true)
		for range breakerFailures {
			s.Replicas[0].up.breaker.failure(time.Now())
		}
		for round := range 3 {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if _, took, err := ordered(gap.Add(-time.Hour), gap.Add(2*time.Hour)); err == nil || round > 0 && took > 0 {
						t.Errorf("round %d took %s: %v", round, took, err)
					}
				})
			}
			all.Wait()
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		if whole, _, err := ordered(time.Now().Add(-40*time.Hour), time.Now().Add(-39*time.Hour)); err != nil || whole != 2 {
			t.Errorf("%d of the others are whole over what nobody has looked at yet: %v", whole, err)
		}
		top.Close()
		b.close()
	})
}

// TestCheckMovesOfManySlowServers: one answer is enough, however many servers there are, and how
// far away.
func TestCheckMovesOfManySlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfgs := make([]fakeshard.Config, 700)
		for i := range cfgs {
			cfgs[i].Routes = []fakeshard.Route{{Path: "/-/ready", Script: "delay 300ms; answer"}}
		}
		b := newBubble(t, cfgs...)
		o := Options{Dial: b.dial, Registerer: prometheus.NewRegistry()}
		old, next := group(b.urls...), group(b.urls...)
		for i := range next.Shards {
			for j := range next.Shards[i].Replicas {
				next.Shards[i].Replicas[j].Headers = map[string]config.Secret{"X-Scope": "a"}
			}
		}
		top := build(t, o, true, old)
		time.Sleep(2 * time.Second)
		other, err := New([]config.Group{next}, o, top)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.CheckMoves(t.Context(), top); err != nil {
			t.Error(err)
		}
		other.Close()
		top.Close()
		b.close()
	})
}
