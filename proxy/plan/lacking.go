package plan

import (
	"context"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/shard"
)

const (
	// seamMargin is how far around what a replica lacks the others are read: as far as two scrapes
	// of one target can be apart and still be one series to a query (Prometheus' lookback).
	seamMargin = 5 * time.Minute
	// maxLacking is how many stretches a shard's other replicas are read in at most: each is a
	// call, and a few minutes more of a call cost less.
	maxLacking = 8
)

// lackedBy are the stretches of the window in which that replica lacks what another one has, and
// whether that is known, with what is around them: the others are read there, and it alone outside.
// They are none where the others are to be read everywhere.
func lackedBy(ctx context.Context, s *shard.Shard, base *shard.Replica, from, until int64, now time.Time) (out []raw.Stretch, known bool) {
	lacks, known := s.Lacks(ctx, from, until, now)
	i := slices.IndexFunc(lacks, func(l shard.Lack) bool { return l.Replica == base })
	if !known || i < 0 {
		return nil, false
	}
	margin := seamMargin.Milliseconds()
	for _, l := range lacks[i].Spans {
		r := raw.Stretch{From: max(from, l.From-margin), Until: until}
		if l.Until < until-margin { // it may reach into the future
			r.Until = l.Until + margin
		}
		switch n := len(out); {
		case r.From > r.Until:
		case n > 0 && r.From <= out[n-1].Until+margin:
			out[n-1].Until = max(out[n-1].Until, r.Until)
		default:
			out = append(out, r)
		}
	}
	for len(out) > maxLacking {
		near := 1 // the pair that are nearest to each other
		for k := 2; k < len(out); k++ {
			if out[k].From-out[k-1].Until < out[near].From-out[near-1].Until {
				near = k
			}
		}
		out[near-1].Until = out[near].Until
		out = slices.Delete(out, near, near+1)
	}
	if len(out) == 1 && out[0] == (raw.Stretch{From: from, Until: until}) {
		return nil, true
	}
	return out, true
}
