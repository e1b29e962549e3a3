package cluster

import (
	"math"
	"math/bits"
	"sort"
)

// steps is a piecewise constant function of time: val[i] holds from at[i] until
// at[i+1], 0 before at[0]. It is how everything that starts and ends (pods,
// busy GPUs, troubles) reaches a curve. sum[i] is the integral up to at[i] in
// value-milliseconds, so that a counter fed by it is evaluated without walking
// it. Levels are multiples of 1/64 and times whole milliseconds: sums are exact,
// and a difference of two does not depend on where the window began.
type steps struct {
	at  []int64 // ms since the epoch, strictly rising
	val []float64
	sum []float64
}

// stepsFromDeltas builds steps out of unordered changes of level.
func stepsFromDeltas(deltas []delta) *steps {
	sort.Slice(deltas, func(i, j int) bool { return deltas[i].at < deltas[j].at })
	s := &steps{}
	level := 0.0
	for i := 0; i < len(deltas); {
		at := deltas[i].at
		for ; i < len(deltas) && deltas[i].at == at; i++ {
			level += deltas[i].by
		}
		s.push(at, level)
	}
	return s
}

type delta struct {
	at int64
	by float64
}

// push adds a level from time at on; at must be later than every earlier one.
func (s *steps) push(at int64, v float64) {
	n := len(s.at)
	sum := 0.0
	if n > 0 {
		if s.val[n-1] == v {
			return
		}
		sum = s.sum[n-1] + s.val[n-1]*float64(at-s.at[n-1])
	}
	s.at = append(s.at, at)
	s.val = append(s.val, v)
	s.sum = append(s.sum, sum)
}

// index is the last i with at[i] <= t, or -1.
func (s *steps) index(t int64) int {
	lo, hi := 0, len(s.at)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.at[mid] <= t {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

func (s *steps) level(t int64) float64 {
	if i := s.index(t); i >= 0 {
		return s.val[i]
	}
	return 0
}

// integral is in value-milliseconds.
func (s *steps) integral(t int64) float64 {
	i := s.index(t)
	if i < 0 {
		return 0
	}
	return s.sum[i] + s.val[i]*float64(t-s.at[i])
}

// process is what makes counters start again at zero: the start times, in ms,
// of one process or machine within the window a page was compiled for, with
// the last one before the window first.
type process struct{ starts []int64 }

func (p *process) startedAt(t int64) int64 {
	s := p.starts
	for i := len(s) - 1; i > 0; i-- {
		if s[i] <= t {
			return s[i]
		}
	}
	return s[0]
}

type kind uint8

const (
	constant kind = iota // base
	gauge                // base + amp*sin + k*level
	busy                 // base + level*(k + amp*sin): what a thing does only while used
	counter              // monotone integral of base (1/s), plus k times the integral of the steps
	since                // process start, seconds since the epoch
	now                  // the moment itself, or the last multiple of a before it, seconds since the epoch
	span                 // 1 from a until b, else 0
)

// curve is one series' value as a pure function of time: any moment, in any
// order, in O(log n) of its steps. Counters are integrals since the process
// started, so two callers who ask at different times agree.
type curve struct {
	kind  kind
	whole bool // counts things: rounded down
	// sentinel, if not zero, is the seed of the rare minutes in which the
	// exporter leaks a blank value instead of a reading.
	sentinel uint64
	base     float64
	amp      float64 // of the slow wave
	w, ph    float64 // rad/s, rad
	scale    float64 // of the whole, applied before rounding (a bucket's share); 0 means 1
	k        float64
	st       *steps
	pr       *process
	a, b     int64 // ms
	// over takes the curve's place while its level is not 0: what a trouble makes
	// of a reading.
	over *steps
	// Observations that a trouble adds to a histogram's bucket or count.
	also []observed
	// A counter shows plus right after its start, and its clock stands still
	// while hold is 1.
	plus float64
	hold *steps
}

// observed are observations, st of them a second, of which the share below lies in a bucket.
type observed struct {
	st    *steps
	below float64
}

// blankInt64 is what DCGM writes into a field that it could not read.
const blankInt64 = 9223372036854775794

func (c *curve) at(t int64) float64 {
	if c.sentinel != 0 && mix(c.sentinel^uint64(t/60000))%2880 == 0 {
		return blankInt64
	}
	if c.over != nil {
		if v := c.over.level(t); v != 0 {
			return v
		}
	}
	var v float64
	switch c.kind {
	case constant:
		return c.base
	case gauge:
		v = c.base
		if c.amp != 0 {
			v += c.amp * math.Sin(c.w*float64(t)/1000+c.ph)
		}
		if c.st != nil {
			v += c.k * c.st.level(t)
		}
	case busy:
		l := c.st.level(t)
		if v = c.base; l != 0 {
			v += l * (c.k + c.amp*math.Sin(c.w*float64(t)/1000+c.ph))
		}
	case counter:
		t0 := c.pr.startedAt(t)
		sec := float64(t-t0) / 1000
		if c.hold != nil {
			sec -= (c.hold.integral(t) - c.hold.integral(t0)) / 1000
		}
		if c.amp != 0 {
			// The wave's slope is at most half of base: the sum only rises.
			v = c.amp * (math.Cos(c.ph) - math.Cos(c.w*sec+c.ph))
		}
		v += c.base * sec
		more := c.plus
		if c.st != nil {
			more += c.k * (c.st.integral(t) - c.st.integral(t0)) / 1000
		}
		observed := 0.0
		for _, o := range c.also {
			observed += share((o.st.integral(t)-o.st.integral(t0))/1000, o.below)
		}
		switch {
		case c.whole && c.scale != 0:
			return share(v, c.scale) + math.Floor(more) + observed
		case c.whole:
			return math.Floor(v) + math.Floor(more) + observed
		case c.scale != 0:
			v *= c.scale
		}
		return v + more
	case since:
		return float64(c.pr.startedAt(t)) / 1000
	case now:
		if c.a != 0 {
			t -= t % c.a
		}
		return float64(t) / 1000
	case span:
		if t >= c.a && t < c.b {
			return 1
		}
		return 0
	}
	if c.scale != 0 {
		v *= c.scale
	}
	if c.whole {
		return math.Round(v)
	}
	// Six significant digits at most: nobody measures a temperature to 1e-15,
	// and pages and chunks shrink by half.
	return round6(v)
}

// share is how many of the first n observations lie below the quantile q. Each observation has a
// place of its own between 0 and 1, the same for all buckets (van der Corput's sequence, which
// spreads them evenly), so a bucket never gains an observation that a larger one does not: rates of
// buckets rise with le as those of a real histogram do, which rounding each bucket by itself would
// not give.
func share(n, q float64) float64 {
	if q >= 1 {
		return math.Floor(n)
	}
	const one = 1 << 62
	var (
		left  = uint64(max(n, 0))
		limit = uint64(q * one)
		first uint64 // of the block, and offset is its place
		count uint64
	)
	for left > 0 {
		j := bits.Len64(left) - 1 // a block of 2^j observations has one in each 2^-j of the line
		offset := bits.Reverse64(first) >> 2
		if limit > offset {
			width := uint64(one) >> j
			count += min((limit-offset+width-1)/width, 1<<j)
		}
		first += 1 << j
		left -= 1 << j
	}
	return float64(count)
}

func round6(v float64) float64 {
	if v == 0 {
		return 0
	}
	m := math.Pow10(5 - int(math.Floor(math.Log10(math.Abs(v)))))
	return math.Round(v*m) / m
}

// mix is the finaliser of splitmix64: the one source of chance in the model.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// hash folds numbers and strings into one number; the order matters.
func hash(seed uint64, parts ...uint64) uint64 {
	h := mix(seed)
	for _, p := range parts {
		h = mix(h ^ p)
	}
	return h
}

func hashString(seed uint64, s string) uint64 {
	h := seed ^ 0xcbf29ce484222325
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// between maps a hash to [lo, hi).
func between(h uint64, lo, hi float64) float64 { return lo + (hi-lo)*unit(h) }
