package shard

import (
	"context"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// vain remembers that somebody has waited for an answer in vain, and how long, for a while: who
// has no more patience than that need not wait for the same again. The zero vain remembers nothing.
type vain struct {
	mu     sync.Mutex
	until  time.Time
	waited time.Duration
}

// note remembers a wait. What is remembered of a longer one stands as long as it would have.
func (v *vain) note(waited time.Duration) { v.noteFor(waited, trust.Pause) }

// noteFor is note for so long.
func (v *vain) noteFor(waited, stands time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	until := now.Add(stands)
	if now.Before(v.until) && (waited < v.waited || waited == v.waited && until.Before(v.until)) {
		return
	}
	v.until, v.waited = until, waited
}

// spares tells whether one who would wait so long would do so in vain. Who waited for beatGrace did
// so for everybody: more than this is given to no replica.
func (v *vain) spares(patience time.Duration) bool { return v.sparesAt(time.Now(), patience) }

// sparesAt is spares of one who comes at that time.
func (v *vain) sparesAt(at time.Time, patience time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return at.Before(v.until) && (v.waited >= beatGrace || noMore(patience, v.waited))
}

// noMore tells whether the patience is no more than what was waited, or a quarter more, of which
// calls keep a part to themselves.
func noMore(patience, waited time.Duration) bool { return patience <= waited*5/4 }

// turnOf is whom somebody has waited for in vain, by the number of his turn, and how long.
type turnOf struct {
	turn   uint64
	waited time.Duration
}

// beatTurn waits for the turn to ask for heartbeats, with so much patience. Where another one has
// waited for the same one to end as long in vain, it takes the turn only if it is free.
func (s *Shard) beatTurn(ctx context.Context, patience time.Duration) (done func(), ok bool) {
	turn := s.beats.Turns()
	if c := s.crowded.Load(); c != nil && c.turn == turn && noMore(patience, c.waited) {
		return s.beats.TryTurn()
	}
	if done, ok = s.beats.Turn(ctx); !ok && qerr.TimedOut(ctx) && s.beats.Turns() == turn {
		s.crowded.Store(&turnOf{turn, patience})
	}
	return done, ok
}
