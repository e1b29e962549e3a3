// Package seamref says a second time, one sentence after the other and as slowly as it likes, which
// samples of two copies of a series stand in an answer: the rules of proxy/plan/raw for tests that
// hold the proxy against them. It shares no code with it. Only tests import it.
//
// It refuses nothing: what it is given is taken to be sorted by time. Its memory is a small
// multiple of what it is given, its time the product of both lengths.
package seamref

import (
	"slices"
	"strings"
)

// Sample is one sample of a copy.
type Sample struct {
	// T is its time.
	T int64
	// Copy tells the copies apart.
	Copy int
	// Marker tells that it is a stale marker.
	Marker bool
	// Zero tells that its value is 0.
	Zero bool
	// Scrape is what its copy knows of the scrape that it comes from.
	Scrape Scrape
}

// Scrape is what is known of a scrape.
type Scrape int

// What can be known of one.
const (
	Unknown Scrape = iota
	Succeeded
	Failed
)

// Tell notes what the copy says of the scrapes of a series of the name: up is its series of up for
// the same target, nil where it has none.
func Tell(name string, series, up []Sample) []Sample {
	out := slices.Clone(series)
	for i := range out {
		if name == "up" {
			if !out[i].Marker && out[i].Zero {
				out[i].Scrape = Failed
			}
			continue
		}
		if !out[i].Marker && !strings.HasPrefix(name, "scrape_") {
			continue
		}
		for _, u := range up {
			if u.T == out[i].T && !u.Marker {
				out[i].Scrape = Succeeded
				if u.Zero {
					out[i].Scrape = Failed
				}
			}
		}
	}
	return out
}

// Rules are those that can be taken out, one by one, to see what each is worth. The zero value
// leaves all in.
type Rules struct {
	// Alone reads the base alone.
	Alone bool
	// Unite takes all samples of series that are too short.
	Unite bool
	// Close takes samples of the other copy however close to the base's they are.
	Close bool
	// LateEdges waits for one and a half intervals at the edges of the window too.
	LateEdges bool
	// Markers lets every stale marker of the base stand.
	Markers bool
	// NoMarkers lets none stand that the other copy contradicts, whatever its scrape was.
	NoMarkers bool
	// Before takes a copy that has samples before a marker, and then none, for one that goes on.
	Before bool
	// Dead believes every sample of up.
	Dead bool
	// Fillers drops the markers of the other copy.
	Fillers bool
}

// Splice is what stands of a base and another copy in a window, both ends of which belong to it.
func Splice(base, other []Sample, from, until int64) []Sample {
	return Rules{}.Splice(base, other, from, until)
}

// Splice is Splice without the rules that are taken out.
func (r Rules) Splice(base, other []Sample, from, until int64) []Sample {
	if r.Alone {
		return base
	}
	if len(base) == 0 {
		return other
	}
	if len(other) == 0 {
		return base
	}
	if count(base)+count(other) < 3 {
		if r.Unite {
			both := slices.Concat(base, other)
			slices.SortStableFunc(both, func(a, b Sample) int { return int(a.T - b.T) })
			return slices.CompactFunc(both, func(a, b Sample) bool { return a.T == b.T })
		}
		if count(other) > count(base) {
			return other
		}
		return base
	}
	interval := median(base, other)
	if !r.Dead {
		base, other = speaking(base, other, interval), speaking(other, base, interval)
	}

	// What stands of the base.
	var stands, dropped []Sample
	for _, b := range base {
		if b.Marker && !r.Markers && (b.Scrape != Succeeded || r.NoMarkers) && r.goesOn(other, b.T, until, interval) {
			dropped = append(dropped, b)
		} else {
			stands = append(stands, b)
		}
	}
	if len(stands) == 0 {
		return other
	}
	out := slices.Clone(stands)
	for _, o := range other {
		if r.fills(o, stands, dropped, from, until, interval) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Sample) int { return int(a.T - b.T) })
	return out
}

// fills tells whether a sample of the other copy stands.
func (r Rules) fills(o Sample, stands, dropped []Sample, from, until int64, interval float64) bool {
	var before, after *Sample
	for i := range stands {
		switch s := &stands[i]; {
		case s.T == o.T:
			return false
		case s.T < o.T:
			before = s
		case after == nil:
			after = s
		}
	}
	lost := slices.ContainsFunc(dropped, func(d Sample) bool {
		return before != nil && d.T > before.T && (after == nil || d.T < after.T)
	})
	edge := 1.1
	if r.LateEdges {
		edge = 1.5
	}
	missing := false
	switch {
	case before == nil:
		missing = float64(after.T-from) > edge*interval
	case after == nil:
		missing = float64(until-before.T) > edge*interval
	default:
		missing = float64(after.T-before.T) > 1.5*interval
	}
	if !missing && !lost {
		return false
	}
	if o.Marker && r.Fillers {
		return false
	}
	if o.Marker {
		return after == nil || after.Marker || float64(after.T-o.T) > 1.5*interval
	}
	return r.Close || (before == nil || float64(o.T-before.T) >= 0.5*interval) && (after == nil || float64(after.T-o.T) >= 0.5*interval)
}

// goesOn tells whether a copy has samples within one and a half intervals of a time, one of them
// later as far as the window reaches, and no marker.
func (r Rules) goesOn(copy []Sample, t, until int64, interval float64) bool {
	some, later := false, r.Before || float64(until-t) <= 1.5*interval
	for _, s := range copy {
		if d := float64(s.T - t); d <= 1.5*interval && -d <= 1.5*interval {
			if s.Marker {
				return false
			}
			some, later = true, later || s.T >= t
		}
	}
	return some && later
}

// speaking leaves out what a copy wrote of failed scrapes of a target that the other one reached
// before and after, as far as it looked within one and a half intervals.
func speaking(mine, theirs []Sample, interval float64) []Sample {
	return slices.DeleteFunc(slices.Clone(mine), func(m Sample) bool {
		if m.Marker || m.Scrape != Failed {
			return false
		}
		var before, after *Sample
		for i := range theirs {
			switch d := theirs[i].T - m.T; {
			case d < 0 && float64(-d) <= 1.5*interval:
				before = &theirs[i]
			case d >= 0 && float64(d) <= 1.5*interval && after == nil:
				after = &theirs[i]
			}
		}
		well := func(s *Sample) bool { return s == nil || !s.Marker && s.Scrape != Failed }
		return (before != nil || after != nil) && well(before) && well(after)
	})
}

// median is the middle distance between neighbouring samples of either copy.
func median(a, b []Sample) float64 {
	var d []int64
	for _, copy := range [][]Sample{a, b} {
		real := slices.DeleteFunc(slices.Clone(copy), func(s Sample) bool { return s.Marker })
		for i := range real {
			if i > 0 {
				d = append(d, real[i].T-real[i-1].T)
			}
		}
	}
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[(len(d)-1)/2])
}

func count(copy []Sample) int {
	n := 0
	for _, s := range copy {
		if !s.Marker {
			n++
		}
	}
	return n
}
