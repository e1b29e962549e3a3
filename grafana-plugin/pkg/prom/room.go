package prom

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
)

// room is that of one answer in the memory of its client.
type room struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one answer is read
	budget *semaphore.Weighted
	weight int64
	// patience is how long room is waited for; 0 is as long as the context.
	patience time.Duration
	taken    bool
}

// room is for an answer of so many bytes, -1 where that is not known.
func (c *Client) room(ctx context.Context, length int64) *room {
	r := &room{ctx: ctx, budget: c.budget, weight: MaxAnswerBytes, patience: c.http.Timeout}
	if length >= 0 {
		r.weight = min(length, MaxAnswerBytes)
	}
	return r
}

// take waits for the room of the whole answer, so that no two wait for each other half-way.
func (r *room) take() error {
	if r.taken {
		return nil
	}
	ctx := r.ctx
	if r.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.patience)
		defer cancel()
	}
	if err := r.budget.Acquire(ctx, r.weight); err != nil {
		if r.ctx.Err() == nil {
			return noRoom{}
		}
		return err
	}
	r.taken = true
	return nil
}

// release gives back what was taken.
func (r *room) release() {
	if r.taken {
		r.budget.Release(r.weight)
		r.taken = false
	}
}

// noRoom is that no room came free in time.
type noRoom struct{}

func (noRoom) Error() string {
	return fmt.Sprintf("other answers of together %d MiB were read all the time, and there was no room for one more of more than %d MiB; "+
		"choose a shorter time, fewer experiments or one cluster, or try again", budgetBytes>>20, smallBytes>>20)
}
