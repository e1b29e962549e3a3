package server

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

func unselectiveShards(n int) []*shard.Shard {
	g := &shard.Group{Name: "jaguar"}
	var out []*shard.Shard
	for i := range n {
		out = append(out, &shard.Shard{Group: g, Index: i})
	}
	return out
}

func unselective(shards ...*shard.Shard) []question {
	var out []question
	for _, s := range shards {
		out = append(out, question{shard: s, class: shard.Unselective})
	}
	return out
}

// TestSlotsInOrder: however many requests want however many shards in whatever order, none waits
// for another that waits for it, and no shard has more than two.
func TestSlotsInOrder(t *testing.T) {
	seed := randseed.Of(t, 0)
	synctest.Test(t, func(t *testing.T) {
		var (
			s       slots
			held    [4]atomic.Int64
			wg      sync.WaitGroup
			shards  = unselectiveShards(len(held))
			began   = time.Now()
			callers = 40
		)
		for i := range callers {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				qs := unselective(shards...)
				r.Shuffle(len(qs), func(a, b int) { qs[a], qs[b] = qs[b], qs[a] })
				qs = append(qs, qs[0]) // another replica of the same shard needs no second slot
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				taken, err := s.take(each(ctx), qs)
				if err != nil {
					t.Error(err)
					return
				}
				var bodies []io.ReadCloser
				for _, q := range qs[:len(held)] {
					if held[q.shard.Index].Add(1) > maxUnselective {
						t.Errorf("shard %d has more than %d", q.shard.Index, maxUnselective)
					}
					bodies = append(bodies, taken.until(q.shard, io.NopCloser(strings.NewReader("answer"))))
				}
				taken.failed(qs[0].shard)
				time.Sleep(20 * time.Millisecond)
				for i, b := range bodies {
					held[qs[i].shard.Index].Add(-1)
					if _, err := io.ReadAll(b); err != nil { // the end gives the slot back, once
						t.Error(err)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if took, want := time.Since(began), time.Duration(callers/maxUnselective)*20*time.Millisecond; took != want {
			t.Errorf("all were done after %s, want %s", took, want)
		}
	})
}

// TestSlotsAreShared: who has forty requests waiting, which take twenty seconds, keeps nobody else
// waiting for more than a few turns: mostly for the one that is under way, and for another one
// where the slot of one shard is given to somebody while that of the other is waited for.
func TestSlotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slots
		shards := unselectiveShards(2)
		ask := func(flow uint64) (waited time.Duration) {
			who := identity.Request{Flow: flow, Peer: "10.0.0.1", Arrived: time.Now().UnixNano()}
			ctx, cancel := context.WithTimeout(identity.With(t.Context(), who), time.Hour)
			defer cancel()
			began := time.Now()
			taken, err := s.take(each(ctx), unselective(shards...))
			if err != nil {
				t.Error(err)
				return 0
			}
			waited = time.Since(began)
			time.Sleep(time.Second)
			taken.drop()
			return waited
		}
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { ask(1) })
		}
		time.Sleep(1500 * time.Millisecond)
		for range 3 {
			if waited := ask(2); waited > 4*time.Second {
				t.Errorf("waited %s behind another caller's", waited)
			}
		}
		wg.Wait()
	})
}

// TestNoSlot: who finds none is told so before its deadline, who leaves leaves, and neither keeps
// what it had taken. Other questions need none.
func TestNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slots
		shards := unselectiveShards(2)
		for range maxUnselective {
			if _, err := s.take(each(t.Context()), unselective(shards[1])); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.take(each(ctx), unselective(shards...))
		if e := qerr.From(err); e.Kind != qerr.Overloaded || !strings.Contains(e.Message, shards[1].Name()) || e.Advice == "" ||
			ctx.Err() != nil {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		left, leave := context.WithCancelCause(t.Context())
		leave(qerr.New(qerr.Canceled, "the client left"))
		if _, err := s.take(each(left), unselective(shards...)); qerr.From(err).Kind != qerr.Canceled {
			t.Errorf("a client that left: %v", err)
		}
		for range maxUnselective {
			if _, err := s.take(each(ctx), unselective(shards[0])); err != nil {
				t.Errorf("a slot was kept: %v", err)
			}
		}
		if taken, err := s.take(each(ctx), []question{{shard: shards[1], class: shard.Light}}); err != nil || len(taken) != 0 {
			t.Errorf("a light question took %d slots, %v", len(taken), err)
		}
	})
}

// TestSlotUntilTheLastAnswer: a shard of which three replicas were asked has its slot back when the
// last of them has answered or failed, and one of which nothing was asked at once.
func TestSlotUntilTheLastAnswer(t *testing.T) {
	var s slots
	sh := unselectiveShards(1)[0]
	free := func() bool { return s.of(sh.Name()).Held() == 0 }
	taken, err := s.take(each(t.Context()), unselective(sh, sh, sh))
	if err != nil {
		t.Fatal(err)
	}
	a := taken.until(sh, io.NopCloser(strings.NewReader("")))
	b := taken.until(sh, io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{})))
	taken.failed(sh)
	if free() {
		t.Error("free before any answer has ended")
	}
	_ = a.Close()
	_ = a.Close()
	if free() {
		t.Error("free although one answer is still read")
	}
	if _, err := io.ReadAll(b); !errors.Is(err, io.ErrUnexpectedEOF) || !free() {
		t.Errorf("not free after the last answer broke: %v", err)
	}
	if taken, err = s.take(each(t.Context()), unselective(sh)); err != nil {
		t.Fatal(err)
	}
	taken.failed(sh)
	if !free() {
		t.Error("not free although there is no answer to wait for")
	}
	if taken, err = s.take(each(t.Context()), unselective(sh, sh)); err != nil {
		t.Fatal(err)
	}
	if taken.drop(); !free() {
		t.Error("not free although nothing was asked")
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// each has the same context for every shard.
func each(ctx context.Context) func(*shard.Shard) context.Context {
	return func(*shard.Shard) context.Context { return ctx }
}
