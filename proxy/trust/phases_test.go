package trust

import (
	"math/rand/v2"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// phased is a job whose interval need not divide a bucket.
type phased struct {
	name     string
	targets  int
	interval float64 // seconds
}

// scraped counts what one replica scrapes of the jobs in so many buckets, each target at a phase of
// its own. It misses one scrape of each target of some jobs, from some second on.
func scraped(rng *rand.Rand, jobs []phased, buckets int, missed map[string]float64) []Beats {
	out := make([]Beats, buckets)
	for i := range out {
		out[i].jobs = map[string]beat{}
	}
	for _, j := range jobs {
		for range j.targets {
			seen := -1
			for at := rng.Float64() * j.interval; at < float64(buckets)*300; at += j.interval {
				if from, is := missed[j.name]; is && at >= from && at < from+j.interval {
					continue
				}
				i := int(at / 300)
				b := out[i].jobs[j.name]
				if b.samples++; i != seen {
					b.series, seen = b.series+1, i
				}
				out[i].jobs[j.name] = b
			}
		}
	}
	return out
}

// TestPhasesAreNoGaps: of targets that are scraped every 45 seconds or two minutes, five minutes
// have a scrape more or less, by each target's phase, which is another one on each replica. Small
// jobs of that kind leave a pair with a whole replica; a scrape that one of them really missed, of
// all targets of a job, is still seen.
func TestPhasesAreNoGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	intervals := []float64{40, 45, 90, 120, 180}
	buckets, nobody, blind, hidden := 0, 0, 0, 0
	for range 200 {
		jobs := []phased{{"node", 100 + rng.IntN(1000), 30}, {"ksm", 3 + rng.IntN(12), 30}, {"etcd", 3 + rng.IntN(12), 15}}
		for i := range 2 + rng.IntN(8) {
			jobs = append(jobs, phased{string(rune('a' + i)), 1 + rng.IntN(15), intervals[rng.IntN(len(intervals))]})
		}
		one, other := scraped(rng, jobs, 20, nil), scraped(rng, jobs, 20, nil)
		// One scrape of each target: in bucket 10 each lacks a job of the other, and in bucket 9
		// the other one lacked as much.
		bad := scraped(rng, jobs, 20, map[string]float64{"ksm": 3000, "etcd": 2700})
		worse := scraped(rng, jobs, 20, map[string]float64{"ksm": 2700, "etcd": 3000})
		at := func(mine, other []Beats, i int) [][]Beats {
			var out [][]Beats
			for k := range maxPhases + 1 {
				out = append(out, []Beats{mine[i-k], other[i-k]})
			}
			return out
		}
		for i := maxPhases; i < 20; i++ {
			buckets++
			before := at(one, other, i)
			if judge(before[0], 3).whole(3) == 0 {
				blind++
			}
			if judge(before[0], 3, before[1:]...).whole(3) == 0 {
				nobody++
			}
		}
		if before := at(bad, worse, 10); judge(before[0], 3, before[1:]...).whole(3) != 0 {
			hidden++
		}
	}
	t.Logf("in %d buckets nobody is whole %d times, %d without what came before; a missed scrape is hidden %d times of 200", buckets, nobody, blind, hidden)
	if nobody*50 > buckets {
		t.Errorf("in %d of %d buckets nobody is whole", nobody, buckets)
	}
	if hidden > 0 {
		t.Errorf("a missed scrape of a job was hidden %d times of 200", hidden)
	}
}

// TestGapsAreNoPhases: a gap of some targets of a job is not taken for their phases, whatever the
// other replica missed before, where each has a scrape less of some job.
func TestGapsAreNoPhases(t *testing.T) {
	all := func(node, etcd, one float64) Beats {
		return Beats{jobs: map[string]beat{"node": {100, node}, "etcd": {3, etcd}, "one": {1, one}}}
	}
	full := all(2000, 60, 20)
	for missed := 2.0; missed <= 3; missed++ {
		for before := range 4 {
			at := []Beats{all(2000, 60-missed, 20), all(2000, 60, 19)}
			for place := range maxPhases {
				earlier := [][]Beats{{full, full}, {full, full}, {full, full}}
				earlier[place] = []Beats{full, all(2000, 60-float64(before), 20)}
				if got := judge(at, 3, earlier...).whole(3); got != 2 {
					t.Errorf("%g scrapes are missed, and %d by the other one %d buckets before: whole are %02b, want 10", missed, before, place+1, got)
				}
			}
		}
	}
}
