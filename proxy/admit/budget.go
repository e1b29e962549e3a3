package admit

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// poolChunk is the unit in which a Budget takes memory from its Pool: big enough that the Pool's
// one atomic is not touched for each series.
const poolChunk = 64 << 10

// Pool is the memory of the whole process for answers in progress, in bytes. It is safe for
// concurrent use.
type Pool struct {
	limit atomic.Int64
	room  atomic.Int64
	used  atomic.Int64
	high  highWater
	tight atomic.Pointer[qerr.Error] // what large budgets are told; nil while there is memory

	addresses addresses
}

// NewPool returns a pool of that many bytes; from one of less than a byte nothing can be taken.
func NewPool(bytes int64) *Pool {
	p := &Pool{}
	p.room.Store(math.MaxInt64)
	p.SetLimit(bytes)
	return p
}

// SetLimit makes the pool larger or smaller (memory.budget). What is taken stays taken; a smaller
// pool gives nothing more until enough has come back.
func (p *Pool) SetLimit(bytes int64) { p.limit.Store(max(0, bytes)) }

// SetRoom says what the process has memory for, whatever the limit is.
func (p *Pool) SetRoom(bytes int64) { p.room.Store(max(0, bytes)) }

// Tighten makes the pool refuse large budgets anything more, with this error, because the process
// really holds more than its share; nil lets them go on.
func (p *Pool) Tighten(why *qerr.Error) { p.tight.Store(why) }

// Tight tells whether large budgets are given nothing more.
func (p *Pool) Tight() bool { return p.tight.Load() != nil }

// InUse is what budgets have taken and not returned, in bytes.
func (p *Pool) InUse() int64 { return p.used.Load() }

// Limit is the size of the pool in bytes: the limit, or the room where that is less.
func (p *Pool) Limit() int64 { return min(p.limit.Load(), p.room.Load()) }

// One is the most that one request may take, in bytes: half of the pool, so that no single one
// keeps all others out, or takes the process to the edge; of a small pool all of it.
func (p *Pool) One() int64 {
	limit := p.Limit()
	if limit < smallPool {
		return limit
	}
	return limit / 2
}

// Whoever holds more than a sixteenth of the pool leaves the last eighth of it to others: so that
// those who need little find some while those who need much fill it. In a small pool he does so
// only where there are others now: its eighth is hardly more than a chunk.
const (
	largeShare = 16
	smallsPart = 8
	smallPool  = 8 << 20
)

// take gives n bytes to a budget of an address that has had own bytes before.
func (p *Pool) take(n, own int64, of *address) bool {
	limit := p.Limit()
	if own+n > p.One() && limit >= smallPool {
		p.high.saw(p.used.Load()) // the pool was not in want
		return false
	}
	much := own+n > limit/largeShare
	if !of.take(n, limit, much) {
		p.high.saw(max(p.used.Load()+n, limit+1)) // asked for in vain
		return false
	}
	for {
		used := p.used.Load()
		end := limit
		if much && (used > own || limit >= smallPool) {
			end -= limit / smallsPart
		}
		if n > end-used {
			p.high.saw(max(used+n, limit+1)) // asked for in vain, though the last eighth may be free
			of.give(n)
			return false
		}
		if p.used.CompareAndSwap(used, used+n) {
			p.high.saw(used + n)
			return true
		}
	}
}

func (p *Pool) give(n int64, of *address) {
	of.give(n)
	p.used.Add(-n)
}

// Limits are the bounds of one request. Zero is a bound of zero, never "unlimited".
type Limits struct {
	// MaxSeries bounds the series held or returned (max_series).
	MaxSeries int
	// MaxSamples bounds the samples read (max_samples).
	MaxSamples int64
	// MaxBytes bounds the inflated bytes read from all shards together, and the bytes of an answer
	// that Spillway encodes (max_response_bytes).
	MaxBytes int64
	// Told is the number of series beyond which OverTold is true; 0 is none.
	Told int
}

// Budget is what one request may still use. All methods are safe for concurrent use, and on a nil
// Budget they count nothing and refuse nothing.
type Budget struct {
	pool    *Pool
	address *address // whose it is; nil for nobody's
	limits  Limits

	series  atomic.Int64
	samples atomic.Int64
	bytes   atomic.Int64
	told    atomic.Bool

	mu     sync.Mutex
	held   int64     // by Hold and not yet dropped
	taken  int64     // from the pool, >= held, a multiple of poolChunk
	peak   int64     // highest held
	area   float64   // of held over time, in byte seconds, until since
	since  time.Time // of the last change of held
	closed bool
}

// NewBudget returns the budget of one request. Close must be called when the request has ended,
// whatever happened.
func NewBudget(pool *Pool, limits Limits) *Budget { return &Budget{pool: pool, limits: limits} }

// AddSeries counts n series more. The error is a refusal by max_series (422).
func (b *Budget) AddSeries(n int) error {
	if b == nil {
		return nil
	}
	seen := b.series.Add(int64(n))
	if b.limits.Told > 0 && seen > int64(b.limits.Told) {
		b.told.Store(true)
	}
	if seen > int64(b.limits.MaxSeries) {
		return qerr.Refuse("max_series", strconv.Itoa(b.limits.MaxSeries), "at least "+strconv.FormatInt(seen, 10),
			"add a label matcher, such as namespace=\"…\", or aggregate, in a recording rule where it is asked often; a rule that is to record so many series belongs on the shards, each of which records its own",
			"the answer has more series than max_series allows (%d)", b.limits.MaxSeries)
	}
	return nil
}

// OverTold tells whether more series than Limits.Told were counted at any time.
func (b *Budget) OverTold() bool { return b != nil && b.told.Load() }

// DropSeries takes back what AddSeries counted of series that are counted again: an answer's pieces
// in time have the same ones.
func (b *Budget) DropSeries(n int64) {
	if b != nil {
		b.series.Add(-n)
	}
}

// AddSamples counts n samples more. The error is a refusal by max_samples (422).
func (b *Budget) AddSamples(n int64) error {
	if b == nil || n == 0 {
		return nil
	}
	if seen := b.samples.Add(n); seen > b.limits.MaxSamples {
		return qerr.Refuse("max_samples", strconv.FormatInt(b.limits.MaxSamples, 10), "at least "+strconv.FormatInt(seen, 10),
			"shorten the range, widen the step or select fewer series",
			"the query reads more samples than max_samples allows (%d)", b.limits.MaxSamples)
	}
	return nil
}

// DropSamples takes back what AddSamples counted of an answer that is asked for again.
func (b *Budget) DropSamples(n int64) {
	if b != nil {
		b.samples.Add(-n)
	}
}

// AddBytes counts n inflated bytes more, read from shards. The error is a refusal by
// max_response_bytes (422).
func (b *Budget) AddBytes(n int64) error {
	if b == nil {
		return nil
	}
	if seen := b.bytes.Add(n); seen > b.limits.MaxBytes {
		return TooManyBytes(b.limits.MaxBytes, seen, "the shards' answers are")
	}
	return nil
}

// TooManyBytes is the refusal by max_response_bytes (422) of seen bytes, where limit are allowed.
// what begins its sentence: "the answer is".
func TooManyBytes(limit, seen int64, what string) error {
	return qerr.Refuse("max_response_bytes", FormatBytes(limit), "at least "+FormatBytes(seen),
		"select fewer series, shorten the range, widen the step, or aggregate",
		"%s larger than max_response_bytes allows (%s)", what, FormatBytes(limit))
}

// Hold takes n bytes of memory until Drop or Close. The error is a refusal by memory.budget (429):
// either other requests hold the memory, so trying again later makes sense, or this one alone wants
// more than half of it, and the error says so. Once the budget is closed it is a plain error.
func (b *Budget) Hold(n int64) error {
	if b == nil || n <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errBudgetClosed
	}
	if need := b.held + n - b.taken; need > 0 {
		need = (need + poolChunk - 1) / poolChunk * poolChunk
		if why := b.pool.tight.Load(); why != nil && b.taken+need > b.pool.Limit()/largeShare {
			e := *why
			e.Seen += ", " + FormatBytes(b.held) + " of it by this request, which needs " + FormatBytes(n) + " more"
			return &e
		}
		if !b.pool.take(need, b.taken, b.address) {
			return b.overload(n, need)
		}
		b.taken += need
	}
	b.tick()
	b.held += n
	b.peak = max(b.peak, b.held)
	return nil
}

var errBudgetClosed = qerr.New(qerr.Internal, "the request has ended already")

// overload is the refusal of n bytes, for which need bytes of the pool were wanted in vain.
func (b *Budget) overload(n, need int64) error {
	limit, inUse := b.pool.Limit(), b.pool.InUse()
	seen := fmt.Sprintf("%s in use, %s of it by this request, which needs %s more", FormatBytes(inUse), FormatBytes(b.held), FormatBytes(n))
	if one := b.pool.One(); one < limit && b.taken+need > one {
		e := qerr.Overload("memory.budget", FormatBytes(one), 2*time.Second, "ask for fewer series, a shorter range or fewer steps; for good: raise memory.budget and the container's memory",
			"the query alone needs more than half of Spillway's memory for answers (memory.budget %s), and one request may hold half at most (%s)", FormatBytes(limit), FormatBytes(one))
		e.Seen = seen
		return e
	}
	if much := b.taken+need > limit/largeShare; b.address.full(need, limit, much) {
		e := qerr.Overload("memory.budget", FormatBytes(most(limit, much)), 2*time.Second, "try again shortly, read answers faster, or ask for fewer series or a shorter range; for good, where all users come from one address: raise memory.budget and the container's memory",
			"requests from this address hold as much of Spillway's memory for answers as those of one may (memory.budget %s), and the rest is for others", FormatBytes(limit))
		e.Seen = seen
		return e
	}
	e := qerr.Overload("memory.budget", FormatBytes(limit), 2*time.Second, "try again shortly, or ask for fewer series or a shorter range",
		"Spillway's memory for answers (memory.budget %s) is in use", FormatBytes(limit))
	if asked := b.pool.limit.Load(); limit < asked {
		e.Message = "Spillway's memory for answers is in use: " + FormatBytes(limit) + ", which is what its memory limit has room for of memory.budget " + FormatBytes(asked)
	}
	e.Seen = seen
	return e
}

// Drop gives n bytes back that were held. Dropping more than is held drops what is held.
func (b *Budget) Drop(n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.tick()
	b.held = max(0, b.held-n)
	// One spare chunk stays, so that a request at a chunk's edge does not go to the pool each time.
	if spare := (b.taken - b.held) / poolChunk; spare > 1 {
		b.taken -= (spare - 1) * poolChunk
		b.pool.give((spare-1)*poolChunk, b.address)
	}
}

// Close gives all memory back. It is idempotent; Hold fails afterwards.
func (b *Budget) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	b.tick()
	if b.pool != nil {
		b.pool.give(b.taken, b.address)
		b.pool.addresses.leave(b.address)
	}
	b.held, b.taken = 0, 0
}

// Series is the number of series counted.
func (b *Budget) Series() int64 {
	if b == nil {
		return 0
	}
	return b.series.Load()
}

// Samples is the number of samples counted.
func (b *Budget) Samples() int64 {
	if b == nil {
		return 0
	}
	return b.samples.Load()
}

// Bytes is the number of bytes read from shards.
func (b *Budget) Bytes() int64 {
	if b == nil {
		return 0
	}
	return b.bytes.Load()
}

// Peak is the highest number of bytes held at once.
func (b *Budget) Peak() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// tick adds what was held since the last change. b.mu is held.
func (b *Budget) tick() {
	now := time.Now()
	if b.held > 0 {
		b.area += float64(b.held) * now.Sub(b.since).Seconds()
	}
	b.since = now
}

// ByteSeconds is how many bytes were held, times for how long.
func (b *Budget) ByteSeconds() float64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tick()
	return b.area
}

// Held is the number of bytes held now.
func (b *Budget) Held() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// FormatBytes writes a number of bytes as the configuration does: 64MiB, 1536KiB, 17B.
func FormatBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
		if n >= 8*u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
