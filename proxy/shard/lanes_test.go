package shard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func inLane(ctx context.Context, lane string) context.Context {
	return identity.With(ctx, identity.Request{Lane: lane, Peer: "192.0.2.1"})
}

func laneNames(all []admit.LaneState) (out []string) {
	for _, l := range all {
		out = append(out, l.Name)
	}
	return out
}

// TestLanesFollowTheConfiguration: a configuration with other lanes is in force from Start on, at
// the gates that there are: who has a place keeps it, and who waits is served. One that is never
// started changes nothing.
func TestLanesFollowTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{})
		defer b.close()
		of := func(previous *Topology, start bool, lanes ...admit.Lane) *Topology {
			o := Options{Dial: b.dial, MaxCalls: 4, Lanes: lanes, Registerer: prometheus.NewRegistry()}
			top, err := New([]config.Group{group(b.urls...)}, o, previous)
			if err != nil {
				t.Fatal(err)
			}
			if start {
				top.Start(t.Context())
			}
			return top
		}
		one := of(nil, true, admit.Lane{Name: "oncall", Share: 0.5}, admit.Lane{Name: "default", Share: 0.5})
		defer one.Close()
		s := one.Groups[0].Shards[0]
		var leave []func()
		for range 3 { // one is kept for on-call
			f, err := s.Enter(inLane(t.Context(), "default"), 0)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, f)
		}
		served := make(chan error)
		go func() {
			f, err := s.Enter(inLane(t.Context(), "default"), 0)
			if err == nil {
				defer f()
			}
			served <- err
		}()
		synctest.Wait()
		never := of(one, false, admit.Lane{Name: "default", Share: 1})
		defer never.Close()
		synctest.Wait()
		if got := laneNames(one.Lanes()); !slices.Equal(got, []string{"oncall", "default"}) || s.calls.Held() != 3 {
			t.Errorf("what was never started has the lanes %v", got)
		}
		two := of(one, true, admit.Lane{Name: "default", Share: 1})
		defer two.Close()
		if err := <-served; err != nil { // nothing is kept any more
			t.Error(err)
		}
		synctest.Wait() // it has left
		if got := two.Lanes(); len(got) != 1 || got[0].Held != 3 || got[0].Refused != 0 {
			t.Errorf("%+v", got)
		}
		for _, f := range leave {
			f()
		}
		if one.crowd.all.Held() != 0 || two.Lanes()[0].Held != 0 {
			t.Error("a place is held at the end")
		}
	})
}

// TestRefusalsOfLanes: who finds no place is told what was in the way.
func TestRefusalsOfLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial, MaxCalls: 4, Lanes: []admit.Lane{
			{Name: "batch", Share: 0.25, Most: 1}, {Name: "default", Share: 0.75},
		}}, false, group(b.urls...))
		s := top.Groups[0].Shards[0]
		refused := func(lane, value, message string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(inLane(t.Context(), lane), 10*time.Second)
			defer cancel()
			_, err := s.Enter(ctx, 0)
			var e *qerr.Error
			if !errors.As(err, &e) || e.Kind != qerr.Overloaded || e.Bound != "replica_calls" || e.Value != value || e.Message != message ||
				e.RetryAfter != time.Second {
				t.Errorf("got %v", err)
			}
		}
		host := s.Replicas[0].host
		leave, err := s.Enter(inLane(t.Context(), "batch"), 0)
		if err != nil {
			t.Fatal(err)
		}
		refused("batch", "1", "jaguar[0] ("+host+") has 1 place held for the caller's lane, as many as that may have, and there was no room for this one before its deadline (it waited 9.75s)")
		leave()
		for range 3 {
			leave, err := s.Enter(inLane(t.Context(), "default"), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		refused("default", "3", "jaguar[0] ("+host+") has 3 places held, and its other places are kept for other lanes, and there was no room for this one before its deadline (it waited 9.75s)")
		e := s.calls.noPlace(t.Context(), s, &admit.Refusal{Why: admit.FlowFull, Most: 3072, Others: 7}, time.Now())
		if want := "jaguar[0] (" + host + ") has no room for another call: 3072 calls of the same caller wait there already, as many as may"; e.Message != want || e.Value != "3072" || e.Seen != "7 others waiting" {
			t.Errorf("got %s %s %s", e.Message, e.Value, e.Seen)
		}
	})
}

// TestFirstLane: while a lane that is first has a call at any shard, others get none anywhere, for
// a quarter of a second; a configuration without it ends that.
func TestFirstLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		defer b.close()
		of := func(previous *Topology, first bool) *Topology {
			top, err := New([]config.Group{group(b.urls[0]), {Name: "other", Shards: group(b.urls[1]).Shards}}, Options{
				Dial: b.dial, MaxCalls: 4, ReadSlots: 2, ProcessCalls: 4, Registerer: prometheus.NewRegistry(), Lanes: []admit.Lane{
					{Name: "oncall", Share: 0.5, First: first}, {Name: "default", Share: 0.2},
				},
			}, previous)
			if err != nil {
				t.Fatal(err)
			}
			return top
		}
		waited := func(s *Shard) time.Duration {
			t.Helper()
			began := time.Now()
			leave, err := s.Enter(inLane(t.Context(), "default"), 0)
			if err != nil {
				t.Fatal(err)
			}
			leave()
			return time.Since(began)
		}
		one := of(nil, true)
		defer one.Close()
		leave, err := one.Groups[0].Shards[0].Enter(inLane(t.Context(), "oncall"), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for _, g := range one.Groups {
			s := g.Shards[0]
			slot, err := s.Replicas[0].up.gates.of(Heavy).acquire(inLane(t.Context(), "oncall"), s.Name(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			defer slot()
			began := time.Now()
			other, err := s.Replicas[0].up.gates.of(Heavy).acquire(inLane(t.Context(), "default"), s.Name(), began)
			if err != nil || time.Since(began) > 0 {
				t.Errorf("%s: a read slot after %s: %v", s.Name(), time.Since(began), err)
			}
			other()
			p, ok := s.calls.Try(admit.Asker{Lane: "default"}, 1)
			if !ok {
				t.Errorf("%s has no place", s.Name())
			}
			s.calls.Leave(&p, 1)
		}
		if d := waited(one.Groups[1].Shards[0]); d != 250*time.Millisecond {
			t.Errorf("a call to another shard waited for %s", d)
		}
		again, err := one.Groups[0].Shards[0].Enter(inLane(t.Context(), "oncall"), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer again()
		two := of(one, false)
		defer two.Close()
		two.Start(t.Context())
		if d := waited(two.Groups[1].Shards[0]); d != 0 {
			t.Errorf("a call waited for %s for a lane that is first no more", d)
		}
	})
}

// TestFanOutOfALaneThatLendsNothing: a request of several shards, of a lane that lends nothing of
// the process' calls, counts as no more of them than are its lane's own, so that it is served at
// once while these are free, though others have all of theirs; but as so many that no more calls
// are under way than a quarter of the files that may be open. One of a lane that lends, or of the
// last one, counts in full.
func TestFanOutOfALaneThatLendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{}, fakeshard.Config{}, fakeshard.Config{})
		defer b.close()
		var groups []config.Group
		for i, url := range b.urls {
			name := string(rune('a' + i))
			groups = append(groups, config.Group{Name: name, Labels: map[string]string{"cluster": name}, Shards: group(url).Shards})
		}
		enter := func(lane string, o Options) (held int, at time.Duration) {
			t.Helper()
			o.Dial = b.dial
			top := build(t, o, false, groups...)
			var shards []*Shard
			for _, g := range top.Groups {
				shards = append(shards, g.Shards...)
			}
			all := top.crowd.all
			other, err := shards[0].Enter(inLane(t.Context(), "default"), 0)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(20*time.Second, other)
			ctx, began := inLane(t.Context(), lane), time.Now()
			leave, err := top.EnterAll(ctx, func(*Shard) context.Context { return ctx }, func(*Shard) int64 { return 0 }, shards)
			if err != nil {
				t.Fatal(err)
			}
			at, held = time.Since(began), all.Held()
			if at == 0 {
				held-- // the other one's
			}
			time.Sleep(time.Minute)
			for _, l := range leave {
				l()
			}
			if all.Held() != 0 {
				t.Errorf("%d places are held at the end", all.Held())
			}
			return held, at
		}
		for _, c := range []struct {
			name, lane         string
			calls, files       int
			share, keep, other float64
			held               int
			at                 time.Duration
		}{
			{"its own", "oncall", 3, 0, 0.67, 1, 0.5, 2, 0},
			{"more of its own", "oncall", 12, 0, 0.67, 1, 0.5, 4, 0},
			{"many files", "oncall", 16, 256, 0.125, 1, 0.5, 2, 0},
			{"few files", "oncall", 16, 64, 0.125, 1, 0.5, 4, 0},
			{"one that lends", "oncall", 3, 0, 0.67, 0.5, 0.5, 3, 20 * time.Second},
			{"the last one", "default", 3, 0, 0.34, 1, 1, 2, 20 * time.Second},
		} {
			o := Options{ProcessCalls: c.calls, OpenFiles: c.files, Lanes: []admit.Lane{
				{Name: "oncall", Share: c.share, Keep: c.keep, First: true}, {Name: "default", Share: 1 - c.share, Keep: c.other},
			}}
			if held, at := enter(c.lane, o); held != c.held || at != c.at {
				t.Errorf("%s: %d places after %s, want %d after %s", c.name, held, at, c.held, c.at)
			}
		}
	})
}
