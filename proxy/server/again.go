package server

import (
	"errors"
	"slices"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Where a replica fails that has a copy, what is asked again is what was lost: of leaves, whose
// answers are gathered before anything is written, the one shard's part; of what is streamed, all.
// Both come out of the budgets that the shard and all requests have for asking again
// (shard.Shard.MayRetry).

// maxAgain is what starting again costs of that budget, however many shards it asks: a dashboard
// whose requests each meet several replicas that have just died could not be answered otherwise.
// What fails again in spite of it costs more (shard.Shard.Wasted).
const maxAgain = 4

// mayAskAgain tells whether so many calls may be made once more after a failure of the shard.
func (x *exchange) mayAskAgain(s *shard.Shard, calls int) bool {
	return s.MayRetry(min(calls, maxAgain))
}

// askedInVain counts a failure of what was asked once more because replicas of the shard had
// failed.
func (x *exchange) askedInVain(s *shard.Shard, err error) {
	if s != nil && qerr.From(err).Kind == qerr.ShardFailed && !errors.Is(err, plan.ErrLacked) {
		s.Wasted(err)
	}
}

// shardOf is the shard whose replicas were lost; nil where there is none.
func (x *exchange) shardOf(lost *answer.LostReplica) *shard.Shard {
	if lost == nil {
		return nil
	}
	for _, name := range lost.Names {
		if r := x.st.top.Replica(name); r != nil {
			return r.Shard
		}
	}
	return nil
}

// lostQuestion is a question whose replicas, those named, failed.
type lostQuestion struct {
	question
	failed []string
	err    error
}

// replaceable tells whether another whole replica of the question's shard can be asked what this
// one failed to answer.
func (x *exchange) replaceable(q question, err error) bool {
	if x.ctx.Err() != nil || errors.Is(err, errSibling) || qerr.From(err).Kind != qerr.ShardFailed {
		return false
	}
	return x.instead(q, q.names()) != nil
}

// instead is the replica to ask in place of those that failed, if it can answer as well whatever
// else its shard is asked; nil where there is none.
func (x *exchange) instead(q question, failed []string, all ...question) *shard.Replica {
	if len(q.wholes) < 2 {
		return nil
	}
	usable, err := q.shard.Usable()
	if err != nil {
		return nil
	}
	for _, r := range q.wholes {
		done := slices.Contains(failed, r.Name()) || x.givenUp(r)
		lacks := func(o question) bool { return o.shard == q.shard && !slices.Contains(o.wholes, r) }
		if !done && slices.Contains(usable, r) && !slices.ContainsFunc(all, lacks) {
			return r
		}
	}
	return nil
}

// avoids tells whether the replica has failed: in an attempt before, or in this one, where others
// answer in its place.
func (x *exchange) avoids(r *shard.Replica) bool {
	return x.attempt.Avoids(r.Name()) || slices.Contains(x.replaced, r.Name()) || x.failing.has(r.Name())
}

// repeated is how many calls another attempt would make again.
func (x *exchange) repeated() int { return max(1, x.asked+int(x.reads.Load())) }

// restart begins the next attempt, without those that failed in this one where another replica is
// left for each.
func (x *exchange) restart(next answer.Attempt) {
	next = next.Avoiding(x.replaced...)
	for _, name := range x.failing.take() {
		r := x.st.top.Replica(name)
		if r != nil && slices.ContainsFunc(r.Shard.Replicas, func(o *shard.Replica) bool { return o != r && !next.Avoids(o.Name()) }) {
			next = next.Avoiding(name)
		}
	}
	x.attempt, x.replaced = next, nil
}

// givenUp tells whether nothing more is to be asked of the replica in this attempt.
func (x *exchange) givenUp(r *shard.Replica) bool {
	return x.avoids(r) || slices.Contains(x.spared, r.Name())
}

// spares tells whether a replica of the shard was not asked since it has no memory left.
func (x *exchange) spares(s *shard.Shard) bool {
	return slices.ContainsFunc(s.Replicas, func(r *shard.Replica) bool { return slices.Contains(x.spared, r.Name()) })
}

// part is what a shard answered to a question for a leaf.
type part struct {
	asked  question
	table  *merge.Table
	result merge.Result
}

func closeParts(parts []part) {
	for _, p := range parts {
		if p.table != nil {
			p.table.Close()
		}
	}
}

// parts asks for all leaves at once. Where a replica fails, its shard's part is asked of another
// one, all of it, since no two replicas hold the same samples; what the other shards answered
// stays.
func (x *exchange) parts(p *plan.Plan) (out []part, err error) {
	all := x.questions(p.Leaves, !p.Raw)
	for _, q := range all {
		if r := q.replica; r != nil && x.avoids(r) && !x.attempt.LeavesOut(q.shard.Name()) {
			return nil, x.shardError(q.shard, qerr.New(qerr.ShardFailed, "all replicas of shard %s have failed while this request was answered", q.shard.Name()))
		}
	}
	var failed *shard.Shard // whose part is asked once more
	for qs := all; len(qs) > 0; failed = qs[0].shard {
		got, lost, err := x.round(p, qs)
		out = append(out, got...)
		if err != nil {
			x.askedInVain(failed, err)
			closeParts(out)
			return nil, err
		}
		if len(lost) == 0 {
			for _, o := range out {
				if r := o.asked.replica; r != nil {
					p.Together.Took(o.asked.window(), r)
				}
			}
			return out, nil
		}
		if failed != nil { // some part of what was asked once more is lost, too
			x.askedInVain(failed, lost[0].err)
		}
		if out, qs, err = x.replace(p, all, out, lost); err != nil {
			closeParts(out)
			return nil, err
		}
	}
	return out, nil
}

// replace gives up what the shards of lost questions have answered, and returns what to ask of
// their other replicas: what is read at the times of a lost question, and over other times stays as
// it was answered. Where no replica can answer all of it the request is planned again.
func (x *exchange) replace(p *plan.Plan, all []question, got []part, lost []lostQuestion) (kept []part, again []question, err error) {
	anew := func(q question) bool {
		return slices.ContainsFunc(lost, func(l lostQuestion) bool {
			return l.shard == q.shard && !p.Together.Apart(q.shard, l.window(), q.window())
		})
	}
	for _, q := range all {
		if anew(q) {
			again = append(again, q)
		}
	}
	by := map[*shard.Shard]*shard.Replica{}
	free, replaced := true, slices.Clone(x.replaced)
	for _, l := range lost {
		by[l.shard] = x.instead(l.question, l.failed, again...)
		if shard.Shed(l.err) { // what it has is there: nobody who has less is asked because of it
			x.spared = append(x.spared, l.failed...)
		} else {
			replaced = append(replaced, l.failed...)
		}
		free = free && shard.Free(l.err)
	}
	for _, l := range lost {
		if r := by[l.shard]; r == nil || x.givenUp(r) || slices.Contains(replaced, r.Name()) {
			if x.spares(l.shard) {
				return got, nil, x.shardError(l.shard, l.err)
			}
			return got, nil, &answer.LostReplica{Names: l.failed, Err: l.err}
		}
	}
	x.replaced = replaced
	for i := range again {
		again[i].replica, again[i].replicas, again[i].spare = by[again[i].shard], nil, false
	}
	for _, g := range got {
		if anew(g.asked) {
			x.uncount(g)
			g.table.Close()
		} else {
			kept = append(kept, g)
		}
	}
	if !free && !x.mayAskAgain(lost[0].shard, len(again)) {
		return kept, nil, x.shardError(lost[0].shard, lost[0].err)
	}
	return kept, again, nil
}

// uncount takes back the samples of an answer that is asked for again.
func (x *exchange) uncount(p part) {
	for _, c := range p.result.Counts {
		x.budget.DropSamples(c.Samples)
	}
}

// round asks questions for leaves and decodes their answers as they come, several at a time.
func (x *exchange) round(p *plan.Plan, qs []question) (out []part, lost []lostQuestion, err error) {
	parts, errs := make([]part, len(qs)), make([]error, len(qs))
	r, err := x.askAndRead(qs, func(i int, q *question, src merge.Source) (err error) {
		parts[i].asked = *q
		parts[i].table, parts[i].result, err = merge.DecodeTable(x.ctx, src, p.Leaves[q.part].Grid, x.budget)
		if err != nil && x.brokeOff(q, src.Name, err) {
			errs[i], err = err, nil
		}
		return err
	})
	if err != nil {
		closeParts(parts)
		return nil, nil, refusedByShard(err)
	}
	defer r.close()
	_, span := x.s.room(x.ctx, "merge")
	defer span.End()
	if r.broken != nil {
		closeParts(parts)
		if errors.Is(r.broken, merge.ErrTwice) {
			return nil, nil, &answer.Inexact{Why: r.broken.Error()}
		}
		return nil, nil, x.bodyError(r, r.broken)
	}
	lost = r.lost
	counts := make([]merge.Count, len(r.at))
	for n, i := range r.at {
		if errs[i] != nil {
			x.uncount(parts[i])
			lost = append(lost, lostQuestion{parts[i].asked, []string{r.sources[n].Name}, errs[i]})
			continue
		}
		counts[n] = merge.Count{Series: parts[i].result.Series}
		for _, c := range parts[i].result.Counts {
			counts[n] = c
		}
		out = append(out, parts[i])
	}
	x.account.answers(r, counts)
	return out, lost, nil
}

// brokeOff tells whether an answer ended in a failure of its server alone, whose copy can be asked.
func (x *exchange) brokeOff(q *question, server string, err error) bool {
	var e *qerr.Error
	if x.ctx.Err() != nil || !errors.As(err, &e) || e.Kind != qerr.ShardFailed || len(e.Shards) != 1 || e.Shards[0] != server {
		return false
	}
	return x.instead(*q, e.Shards) != nil
}
