package coalesce

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// MaxBytes is how much of an answer is kept for those that wait for it, and poolShare the part of
// the pool that all kept answers together may take: whoever reads slowly holds one for long.
const (
	MaxBytes  = 8 << 20
	poolShare = 8
)

// What Wait returns where the caller has to ask for itself: ErrLarge where the answer is too much
// to be kept, by itself or at the moment, and ErrAbandoned where it is nobody's.
var (
	ErrLarge     = errors.New("the answer is too large to be kept for others")
	ErrAbandoned = errors.New("the answer is nobody's")
)

// Group is the requests under way. M is what is told of an answer besides its bytes. The zero Group
// is ready; it is safe for concurrent use.
type Group[M any] struct {
	mu      sync.Mutex
	flights map[string]*Flight[M]
	kept    int64 // bytes of all answers
}

// Flight is one request under way, and those that wait for its answer. The leader calls Left, Write
// and Land, each of the others Wait.
type Flight[M any] struct {
	group *Group[M]
	key   string
	began time.Time
	stop  func()
	// memory is what the kept answer is charged to, and most what all kept ones may take. It is
	// given back when the last one has written it.
	memory *admit.Budget
	most   int64
	// over is closed when those that wait can go on; kept and err do not change any more then.
	over chan struct{}

	// All below is guarded by group.mu.
	state   state
	waiting int  // how many wait
	gone    bool // the leader's caller has left
	large   bool // the answer is too much to be kept, whatever others hold
	kept    *Answer[M]
	err     error
	writers int // of kept that have not released it
}

// state is how far a flight is.
type state uint8

const (
	joinable state = iota
	alone          // it is written to the leader's caller, and nobody waits
	keeping        // it is kept for several
	landed
)

// Answer is an answer that was kept. Release must be called once by each that has it.
type Answer[M any] struct {
	// Chunks are its bytes, in order; nobody changes them.
	Chunks [][]byte
	// Size is how many bytes that is.
	Size int64
	// Meta is what Land was told.
	Meta M

	flight *Flight[M]
}

// Join finds the flight that answers key at the time now. lead tells that there was none that is at
// most young old: the caller is the first of a new one, and must call Land. stop ends its work: it
// is called once at most, when nobody waits for it any more after Left has told that others do, and
// must not call the group.
// What is kept for others is taken from the pool, as what the address from has; the key has to hold
// the address, since all who join are of it.
func (g *Group[M]) Join(key, from string, now time.Time, young time.Duration, pool *admit.Pool, stop func()) (f *Flight[M], lead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.flights[key]; f != nil && now.Sub(f.began) <= young {
		f.waiting++
		return f, false
	}
	f = &Flight[M]{group: g, key: key, began: now, stop: stop, over: make(chan struct{})}
	f.memory, f.most = admit.NewBudget(pool, admit.Limits{}).By(from), pool.Limit()/poolShare
	if g.flights == nil {
		g.flights = map[string]*Flight[M]{}
	}
	g.flights[key] = f // an older one goes on for those that it has
	return f, true
}

// Len is how many flights can be joined.
func (g *Group[M]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.flights)
}

// turn is the flight's next state, in which nobody joins. group.mu is held.
func (f *Flight[M]) turn(next state) {
	f.state = next
	if f.group.flights[f.key] == f {
		delete(f.group.flights, f.key)
	}
}

// Waiting is how many wait for the answer; none of a nil flight.
func (f *Flight[M]) Waiting() int {
	if f == nil {
		return 0
	}
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return f.waiting
}

// Left tells that the leader's own caller has left. It is true where others wait: the work is to go
// on, and stop is called when the last of them has left too.
func (f *Flight[M]) Left() (others bool) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	if f.waiting == 0 || f.state == alone {
		f.turn(f.state)
		return false
	}
	f.gone = true
	return true
}

// Write takes the next bytes of the leader's answer, which is that of all who have joined until the
// first call. Where nobody has, and where it is too much to be kept, the bytes go through: all that
// were kept before them, in order. The error is that of through.
func (f *Flight[M]) Write(p []byte, through func([]byte) (int, error)) (int, error) {
	before, kept := f.keep(p)
	if kept {
		return len(p), nil
	}
	for _, c := range before {
		if _, err := through(c); err != nil {
			return 0, err
		}
	}
	return through(p)
}

// keep keeps p, or tells what was kept before and has to be written first.
func (f *Flight[M]) keep(p []byte) (before [][]byte, kept bool) {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	if f.state == joinable {
		f.turn(alone)
		if f.waiting > 0 {
			f.state, f.kept = keeping, &Answer[M]{flight: f}
		}
	}
	if f.state != keeping {
		return nil, false
	}
	n := int64(len(p))
	if f.kept.Size+n <= MaxBytes && f.group.kept+n <= f.most && f.memory.Hold(n) == nil {
		f.kept.Chunks = append(f.kept.Chunks, bytes.Clone(p))
		f.kept.Size += n
		f.group.kept += n
		return nil, true
	}
	before, f.large = f.kept.Chunks, f.kept.Size+n > min(MaxBytes, f.most)
	f.drop(ErrLarge)
	f.state, f.waiting = alone, 0
	close(f.over)
	if f.gone {
		f.stop()
	}
	return before, false
}

// drop gives up what is kept, because of err. group.mu is held.
func (f *Flight[M]) drop(err error) {
	if f.kept != nil {
		f.group.kept -= f.kept.Size
	}
	f.kept, f.err = nil, err
	f.memory.Close()
}

// Large tells, once the answer has been written, that others had to ask for themselves because it
// was too much to be kept, as the same question would find out again: not because there was no room
// left for it at the moment.
func (f *Flight[M]) Large() bool {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	return f.large
}

// Land ends the leader's part with what became of its answer: err, or nil and what is to be told of
// it. It returns the answer that the leader has to write itself, as the others do; nil where it has
// written all of it already, and where it failed.
func (f *Flight[M]) Land(meta M, err error) *Answer[M] {
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	switch {
	case f.state == alone:
		f.memory.Close()
		return nil
	case f.state == keeping && err == nil:
		f.kept.Meta = meta
		f.writers = 1 + f.waiting
	default:
		if err == nil { // it was not written by Write
			err = ErrAbandoned
		}
		f.drop(err)
	}
	f.turn(landed)
	close(f.over)
	return f.kept
}

// Abandon ends the leader's part without an answer, because of what concerns its caller alone:
// those that wait have to ask for themselves.
func (f *Flight[M]) Abandon() { f.Land(*new(M), ErrAbandoned) }

// Wait waits for the leader's answer. The error is what became of it; ErrLarge and ErrAbandoned,
// where the caller has to ask for itself; or that of ctx, where it has left.
func (f *Flight[M]) Wait(ctx context.Context) (*Answer[M], error) {
	select {
	case <-f.over:
		return f.kept, f.err
	case <-ctx.Done():
	}
	f.group.mu.Lock()
	defer f.group.mu.Unlock()
	select {
	case <-f.over:
		return f.kept, f.err // this one is counted among its writers
	default:
	}
	f.waiting--
	if f.waiting == 0 && f.gone {
		f.turn(f.state)
		f.stop()
	}
	return nil, ctx.Err()
}

// Release tells that the caller has written the answer, or will not. It does nothing on nil.
func (a *Answer[M]) Release() {
	if a == nil {
		return
	}
	g := a.flight.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.flight.writers--; a.flight.writers == 0 {
		g.kept -= a.Size
		a.flight.memory.Close()
	}
}
