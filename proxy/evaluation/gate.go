package evaluation

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// Slice is how long an evaluation may run before it is long. Nearly all of a dashboard's are
	// over by then.
	Slice = 20 * time.Millisecond
	// Quantum is how much longer than a waiting evaluation a long one may have run before it gives
	// up its place to it.
	Quantum = 50 * time.Millisecond
	// byAge is the part of the time of long evaluations that those get which began first, whatever
	// they have run, one in byAge: where evaluations keep coming that have run less than another,
	// that one would never run again.
	byAge = 4
	// heavyWork is so many samples, some 20 ms, that who is about to work on them at once is long
	// from the start.
	heavyWork = 200_000
	// shortsPerProcessor is how many that are not long may be at work for each processor: so many
	// that one in a stretch without a look holds up nobody.
	shortsPerProcessor = 16
)

// Gate shares the processors among evaluations. Turns of several goroutines use it.
type Gate struct {
	processors int // 0 is those that Go uses at the moment
	waited     func(time.Duration)

	mu      sync.Mutex
	running [2]int
	waiting [2][]*Turn
	first   atomic.Int64 // what the long turn that is next has run, in nanoseconds; MaxInt64 while none waits

	begun, aged uint64            // how many turns have begun, and how many places were given by age
	owed        time.Duration     // what those that began first are to get yet
	served      map[string]uint64 // by lane, which of aged was its last
}

// The classes of evaluations.
const (
	short = iota
	long
)

// NewGate is a gate for that many processors; 0 is as many as Go uses, which change when the limit
// of its container does. waited, where set, is told of each wait.
func NewGate(processors int, waited func(time.Duration)) *Gate {
	g := &Gate{processors: processors, waited: waited, served: map[string]uint64{}}
	g.first.Store(math.MaxInt64)
	return g
}

// places is how many of a class may run now.
func (g *Gate) places(class int) int {
	n := g.processors
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if class == short {
		return shortsPerProcessor * n
	}
	return max(1, n-1)
}

// Running is how many evaluations are at work, those that wait for servers left out.
func (g *Gate) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running[short] + g.running[long]
}

// Waiting is how many evaluations wait for a processor.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting[short]) + len(g.waiting[long])
}

// Turn is one evaluation on its way through the gate. It belongs to the goroutine that evaluates;
// nil is an evaluation that nobody interrupts.
type Turn struct {
	gate  *Gate
	ctx   context.Context
	lane  string
	nth   uint64 // of those that have begun
	class int
	runs  bool          // it has a place
	old   bool          // it has it by its age
	used  time.Duration // how long it has run, up to since
	since time.Time     // while it runs
	left  int           // samples until the next look
	place chan struct{} // gets a value when a place is given to it
}

// Begin takes a place for an evaluation in a lane of the configuration, or waits for one. End must
// be called if the error is nil.
func (g *Gate) Begin(ctx context.Context, lane string) (*Turn, error) {
	t := &Turn{gate: g, ctx: ctx, lane: lane}
	g.mu.Lock()
	g.begun++
	t.nth = g.begun
	g.mu.Unlock()
	if err := t.Look(); err != nil {
		return nil, err
	}
	return t, nil
}

// Work counts samples that are about to be worked on and looks after each few thousand. The error
// ends the evaluation.
func (t *Turn) Work(samples int) error {
	if t == nil {
		return nil
	}
	if t.left -= samples; t.left > 0 {
		return nil
	}
	if samples >= heavyWork {
		t.Heavy()
	}
	return t.Look()
}

// Look is nil while the evaluation may go on. It waits for a place where the evaluation has none,
// or where others come first.
func (t *Turn) Look() error {
	if t == nil {
		return nil
	}
	t.left = workBetweenLooks
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if !t.runs {
		return t.wait()
	}
	ran := time.Since(t.since)
	used := t.used + ran
	switch {
	case t.class == short && used >= Slice:
		t.Pause()
		t.class = long
		return t.wait()
	case t.class == long && (!t.old || ran >= Quantum) && int64(used-Quantum) >= t.gate.first.Load():
		t.Pause()
		return t.wait()
	case t.class == long:
		yield()
	}
	return nil
}

// Heavy says that much is to be done, so that the evaluation counts as long from now on.
func (t *Turn) Heavy() {
	if t == nil || t.class == long {
		return
	}
	t.Pause()
	t.class, t.left = long, 0 // the next look waits for a place
}

// After says that this turn goes on with what others have run so long for: it is as long as all of
// them together.
func (t *Turn) After(used time.Duration) {
	if t == nil {
		return
	}
	if t.used += used; t.used >= Slice {
		t.Heavy()
	}
}

// Used is how long the evaluation has run, with what it goes on with.
func (t *Turn) Used() time.Duration {
	switch {
	case t == nil:
		return 0
	case t.runs:
		return t.used + time.Since(t.since)
	}
	return t.used
}

// Pause gives up the place while the evaluation waits for something else. The next look takes one
// again.
func (t *Turn) Pause() {
	if t == nil || !t.runs {
		return
	}
	ran := time.Since(t.since)
	t.runs, t.left = false, 0
	t.used += ran
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case t.old: // a quantum was taken off when it got the place
		g.owed = max(g.owed+Quantum-ran, -g.mostOwed())
	case t.class == long:
		g.owed = min(g.owed+ran/(byAge-1), g.mostOwed())
	}
	t.old = false
	g.running[t.class]--
	g.next(t.class)
}

// End is the end of the evaluation. It is idempotent.
func (t *Turn) End() { t.Pause() }

// next gives free places of a class to those that wait: the short ones in order, of the long ones
// to whom has run least, and now and then to whom began first. The caller holds the mutex.
func (g *Gate) next(class int) {
	for g.running[class] < g.places(class) && len(g.waiting[class]) > 0 {
		i := 0
		if class == long {
			i = g.least()
		}
		byAge := class == long && g.owed >= Quantum
		if byAge {
			i = g.oldest()
			g.owed -= Quantum
		}
		t := g.waiting[class][i]
		t.old = byAge
		g.waiting[class] = slices.Delete(g.waiting[class], i, i+1)
		g.running[class]++
		t.place <- struct{}{} // it has room for one
	}
	g.noteFirst()
}

// mostOwed is how much more or less than their part those that began first may have got.
func (g *Gate) mostOwed() time.Duration { return time.Duration(g.places(long)+1) * Quantum }

// least is the long turn that has run least of those that wait, the earliest of several.
func (g *Gate) least() int {
	best := 0
	for i, t := range g.waiting[long] {
		if t.used < g.waiting[long][best].used {
			best = i
		}
	}
	return best
}

// oldest is the long turn that waits and began first in the lane that was served by age the longest
// ago: who fills one lane keeps those of another from nothing.
func (g *Gate) oldest() int {
	best := 0
	for i, t := range g.waiting[long] {
		b := g.waiting[long][best]
		if c := cmp.Compare(g.served[t.lane], g.served[b.lane]); c < 0 || c == 0 && t.nth < b.nth {
			best = i
		}
	}
	g.aged++
	g.served[g.waiting[long][best].lane] = g.aged
	return best
}

func (g *Gate) noteFirst() {
	first := int64(math.MaxInt64)
	if w := g.waiting[long]; len(w) > 0 {
		first = int64(w[g.least()].used)
	}
	g.first.Store(first)
}

// wait takes a place, until shortly before the deadline.
func (t *Turn) wait() error {
	g := t.gate
	g.mu.Lock()
	if g.running[t.class] < g.places(t.class) && len(g.waiting[t.class]) == 0 {
		g.running[t.class]++
		g.mu.Unlock()
		t.runs, t.since = true, time.Now()
		return nil
	}
	if t.place == nil {
		t.place = make(chan struct{}, 1)
	}
	g.waiting[t.class] = append(g.waiting[t.class], t)
	g.next(t.class) // who has run less may be told apart from the one that has just made room
	g.mu.Unlock()

	began := time.Now()
	if g.waited != nil {
		defer func() { g.waited(time.Since(began)) }()
	}
	wait := t.ctx
	if dl, ok := t.ctx.Deadline(); ok { // what is left is for the answer that says so
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(t.ctx, dl.Add(-min(time.Until(dl)/20, 250*time.Millisecond)))
		defer cancel()
	}
	select {
	case <-t.place:
		t.runs, t.since = true, time.Now()
		return nil
	case <-wait.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting[t.class], t); i >= 0 {
		g.waiting[t.class] = slices.Delete(g.waiting[t.class], i, i+1)
		g.noteFirst()
	} else { // a place was given at the same moment
		<-t.place
		if t.old {
			g.owed += Quantum
			t.old = false
		}
		g.running[t.class]--
		g.next(t.class)
	}
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	return g.full(t, time.Since(began))
}

// full is the refusal of an evaluation that found no place. The caller holds the mutex.
func (g *Gate) full(t *Turn, waited time.Duration) error {
	n := g.places(t.class)
	at := strconv.Itoa(n) + " evaluations"
	switch {
	case t.class == long && n == 1:
		at = "one long evaluation"
	case t.class == long:
		at = strconv.Itoa(n) + " long evaluations"
	}
	e := qerr.Overload(policy.BoundEvaluations, strconv.Itoa(n), 2*time.Second,
		"try again shortly; shorten the range or widen the step of what takes long; to mend it for good, give Spillway more processors or record the query as a rule",
		"Spillway runs %s at once, and there was no room for this one before its deadline", at)
	e.Seen = strconv.Itoa(len(g.waiting[t.class])+1) + " waited for a processor, this one for " +
		waited.Round(10*time.Millisecond).String() +
		" after it had run for " + t.used.Round(time.Millisecond).String()
	return e
}
