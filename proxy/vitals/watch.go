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
	// calmAfter is how many pages running must say that a server is better, of which each counts
	// that was asked for calmApart after the last one that did: several readings of one moment are
	// one.
	calmAfter = 3
	calmApart = 5 * time.Second
	// lateFor is for how long after the last page a server that had no memory left, and is too slow
	// to send another one, is taken to have none.
	lateFor = 10 * time.Minute
	// freshFor is for how long what was reachable when garbage was collected last says that a
	// server is sick. One that is short of memory collects all the time; where it has not for that
	// long, it has not even allocated what it had left.
	freshFor = 30 * time.Second
	// fullApart is how far apart two collections must have left a server sick for it to be full:
	// one query's peak has several, and is over soon.
	fullApart = time.Minute
	// sameStart is by how much the start of one process may seem to move, since some systems reckon
	// it from a clock that is corrected.
	sameStart = 5 * time.Second
	// mixedFor is for how long pages of several processes are not believed, from the last time on
	// that a younger one was followed by an older one.
	mixedFor = 5 * time.Minute
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
	// Mixed tells that several processes answer at the server's address, so that State is Unknown.
	Mixed bool

	until time.Time // from then on it is not known
}

// Watch is what has been learned of one server. The zero value has learned nothing. It is safe for
// concurrent use.
type Watch struct {
	mu         sync.Mutex
	now        Vitals
	configured int64     // the limit that now was judged by
	calm       int       // pages running that said better than the state
	calmed     time.Time // when the last of them was asked for
	collected  time.Time // by our clock: when a page first had the newest Collected
	full       int       // collections running that left it sick, so far apart
	filled     time.Time // when the first of them was seen
	mixed      time.Time // until then several processes answer
	least      [restParts]least
}

type least struct {
	part int64 // since 1970
	held int64
}

// Nothing is what is known of a server that was not asked.
func Nothing() Vitals {
	return Vitals{
		Sample: Sample{Resident: -1, Used: -1, Live: -1, Limit: -1, Queries: -1, MaxQueries: -1, Series: -1, Replay: -1},
		State:  Unknown, Held: -1, Of: -1, Rest: -1,
	}
}

// Now is what is known at that time of a server to which the configuration gives that limit; 0 is
// none.
func (w *Watch) Now(configured int64, now time.Time) Vitals {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.At.IsZero() || !now.Before(w.now.until) {
		return Nothing()
	}
	v := w.now
	if configured != w.configured { // the configuration is another one than when the page was read
		v.Held, v.Of = v.held(configured)
		v.State = judge(Unknown, v.Held, v.Of)
	}
	return v
}

// Late takes in that the server did not come to answer, at a time, as one that has no memory left
// may not. What is known of one that was busy or sick holds for that long from then, lateFor after
// its last page at most.
func (w *Watch) Late(holds time.Duration, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.State != Busy && w.now.State != Sick || !now.Before(w.now.until) {
		return
	}
	until := now.Add(holds)
	if last := w.now.At.Add(lateFor); until.After(last) {
		until = last
	}
	if until.After(w.now.until) {
		w.now.until = until
	}
}

// Forget takes in that the server is not there, or is not to be watched.
func (w *Watch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now, w.calm, w.full, w.collected, w.least = Vitals{}, 0, 0, time.Time{}, [restParts]least{}
}

// Saw takes in a page that was asked for at a time and holds for that long. configured is the limit
// that the configuration gives the server; 0 is none. It returns the state that follows.
func (w *Watch) Saw(s Sample, configured int64, holds time.Duration, now time.Time) (is State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := s.Started.Sub(w.now.Started) // by far where one of them is not known
	other := !w.now.At.IsZero() && moved.Abs() > sameStart
	if other && moved < 0 && !s.Started.IsZero() { // no process is followed by one that was started before it
		w.mixed = now.Add(mixedFor)
	}
	was := w.now.State
	if w.now.At.IsZero() || !now.Before(w.now.until) || other || configured != w.configured {
		was = Unknown
	}
	if other { // another process: what the one before held says nothing of it
		w.least = [restParts]least{}
	}
	fresh := other || !s.Collected.Equal(w.now.Collected) || w.collected.IsZero()
	if fresh {
		w.collected = now
	}
	v := Vitals{Sample: s, At: now, until: now.Add(holds), Mixed: now.Before(w.mixed)}
	v.Held, v.Of = s.held(configured)
	v.Rest = w.rest(v.Held, now)
	if v.Mixed {
		v.State = Unknown
	} else {
		switch sick := judge(was, v.Held, v.Of) == Sick; {
		case !sick || other:
			w.full = 0
		case w.full == 0:
			w.full, w.filled = 1, now
		case fresh && now.Sub(w.filled) >= fullApart:
			w.full++
		}
		// One query's peak is over soon. What two collections running have left there is not.
		stale := v.ofLast(configured) && !s.Collected.IsZero() && now.Sub(w.collected) >= freshFor && w.full < 2
		v.State = w.judge(was, v.Held, v.Of, stale, now)
	}
	w.now, w.configured = v, configured
	return v.State
}

// knows tells whether the server knows the limit that counts.
func (s *Sample) knows(configured int64) bool {
	return s.Limit > 0 && (configured <= 0 || s.Limit <= configured)
}

// ofLast tells whether what the server holds is what it held when it last collected garbage.
func (s *Sample) ofLast(configured int64) bool { return s.knows(configured) && s.Live >= 0 }

// held is what the server cannot give back, and what it may have at most.
func (s *Sample) held(configured int64) (held, of int64) {
	if s.knows(configured) && (s.Live >= 0 || configured <= 0) {
		return s.Live, s.Limit
	}
	of = configured
	if of <= 0 {
		of = -1
	}
	if s.Used >= 0 {
		return s.Used, of
	}
	return s.Resident, of
}

// Why says why the state is not known although the page was read; empty where it is.
func (v *Vitals) Why() string {
	switch {
	case v.At.IsZero() || v.State != Unknown:
		return ""
	case v.Mixed:
		return "several processes answer at its address, one after the other"
	case v.Of < 0:
		return "it has no memory limit that is known (GOMEMLIMIT, or memory_limit of the replica)"
	}
	return "its metrics do not tell how much memory it needs; with memory_limit of the replica what it holds in all is compared with that"
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

// judge is the state that follows from one. stale tells that what is held was so a while ago, which
// is no sign of a server that has no memory left.
func (w *Watch) judge(was State, held, of int64, stale bool, now time.Time) State {
	is := judge(was, held, of)
	if stale && is == Sick {
		is = Busy
	}
	if is != Unknown && worse(was, is) {
		if w.calm == 0 || now.Sub(w.calmed) >= calmApart {
			w.calm, w.calmed = w.calm+1, now
		}
		if w.calm < calmAfter {
			return was
		}
	}
	w.calm = 0
	return is
}

// judge is the state after one, as a page alone has it.
func judge(was State, held, of int64) State {
	if held < 0 || of <= 0 {
		return Unknown
	}
	share := float64(held) / float64(of)
	switch {
	case share >= SickFrom, was == Sick && share >= SickTo:
		return Sick
	case share >= BusyFrom, was == Busy && share >= BusyTo, was == Sick && share >= BusyTo:
		return Busy
	}
	return Sound
}

// worse tells whether the first is a worse state than the second.
func worse(a, b State) bool { return a == Sick && b != Sick || a == Busy && b == Sound }
