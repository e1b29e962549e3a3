package admit

import (
	"slices"
	"time"
)

// A lane that is First has calls that are short and that somebody waits for. While it has a place,
// the others get none, so that whatever its call needs besides, such as the processors of a machine
// that several servers share, is not given away meanwhile. Two things bound that: a call keeps
// others waiting for firstFor at most, however long it takes, and all of them for the lanes' share
// of the time, but for firstCredit. What is kept for a lane is its own in any case.

const (
	// firstFor is for how long a call of a lane that is First keeps others waiting.
	firstFor = int64(250 * time.Millisecond)
	// firstCredit is for how long such calls do beyond their lanes' share of the time. Once it is
	// used up they keep nobody waiting until it is all there again: so that others have stretches
	// in which places come together for who wants several.
	firstCredit = float64(time.Second)
	// mostFirst is the part of the time that is never others' share.
	mostFirst = 0.9
)

// firsts is what lanes that are First may still do.
type firsts struct {
	share  float64 // of the time; 0 where no lane is
	took   []int64 // since the gate's epoch: when their places were taken that are held, the last one last
	credit float64 // nanoseconds
	at     int64   // when that was reckoned
	spent  bool    // the credit was used up, and is not all there
	wake   *time.Timer
}

// set says which lanes there are now.
func (f *firsts) set(lanes []*lane) {
	if f.share = 0; f.at == 0 && f.took == nil {
		f.credit = firstCredit
	}
	for _, l := range lanes {
		if l.First {
			f.share += l.Share
		}
	}
	f.share = min(f.share, mostFirst)
}

// until is when the last of their calls ceases to keep others waiting.
func (f *firsts) until() int64 {
	if f.share == 0 || f.spent || len(f.took) == 0 {
		return 0
	}
	return f.took[len(f.took)-1] + firstFor
}

// reckonFirst reckons until now what lanes that are First may still do: to be called before anybody
// begins to wait, or ceases to. They keep nobody waiting who is one of theirs.
func (g *Gate) reckonFirst(now int64) {
	f := &g.first
	if f.share == 0 {
		return
	}
	waits := slices.ContainsFunc(g.lanes, func(l *lane) bool { return l.waiting > 0 && !l.First })
	f.credit += f.share * float64(now-f.at)
	if waits {
		f.credit -= float64(max(0, min(now, f.until())-f.at))
	}
	switch {
	case f.credit < 1:
		f.credit, f.spent = 0, true
	case f.credit >= firstCredit:
		f.credit, f.spent = firstCredit, false
	}
	f.at = now
}

// leave forgets a call that has left.
func (f *firsts) leave(took int64) {
	if i := slices.Index(f.took, took); i >= 0 {
		f.took = slices.Delete(f.took, i, i+1)
	}
}

// yields tells whether n more places of the lane have to wait, since one that is First has some. No
// clock is read where none has.
func (g *Gate) yields(l *lane, n int) bool {
	if l.First || l.held+n <= l.kept {
		return false
	}
	until := g.first.until()
	return until > 0 && g.now() < until
}

// rouse has the gate look again when those who wait for a lane that is First need not any more.
func (g *Gate) rouse(now int64) {
	f := &g.first
	until := f.until()
	if g.waiting == 0 || until <= now {
		return
	}
	left := min(float64(until-now), f.credit/(1-f.share)+1)
	if f.wake == nil {
		f.wake = time.AfterFunc(time.Duration(left), g.look)
		return
	}
	f.wake.Reset(time.Duration(left))
}

func (g *Gate) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting > 0 {
		g.dispatch(g.now())
	}
}
