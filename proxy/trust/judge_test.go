package trust

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// TestWhatLiesInMinutes: what a replica misses while it is away lies in minutes, whatever the
// phases and intervals of its targets are and however small a job is. Where a job is not reached
// for longer than that, some of it does not.
func TestWhatLiesInMinutes(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	type job struct {
		name             string
		targets          int
		interval         float64 // seconds
		cutFrom, cutTill float64 // it is not reached in between, besides
	}
	// of counts what one replica scrapes in the five minutes, away in between.
	of := func(jobs []job, from, till float64) (b Beats) {
		b.jobs = map[string]beat{}
		for _, j := range jobs {
			n := beat{series: int64(j.targets)}
			for range j.targets {
				for at := rng.Float64() * j.interval; at <= 300; at += j.interval {
					if at > from && at <= till || at > j.cutFrom && at <= j.cutTill {
						continue
					}
					k := int((300 - at) / 60)
					n.samples++
					b.slices[k].samples++
				}
			}
			for k := range 5 {
				b.slices[k].series += int64(j.targets)
			}
			b.jobs[j.name] = n
		}
		return b
	}
	told, not, seen, cut := 0, 0, 0, 0
	for range 2000 {
		jobs := []job{
			{name: "node", targets: 20 + rng.IntN(2000), interval: []float64{1, 15, 30}[rng.IntN(3)]},
			{name: "kubelet", targets: 1 + rng.IntN(60), interval: []float64{1, 10, 15, 60}[rng.IntN(4)]},
			{name: "proxy", targets: 1, interval: []float64{1, 5, 15, 30, 60}[rng.IntN(5)]},
		}
		from := rng.Float64() * 200
		till := from + 35 + rng.Float64()*60
		all, mine := of(jobs, 0, 0), of(jobs, from, till)
		s, is := lacks(mine, all, 0, nil)
		if !is {
			t.Fatalf("from %g to %g away, and nothing is lacking: %+v", from, till, jobs)
		}
		// What is missed after the minute in which it is told to end is no more than chance
		// explains: each target has one scrape more or less there, by its phase.
		last := 300 - 60*float64(s.ended-1)
		var targets int64
		missed := 0.0
		for _, j := range jobs {
			targets += int64(j.targets)
			missed += float64(j.targets) * (till - last) / j.interval
		}
		switch {
		case s.ended == 0:
			not++
		case missed > byChance(targets)+5*math.Sqrt(float64(targets))/2:
			t.Errorf("away until %g, told to end at %g, with %g scrapes missed after it: %+v", till, last, missed, jobs)
		default:
			told++
		}
		// Of a job of 30 targets that are not reached all the time, the minutes show nothing.
		jobs[1] = job{name: "kubelet", targets: 30, interval: 15}
		all = of(jobs, 0, 0)
		jobs[1].cutFrom, jobs[1].cutTill = 0, 300
		if s, is = lacks(of(jobs, from, till), all, 0, nil); is && s.ended == 0 {
			seen++
		} else if jobs[0].targets > 60 { // of few the job is the most, and its minutes show it
			cut++
		}
	}
	t.Logf("%d of %d gaps were told; %d of %d that hid a job that is not reached were not", told, told+not, seen, seen+cut)
	if not*100 > told {
		t.Errorf("%d gaps were not told to lie in minutes, of %d", not, told+not)
	}
	if cut > 0 {
		t.Errorf("%d times a job that is not reached was hidden by a gap", cut)
	}
}

// TestSinglesOfSmallJobs: of a hundred small jobs one always has a scrape fewer on the one replica,
// and another one on the other. That makes nobody less than whole; it does where somebody has both.
func TestSinglesOfSmallJobs(t *testing.T) {
	less := func(nodes int64, of map[string]float64) Beats {
		b := Beats{jobs: map[string]beat{"node": {nodes, float64(nodes) * 10}, "x": {1, 10}, "y": {1, 10}, "z": {2, 20}}}
		for job, n := range of {
			m := b.jobs[job]
			b.jobs[job] = beat{m.series, m.samples - n}
		}
		return b
	}
	failing := less(20, nil) // its newest scrape of x failed
	failing.last = map[string]beat{"x": {1, 0}}
	reaching := less(20, map[string]float64{"y": 1})
	reaching.last = map[string]beat{"x": {1, 1}}
	for _, tc := range []struct {
		name string
		a, b Beats
		want uint64
	}{
		{"nobody", less(20, nil), less(20, nil), 3},
		{"one scrape on each side", less(20, map[string]float64{"x": 1}), less(20, map[string]float64{"y": 1}), 3},
		{"one of several jobs", less(20, map[string]float64{"x": 1, "z": 1}), less(20, map[string]float64{"y": 1}), 3},
		{"one has both", less(20, map[string]float64{"x": 1}), less(20, nil), 2},
		{"two scrapes, and one", less(20, map[string]float64{"x": 2}), less(20, map[string]float64{"y": 1}), 2},
		{"two scrapes on each side", less(20, map[string]float64{"x": 2}), less(20, map[string]float64{"y": 2}), 0},
		{"half a scrape of the server", less(20, map[string]float64{"node": 10}), less(20, map[string]float64{"y": 1}), 2},
		{"a small server", less(8, map[string]float64{"x": 1}), less(8, map[string]float64{"y": 1}), 0},
		{"cut off from a target now", failing, reaching, 2},
	} {
		if got := judge([]Beats{tc.a, tc.b}, 3).whole(3); got != tc.want {
			t.Errorf("%s: whole are %02b, want %02b", tc.name, got, tc.want)
		}
	}
}

// TestEndedOfAll: what ends before now of one replica's advantage, and is not known to end of
// another one's, is not known to end.
func TestEndedOfAll(t *testing.T) {
	full := Beats{jobs: map[string]beat{"node": {20, 200}}}
	for k := range 5 {
		full.slices[k] = beat{20, 40}
	}
	away := full // in the third minute from the end
	away.jobs = map[string]beat{"node": {20, 160}}
	away.slices[2].samples = 0
	more := full
	more.jobs = map[string]beat{"node": {20, 200}, "dcgm": {20, 200}}
	if s := judge([]Beats{away, full}, 3).less[0]; s.ended != 3 {
		t.Fatalf("beside one replica it ends with minute %d, want 3", s.ended)
	}
	for _, at := range [][]Beats{{away, full, more}, {away, more, full}} {
		if s := judge(at, 7).less[0]; s.ended != 0 {
			t.Errorf("beside one that has a job more it ends with minute %d", s.ended)
		}
	}
}
