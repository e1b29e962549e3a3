package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestGivenUpIsNotAnswered: an answer that begins as its question is given up is none, so that what
// is said of the server is that it was too slow; who has begun is not given up.
func TestGivenUpIsNotAnswered(t *testing.T) {
	s := &shard.Shard{Group: &shard.Group{}}
	questions := []question{{shard: s, part: 1}, {shard: s, part: 2}}
	w := &waits{
		questions: questions, settled: make([]atomic.Bool, 2), end: make([]context.CancelCauseFunc, 2),
		begun: map[seat]*atomic.Bool{questions[0].seat(): new(atomic.Bool), questions[1].seat(): new(atomic.Bool)},
	}
	var ctx [2]context.Context
	for i := range ctx {
		ctx[i], w.end[i] = context.WithCancelCause(t.Context())
	}
	if !w.over(0, true) {
		t.Error("the first answer has not begun in time")
	}
	w.giveUp(errSlowCopy, func(seat) bool { return true })
	if w.over(1, true) || w.begun[questions[1].seat()].Load() {
		t.Error("the second one, which was given up, has begun to answer")
	}
	if ctx[0].Err() != nil || !errors.Is(context.Cause(ctx[1]), errSlowCopy) {
		t.Errorf("%v, %v", context.Cause(ctx[0]), context.Cause(ctx[1]))
	}
}
