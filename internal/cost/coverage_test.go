package cost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// every is a replica scraped each step seconds from a to b, both in seconds, b exclusive.
func every(name string, step, a, b int64) *replica {
	r := &replica{name: name}
	for t := a; t < b; t += step {
		r.times = append(r.times, t*1000)
	}
	return r
}

func (r *replica) and(o *replica) *replica {
	r.times = append(r.times, o.times...)
	return r
}

func sourceOf(t *testing.T, maxGap int64, rs ...*replica) *source {
	t.Helper()
	s := &source{replicas: rs}
	if err := s.settle(maxGap); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCoverage: hours from second 0 to 7200, scraped each minute where nothing else is said; pauses
// of up to 300 s count as covered.
func TestCoverage(t *testing.T) {
	const maxGap = 300_000
	w := func(a, b int64) window { return window{from: a * 1000, to: b * 1000} }
	for _, c := range []struct {
		name     string
		replicas []*replica
		w        window
		chosen   []string
		scrapes  int
		covered  int64 // seconds
	}{
		{"whole", []*replica{every("a", 60, -30, 7200)}, w(0, 3600), []string{"a"}, 60, 3600},
		{"two replicas", []*replica{every("a", 60, -30, 7200), every("b", 60, -10, 7200)}, w(0, 3600), []string{"a", "b"}, 120, 3600},
		{"the better of two", []*replica{every("a", 60, -30, 7200), every("b", 60, -10, 1790)}, w(0, 3600), []string{"a"}, 60, 3600},
		{"nothing", []*replica{every("a", 60, -600, -300)}, w(0, 3600), nil, 0, 0},
		{"nothing in it, though the one before reaches into it", []*replica{every("a", 60, -600, 0)}, w(0, 3600), nil, 0, 0},
		{
			"a pause that is bridged",
			[]*replica{every("a", 60, -30, 1000).and(every("a", 60, 1230, 7200))},
			w(0, 3600),
			[]string{"a"},
			57,
			3600,
		},
		{"a gap", []*replica{every("a", 60, -30, 990).and(every("a", 60, 1770, 7200))}, w(0, 3600), []string{"a"}, 47, 3600 - (1770 - 990)},
		{"its end is not there yet", []*replica{every("a", 60, -30, 1770)}, w(0, 3600), []string{"a"}, 29, 1770},
		{"its begin neither", []*replica{every("a", 60, 1800, 7200)}, w(0, 3600), []string{"a"}, 30, 1800},
		{"seven minutes", []*replica{every("a", 60, -30, 7200)}, w(0, 420), []string{"a"}, 7, 420},
		{"rare scrapes", []*replica{every("a", 290, -100, 9000)}, w(0, 3600), []string{"a"}, 12, 3600},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := sourceOf(t, maxGap, c.replicas...).read(c.w, maxGap)
			if got := sortedKeys(r.chosen); !slices.Equal(got, c.chosen) || r.scrapes != c.scrapes || r.covered != c.covered*1000 {
				t.Errorf("%v, %d scrapes, %d ms; not %v, %d, %d s", got, r.scrapes, r.covered, c.chosen, c.scrapes, c.covered)
			}
		})
	}
	slow := every("a", 600, 0, 9000)
	if err := (&source{replicas: []*replica{slow}}).settle(maxGap); err == nil {
		t.Error("scrapes each 10 minutes with --max-gap=5m are nothing but gaps, and nobody says so")
	}
}

// TestRefine: an hour whose halves were seen by different replicas is read in pieces, and so as a
// whole; others stay hours.
func TestRefine(t *testing.T) {
	const maxGap = 300_000
	a := every("a", 60, -600, 3600).and(every("a", 60, 5400, 10800))
	b := every("b", 60, -590, 5400).and(every("b", 60, 9000, 10800))
	s := sourceOf(t, maxGap, a, b)
	ws := []window{{from: 0, to: 3600_000}, {from: 3600_000, to: 7200_000, hour: 1}, {from: 7200_000, to: 10800_000, hour: 2}}
	out := refine(ws, []*source{s}, maxGap)
	if len(out) != 14 || out[0] != ws[0] || out[13] != ws[2] {
		t.Fatalf("refined to %v", out)
	}
	covered := int64(0)
	for _, w := range out[1:13] {
		if w.hour != 1 || w.to-w.from != slot {
			t.Errorf("a piece is %+v", w)
		}
		r := s.read(w, maxGap)
		covered += r.covered
	}
	if covered < 3600_000-60_000 {
		t.Errorf("%d ms of the hour are covered", covered)
	}
	if g := s.gaps(0, 10800_000, maxGap); len(g) != 0 {
		t.Errorf("together they have the gaps %v", g)
	}
}

func TestGaps(t *testing.T) {
	const maxGap = 300_000
	s := sourceOf(t, maxGap, every("a", 60, 600, 3600).and(every("a", 60, 7200, 9000)))
	want := [][2]int64{{0, 600_000}, {3600_000, 7200_000}, {9000_000, 10800_000}}
	if got := s.gaps(0, 10800_000, maxGap); !slices.Equal(got, want) {
		t.Errorf("gaps %v, not %v", got, want)
	}
}

// TestApportion: rounded parts add up to the rounded whole, and none is further than one from what
// it was.
func TestApportion(t *testing.T) {
	seed := randseed.Of(t, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		vs := make([]float64, rng.IntN(40))
		sum := 0.0
		for i := range vs {
			vs[i] = rng.Float64() * math.Pow(10, float64(rng.IntN(7)))
			sum += vs[i]
		}
		given := int64(0)
		for i, n := range apportion(vs) {
			given += n
			if math.Abs(float64(n)-vs[i]) >= 1 {
				t.Fatalf("seed %d: %v became %d", seed, vs[i], n)
			}
		}
		if given != int64(math.Round(sum)) {
			t.Fatalf("seed %d: the parts of %v add up to %d", seed, sum, given)
		}
	}
}
