package raw

import (
	"math"
	"slices"
)

// Replicas of a slice scrape the same targets at different moments, so their samples never share
// timestamps, and mixing them would double every rate's sample count. A splice therefore takes
// whole stretches of time from one copy:
//
//	base   x  x  x  x  .  .  .  .  x  x  x          a gap: longer than 1.5 intervals
//	other   o  o  o  o  o  o  o  o  o  o  o
//	result x  x  x  x   o  o  o  o x  x  x          segments: base, other, base
//
// The interval is the median distance of neighbouring samples over both copies. Between an edge of
// the window and the first or last sample more than 1.1 intervals are a gap. Of the other copy what
// lies closer than half an interval to a sample of the base is left out.
//
// A series lives while one copy says so. A stale marker of the base from a scrape that succeeded
// stands; any other stands unless the other copy goes on around and after it: then it is left out,
// and the other copy is read until the base's next sample. Markers within what is filled in stand,
// unless the base goes on within one and a half intervals.
//
// A sample of up, or of what else a scrape that failed leaves behind, says nothing where the other
// copy reached the target at the same time: it counts as missing.
//
// A series with fewer than three samples in both copies together, which say nothing about an
// interval, is taken from the one that has more.

// stamp is what a splice knows of one sample.
type stamp struct {
	t      int64
	from   int32 // index of the copy
	nth    int32 // place among the copy's own
	stale  bool  // a stale marker
	sure   bool  // of a marker: its scrape succeeded
	failed bool  // of a sample of up and its like: its scrape failed
}

// seam is how far from each other samples of one series are.
type seam struct{ interval float64 }

// gap tells whether something is missing between two samples, edge whether between a sample and an
// edge of the window, close whether two samples of different copies are too near.
func (s seam) gap(d int64) bool   { return float64(d) > 1.5*s.interval }
func (s seam) edge(d int64) bool  { return float64(d) > 1.1*s.interval }
func (s seam) close(d int64) bool { return float64(d) < 0.5*s.interval }

// splicer has the room that splices take, for one after the other. The zero value is ready for use.
type splicer struct {
	out   [2][]stamp // of the last one, which may be the base of the next, and of the next
	apart []int64
}

// splice fills the gaps of base with stretches of other, in the window [lo, hi]. Both are sorted by
// time; so is the result, without duplicate times. It stands until the call after the next, and may
// be one of the two.
func (sp *splicer) splice(base, other []stamp, lo, hi int64) []stamp {
	switch {
	case len(other) == 0:
		return base
	case len(base) == 0:
		return other
	}
	if a, b := samples(base), samples(other); a+b < fewest {
		if b > a {
			return other
		}
		return base
	}
	s := seam{sp.interval(base, other)}
	base, other = s.reached(base, other), s.reached(other, base)

	out := sp.out[1][:0]
	defer func() { sp.out = [2][]stamp{out, sp.out[0]} }()
	var (
		last  stamp // what was taken of the base before
		begun bool
		lost  bool // a marker that does not stand followed it
	)
	for _, b := range base {
		if b.stale && !b.sure && s.goesOn(b.t, hi, other) {
			lost = true
			continue
		}
		switch {
		case !begun && s.edge(b.t-lo):
			out = s.fill(out, other, nil, &b)
		case begun && (lost || s.gap(b.t-last.t)):
			out = s.fill(out, other, &last, &b)
		}
		out = append(out, b)
		last, begun, lost = b, true, false
	}
	switch {
	case !begun:
		return other
	case lost || s.edge(hi-last.t):
		out = s.fill(out, other, &last, nil)
	}
	return out
}

// goesOn tells whether the other copy has samples around a time, and nothing else. One that has
// none after it has stopped too, unless the window ends before its next one is due.
func (s seam) goesOn(t, hi int64, other []stamp) bool {
	n, later := 0, !s.gap(hi-t)
	for i := search(other, t-int64(1.5*s.interval)); i < len(other) && float64(other[i].t-t) <= 1.5*s.interval; i++ {
		if other[i].stale {
			return false
		}
		n, later = n+1, later || other[i].t >= t
	}
	return n > 0 && later
}

// fill appends what other holds between two of the base's entries; nil is an edge of the window.
func (s seam) fill(out, other []stamp, after, before *stamp) []stamp {
	i := 0
	if after != nil {
		i = search(other, after.t+1)
	}
	for ; i < len(other) && (before == nil || other[i].t < before.t); i++ {
		o := other[i]
		if o.stale {
			if before != nil && !before.stale && !s.gap(before.t-o.t) {
				continue
			}
		} else if after != nil && s.close(o.t-after.t) || before != nil && s.close(before.t-o.t) {
			continue
		}
		out = append(out, o)
	}
	return out
}

// reached leaves out the samples of failed scrapes of a target that the other copy reached just
// before and after, as far as it looked.
func (s seam) reached(mine, other []stamp) []stamp {
	if !slices.ContainsFunc(mine, func(m stamp) bool { return m.failed }) {
		return mine
	}
	out := make([]stamp, 0, len(mine))
	for _, m := range mine {
		if !m.failed || !s.reachedAt(m.t, other) {
			out = append(out, m)
		}
	}
	return out
}

func (s seam) reachedAt(t int64, other []stamp) bool {
	i := search(other, t)
	before, after := i > 0 && !s.gap(t-other[i-1].t), i < len(other) && !s.gap(other[i].t-t)
	well := func(o stamp) bool { return !o.stale && !o.failed }
	return (before || after) && (!before || well(other[i-1])) && (!after || well(other[i]))
}

// search is the place of the first stamp at t or later.
func search(ss []stamp, t int64) int {
	i, _ := slices.BinarySearchFunc(ss, t, func(s stamp, t int64) int { return cmp64(s.t, t) })
	return i
}

// samples counts what is no stale marker.
func samples(ss []stamp) int {
	n := 0
	for _, s := range ss {
		if !s.stale {
			n++
		}
	}
	return n
}

// interval is the median distance of neighbouring samples, stale markers left out, over both
// copies; 0 where there is no pair.
func (sp *splicer) interval(base, other []stamp) float64 {
	d := sp.apart[:0]
	for _, ss := range [][]stamp{base, other} {
		last := int64(math.MinInt64)
		for _, s := range ss {
			if s.stale {
				continue
			}
			if last != math.MinInt64 {
				d = append(d, s.t-last)
			}
			last = s.t
		}
	}
	if sp.apart = d; len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[(len(d)-1)/2])
}

func cmp64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// runs turns spliced stamps into segments: maximal stretches of which a copy's every sample is
// taken.
func runs(ss []stamp) []run {
	var out []run
	for i, s := range ss {
		if i > 0 && ss[i-1].from == s.from && ss[i-1].nth+1 == s.nth {
			out[len(out)-1].until = s.t
			continue
		}
		out = append(out, run{copy: int(s.from), from: s.t, until: s.t})
	}
	return out
}

// run is a segment by the index of its copy.
type run struct {
	copy        int
	from, until int64
}
