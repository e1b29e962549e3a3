package server

import (
	"context"
	"math"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// weights is what servers of shards are to hold of a plan, or of each of its pieces, where that was
// weighed. It does not change.
type weights map[*shard.Shard]weigh.Weight

// pieces is in how many pieces of time the query is to be asked, and what each of them weighs.
func (x *exchange) pieces(q plan.Query, p *plan.Plan) (n int, heavy weights, err error) {
	if n := min(x.s.divide, q.Grid.Len()); n > 1 && q.Divides(n) {
		return n, weights{}, nil
	}
	heavy = weights{}
	if bare {
		return 1, heavy, nil
	}
	scale := weigh.Scale{
		MaxBytes: x.strict.MaxShardBytes, MaxListBytes: x.limits.MaxResponseBytes, MaxRange: x.limits.MaxRange, Light: x.s.lightSeries,
		Interval: x.evaluationInterval(), Lookback: x.lookback(), LookbackDelta: x.dec.Request.LookbackDelta,
		Timeout: x.dec.Request.Timeout,
		Now:     x.view.Now().UnixMilli(), Tenant: x.tenantName(), Lane: x.lane, Known: &x.st.known, Ask: x.countAnswers,
		Discreet:  x.tenant.Narrow(),
		Unlearned: x.trial != nil, // which no estimate is to know of
		Held:      func(s *shard.Shard, w weigh.Weight) { heavy[s] = w },
	}
	if x.partial {
		scale.Patience = x.part
		scale.GiveUp = func(s *shard.Shard) error {
			if !x.mayLack(s) {
				return nil
			}
			return x.shardError(s, slow(question{shard: s}, errSlowShard))
		}
	}
	if n, err = x.lighter(scale.Pieces(x.ctx, q, p)); err == nil && !x.touchesFew() {
		err = x.touches(scale.Touched(x.ctx, q, p, x.strict.MaxSeriesTouched)) // by what was counted, too
	}
	return n, heavy, err
}

// touchesFew tells whether the estimate shows already that max_series_touched allows the request.
func (x *exchange) touchesFew() bool {
	e := x.foreseen.Load()
	if e == nil {
		return false
	}
	n, ok := e.Most()
	return ok && n <= int64(x.strict.MaxSeriesTouched)
}

// unweighed is the part of a shard's budget that a request counts for at most whose series were not
// counted: what shards say of their metrics is an upper bound, and where it mattered they were.
const unweighed = 4

// holds is what a shard's server is to hold of the request, all of its calls there together: as its
// series were counted, or else as it was estimated, and no more than all series of its metrics come
// to. 0 is not known: a guess, a thousand series for each selector, says nothing of them. No more
// is let through than max_shard_bytes, but where that is in shadow.
func (x *exchange) holds(s *shard.Shard) int64 {
	l := x.st.cfg.Limits
	w, ok := x.heavy[s]
	n := max(l.ShardBudget, l.MaxShardBytes) / unweighed
	if e := x.foreseen.Load(); e != nil && !e.Guessed {
		n = min(n, e.HeldBy(s))
	} else if !ok {
		return 0
	}
	if ok {
		n = max(w.Counted, min(n, w.Counted+w.Uncounted))
	}
	if x.inShadow(policy.BoundMaxShardBytes) {
		return n
	}
	return min(n, l.MaxShardBytes)
}

// evaluates tells whether the server evaluates what it is asked of the request, so that it holds
// what that comes to. What lists series is bounded by its window, its limit and its slots.
func (q *question) evaluates() bool { return !q.counts && q.req.ID.Evaluates() }

// countAnswers asks what is to be counted, and tells the largest number of each answer as it comes.
func (x *exchange) countAnswers(_ context.Context, asked []weigh.Question, found func(int, int64)) error {
	questions := make([]question, len(asked))
	for i, a := range asked {
		q := question{shard: a.Part.Shard, class: shard.Light, plain: true, part: i, from: a.Grid.Start, until: a.Grid.End, req: a.Request}
		if q.replicas = a.Part.Replicas; len(q.replicas) == 1 {
			q.replica, q.replicas = q.replicas[0], nil
		}
		q.counts, q.holds, q.needs = true, a.Holds, a.Needs
		questions[i] = q
	}
	x.s.metrics.counts.Add(float64(len(questions)))
	if t := x.trial; t != nil { // what is counted before is not what the candidate takes
		series, samples := x.budget.Series(), x.budget.Samples()
		defer func() {
			t.countedSeries += x.budget.Series() - series
			t.countedSamples += x.budget.Samples() - samples
		}()
	}
	r, err := x.askAndRead(questions, func(_ int, q *question, src merge.Source) error {
		i := q.part // a question may have been left out
		if asked[i].Request.ID.Decode() == endpoint.DecodeLabelSets {
			n, err := merge.CountSeries(x.ctx, src, asked[i].Request.Limit, x.limits.MaxResponseBytes)
			if err == nil {
				found(i, int64(n))
			}
			return err
		}
		t, _, err := merge.DecodeTable(x.ctx, src, asked[i].Grid, x.budget)
		if err != nil {
			return err
		}
		defer t.Close()
		most := int64(0)
		for _, s := range t.Series {
			for _, v := range s.Values {
				if v > float64(most) { // which no NaN is
					most = int64(min(v, math.MaxInt32))
				}
			}
		}
		found(i, most)
		return nil
	})
	if err != nil {
		return err
	}
	defer r.close()
	if r.broken != nil {
		return x.bodyError(r, r.broken)
	}
	return nil
}
