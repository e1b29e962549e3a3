package shard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// evaluator is a server that evaluates so many queries at once, each for as long, and keeps the
// others waiting; hung evaluates none to its end.
func evaluator(slots int, each time.Duration, hung *atomic.Bool) fakeshard.Config {
	free := make(chan struct{}, slots)
	cfg := fakeshard.Config{}
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if r.Path != "/api/v1/query" {
			return fakeshard.Answer{}, false
		}
		free <- struct{}{}
		time.Sleep(each)
		for hung.Load() {
			time.Sleep(time.Second)
		}
		<-free
		return fakeshard.Answer{Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"status":"success","data":{"resultType":"scalar","result":[0,"2"]}}`)}, true
	}
	return cfg
}

// TestFullIsNotMute: a server whose query slots are all taken by us, so that our own question waits
// too, is waited for. One that hangs with as many calls is found out once queries do not end in the
// time that it was told they have.
func TestFullIsNotMute(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		name := map[bool]string{false: "busy", true: "hung"}[hangs]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hung atomic.Bool
				b := newBubble(t, evaluator(20, 12*time.Second, &hung))
				defer b.close()
				top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				hung.Store(hangs)
				var all sync.WaitGroup
				var answered, muted, named atomic.Int32
				one := func() {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
						defer cancel()
						_, err := ask(ctx, s, &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(0)})
						switch {
						case err == nil:
							answered.Add(1)
						case errors.Is(err, errMute):
							muted.Add(1)
						case strings.Contains(err.Error(), "calls of Spillway's wait there, and it evaluates 20 queries at once"):
							named.Add(1)
						}
					})
				}
				for range 36 { // two rounds of slots, of which Spillway's own questions take some
					one()
				}
				time.Sleep(10 * time.Second)
				if !s.Replicas[0].Mute().IsZero() {
					t.Error("after 10 s it is taken for silent")
				}
				if !hangs {
					if all.Wait(); answered.Load() != 36 {
						t.Errorf("%d of 36 were answered", answered.Load())
					}
					return
				}
				for range 120 { // so that there are as many as slots at all times
					one()
					time.Sleep(500 * time.Millisecond)
				}
				if all.Wait(); named.Load() == 0 {
					t.Error("no error says how many calls wait there")
				}
				if muted.Load() < 40 {
					t.Errorf("%d of 120 failed at once on a server that hangs", muted.Load())
				}
				hung.Store(false)
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestGatesFollowTheConfiguration: a reload keeps the gates, and who is through them, whatever the
// numbers; other numbers are in force when the configuration is.
func TestGatesFollowTheConfiguration(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{})
	first, err := New(nil, Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	of := func(o Options, previous *Topology) (*Topology, *gate, *gate) {
		top, err := New([]config.Group{group(fake.URL())}, o, previous)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(top.Close)
		s := top.Groups[0].Shards[0]
		return top, s.calls, s.Replicas[0].up.gates.of(Heavy)
	}
	a, calls, reads := of(Options{}, first)
	if calls.Places() != maxCalls || reads.Places() != readSlots {
		t.Errorf("%d calls, %d reads", calls.Places(), reads.Places())
	}
	b, again, readsAgain := of(Options{}, a)
	if again != calls || readsAgain != reads {
		t.Error("a reload that changes nothing made other gates")
	}
	place, _ := calls.Try(admit.Asker{}, 2)
	top, fewer, fewerReads := of(Options{MaxCalls: 16, ReadSlots: 4}, b)
	if fewer != calls || fewerReads != reads || fewer.Places() != maxCalls || fewerReads.Places() != readSlots {
		t.Error("a configuration that is not in force yet changed the gates")
	}
	top.Start(t.Context())
	if fewer.Places() != 16 || fewerReads.Places() != 4 || fewer.OfPeer() != 14 || fewer.Held() != 2 {
		t.Errorf("%d calls, %d of one peer, %d reads, 16, 14 and 4 were asked for; %d are held, of 2",
			fewer.Places(), fewer.OfPeer(), fewerReads.Places(), fewer.Held())
	}
	fewer.Leave(&place, 2)
	all := top.crowd.all
	if all.Places() != maxProcessCalls {
		t.Errorf("%d calls of the process where nothing is said", all.Places())
	}
	for _, c := range []struct{ files, said, want int }{{0, 3, 3}, {64, 700, 16}, {0, 700, 700}, {0, 0, maxProcessCalls}} {
		o := Options{ProcessCalls: c.said, OpenFiles: cmp.Or(c.files, 8*maxProcessCalls)}
		next, _, _ := of(o, top)
		if before := all.Places(); next.crowd.all != all || all.Places() != before {
			t.Error("a configuration that is not in force yet changed the gate of the process")
		}
		if next.Start(t.Context()); all.Places() != c.want || all.OfPeer() != ofPeer(c.want) {
			t.Errorf("%+v: %d calls of the process, %d of one peer", c, all.Places(), all.OfPeer())
		}
		fresh, err := New(nil, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := fresh.crowd.all.Places(); n != c.want {
			t.Errorf("%+v: %d calls of a process that starts", c, n)
		}
		fresh.Close()
		top = next
	}
}
