package heap

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// Every is how often the runtime is asked while requests are under way.
	Every = 100 * time.Millisecond
	// Tight is the share of the ceiling, in percent, above which large requests get no more memory; above Full the heaviest is ended.
	Tight, Full = 80, 90
	// MinWeight is what a request holds at least to be worth ending, and MinAge how long it has had at least.
	MinWeight = 4 << 20
	MinAge    = 100 * time.Millisecond
	// stale is how old the last collection may be before a new one is asked for, above Tight.
	stale = time.Second
)

// Reading is what the runtime says, in bytes.
type Reading struct {
	// Live is what was alive after the last collection, and Other what is in use and no heap.
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
	// Pressed is told the error for large requests while memory is tight, and nil when it is so no longer.
	Pressed func(*qerr.Error)
	// Evicted is told of each request that was ended; may be nil.
	Evicted func()

	read    func() Reading // for tests
	collect func()
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
}

// New is a Watch that looks while requests are under way.
func New(o Options) *Watch {
	if o.read == nil {
		o.read = read
	}
	if o.collect == nil {
		o.collect = runtime.GC
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

func (w *Watch) ceiling(r Reading) int64 { return min(r.Limit, w.o.Ceiling()) }

// look asks the runtime and does what follows.
func (w *Watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.read()
	w.looking = false
	defer w.schedule()
	if now.Cycles != w.last.Cycles {
		w.collected = time.Now()
	}
	w.last = now
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
	w.o.Pressed(tightError(held, ceiling))
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

// evict ends the heaviest request. The caller holds the mutex.
func (w *Watch) evict(held, ceiling int64) {
	var heaviest *Request
	most := int64(MinWeight)
	for r := range w.requests {
		if n := r.weight(); n >= most && !r.over && time.Since(r.since) >= MinAge {
			heaviest, most = r, n
		}
	}
	if heaviest == nil {
		return
	}
	w.evictedAt = w.last.Cycles
	heaviest.over = true
	e := qerr.Overload(policy.BoundMemoryHeap, merge.FormatBytes(ceiling), 5*time.Second, advice,
		"Spillway was about to run out of memory and ended this request, which held more than any other")
	e.Seen = round(held) + " in use, " + round(most) + " of it by this request"
	heaviest.end(e)
	if w.o.Evicted != nil {
		w.o.Evicted()
	}
}

const advice = "ask for fewer series or a shorter range, widen the step, or try again when others have ended; to mend it for good, give Spillway more memory (its container's limit, or GOMEMLIMIT) or lower memory.budget"

// tightError is what large requests are told.
func tightError(held, ceiling int64) *qerr.Error {
	e := qerr.Overload(policy.BoundMemoryHeap, merge.FormatBytes(ceiling), 5*time.Second, advice,
		"Spillway has no memory left for a request as large as this: %s of %s are in use", round(held), merge.FormatBytes(ceiling))
	e.Seen = round(held) + " in use"
	return e
}

// round is a number of bytes in whole MiB: more says nothing.
func round(n int64) string { return merge.FormatBytes(n >> 20 << 20) }

// names are what read asks the runtime for.
var names = []string{
	"/gc/heap/live:bytes", "/gc/cycles/total:gc-cycles", "/gc/gomemlimit:bytes", "/memory/classes/total:bytes", "/memory/classes/heap/objects:bytes",
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
