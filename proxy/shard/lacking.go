package shard

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/trust"
)

// maxTold is how many replicas are told of in one sentence.
const maxTold = 3

// Shortfalls says for people what each replica that takes part lacks in the window, as far as that
// is known already: nobody is asked. Empty where nothing is lacking, or nothing known.
func (s *Shard) Shortfalls(from, until int64, now time.Time) string {
	if len(s.Replicas) < 2 || len(s.Replicas) > trust.MaxReplicas || s.Group.Heartbeat == "" || s.Thanos() || s.split.Load() {
		return ""
	}
	part := s.present(time.Now())
	w, ok := trust.WindowOf(from, until, now)
	if !ok || bits.OnesCount64(part) < 2 {
		return ""
	}
	var out []string
	more := 0
	for _, r := range s.Replicas {
		if part&(1<<r.Index) == 0 {
			continue
		}
		text := s.beats.Shortfall(r.Index, r.Name(), part, w)
		switch {
		case text == "":
		case len(out) == maxTold:
			more++
		default:
			out = append(out, text)
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more lack something too", more))
	}
	return strings.Join(out, "; ")
}

// shortfall says what the replica lacks since then.
func (r *Replica) shortfall(since, now time.Time) string {
	w, ok := trust.WindowOf(since.UnixMilli()+1, now.UnixMilli(), now)
	if !ok {
		return ""
	}
	return r.Shard.beats.Shortfall(r.Index, r.Name(), r.Shard.present(time.Now()), w)
}

// lacking is what the gauges have: since when the replica lacks something, in seconds since 1970, 0
// where it does not; and what share of another's scrapes failed on it.
func (r *Replica) lacking() (since, unreached float64) {
	if r.Index >= trust.MaxReplicas {
		return 0, 0
	}
	p := r.Shard.beats.Pulse(r.Index)
	if !p.Lacking.IsZero() {
		since = float64(p.Lacking.UnixMilli()) / 1000
	}
	return since, p.Unreached
}
