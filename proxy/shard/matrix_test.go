package shard

import (
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
	of := func(jobs []job, from, till float64) (b beats) {
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
		s, is := lacks(mine, all)
		if !is {
			t.Fatalf("from %g to %g away, and nothing is lacking: %+v", from, till, jobs)
		}
		last := 300 - 60*float64(s.ended-1)
		switch {
		case s.ended == 0:
			not++
		case last < till-jobs[0].interval*0.75 && last < till-15:
			t.Errorf("away until %g, told to end at %g: %+v", till, last, jobs)
		default:
			told++
		}
		// Of a job of 30 targets that are not reached all the time, the minutes show nothing.
		jobs[1] = job{name: "kubelet", targets: 30, interval: 15}
		all = of(jobs, 0, 0)
		jobs[1].cutFrom, jobs[1].cutTill = 0, 300
		if s, is = lacks(of(jobs, from, till), all); is && s.ended == 0 {
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
