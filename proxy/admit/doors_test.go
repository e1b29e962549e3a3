package admit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// gate is a door of a few places, as one request sees it.
type gate struct {
	*room
	ctx context.Context
}

type room struct {
	sem  *semaphore.Weighted
	held atomic.Int64
}

func newRoom(n int64) *room { return &room{sem: semaphore.NewWeighted(n)} }

func (g gate) Try() bool {
	ok := g.sem.TryAcquire(1)
	if ok {
		g.held.Add(1)
	}
	return ok
}

func (g gate) Wait() error {
	err := g.sem.Acquire(g.ctx, 1)
	if err == nil {
		g.held.Add(1)
	}
	return err
}

func (g gate) Leave() {
	g.held.Add(-1)
	g.sem.Release(1)
}

func (gate) Wide() bool { return false }

// TestWaitingHoldsNothing: who waits at a door behind which nothing moves holds no place at another
// one, and who gives up has none.
func TestWaitingHoldsNothing(t *testing.T) {
	for at := range 3 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rooms := []*room{newRoom(1), newRoom(1), newRoom(1)}
				if !(gate{room: rooms[at]}).Try() {
					t.Fatal("no place in an empty room")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				left := make(chan error)
				go func() { left <- EnterAll(of(ctx, rooms)) }()
				synctest.Wait()
				for i, r := range rooms {
					if n := r.held.Load(); n != 0 && i != at {
						t.Errorf("who waits at door %d holds %d places of door %d", at, n, i)
					}
				}
				if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				gate{room: rooms[at]}.Leave()
				if err := EnterAll(of(t.Context(), rooms)); err != nil {
					t.Error(err)
				}
				for i, r := range rooms {
					if n := r.held.Load(); n != 1 {
						t.Errorf("%d places of door %d are held", n, i)
					}
				}
			})
		})
	}
}

func of(ctx context.Context, rooms []*room) []gate {
	out := make([]gate, len(rooms))
	for i, r := range rooms {
		out[i] = gate{r, ctx}
	}
	return out
}

// TestAllEnter: however many requests want places at whatever doors, each has all of its own in the
// end, no door lets too many through, and nothing stays held. Some doors lead to calls that take
// long, so that the rounds are used up.
func TestAllEnter(t *testing.T) {
	seed := randseed.Of(t, 0)
	synctest.Test(t, func(t *testing.T) {
		const doors, places = 5, 2
		rooms := make([]*room, doors)
		for i := range rooms {
			rooms[i] = newRoom(places)
		}
		var wg sync.WaitGroup
		for n := range 200 {
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			wg.Go(func() {
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				var mine []*room
				for i, r := range rooms {
					if rng.IntN(doors) > i/2 {
						mine = append(mine, r)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				gates := of(ctx, mine)
				if err := EnterAll(gates); err != nil {
					t.Error(err)
					return
				}
				for i, r := range mine {
					if n := r.held.Load(); n > places {
						t.Errorf("%d are through door %d", n, i)
					}
				}
				for _, g := range gates { // each call ends by itself
					time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
					g.Leave()
				}
			})
		}
		wg.Wait()
		for i, r := range rooms {
			if n := r.held.Load(); n != 0 {
				t.Errorf("%d places of door %d are still held", n, i)
			}
		}
	})
}

// TestInOrderAfterAll: where a place that was tried is always gone again, the order decides, and
// what was had on the way is given back when even that is in vain.
func TestInOrderAfterAll(t *testing.T) {
	for _, fail := range []int{-1, 0, 1, 2} {
		var held [3]int
		waits := 0 // at all doors
		doors := make([]*elusive, len(held))
		for i := range doors {
			doors[i] = &elusive{held: &held[i], fails: i == fail, waits: &waits}
		}
		err := EnterAll(doors)
		want := [3]int{1, 1, 1}
		if fail >= 0 {
			want = [3]int{}
		}
		if held != want || (err != nil) != (fail >= 0) {
			t.Errorf("with a failure at %d: %v, %v; want %v", fail, held, err, want)
		}
	}
}

// elusive is a door at which nobody ever finds a place without waiting.
type elusive struct {
	held  *int
	fails bool // once all rounds are over
	waits *int
}

func (*elusive) Try() bool { return false }

func (e *elusive) Wait() error {
	if *e.waits++; e.fails && *e.waits > rounds {
		return errors.New("no place in time")
	}
	*e.held++
	return nil
}

func (e *elusive) Leave()     { *e.held-- }
func (e *elusive) Wide() bool { return false }
