package shard

import (
	"sync"
	"time"
)

const (
	// breakerFailures is how many failures in a row open a breaker.
	breakerFailures = 5
	// breakerOpenFor is how long an open breaker waits before it lets one call try. With a probe
	// every five seconds a breaker is closed again at the latest about ten seconds after the server
	// is sound.
	breakerOpenFor = 4 * time.Second
	// vouchedFor is how long the answer to a question whether the server answers speaks for it: a
	// breaker that opens again within this time is not closed by another such answer.
	vouchedFor = time.Minute
)

// BreakerState is what a replica's breaker does with calls.
type BreakerState string

// The states of a breaker. Where the breakers of all replicas of a shard are open, calls are let
// through all the same: a breaker prefers, it never takes a shard away.
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

	vouched time.Time // when such an answer closed it
	belied  bool      // it opened within vouchedFor of that

	told time.Time // when it was last said that it opened
	open bool      // that was said, and not that the replica answers again
}

const (
	// tellAgain is the time after which it is said again that a breaker, which has not seen a sound
	// call since, opens.
	tellAgain = 10 * time.Minute
	// tellAnew is the least time between two lines about a replica that fails and answers by turns.
	tellAnew = time.Minute
)

// tell tells, once the breaker has opened, whether that is worth a line: it opens every few seconds
// for as long as the server fails.
func (b *breaker) tell(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.told.IsZero() && (b.open && now.Sub(b.told) < tellAgain || now.Sub(b.told) < tellAnew) {
		return false
	}
	b.told, b.open = now, true
	return true
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

// allow tells whether a call may go where there is a choice. In the half-open state it admits one
// at a time, which must report its outcome.
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

// success is a call that was answered in full. It tells whether that is worth a line: it was said
// that the replica fails.
func (b *breaker) success() (mended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.failures, b.trying = Closed, 0, false
	mended, b.open = b.open, false
	return mended
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
	b.belied = now.Sub(b.vouched) < vouchedFor
	return true
}

// vouch notes that it was asked whether the server answers, where that has closed it.
func (b *breaker) vouch(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Closed {
		b.vouched = now
	}
}

// isBelied tells whether it is open, and was closed by such an answer just before.
func (b *breaker) isBelied(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.belied && b.currentLocked(now) == Open
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

// probed is a successful health probe. It closes a breaker that may try again, but with one failure
// left: health pages have been known to be better than the servers behind them.
func (b *breaker) probed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.currentLocked(now) == HalfOpen && !b.trying {
		b.state, b.failures = Closed, breakerFailures-1
	}
}
