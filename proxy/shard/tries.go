package shard

import (
	"context"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// tries are a shard's questions to those of its replicas that failed too often, whether they
// answer: one at a time, for all who wait for it. None ends with a request, and those of all shards
// begin together: a request that needs several shards, one after the other, waits once.
type tries struct {
	mu  sync.Mutex
	now *trying // nil while nobody is asked
}

// trying is one such question.
type trying struct {
	of    uint64 // who is asked
	began time.Time
	done  chan struct{} // closed at the end
}

// tryFailing asks those of the replicas that failed too often whether they answer. What one caller
// asks may fail each time on a server that is well, and is nothing that others should lose its data
// for: an answer closes its breaker. It tells whether that may be known of one now. Who comes while
// they are asked waits until they have had as much time as he would give them.
func (s *Shard) tryFailing(ctx context.Context, of uint64, now time.Time) bool {
	wait, came, waited := wholeWait, time.Now(), false
	if dl, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(dl)/4)
	}
	for range 2 { // the first one may be of others
		failing := s.untried(of, wait, 0)
		if failing == 0 {
			break
		}
		t, since := s.try(now), came
		if failing&^t.of == 0 {
			since = t.began
		}
		if waited = t.wait(ctx, time.Until(since.Add(wait))); !waited {
			break
		}
	}
	return waited || s.present(time.Now())&of != 0 // another one has found it out just now
}

// wait waits for the end of the question, for so long at most.
func (t *trying) wait(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-t.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// try is the question that is under way, or that begins now, and with it that of each other shard.
func (s *Shard) try(now time.Time) *trying {
	t, begins := s.begin(now)
	if begins {
		for r := range s.topology.replicas() {
			if o := r.Shard; r.Index == 0 && o != s && o.untried(o.all(), wholeWait, wholeWait) != 0 {
				o.begin(now)
			}
		}
	}
	return t
}

// begin begins a question, where none is under way. Who would have to be asked before it ends is
// asked too.
func (s *Shard) begin(now time.Time) (t *trying, begins bool) {
	s.tries.mu.Lock()
	defer s.tries.mu.Unlock()
	if s.tries.now != nil {
		return s.tries.now, false
	}
	t = &trying{of: s.untried(s.all(), wholeWait, wholeWait), began: time.Now(), done: make(chan struct{})}
	s.tries.now = t
	go func() {
		_ = qerr.Guard(func() error {
			s.askFailing(t, now)
			return nil
		})
	}()
	return t, true
}

// end lets those go on who wait for it.
func (ts *tries) end(t *trying) {
	ts.mu.Lock()
	ts.now = nil
	ts.mu.Unlock()
	close(t.done)
}

// untried are those of the replicas that failed too often, but those for whose answer one who comes
// so much later, with so much patience, would wait in vain, as somebody has.
func (s *Shard) untried(of uint64, patience, later time.Duration) uint64 {
	if len(s.Replicas) > trust.MaxReplicas {
		return 0
	}
	now := time.Now()
	if s.Group.Heartbeat == "" { // else what one has may be needed
		of &^= s.belied(now)
	}
	of = s.failed(of&^s.beats.Silent(now.Add(later)), now)
	for i, r := range s.Replicas {
		if of&(1<<i) != 0 && r.up.tried.sparesAt(now.Add(later), patience) {
			of &^= 1 << i
		}
	}
	return of
}

// askFailing asks them about the last minute; where there is no heartbeat, something that costs
// little.
func (s *Shard) askFailing(t *trying, now time.Time) {
	defer s.tries.end(t)
	ctx, cancel := context.WithTimeoutCause(context.Background(), wholeWait, errBeatBudget)
	defer cancel()
	if s.Group.Heartbeat != "" {
		s.beats.Try(ctx, s.askAgain, t.of, now)
	} else {
		var all sync.WaitGroup
		for i, r := range s.Replicas {
			if t.of&(1<<i) != 0 {
				all.Go(func() { r.tryAgain(ctx) })
			}
		}
		all.Wait()
	}
	at := time.Now()
	for i, r := range s.Replicas {
		switch {
		case t.of&(1<<i) == 0:
		case s.failed(t.of, at)&(1<<i) != 0:
			r.up.tried.note(wholeWait)
		default:
			r.up.breaker.vouch(at)
		}
	}
}

// belied are those of the replicas that failed too often who answered when they were asked whether
// they do, and failed again since: a server may answer small questions and fail all others. None
// are where nobody else takes part.
func (s *Shard) belied(now time.Time) (of uint64) {
	if len(s.Replicas) < 2 || len(s.Replicas) > trust.MaxReplicas || s.Thanos() {
		return 0
	}
	for i, r := range s.Replicas {
		if r.up.breaker.isBelied(now) {
			of |= 1 << i
		}
	}
	if of == 0 || s.present(now) == 0 {
		return 0
	}
	return s.failing(of, now)
}

// tryAgain asks the server something that costs little, and closes its breaker where it answers.
func (r *Replica) tryAgain(ctx context.Context) {
	if began := time.Now(); r.answersQuery(ctx, wholeWait) == nil {
		r.works(began)
	}
}

// leftOut are those of belied that are left out of the window, and not asked again: all are read
// there, since with them nobody is known to be whole either, of targets that may move or are taken
// for settled.
func (s *Shard) leftOut(from, until int64, now time.Time, settled bool) uint64 {
	at := time.Now()
	of := s.belied(at)
	if of == 0 || s.Group.Heartbeat == "" || s.differ(from, until) || !settled && s.Divides(until) {
		return of
	}
	w, ok := trust.WindowOf(from, until, now)
	if !ok {
		return of
	}
	if whole, known := s.beats.Lookup(s.present(at)|of, w, now); !known || whole != 0 {
		return 0
	}
	return of
}

// LeftOut are replicas that are there and that nobody is whole without, but which are not read in
// the window now: they failed again right after they had said that they answer. It may be that one
// caller's questions fail alone; so for a reader who would not see that somebody is left out they
// are asked once more, and none is that answers.
func (s *Shard) LeftOut(ctx context.Context, from, until int64, now time.Time, unseen bool) (out []*Replica) {
	of := s.leftOut(from, until, now, false)
	if of != 0 && unseen {
		ctx, cancel := context.WithTimeoutCause(ctx, wholeWait, errBeatBudget)
		defer cancel()
		var all sync.WaitGroup
		for i, r := range s.Replicas {
			if of&(1<<i) != 0 {
				all.Go(func() { r.tryAgain(ctx) })
			}
		}
		all.Wait()
		of = s.leftOut(from, until, now, false)
	}
	for i, r := range s.Replicas {
		if of&(1<<i) != 0 {
			out = append(out, r)
		}
	}
	return out
}
