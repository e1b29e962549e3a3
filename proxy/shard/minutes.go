package shard

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// What two replicas miss within the same five minutes, at different times, hides each other in sums
// of five minutes: of a pair that is restarted one after the other, the one that was away for less
// would seem to lack nothing. So the minutes of a bucket are looked at too, and those since the
// newest closed one, of all jobs together: of each job they would be five times the answer.

const (
	// openFresh is from when on the minutes since the newest closed bucket are asked for anew with
	// the last minute. Later than after a minute there would be some that neither tells of.
	openFresh = 45 * time.Second
	// maxDips is how many stretches of a piece are looked at minute by minute.
	maxDips = 4
)

// eachOpen calls f for the minutes that the window reaches into and no closed bucket has. The
// caller holds mu.
func (h *heartbeats) eachOpen(w buckets, f func(finding, Span)) {
	at := h.openAt.Add(-tailLag).UnixMilli()
	for k := maxSlices - 1; k >= 0; k-- {
		if s := (Span{at - int64(k+1)*minuteMs, at - int64(k)*minuteMs}); s.Until > w.last && s.Until > w.from {
			f(h.open[k], s)
		}
	}
}

// openStale tells whether the minutes before the last one are to be asked about anew. The caller
// holds mu.
func (h *heartbeats) openStale(part uint64, now time.Time) bool {
	return now.Sub(h.openAt) >= openFresh || h.open[0].asked&part != part
}

// askMinutes adds to the answers the minutes of the buckets that end in the run.
func (s *Shard) askMinutes(ctx context.Context, part uint64, answers []map[int64]beats, run Span) (left uint64, err error) {
	if bits.OnesCount64(part) < 2 {
		return part, nil
	}
	minutes, left, err := s.askAll(ctx, part, &endpoint.Request{
		ID: endpoint.QueryRange, Query: s.Group.minuteQuery(), Start: endpoint.At(run.From - bucketMs + minuteMs), End: endpoint.At(run.Until), Step: minuteMs * time.Millisecond,
	})
	if err != nil {
		return left, err
	}
	for i, a := range answers {
		if a == nil {
			continue
		}
		for end := run.From; end <= run.Until; end += bucketMs {
			at := a[end]
			for k := range bucketMs / minuteMs {
				minute := minutes[i][end-int64(k)*minuteMs]
				at.slices[k] = minute.all()
			}
			a[end] = at
		}
	}
	return left, nil
}

// dips are the buckets in which a replica that would be whole has itself missed half a scrape of
// each target or more, by how many it usually makes: another one may have missed others. Asked
// minute by minute all buckets of a month would take more than twice as long.
func dips(answers []map[int64]beats, part uint64, lo, hi int64) (runs []Span) {
	usual := make([]float64, len(answers)) // scrapes of a target in a bucket
	for i, a := range answers {
		var all []float64
		for end := lo; end <= hi; end += bucketMs {
			at := a[end]
			if n := at.all(); n.series > 0 {
				all = append(all, n.samples/float64(n.series))
			}
		}
		if slices.Sort(all); len(all) > 0 {
			usual[i] = all[len(all)/2]
		}
	}
	for end := lo; end <= hi; end += bucketMs {
		at := beatsAt(answers, end)
		whole, dip := judge(at, part).whole(part), false
		for i := range at {
			n := at[i].all()
			targets := float64(n.series)
			dip = dip || whole&(1<<i) != 0 && n.series >= minSlice && usual[i]*targets-n.samples >= targets/2
		}
		switch last := len(runs) - 1; {
		case !dip:
		case last >= 0 && (end-runs[last].Until <= 2*bucketMs || len(runs) == maxDips):
			runs[last].Until = end
		default:
			runs = append(runs, Span{end, end})
		}
	}
	return runs
}

// askOpen asks those taking part about the minutes up to t, milliseconds.
func (s *Shard) askOpen(ctx context.Context, part uint64, t int64, now time.Time) (left uint64, err error) {
	answers, left, err := s.askAll(ctx, part, &endpoint.Request{
		ID: endpoint.QueryRange, Query: s.Group.minuteQuery(), Start: endpoint.At(t - (maxSlices-1)*minuteMs), End: endpoint.At(t), Step: minuteMs * time.Millisecond,
	})
	if err != nil {
		return left, err
	}
	h := s.beats
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range maxSlices {
		at := make([]beats, len(answers))
		for i, a := range answers {
			minute := a[t-int64(k)*minuteMs]
			at[i].slices[k] = minute.all()
		}
		h.open[k] = judge(at, left)
	}
	h.openAt = now
	return left, nil
}
