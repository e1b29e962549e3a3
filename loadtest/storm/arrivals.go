package storm

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// maxRate is how many requests a second one part may send.
const maxRate = 5000

// arrivals are the moments, counted from the beginning, at which a part's arrivals are due in a
// stretch of time: by a Poisson process, or evenly.
func (p Part) arrivals(seed uint64, length time.Duration, evenly bool) (at []time.Duration) {
	begin, end := p.From*length.Seconds(), p.Until*length.Seconds()
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Name)) // another part's arrivals do not move when one is added
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	gap := func() float64 {
		if evenly {
			return 1 / p.Rate
		}
		return r.ExpFloat64() / p.Rate
	}
	for t := begin + gap(); t < end; t += gap() {
		at = append(at, time.Duration(t*float64(time.Second)))
	}
	return at
}
