package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Some waits end before the request does, so that what was had can still be answered: the wait for
// a copy whose shard has another copy that answered, and the wait for a shard that a partial answer
// can go without. Both take three fifths of the time that is left at most, the first never over
// maxSpare.

// maxSpare is how long a copy is waited for at most where another one of its shard is there.
const maxSpare = 5 * time.Second

var (
	errSlowCopy  = qerr.New(qerr.Timeout, "another replica of the shard answered long before")
	errSlowShard = qerr.New(qerr.Timeout, "the shard did not begin to answer while there was time for an answer without it")
)

// part is three fifths of the time that the request has left.
func (x *exchange) part() time.Duration {
	dl, ok := x.ctx.Deadline()
	if !ok {
		return x.limits.Timeout
	}
	return max(time.Until(dl)*3/5, time.Millisecond)
}

// sparePatience is how long to wait for further copies.
func (x *exchange) sparePatience() time.Duration { return min(x.part(), maxSpare) }

// shardPatience is how long to wait for a shard; 0, until the deadline, where the answer has to
// have it.
func (x *exchange) shardPatience(s *shard.Shard) time.Duration {
	if !x.mayLack(s) {
		return 0
	}
	return x.part()
}

// waits are the waits of one fan-out.
type waits struct {
	ctx       []context.Context // of each question's call
	end       []context.CancelCauseFunc
	settled   []atomic.Bool // the wait is over; ending it now would cut the body
	questions []question
	begun     map[seat]*atomic.Bool // some copy has answered
	timers    []*time.Timer
}

func (x *exchange) waitFor(ctx context.Context, questions []question) *waits {
	w := &waits{
		ctx: make([]context.Context, len(questions)), end: make([]context.CancelCauseFunc, len(questions)),
		settled:   make([]atomic.Bool, len(questions)),
		questions: questions, begun: map[seat]*atomic.Bool{},
	}
	patience := time.Duration(0)
	for i, q := range questions {
		w.ctx[i], patience = ctx, max(patience, x.shardPatience(q.shard))
		w.begun[q.seat()] = new(atomic.Bool)
	}
	if patience == 0 && len(w.begun) == len(questions) { // no copies, and no answer without them all
		return w
	}
	for i := range questions {
		w.ctx[i], w.end[i] = context.WithCancelCause(ctx)
	}
	w.timers = append(w.timers, time.AfterFunc(x.sparePatience(), func() {
		w.giveUp(errSlowCopy, func(s seat) bool { return w.begun[s].Load() })
	}))
	if patience > 0 {
		w.timers = append(w.timers, time.AfterFunc(patience, func() {
			w.giveUp(errSlowShard, func(s seat) bool { return x.mayLack(s.shard) })
		}))
	}
	return w
}

// slow names the server that was given up.
func slow(q question, err error) error {
	if !errors.Is(err, errSlowShard) && !errors.Is(err, errSlowCopy) {
		return err
	}
	name := q.shard.Name()
	if q.replica != nil {
		name = q.replica.Name()
	} else if base, berr := q.shard.Base(); berr == nil {
		name = base.Name()
	}
	e := qerr.Wrap(qerr.Timeout, err, "%s did not begin to answer in time; look at that server", name)
	e.Shards = []string{name}
	return e
}

// giveUp ends the waits that are not over.
func (w *waits) giveUp(cause error, which func(seat) bool) {
	for i, q := range w.questions {
		if which(q.seat()) && w.settled[i].CompareAndSwap(false, true) {
			w.end[i](cause)
		}
	}
}

// over says that a question's wait has ended, with an answer or without. It is false where it had
// been given up before: its context has ended then, or does at once.
func (w *waits) over(i int, answered bool) bool {
	if !w.settled[i].CompareAndSwap(false, true) {
		return false
	}
	if answered {
		w.begun[w.questions[i].seat()].Store(true)
	}
	return true
}

// stop ends the timers. The contexts end with the fan-out's own, which their calls' bodies outlive
// the waits in.
func (w *waits) stop() {
	for _, t := range w.timers {
		t.Stop()
	}
}

// nameSet is a set of names that goroutines may add to.
type nameSet struct {
	mu    sync.Mutex
	names map[string]bool
}

func (s *nameSet) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

func (s *nameSet) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

// take empties the set, and returns the names in order.
func (s *nameSet) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.names))
	s.names = nil
	return names
}

// sorted are the names.
func (s *nameSet) sorted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.names))
}

// notes are sentences that goroutines add to, the first for each subject.
type notes struct {
	mu sync.Mutex
	by map[string]string
}

func (n *notes) add(msg, subject string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.by == nil {
		n.by = map[string]string{}
	}
	if _, ok := n.by[subject]; !ok {
		n.by[subject] = msg
	}
}

// any tells whether there are some; nil has none.
func (n *notes) any() bool {
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.by) > 0
}

// each calls f for every sentence, in the order of their subjects.
func (n *notes) each(f func(string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, subject := range slices.Sorted(maps.Keys(n.by)) {
		f(n.by[subject])
	}
}
