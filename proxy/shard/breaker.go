package shard

import (
	"sync"
	"time"
)

const (
	// breakerFailures is how many failures in a row open a breaker.
	breakerFailures = 5
	// breakerOpenFor is how long an open breaker waits before it lets one call try. With a probe every five seconds a breaker is closed again at the
	// latest about ten seconds after the server is sound.
	breakerOpenFor = 4 * time.Second
)

// BreakerState is what a replica's breaker does with calls.
type BreakerState string

// The states of a breaker. Where every replica of a shard is open, calls are let through all the same: a breaker prefers, it never takes a shard away.
const (
	Closed   BreakerState = "closed"
	Open     BreakerState = "open"
	HalfOpen BreakerState = "half-open"
)

// breaker counts failures in a row. The zero value is closed.
type breaker struct {
	mu       sync.Mutex
	state    BreakerState // "" is Closed
	failures int
	opened   time.Time
	trying   bool // the one call of the half-open state is under way
}

func (b *breaker) current(now time.Time) BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.currentLocked(now)
}

func (b *breaker) currentLocked(now time.Time) BreakerState {
	switch {
	case b.state == Open && now.Sub(b.opened) >= breakerOpenFor:
		return HalfOpen
	case b.state == "":
		return Closed
	default:
		return b.state
	}
}

// allow tells whether a call may go where there is a choice. In the half-open state it admits one at a time, which must report its outcome.
func (b *breaker) allow(now time.Time) (ok, trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.currentLocked(now) {
	case Closed:
		return true, false
	case HalfOpen:
		if b.trying {
			return false, false
		}
		b.state, b.trying = HalfOpen, true
		return true, true
	default:
		return false, false
	}
}

// success is a call that was answered in full.
func (b *breaker) success() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.failures, b.trying = Closed, 0, false
}

// failure is a call that the replica failed. It tells whether the breaker has just opened.
func (b *breaker) failure(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.currentLocked(now)
	b.trying = false
	b.failures++
	if was == Open || (was == Closed && b.failures < breakerFailures) {
		return false
	}
	b.state, b.opened = Open, now
	return true
}

// neutral is a trial that said nothing about the replica: the client left, say.
func (b *breaker) neutral() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
}

// calm tells whether the breaker is closed and the last call that it heard of was no failure.
func (b *breaker) calm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return (b.state == "" || b.state == Closed) && b.failures == 0
}

// probed is a successful health probe. It closes a breaker that may try again, but with one failure left: health pages have been known to be better
// than the servers behind them.
func (b *breaker) probed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.currentLocked(now) == HalfOpen && !b.trying {
		b.state, b.failures = Closed, breakerFailures-1
	}
}
