package heap

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// Every is how often the runtime is asked while requests are under way.
	Every = 100 * time.Millisecond
	// Tight is the share of the ceiling, in percent, above which large requests get no more memory;
	// above Full the heaviest is ended.
	Tight, Full = 80, 90
	// MinWeight is the least that a request must hold to be worth ending, and MinAge the least time
	// that it must have had.
	MinWeight = 4 << 20
	MinAge    = 100 * time.Millisecond
	// stale is how old the last collection may be before a new one is asked for, above Tight.
	stale = time.Second
)

// Reading is what the runtime says, in bytes.
type Reading struct {
	// Live is what was alive after the last collection, and Other what is in use outside the heap.
	Live, Other int64
	// Limit is Go's own memory limit, GOMEMLIMIT; math.MaxInt64 where there is none.
	Limit int64
	// Cycles counts the collections.
	Cycles uint64
}

// Held is what cannot be given back.
func (r Reading) Held() int64 { return r.Live + r.Other }

// Options are what a Watch is made of.
type Options struct {
	// Ceiling is what the process may hold beside GOMEMLIMIT; the less of both counts.
	Ceiling func() int64
	// Pressed is told the error for large requests while memory is tight, and nil once it no longer
	// is.
	Pressed func(*qerr.Error)
	// Evicted is told of each request that was ended; may be nil.
	Evicted func()
	// More says what would give the process more memory, under a Reading's Limit: only what set the
	// limit knows. May be nil.
	More func(limit int64) string

	read    func() Reading // for tests
	collect func()
	set     func(limit int64)
}

// Watch looks after the memory of a process. Several goroutines use it.
type Watch struct {
	o Options

	mu        sync.Mutex
	requests  map[*Request]struct{}
	looking   bool // a look is due
	tight     bool
	last      Reading
	collected time.Time // when Cycles changed last
	evictedAt uint64    // Cycles at the last eviction

	aim        atomic.Pointer[Aim]
	at         int64 // the limit that was set last
	liveBefore int64 // Live of the collection before the last
}

// New is a Watch that looks while requests are under way.
func New(o Options) *Watch {
	if o.read == nil {
		o.read = read
	}
	if o.collect == nil {
		o.collect = runtime.GC
	}
	if o.set == nil {
		o.set = func(limit int64) { debug.SetMemoryLimit(limit) }
	}
	if o.Ceiling == nil {
		o.Ceiling = func() int64 { return math.MaxInt64 }
	}
	return &Watch{o: o, requests: map[*Request]struct{}{}, collected: time.Now(), evictedAt: math.MaxUint64}
}

// Request is one that is under way.
type Request struct {
	watch  *Watch
	weight func() int64
	end    func(error)
	since  time.Time
	over   bool // it was ended

	evaluated atomic.Bool
}

// Join begins to watch a request: weight is what it holds, end ends it. Leave must be called.
func (w *Watch) Join(weight func() int64, end func(error)) *Request {
	r := &Request{watch: w, weight: weight, end: end, since: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[r] = struct{}{}
	w.schedule()
	return r
}

// Evaluated says that the request is evaluated here from now on, or no longer is: an evaluation may
// hold what it was never charged for.
func (r *Request) Evaluated(on bool) {
	if r != nil {
		r.evaluated.Store(on)
	}
}

// Leave is the end of the request.
func (r *Request) Leave() {
	if r == nil {
		return
	}
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	delete(r.watch.requests, r)
}

// Now is a reading, with the ceiling that it is held against.
func (w *Watch) Now() (Reading, int64) {
	r := w.o.read()
	return r, w.ceiling(r)
}

// schedule sets the next look, if there is reason for one. The caller holds the mutex.
func (w *Watch) schedule() {
	if w.looking || len(w.requests) == 0 && !w.tight {
		return
	}
	w.looking = true
	time.AfterFunc(Every, w.look)
}

func (w *Watch) ceiling(r Reading) int64 { return min(w.limit(r), w.o.Ceiling()) }

// look asks the runtime and does what follows.
func (w *Watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.read()
	w.looking = false
	defer w.schedule()
	if now.Cycles != w.last.Cycles {
		w.collected = time.Now()
		w.liveBefore = w.last.Live
	}
	w.last = now
	if a := w.aim.Load(); a != nil {
		w.aimAt(a, now)
	}
	ceiling := w.ceiling(now)
	held := now.Held()
	if held <= ceiling/100*Tight {
		if w.tight {
			w.tight = false
			w.o.Pressed(nil)
		}
		return
	}
	w.tight = true
	w.o.Pressed(w.tightError(held, ceiling))
	if time.Since(w.collected) >= stale {
		w.collected = time.Now()
		w.mu.Unlock()
		w.o.collect() // what it finds is seen at the next look
		w.mu.Lock()
		return
	}
	if held > ceiling/100*Full && now.Cycles != w.evictedAt {
		w.evict(held, ceiling)
	}
}

// evict ends the heaviest request; where less than half of what is held was charged to anybody, the
// heaviest of those that are evaluated, if there are any. The caller holds the mutex.
func (w *Watch) evict(held, ceiling int64) {
	var heaviest, suspect *Request
	most, charged, found := int64(MinWeight), int64(0), int64(-1)
	for r := range w.requests {
		n := r.weight()
		charged += n
		if r.over || time.Since(r.since) < MinAge {
			continue
		}
		if n >= most {
			heaviest, most = r, n
		}
		if r.evaluated.Load() && n > found {
			suspect, found = r, n
		}
	}
	why := "was charged for more than any other"
	if charged < held/2 && suspect != nil {
		heaviest, most = suspect, found
		why = "was being evaluated, while most of that memory was charged to nobody"
	}
	if heaviest == nil {
		return
	}
	w.evictedAt = w.last.Cycles
	heaviest.over = true
	e := qerr.Overload(policy.BoundMemoryHeap, admit.FormatBytes(ceiling), 5*time.Second, w.advice(),
		"Spillway was about to run out of memory and ended this request, which %s", why)
	e.Seen = round(held) + " in use, " + round(most) + " of it charged to this request, " + round(charged) + " to all"
	heaviest.end(e)
	if w.o.Evicted != nil {
		w.o.Evicted()
	}
}

// advice is what to do about it, now and for good. The caller holds the mutex.
func (w *Watch) advice() string {
	more := ""
	if w.o.More != nil {
		more = w.o.More(w.last.Limit)
	}
	if more == "" {
		more = "give Spillway more memory"
	}
	return "ask for fewer series or a shorter range, widen the step, or try again when others have ended; to mend it for good, " + more
}

// tightError is what large requests are told. The caller holds the mutex.
func (w *Watch) tightError(held, ceiling int64) *qerr.Error {
	e := qerr.Overload(policy.BoundMemoryHeap, admit.FormatBytes(ceiling), 5*time.Second, w.advice(),
		"Spillway has no memory left for a request as large as this: %s of %s are in use", round(held), admit.FormatBytes(ceiling))
	e.Seen = round(held) + " in use"
	return e
}

// round is a number of bytes in whole MiB: more says nothing.
func round(n int64) string { return admit.FormatBytes(n >> 20 << 20) }

// names are what read asks the runtime for.
var names = []string{
	"/gc/heap/live:bytes", "/gc/cycles/total:gc-cycles", "/gc/gomemlimit:bytes", "/memory/classes/total:bytes",
	"/memory/classes/heap/objects:bytes",
	"/memory/classes/heap/free:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/released:bytes",
}

// read asks the runtime.
func read() Reading {
	samples := make([]metrics.Sample, len(names))
	for i, n := range names {
		samples[i].Name = n
	}
	metrics.Read(samples)
	v := func(i int) int64 { return int64(min(samples[i].Value.Uint64(), math.MaxInt64)) }
	return Reading{Live: v(0), Cycles: samples[1].Value.Uint64(), Limit: v(2), Other: v(3) - v(4) - v(5) - v(6) - v(7)}
}
