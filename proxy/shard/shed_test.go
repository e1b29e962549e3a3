package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// much is what a heavy call is to hold, of a budget of 1 GiB; little what a light one is.
const much, little = 128 << 20, 1 << 20

// straining are options in which calls have widths, of three lanes.
func straining(b *bubble, reg prometheus.Registerer) Options {
	return Options{
		Dial: b.dial, Registerer: reg, Budget: 1 << 30, NeverShed: []string{"rules"},
		Lanes: []admit.Lane{{Name: "rules", Share: 0.25}, {Name: "default", Share: 0.75}},
	}
}

func laneOf(t *testing.T, lane string) context.Context {
	return identity.With(t.Context(), identity.Request{Lane: lane, Peer: "192.0.2.1"})
}

// spend does a call and reads its answer; who has answered is the result.
func spend(ctx context.Context, s *Shard, o CallOptions) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 25*time.Second)
	defer cancel()
	resp, err := s.Do(ctx, sumRequest, o)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	buf := make([]byte, 4<<10)
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	return resp.Replica.host, nil
}

// isShed tells whether the error says that a server was spared, to whoever asked as well.
func isShed(t *testing.T, err error, host string) bool {
	t.Helper()
	if err == nil || !errors.Is(err, errShed) {
		return false
	}
	e := Busy(qerr.From(err))
	if e.Kind != qerr.Unavailable || e.RetryAfter < shedFor || e.RetryAfter > 2*shedFor || !Unasked(err) || len(e.Shards) != 1 ||
		!strings.Contains(e.Message, host+" has nearly no memory left (it holds ") &&
			!strings.Contains(e.Message, host+" had nearly no memory left a moment ago, and is watched a while longer (it holds ") {
		t.Errorf("the client is told %v, of %v, to come again in %s", e, e.Shards, e.RetryAfter)
	}
	return true
}

// TestOnlyTheSickShardIsSpared: with one of four shards without memory, heavy calls to that one
// alone are not made; light ones, those of rules, and all to the other shards are. It is asked
// again once it has memory again, and after three readings only.
func TestOnlyTheSickShardIsSpared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := share(50)
		b := newBubble(t, holding(share(50)), holding(share(60)), holding(sick), holding(share(-10)))
		defer b.close()
		reg := prometheus.NewRegistry()
		g := group(b.urls[0])
		for _, u := range b.urls[1:] {
			g.Shards = append(g.Shards, config.Shard{Replicas: group(u).Shards[0].Replicas})
		}
		top := build(t, straining(b, reg), true, g)
		defer top.Close()
		shards := top.Groups[0].Shards
		kinds := map[string]struct {
			lane string
			o    CallOptions
		}{
			"light": {"default", CallOptions{Held: little}}, "of no known size": {"default", CallOptions{}},
			"heavy": {"default", CallOptions{Held: much}}, "heavy of rules": {"rules", CallOptions{Held: much}},
			"of everything": {"default", CallOptions{Class: Unselective}}, "remote read": {"default", CallOptions{Class: Heavy}},
		}
		expect := func(when string, spared ...string) {
			t.Helper()
			for name, k := range kinds {
				for i, s := range shards {
					_, err := spend(laneOf(t, k.lane), s, k.o)
					want := false
					for _, n := range spared {
						want = want || i == 2 && n == name
					}
					if got := isShed(t, err, "10.0.0.3:9090"); got != want || !got && err != nil {
						t.Errorf("%s: a call that is %s to shard %d: spared %t, %v", when, name, i, got, err)
					}
				}
			}
		}
		time.Sleep(2 * time.Second)
		expect("at first")
		sick.Store(92)
		time.Sleep(12 * time.Second)
		expect("without memory", "heavy", "of everything")
		if !shards[2].Strained() || shards[1].Strained() || shards[3].Strained() {
			t.Error("the wrong shards have no memory")
		}
		before := b.count(2, "/api/v1/query")
		_, err := spend(laneOf(t, "default"), shards[2], CallOptions{Held: much})
		if !isShed(t, err, "10.0.0.3:9090") || b.count(2, "/api/v1/query") != before {
			t.Errorf("it was asked: %v", err)
		}
		for name, k := range kinds {
			for i, s := range shards {
				want := i == 2 && k.lane != "rules" && (k.o.Held == much || k.o.Class == Unselective)
				if err := s.Spared(laneOf(t, k.lane), nil, k.o); isShed(t, err, "10.0.0.3:9090") != want || err != nil && !want {
					t.Errorf("whether a call that is %s to shard %d would be spared: %v", name, i, err)
				}
			}
		}
		if err := shards[2].Spared(laneOf(t, "default"), nil, CallOptions{Held: little, Needs: much}); !isShed(t, err, "10.0.0.3:9090") {
			t.Errorf("a small part of much: %v", err)
		}
		sick.Store(50)
		time.Sleep(12 * time.Second)
		expect("with memory, at the first reading", "heavy", "of everything")
		time.Sleep(25 * time.Second)
		expect("with memory")
		for i, s := range shards {
			if s.calls.Held() != 0 {
				t.Errorf("%d places of shard %d are held at the end", s.calls.Held(), i)
			}
		}
		for reason, want := range map[string]float64{shedWide: 5, shedUnselective: 3} {
			if got := labelled(t, reg, "spillway_shard_shed_total", "10.0.0.3:9090", reason).GetCounter().GetValue(); got != want {
				t.Errorf("%s: %g calls were shed, want %g", reason, got, want)
			}
		}
		if p := top.Places(); p[2].Shed != 8 || p[0].Shed+p[1].Shed+p[3].Shed != 0 {
			t.Errorf("places: %+v", p)
		}
	})
}

// TestCopyWithMemoryIsAsked: a heavy call goes to the copy that has memory, a light one to
// whichever it would else; a slow answer has no second question put to a copy without memory.
func TestCopyWithMemoryIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := share(85), share(50)
		slow := paced(steady(3 * time.Second))
		cfg := holding(second)
		answer := cfg.Answer
		cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if a, ok := answer(r); ok {
				return a, true
			}
			return slow.Answer(r)
		}
		b := newBubble(t, holding(first), cfg)
		defer b.close()
		top := build(t, straining(b, nil), true, group(b.urls...))
		defer top.Close()
		s := top.Groups[0].Shards[0]
		time.Sleep(2 * time.Second)
		for i, tc := range []struct {
			lane string
			held int64
			host string
		}{{"default", little, "10.0.0.1:9090"}, {"default", much, "10.0.0.2:9090"}, {"rules", much, "10.0.0.2:9090"}} {
			if tc.lane == "rules" {
				first.Store(95)
				time.Sleep(12 * time.Second)
			}
			s.base.Store(0)
			if got, err := spend(laneOf(t, tc.lane), s, CallOptions{Held: tc.held}); got != tc.host {
				t.Errorf("%d: %s has answered, want %s: %v", i, got, tc.host, err)
			}
			s.base.Store(0)
			asked := b.count(0, "/api/v1/query")
			resp, err := s.Hedged(laneOf(t, tc.lane), s.Replicas, sumRequest, CallOptions{Held: tc.held})
			if err != nil {
				t.Fatal(err)
			}
			if resp.Replica.host != tc.host || tc.held == much && b.count(0, "/api/v1/query") != asked {
				t.Errorf("%d, a race: %s has answered, the first was asked %d times", i, resp.Replica.host, b.count(0, "/api/v1/query")-asked)
			}
			_ = resp.Body.Close()
		}
		first.Store(92)
		second.Store(95)
		time.Sleep(12 * time.Second)
		for name, do := range map[string]func() error{
			"a call": func() error { _, err := spend(laneOf(t, "default"), s, CallOptions{Held: much}); return err },
			"a race": func() error {
				_, err := s.Hedged(laneOf(t, "default"), s.Replicas, sumRequest, CallOptions{Held: much})
				return err
			},
			"a place": func() error { return s.Spared(laneOf(t, "default"), s.Replicas, CallOptions{Held: much}) },
		} {
			if err := do(); !isShed(t, err, "") {
				t.Errorf("no copy has memory, and %s: %v", name, err)
			}
		}
		second.Store(85) // busy only
		time.Sleep(40 * time.Second)
		if got, err := spend(laneOf(t, "default"), s, CallOptions{Held: much}); got != "10.0.0.2:9090" {
			t.Errorf("one is busy and one is sick: %s has answered: %v", got, err)
		}
	})
}

// TestBusyKeepsNobodyWaiting: while the only server of a shard is busy, or sick, light calls wait
// no longer than while it is well, whatever heavy ones are under way and wait.
func TestBusyKeepsNobodyWaiting(t *testing.T) {
	for _, percent := range []int64{50, 85, 95} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, holding(share(percent)))
			defer b.close()
			top := build(t, straining(b, nil), true, group(b.urls...))
			defer top.Close()
			s := top.Groups[0].Shards[0]
			time.Sleep(2 * time.Second)
			var heavy []func()
			for range 2 {
				leave, err := s.Enter(laneOf(t, "default"), much)
				if err != nil {
					t.Fatal(err)
				}
				heavy = append(heavy, leave)
			}
			for range 3 { // more of them than there is room for wait
				ctx, cancel := context.WithTimeout(laneOf(t, "default"), 5*time.Second)
				defer cancel()
				go func() {
					if leave, err := s.Enter(ctx, much); err == nil {
						time.Sleep(5 * time.Second)
						leave()
					}
				}()
			}
			synctest.Wait()
			began := time.Now()
			if _, err := spend(laneOf(t, "default"), s, CallOptions{Held: little}); err != nil || time.Since(began) > time.Second {
				t.Errorf("at %d %% a light call: %v after %s", percent, err, time.Since(began))
			}
			for _, leave := range heavy {
				leave()
			}
			time.Sleep(20 * time.Second)
		})
	}
}

// TestMemoryComesAndGoes: over a day in which servers' memory moves at random, a heavy call is made
// exactly while its shard's newest readings allow it, and no shard is switched more than once in
// three readings.
func TestMemoryComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := uint64(20261127)
		rnd := rand.New(rand.NewPCG(seed, 1))
		memory := []*atomic.Int64{share(50), share(50), share(50), share(50)}
		var cfgs []fakeshard.Config
		for _, m := range memory {
			cfgs = append(cfgs, holding(m))
		}
		b := newBubble(t, cfgs...)
		defer b.close()
		g := group(b.urls[0])
		for _, u := range b.urls[1:] {
			g.Shards = append(g.Shards, config.Shard{Replicas: group(u).Shards[0].Replicas})
		}
		top := build(t, straining(b, nil), true, g)
		defer top.Close()
		time.Sleep(2 * time.Second)
		sheds, answers := 0, 0
		was, since, wells := make([]bool, 4), make([]time.Time, 4), make([]int, 4) // wells: readings running below 85 %
		for range 800 {
			i := rnd.IntN(4)
			memory[i].Store(60 + rnd.Int64N(40))
			time.Sleep(12 * time.Second) // every server was read since
			now := time.Now()
			for j, s := range top.Groups[0].Shards {
				_, err := spend(laneOf(t, "default"), s, CallOptions{Held: much})
				spared := isShed(t, err, s.Replicas[0].host)
				if err != nil && !spared {
					t.Fatal(err)
				}
				m := memory[j].Load()
				if wells[j]++; m >= 85 {
					wells[j] = 0
				}
				if m > 90 && !spared || wells[j] > 4 && spared {
					t.Fatalf("seed %d: at %d %% it was spared: %t", seed, m, spared)
				}
				if spared != was[j] {
					if !spared && now.Sub(since[j]) < 20*time.Second {
						t.Fatalf("seed %d: it was spared for %s only", seed, now.Sub(since[j]))
					}
					was[j], since[j] = spared, now
				}
				if spared {
					sheds++
				} else {
					answers++
				}
			}
		}
		if sheds < 200 || answers < 200 {
			t.Errorf("%d were shed and %d answered", sheds, answers)
		}
		for _, m := range memory {
			m.Store(50)
		}
		time.Sleep(40 * time.Second)
		for _, s := range top.Groups[0].Shards {
			if _, err := spend(laneOf(t, "default"), s, CallOptions{Held: much}); err != nil || s.calls.Held() != 0 {
				t.Errorf("at the end: %v, %d places are held", err, s.calls.Held())
			}
		}
	})
}

// TestHeavyWhoWaited: a heavy call that waited for its places goes to the copy that is well by
// then, as light ones do, where nothing is known of the servers' memory.
func TestHeavyWhoWaited(t *testing.T) {
	for _, held := range []int64{0, 512 << 20} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
			defer b.close()
			top := build(t, Options{Dial: b.dial, Budget: 1 << 30}, false, group(b.urls...))
			defer top.Close()
			s := top.Groups[0].Shards[0]
			place, _ := s.calls.Try(admit.Asker{}, s.calls.Places())
			var all sync.WaitGroup
			all.Go(func() {
				resp, err := s.Hedged(t.Context(), s.Replicas, sumRequest, CallOptions{Held: held})
				if err != nil {
					t.Error(err)
					return
				}
				if got := resp.Replica.host; got != "10.0.0.2:9090" {
					t.Errorf("a call that holds %d bytes went to %s, which is down", held, got)
				}
				_ = resp.Body.Close()
			})
			synctest.Wait()
			s.Replicas[0].markDown(errors.New("gone"), time.Now())
			s.calls.Leave(&place, place.Places())
			all.Wait()
		})
	}
}
