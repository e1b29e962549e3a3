package vitals

import (
	"sync"
	"time"
)

// State is how a server is.
type State string

// The states. Unknown is no state to act on: nothing is known of the server's memory, or of its
// limit, or it was too long ago.
const (
	Unknown State = "unknown"
	Sound   State = "sound"
	Busy    State = "busy"
	Sick    State = "sick"
)

// States are all of them.
func States() []State { return []State{Unknown, Sound, Busy, Sick} }

// Parts of its limit that a server holds.
const (
	// BusyFrom is where it gets busy, BusyTo below what it no longer is.
	BusyFrom, BusyTo = 0.80, 0.75
	// SickFrom is where it gets sick, SickTo below what it no longer is.
	SickFrom, SickTo = 0.90, 0.85
)

const (
	// calmAfter is how many pages running must say that a server is better.
	calmAfter = 3
	// restFor is the time of which the least that a server held is what it holds at rest, restParts
	// in how many parts that is remembered.
	restFor, restParts = time.Hour, 12
)

// Vitals is what is known of a server at a time.
type Vitals struct {
	// Sample is the newest one; everything in it is -1 where none is known.
	Sample
	// State is what follows from it.
	State State
	// At is when the server was asked; zero: never.
	At time.Time
	// Held is the memory that the server cannot give back, Of what it may have at most, Rest the
	// least that it has held in the last hour; -1 is not known.
	Held, Of, Rest int64

	until time.Time // from then on it is not known
}

// Room is how much more the server may hold before it is sick; -1 is not known.
func (v *Vitals) Room() int64 {
	if v.Held < 0 || v.Of <= 0 {
		return -1
	}
	return max(0, int64(SickFrom*float64(v.Of))-v.Held)
}

// Watch is what has been learned of one server. The zero value has learned nothing. It is safe for
// concurrent use.
type Watch struct {
	mu    sync.Mutex
	now   Vitals
	calm  int // samples running that said better than the state
	least [restParts]least
}

type least struct {
	part int64 // since 1970
	held int64
}

// nothing is what is known of a server that was not asked.
func nothing() Vitals {
	return Vitals{
		Sample: Sample{Resident: -1, Used: -1, Live: -1, Limit: -1, Queries: -1, MaxQueries: -1, Series: -1, Replay: -1},
		State:  Unknown, Held: -1, Of: -1, Rest: -1,
	}
}

// Now is what is known at that time.
func (w *Watch) Now(now time.Time) Vitals {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.At.IsZero() || !now.Before(w.now.until) {
		return nothing()
	}
	return w.now
}

// Saw takes in a page that was asked for at a time and holds for that long. configured is the limit
// that the configuration gives the server; 0 is none. It returns the state before and after.
func (w *Watch) Saw(s Sample, configured int64, holds time.Duration, now time.Time) (was, is State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was = Unknown
	again := w.now.At.IsZero() || !now.Before(w.now.until) || !s.Started.Equal(w.now.Started)
	if !again {
		was = w.now.State
	}
	if !s.Started.Equal(w.now.Started) { // another process: what the one before held says nothing of it
		w.least = [restParts]least{}
	}
	v := Vitals{Sample: s, At: now, until: now.Add(holds)}
	v.Held, v.Of = s.held(configured)
	v.Rest = w.rest(v.Held, now)
	v.State = w.judge(was, v.Held, v.Of)
	w.now = v
	return was, v.State
}

// held is what the server cannot give back, and what it may have at most.
func (s *Sample) held(configured int64) (held, of int64) {
	of = configured
	if s.Limit > 0 && (of <= 0 || s.Limit <= of) {
		return s.Live, s.Limit
	}
	if of <= 0 {
		of = -1
	}
	for _, held = range []int64{s.Used, s.Resident} {
		if held >= 0 {
			break
		}
	}
	return held, of
}

// rest is the least that was held in the last hour.
func (w *Watch) rest(held int64, now time.Time) int64 {
	part := now.UnixNano() / int64(restFor/restParts)
	if l := &w.least[part%restParts]; held >= 0 && (l.part != part || held < l.held) {
		*l = least{part, held}
	}
	rest := int64(-1)
	for _, l := range w.least {
		if l.part > part-restParts && l.part <= part && (rest < 0 || l.held < rest) {
			rest = l.held
		}
	}
	return rest
}

// judge is the state that follows from one.
func (w *Watch) judge(was State, held, of int64) State {
	if held < 0 || of <= 0 {
		w.calm = 0
		return Unknown
	}
	share := float64(held) / float64(of)
	is := Sound
	switch {
	case share >= SickFrom, was == Sick && share >= SickTo:
		is = Sick
	case share >= BusyFrom, was == Busy && share >= BusyTo, was == Sick && share >= BusyTo:
		is = Busy
	}
	if worse(was, is) {
		if w.calm++; w.calm < calmAfter {
			return was
		}
	}
	w.calm = 0
	return is
}

// worse tells whether the first is a worse state than the second.
func worse(a, b State) bool { return a == Sick && b != Sick || a == Busy && b == Sound }
