package raw

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/seamref"
)

// TestSpliceAgainstTheRules holds splices of random copies against the same rules written down a
// second time.
func TestSpliceAgainstTheRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 2))
	told := func(ss []stamp) []seamref.Sample {
		out := make([]seamref.Sample, len(ss))
		for i, s := range ss {
			out[i] = seamref.Sample{T: s.t, Copy: int(s.from), Marker: s.stale, Zero: s.failed}
			switch {
			case s.sure:
				out[i].Scrape = seamref.Succeeded
			case s.failed:
				out[i].Scrape = seamref.Failed
			}
		}
		return out
	}
	filled := 0
	for range 5000 {
		base, other := randomCopy(rng, 0), randomCopy(rng, 1)
		base, other = base[:rng.IntN(len(base)+1)], other[rng.IntN(len(other)+1):]
		lo, hi := rng.Int64N(600), 3000+rng.Int64N(600)
		within := func(s stamp) bool { return s.t < lo || s.t > hi }
		base, other = slices.DeleteFunc(base, within), slices.DeleteFunc(other, within)
		got, want := told(new(splicer).splice(base, other, lo, hi)), seamref.Splice(told(base), told(other), lo, hi)
		if !slices.Equal(got, want) {
			t.Fatalf("window [%d, %d]\nbase  %s\nother %s\ngot  %v\nwant %v", lo, hi, printStamps(base), printStamps(other), got, want)
		}
		if slices.ContainsFunc(got, func(s seamref.Sample) bool { return s.Copy == 0 }) &&
			slices.ContainsFunc(got, func(s seamref.Sample) bool { return s.Copy == 1 }) {
			filled++
		}
	}
	if filled < 2000 {
		t.Errorf("only %d splices have samples of both", filled)
	}
}
