package timers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// short is the wait below which a timer is the runtime's own.
const short = time.Second

// Set is timers that share one of the runtime's. The zero value is ready for use, by several
// goroutines.
type Set struct {
	mu    sync.Mutex
	first *Timer // of those that wait, in no order
	alarm *time.Timer
	next  time.Time // when the alarm goes off; zero while it is not set
}

// Timer runs a function after a while. Several goroutines may use it.
type Timer struct {
	set        *Set
	run        func()
	at         time.Time
	waits      bool
	prev, next *Timer
	own        *time.Timer // for a short wait; nil before the first
}

// New is a timer that is not set.
func (s *Set) New(run func()) *Timer { return &Timer{set: s, run: run} }

// AfterFunc is a timer that runs the function after d. Run must not block.
func (s *Set) AfterFunc(d time.Duration, run func()) *Timer {
	t := s.New(run)
	t.Reset(d)
	return t
}

// Reset sets the timer to go off after d, whether it was set or not.
func (t *Timer) Reset(d time.Duration) {
	s := t.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if d < short {
		s.remove(t)
		if t.own == nil {
			t.own = time.AfterFunc(d, t.run)
		} else {
			t.own.Reset(d)
		}
		return
	}
	if t.own != nil {
		t.own.Stop()
	}
	t.at = time.Now().Add(d)
	s.add(t)
	if s.next.IsZero() || t.at.Before(s.next) {
		s.wake(t.at, d)
	}
}

// Stop ends the wait. It is false where the timer was not set, or has gone off.
func (t *Timer) Stop() bool {
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	return t.set.remove(t) || t.own != nil && t.own.Stop()
}

func (s *Set) add(t *Timer) {
	if t.waits {
		return
	}
	t.waits, t.prev, t.next = true, nil, s.first
	if s.first != nil {
		s.first.prev = t
	}
	s.first = t
}

func (s *Set) remove(t *Timer) bool {
	if !t.waits {
		return false
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		s.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.waits, t.prev, t.next = false, nil, nil
	return true
}

func (s *Set) wake(at time.Time, d time.Duration) {
	s.next = at
	if s.alarm == nil {
		s.alarm = time.AfterFunc(d, s.goOff)
	} else {
		s.alarm.Reset(d)
	}
}

// goOff runs what is due.
func (s *Set) goOff() {
	var due []*Timer
	s.mu.Lock()
	now, earliest := time.Now(), time.Time{}
	for t := s.first; t != nil; {
		next := t.next
		switch {
		case !t.at.After(now):
			s.remove(t)
			due = append(due, t)
		case earliest.IsZero() || t.at.Before(earliest):
			earliest = t.at
		}
		t = next
	}
	// Read under the mutex: a timer that is set again is sorted by its new time, which does no
	// harm.
	slices.SortStableFunc(due, func(a, b *Timer) int { return a.at.Compare(b.at) })
	s.next = time.Time{}
	if !earliest.IsZero() {
		s.wake(earliest, earliest.Sub(now))
	}
	s.mu.Unlock()
	for _, t := range due {
		t.run()
	}
}

// WithDeadline is context.WithDeadlineCause on a timer of the set, with two differences: the cause
// is made only when the time has come, and what ends then says context.Canceled, as if it had been
// cancelled with that cause. Whoever wants to know asks context.Cause.
func (s *Set) WithDeadline(parent context.Context, at time.Time, cause func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	if dl, ok := parent.Deadline(); ok && dl.Before(at) {
		return ctx, func() { cancel(nil) }
	}
	left := time.Until(at)
	if left <= 0 {
		cancel(cause())
		return until{ctx, at}, func() {}
	}
	t := s.AfterFunc(left, func() { cancel(cause()) })
	return until{ctx, at}, func() {
		t.Stop()
		cancel(nil)
	}
}

// until is a context that tells when it ends.
type until struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (u until) Deadline() (time.Time, bool) { return u.at, true }
