package cost

import (
	"container/list"
	"math"
	"sync"
	"time"
)

const (
	// MaxLearned is of how many texts and selectors it is remembered what answers showed; those
	// that were used longest ago are forgotten.
	MaxLearned = 50_000
	// HalfLife is after how long half of what an answer showed beyond the newest one is forgotten.
	HalfLife = 24 * time.Hour
)

// Shown is what answers showed of a text, or of a selector.
type Shown struct {
	// Series is how many series, names or values there were.
	Series float64
	// Samples is how many samples there were of each for each one that was expected: one at each
	// step, or one for each usual scrape.
	Samples float64
	// Bytes and Seconds are how many times as many there were as the model has of so many.
	Bytes, Seconds float64
}

// beside is what is remembered when the newest answer showed this, and older ones that: more is
// believed at once, and less as time goes by.
func (s Shown) beside(old Shown, keep float64) Shown {
	fade := func(s, old float64) float64 { return max(s, s+(old-s)*keep) }
	return Shown{fade(s.Series, old.Series), fade(s.Samples, old.Samples), fade(s.Bytes, old.Bytes), fade(s.Seconds, old.Seconds)}
}

// Learned remembers what answers showed. The zero value is ready for use, by several goroutines.
type Learned struct {
	mu   sync.Mutex
	seen map[Print]*list.Element
	used list.List // of *lesson, the one that was used last in front
}

type lesson struct {
	of, shape Print // shape is zero for what has none
	Shown
	at time.Time
}

// Learn notes what an answer showed. Numbers that are none are not believed.
func (l *Learned) Learn(p Print, s Shown, now time.Time) { l.LearnBoth(p, Print{}, s, now) }

// LearnBoth is Learn for a text and its shape. A zero shape is the one that the text was learned
// with before, so that nobody needs to reckon it again: what a known text shows holds for others.
func (l *Learned) LearnBoth(text, shape Print, s Shown, now time.Time) {
	for _, f := range [...]float64{s.Series, s.Samples, s.Bytes, s.Seconds} {
		if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[Print]*list.Element{}
	}
	of := l.learn(text, s, now)
	if shape != (Print{}) {
		of.shape = shape
	}
	if of.shape != (Print{}) {
		l.learn(of.shape, s, now)
	}
}

// learn notes it of one of them. The caller holds l.mu.
func (l *Learned) learn(p Print, s Shown, now time.Time) *lesson {
	e := l.seen[p]
	if e == nil {
		fresh := &lesson{of: p, Shown: s, at: now}
		l.seen[p] = l.used.PushFront(fresh)
		if len(l.seen) > MaxLearned {
			last := l.used.Back()
			delete(l.seen, last.Value.(*lesson).of)
			l.used.Remove(last)
		}
		return fresh
	}
	l.used.MoveToFront(e)
	old := e.Value.(*lesson)
	keep := math.Exp2(-float64(max(now.Sub(old.at), 0)) / float64(HalfLife))
	old.Shown, old.at = s.beside(old.Shown, keep), now
	return old
}

// Look is what answers showed, if any did.
func (l *Learned) Look(p Print) (Shown, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.seen[p]
	if e == nil {
		return Shown{}, false
	}
	l.used.MoveToFront(e)
	return e.Value.(*lesson).Shown, true
}
