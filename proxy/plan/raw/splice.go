package raw

import (
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Replicas of a slice scrape the same targets at different moments, so their samples never share timestamps, and mixing them would double every rate's
// sample count. A splice therefore takes whole stretches of time from one copy:
//
//	base   x  x  x  x  .  .  .  .  x  x  x          a gap: longer than 1.5 intervals
//	other   o  o  o  o  o  o  o  o  o  o  o
//	result x  x  x  x o  o  o  o   x  x  x          segments: base, other, base
//
// The interval is the median distance of neighbouring samples over both copies. A gap also counts between a window edge and the first or last sample. A
// stale marker of the base at the edge of a gap that the other copy can fill is dropped: the base lost the target, the target did not end. Fewer than
// three samples in both copies together say nothing about an interval: all are taken.

// stamp is one sample's time, whether it is a stale marker, and the copy it would come from.
type stamp struct {
	t     int64
	stale bool
	from  int // index of the copy
}

// stamps decodes the time stamps of chunks within [lo, hi]. Damaged chunks are an error, never a shorter series.
func stamps(chunks []prompb.Chunk, lo, hi int64, from int, into []stamp) (out []stamp, err error) {
	defer func() {
		if p := recover(); p != nil { // chunk decoders index into the data they are given
			err = fmt.Errorf("damaged chunk: %v", p)
		}
	}()
	var it chunkenc.Iterator
	for i := range chunks {
		c := &chunks[i]
		if c.MaxTimeMs < lo || c.MinTimeMs > hi {
			continue
		}
		chk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, err
		}
		it = chk.Iterator(it)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			t := it.AtT()
			if t < lo || t > hi {
				continue
			}
			s := stamp{t: t, from: from}
			switch typ {
			case chunkenc.ValFloat:
				_, v := it.At()
				s.stale = value.IsStaleNaN(v)
			case chunkenc.ValHistogram, chunkenc.ValFloatHistogram:
				_, h := it.AtFloatHistogram(nil)
				s.stale = value.IsStaleNaN(h.Sum)
			}
			into = append(into, s)
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
	return into, nil
}

// interval is the median distance of neighbouring samples, stale markers left out, over both copies; 0 where there is no pair.
func interval(base, other []stamp) int64 {
	var d []int64
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
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[(len(d)-1)/2]
}

// splice fills the gaps of base with stretches of other, in the window [lo, hi]. Both are sorted by time; so is the result, without duplicate times.
func splice(base, other []stamp, lo, hi int64) []stamp {
	if len(other) == 0 {
		return base
	}
	if len(base) == 0 {
		return other
	}
	if len(base)+len(other) < 3 {
		return union(base, other)
	}
	iv := interval(base, other)
	isGap := func(from, to int64) bool { return float64(to-from) > 1.5*float64(iv) }

	out := make([]stamp, 0, max(len(base), len(other)))
	// fill appends what lies strictly between from and to: the other copy's stretch where the distance is a gap and that stretch has a real sample,
	// else the base's own stale markers.
	fill := func(from, to int64, markers []stamp) {
		if isGap(from, to) {
			l, _ := slices.BinarySearchFunc(other, from+1, func(s stamp, t int64) int { return cmp64(s.t, t) })
			r, _ := slices.BinarySearchFunc(other, to, func(s stamp, t int64) int { return cmp64(s.t, t) })
			if l < r && slices.ContainsFunc(other[l:r], func(s stamp) bool { return !s.stale }) {
				out = append(out, other[l:r]...)
				return
			}
		}
		out = append(out, markers...)
	}
	last := lo - 1 // the last real sample of base, or just before the window
	var markers []stamp
	for _, s := range base {
		if s.stale {
			markers = append(markers, s)
			continue
		}
		fill(last, s.t, markers)
		markers = markers[:0]
		out = append(out, s)
		last = s.t
	}
	fill(last, hi+1, markers)
	return out
}

// union merges two sorted runs; of two samples at one time the base's stays.
func union(base, other []stamp) []stamp {
	out := append(slices.Clone(base), other...)
	slices.SortStableFunc(out, func(a, b stamp) int { return cmp64(a.t, b.t) })
	return slices.CompactFunc(out, func(a, b stamp) bool { return a.t == b.t })
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

// runs turns spliced stamps into segments: maximal stretches from one copy. The first reaches back to lo and the last on to hi only as far as its own
// samples go, so that neighbouring slices can follow.
func runs(ss []stamp) []run {
	var out []run
	for _, s := range ss {
		if n := len(out); n > 0 && out[n-1].copy == s.from {
			out[n-1].until = s.t
			continue
		}
		out = append(out, run{copy: s.from, from: s.t, until: s.t})
	}
	return out
}

// run is a segment by the index of its copy.
type run struct {
	copy        int
	from, until int64
}
