package trust

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// slowJob is a job as one replica scrapes it: every so many seconds, each scrape as long as takes,
// of which the sample is there at its end with the time of its beginning.
type slowJob struct {
	name            string
	targets         int
	interval, takes float64
}

// heard is what one replica says at some second, tailLag before which the last minute ends. What it
// is cut off from since some second it scrapes in vain; what is gone since one it scrapes no more.
func heard(phases map[string][]float64, jobs []slowJob, now float64, cut, gone map[string]float64) Beats {
	b := Beats{jobs: map[string]beat{}, last: map[string]beat{}, wide: map[string]beat{}}
	end := now - tailLag.Seconds()
	for _, j := range jobs {
		for _, phase := range phases[j.name] {
			newest, seen := math.Inf(-1), map[float64]beat{}
			for at := phase + j.interval*math.Floor((end-phase)/j.interval); at > end-300; at -= j.interval {
				if since, is := gone[j.name]; at+j.takes > now || is && at >= since {
					continue
				}
				good := 1.0
				if since, is := cut[j.name]; is && at >= since {
					good = 0
				}
				if at > newest {
					newest = at
					b.last[j.name] = beat{b.last[j.name].series + 1, b.last[j.name].samples + good}
				}
				for _, window := range []float64{60, 300} {
					if at > end-window {
						seen[window] = beat{1, seen[window].samples + good}
					}
				}
			}
			for window, of := range map[float64]map[string]beat{60: b.jobs, 300: b.wide} {
				if n := seen[window]; n.series > 0 {
					of[j.name] = beat{of[j.name].series + 1, of[j.name].samples + n.samples}
				}
			}
		}
	}
	return b
}

// phasesOf draws when a replica scrapes each target.
func phasesOf(rng *rand.Rand, jobs []slowJob) map[string][]float64 {
	out := map[string][]float64{}
	for _, j := range jobs {
		for range j.targets {
			out[j.name] = append(out[j.name], rng.Float64()*j.interval)
		}
	}
	return out
}

// TestRareJobsAreNoLoss: jobs of few targets that are scraped every one to five minutes, or each
// minute for long, are in the last minute of one replica and not in another's by their phases. A
// pair with many of them has a whole replica all the same; one that is cut off from such a job, or
// has it no longer, is not whole for long, also where the other one lacks something by chance.
func TestRareJobsAreNoLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	asked, nobody := 0, 0
	for range 40 {
		jobs := []slowJob{{"node", 100 + rng.IntN(200), 30, 0.2}, {"ksm", 1, 60, 15 + 10*rng.Float64()}, {"snmp", 3, 120, 20}}
		for i := range rng.IntN(10) {
			interval := []float64{60, 90, 120, 180, 300}[rng.IntN(5)]
			jobs = append(jobs, slowJob{string(rune('a' + i)), 1 + rng.IntN(15), interval, 5 * rng.Float64()})
		}
		one, other := phasesOf(rng, jobs), phasesOf(rng, jobs)
		for now := 1000.0; now < 1600; now += 20 {
			asked++
			at := []Beats{heard(one, jobs, now, nil, nil), heard(other, jobs, now, nil, nil)}
			if judge(at, 3).whole(3) == 0 {
				nobody++
			}
		}
		for name, hurt := range map[string]slowJob{"the slow one": jobs[1], "the rare one": jobs[2]} {
			for what, since := range map[string][2]map[string]float64{
				"is cut off from":  {{hurt.name: 1000}, nil},
				"has no longer":    {nil, {hurt.name: 1000}},
				"is cut off, long": {{hurt.name: -1000}, nil},
			} {
				// Within two scrapes and what they take it is seen that they fail, within five
				// minutes that there are none.
				now := 1000 + hurt.interval + hurt.takes + tailLag.Seconds()
				if since[1] != nil {
					now = 1000 + 300 + tailLag.Seconds() + 1
				}
				at := []Beats{heard(one, jobs, now, since[0], since[1]), heard(other, jobs, now, nil, nil)}
				if got := judge(at, 3).whole(3); got&1 != 0 {
					t.Errorf("the first replica %s %s: whole are %02b", what, name, got)
				}
			}
		}
	}
	t.Logf("%d of %d times nobody is whole", nobody, asked)
	if nobody*50 > asked {
		t.Errorf("%d of %d times nobody is whole", nobody, asked)
	}
}
