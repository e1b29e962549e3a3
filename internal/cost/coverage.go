package cost

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// sourceKey names one kube-state-metrics, whatever number of replicas it has: that of a cluster, or
// one of its shards.
type sourceKey struct{ cluster, shard string }

// source is one kube-state-metrics as the servers saw it.
type source struct {
	sourceKey
	replicas []*replica
	union    *replica // all replicas' scrapes as those of one
}

// replica is one process of a source.
type replica struct {
	name    string
	times   []int64         // of successful scrapes, ms, rising
	usual   int64           // the usual distance between two of the same server, ms
	streams []*stream       // by the servers that scrape it, where each has a part of its pods
	tried   map[string]bool // servers of which no scrape of a day was answered
}

// reading is how one window of one source is read.
type reading struct {
	chosen  map[string]bool // replicas whose samples count
	scrapes int             // theirs, in the window
	covered int64           // ms of the window that they stand for; 0 where scrapes is 0
	rate    float64         // samples that a pod has of them in a millisecond
}

// share is what one sample stands for, in ms.
func (r *reading) share() float64 {
	if r.rate == 0 {
		return 0
	}
	return 1 / r.rate
}

// settle sorts the times and works out the usual distance. A pause of up to maxGap counts as
// covered by the scrape before it; after a longer one that scrape stands for the usual distance
// only.
func (r *replica) settle(maxGap int64) error {
	slices.Sort(r.times)
	r.times = slices.Compact(r.times)
	if len(r.streams) > 1 {
		for _, s := range r.streams {
			if err := s.settle(maxGap); err != nil {
				return err
			}
			r.usual = max(r.usual, s.usual)
		}
		return nil
	}
	if len(r.times) < 2 {
		r.usual = min(maxGap, time.Minute.Milliseconds())
		return nil
	}
	gaps := make([]int64, len(r.times)-1)
	for i := range gaps {
		gaps[i] = r.times[i+1] - r.times[i]
	}
	slices.Sort(gaps)
	if r.usual = gaps[len(gaps)/2]; r.usual > maxGap {
		return fmt.Errorf("kube-state-metrics at %s is scraped every %s, and pauses over %s count as not covered: give a longer --max-gap", r.name,
			time.Duration(r.usual)*time.Millisecond, time.Duration(maxGap)*time.Millisecond)
	}
	return nil
}

// end is how far the i-th scrape stands for what came after it.
func (r *replica) end(i int, maxGap int64) int64 {
	if i+1 < len(r.times) && r.times[i+1]-r.times[i] <= maxGap {
		return r.times[i+1]
	}
	return r.times[i] + r.usual
}

// cover is how many scrapes lie in [from, to) and how much of it is covered. Where no scrape lies
// in it nobody can say what ran: then nothing is.
func (r *replica) cover(from, to, maxGap int64) (scrapes int, covered int64) {
	i, _ := slices.BinarySearch(r.times, from)
	if i > 0 {
		covered += max(0, min(r.end(i-1, maxGap), to)-from)
	}
	for ; i < len(r.times) && r.times[i] < to; i++ {
		covered += min(r.end(i, maxGap), to) - r.times[i]
		scrapes++
	}
	if scrapes == 0 {
		return 0, 0
	}
	return scrapes, covered
}

// settle settles the replicas and joins them. It tells of a replica that is scraped too rarely to
// cover anything.
func (s *source) settle(maxGap int64) error {
	u := &replica{}
	for _, r := range s.replicas {
		if err := r.settle(maxGap); err != nil {
			return err
		}
		u.times = append(u.times, r.times...)
		u.usual = max(u.usual, r.usual)
	}
	slices.Sort(u.times)
	s.union = u
	return nil
}

// alike is the part of a window by which the coverage of two replicas may differ and their samples
// still be counted together.
const alike = 100

// read chooses the replicas that saw most of a window.
func (s *source) read(w window, maxGap int64) reading {
	out := reading{chosen: map[string]bool{}}
	covered, scrapes, rate := make([]int64, len(s.replicas)), make([]int, len(s.replicas)), make([]float64, len(s.replicas))
	for i, r := range s.replicas {
		scrapes[i], covered[i], rate[i] = r.read(w.from, w.to, maxGap)
		out.covered = max(out.covered, covered[i])
	}
	for i, r := range s.replicas {
		if scrapes[i] > 0 && covered[i] >= out.covered-(w.to-w.from)/alike {
			out.chosen[r.name] = true
			out.scrapes += scrapes[i]
			out.rate += rate[i]
		}
	}
	return out
}

// slot is what an hour is cut into in which no replica saw all that they saw together: one was down
// in its first half, the other in its second.
const slot = int64(5 * time.Minute / time.Millisecond)

// refine cuts such hours into slots.
func refine(ws []window, sources []*source, maxGap int64) []window {
	var out []window
	for _, w := range ws {
		if w.to-w.from <= slot || !slices.ContainsFunc(sources, func(s *source) bool { return s.torn(w, maxGap) }) {
			out = append(out, w)
			continue
		}
		for from := w.from; from < w.to; from += slot {
			piece := w
			piece.from, piece.to = from, min(from+slot, w.to)
			out = append(out, piece)
		}
	}
	return out
}

func (s *source) torn(w window, maxGap int64) bool {
	if len(s.replicas) < 2 {
		return false
	}
	_, together := s.union.cover(w.from, w.to, maxGap)
	best := s.read(w, maxGap).covered
	return s.union.usual <= slot && together-best > max(s.union.usual, (w.to-w.from)/alike)
}

// Gap is a stretch of time in which a cluster was not covered: To is exclusive.
type Gap struct {
	Cluster string    `json:"cluster"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

// Hour is an hour (or what of it lies in the range) that was not covered as a whole.
type Hour struct {
	Cluster        string    `json:"cluster"`
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
	CoveredSeconds float64   `json:"covered_seconds"`
}

// gaps are the stretches of [from, to) that no replica of the source covers.
func (s *source) gaps(from, to, maxGap int64) [][2]int64 {
	u := s.union
	var out [][2]int64
	at := from
	for i, t := range u.times {
		if t > at && t < to {
			out = append(out, [2]int64{at, t})
		} else if t >= to {
			break
		}
		at = max(at, u.end(i, maxGap))
	}
	if at < to {
		out = append(out, [2]int64{at, to})
	}
	if s.split() {
		out = joined(append(out, s.lost(from, to, maxGap)...))
	}
	// What is left between two scrapes of a server with jitter is no gap.
	return slices.DeleteFunc(out, func(g [2]int64) bool { return g[1]-g[0] < u.usual })
}

// sortSources puts sources and replicas into an order that does not depend on the servers' answers.
func sortSources(sources []*source) {
	slices.SortFunc(sources, func(a, b *source) int {
		return strings.Compare(a.cluster+"\x00"+a.shard, b.cluster+"\x00"+b.shard)
	})
	for _, s := range sources {
		slices.SortFunc(s.replicas, func(a, b *replica) int { return strings.Compare(a.name, b.name) })
	}
}
