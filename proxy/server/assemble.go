package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// maxDecoders is how many answers one request decodes at the same time.
const maxDecoders = 8

// inexacts remembers queries that could not be put together, so that a dashboard does not pay for
// finding out each time. The zero value is ready for use.
type inexacts struct {
	mu    sync.Mutex
	seen  map[string]inexactFor
	swept time.Time // when those that had expired were taken out last
}

type inexactFor struct {
	why   string
	until time.Time
}

const (
	// inexactTime is how long a query is not tried again: what the shards hold changes.
	inexactTime = 5 * time.Minute
	// maxInexacts bounds the memory: with queries of at most maxInexactBytes, 4 MiB.
	maxInexacts     = 1024
	maxInexactBytes = 4 << 10
)

func (s *inexacts) get(query string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	if f, ok := s.seen[query]; ok && now.Before(f.until) {
		return f.why
	}
	return ""
}

// none tells whether nothing is known of any.
func (s *inexacts) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen) == 0
}

// sweep takes out what has expired, now and then. The caller holds s.mu.
func (s *inexacts) sweep(now time.Time) {
	if len(s.seen) == 0 || now.Sub(s.swept) < inexactTime {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.seen, func(_ string, f inexactFor) bool { return !now.Before(f.until) })
}

func (s *inexacts) put(query, why string, now time.Time) {
	if len(query) > maxInexactBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	if len(s.seen) >= maxInexacts {
		s.seen = nil // a rare and cheap loss: each is found out again
	}
	if s.seen == nil {
		s.seen = map[string]inexactFor{}
	}
	query = strings.Clone(query) // else it may keep the body of the request that it came in
	s.seen[query] = inexactFor{why, now.Add(inexactTime)}
}

// shardRequest is what a part of a leaf is asked.
func (x *exchange) shardRequest(l *plan.Leaf, p *plan.Part) *endpoint.Request {
	req := *x.dec.Request
	req.Query, req.PartialResponse, req.Limit, req.Stats = p.Query, x.noPart(), 0, ""
	req.Start, req.End, req.Time = endpoint.Time{}, endpoint.Time{}, endpoint.Time{}
	if l.Range {
		req.ID, req.Start, req.End, req.Step = endpoint.QueryRange, endpoint.At(l.Grid.Start), endpoint.At(l.Grid.End),
			time.Duration(l.Grid.Step)*time.Millisecond
	} else {
		req.ID, req.Time, req.Step = endpoint.Query, endpoint.At(l.Grid.Start), 0
	}
	return &req
}

// questions are the calls for leaves. Where a shard is asked for one thing alone, any of its whole
// replicas may answer it, the slow one hedged; where for several, all have to come from one
// replica, since no two hold the same samples.
func (x *exchange) questions(leaves []*plan.Leaf, alone bool) []question {
	// Of pieces that were planned together an earlier one may have met a replica that failed.
	left := func(p *plan.Part) []*shard.Replica {
		if !slices.ContainsFunc(p.Replicas, x.givenUp) {
			return p.Replicas
		}
		if well := slices.DeleteFunc(slices.Clone(p.Replicas), x.givenUp); len(well) > 0 {
			return well
		}
		return p.Replicas // it is refused where it is asked
	}
	calls := map[*shard.Shard]int{}
	able := map[*shard.Shard][]*shard.Replica{} // who can answer all that the shard is asked
	for _, l := range leaves {
		for _, p := range l.Parts {
			if calls[p.Shard]++; calls[p.Shard] == 1 {
				able[p.Shard] = p.Shard.Easiest(slices.Clone(left(p)), shard.CallOptions{Needs: x.holds(p.Shard)})
			}
			able[p.Shard] = slices.DeleteFunc(able[p.Shard], func(r *shard.Replica) bool { return !slices.Contains(p.Replicas, r) })
		}
	}
	var out []question
	for i, l := range leaves {
		for _, p := range l.Parts {
			replicas := left(p)
			q := question{
				shard: p.Shard, req: x.shardRequest(l, p), relabel: p.Relabel, class: shard.Light, plain: true, part: i,
				call: p.Call, mode: l.Mode, from: p.From, until: p.Until, wholes: replicas,
			}
			if alone && calls[p.Shard] == 1 && len(replicas) > 1 {
				q.replicas = replicas
			} else {
				q.replica, q.spare = replicas[0], len(replicas) > 1
				if of := able[p.Shard]; len(of) > 0 {
					q.replica = of[0]
				}
			}
			out = append(out, q)
		}
	}
	return out
}

// guard asks whether the shards hold series that must not be there for the leaf to be put together,
// of a replica that is whole over the leaf's window: what another one missed may be one of them.
func (x *exchange) guard(leaves []*plan.Leaf) error {
	var qs []question
	for _, l := range leaves {
		for _, g := range l.Guards {
			req := *x.dec.Request
			req.ID, req.Query, req.Stats, req.Step, req.Time, req.LookbackDelta = endpoint.Series, "", "", 0, endpoint.Time{}, 0
			req.PartialResponse = x.noPart()
			req.Match, req.Start, req.End, req.Limit = []string{g.Match}, endpoint.At(g.From), endpoint.At(g.Until), 1
			q := question{shard: g.Shard, req: &req, class: shard.Light, plain: true, part: len(qs), limit: 1}
			asked, err := x.askCopies(q, g.From, g.Until)
			if err != nil {
				return err
			}
			qs = append(qs, asked...)
		}
	}
	if len(qs) == 0 {
		return nil
	}
	r, err := x.ask(qs)
	if err != nil {
		return err
	}
	defer r.close()
	w := merge.NewWriter(io.Discard, x.budget)
	defer w.Close()
	res, err := merge.MergeSeries(x.ctx, w, 1, r.sources, x.budget)
	if err != nil {
		return x.bodyError(r, err)
	}
	if res.Series > 0 {
		return &answer.Inexact{Why: "a series lacks a label by which the shards are told apart"}
	}
	if name := x.didNotSay(qs, r.asked); name != "" {
		err := qerr.New(qerr.ShardFailed, "%s did not say whether its series have a label, and another replica of its shard did", name)
		return &answer.LostReplica{Names: []string{name}, Err: err}
	}
	return nil
}

// splice streams the answers of several shards, side by side.
func (x *exchange) splice(p *plan.Plan) error {
	l := p.Leaves[0]
	ranges := x.dec.Expr != nil && x.dec.Expr.Type() == parser.ValueTypeMatrix // which are no table; where it is known, they are read raw
	if !ranges && (x.attempt.Sorted || x.learned(&x.s.reordered, x.written) != "") {
		return x.assemble(p)
	}
	if err := x.guard(p.Leaves); err != nil {
		return err
	}
	limit := x.dec.Request.Limit
	// Series beyond the limit may equal others, which is an error, and of stored order a shard
	// would cut others than those that come last under its group's labels.
	// A Thanos Query does not cut, and its histograms cannot be gathered.
	relabelled := slices.ContainsFunc(l.Parts, func(p *plan.Part) bool { return p.Relabel != nil })
	thanos := slices.ContainsFunc(l.Parts, func(p *plan.Part) bool { return p.Shard.Thanos() })
	if limit > 0 && !thanos && (len(l.Parts) > 1 && !l.Distinct || l.Range && relabelled) {
		return x.assemble(p)
	}
	qs := x.questions([]*plan.Leaf{l}, true)
	asked := x.expected()
	for i := range qs {
		qs[i].req.Limit, qs[i].wholes, qs[i].asked = limit, nil, asked
	}
	r, err := x.ask(qs)
	if err != nil {
		return refusedByShard(err)
	}
	defer r.close()
	if err := x.out.Begin(); err != nil {
		return err
	}
	_, span := x.s.room(x.ctx, "merge")
	res, err := merge.Splice(x.ctx, x.out, limit, r.sources, x.budget)
	span.End()
	switch {
	case errors.Is(err, merge.ErrReordered):
		return answer.ErrOrder
	case errors.Is(err, merge.ErrTwice):
		return &answer.Inexact{Why: err.Error()}
	case err != nil:
		return x.bodyError(r, err)
	}
	x.account.answers(r, res.Counts)
	x.warnings.Add(x.placed(res.Warnings, l)...)
	x.infos.Add(x.placed(res.Infos, l)...)
	if res.Truncated {
		x.warnings.Add("results truncated due to limit")
	}
	return x.finishJSON()
}

// assemble asks the shards for the leaves and puts the answer together.
func (x *exchange) assemble(p *plan.Plan) error {
	if err := x.guard(p.Leaves); err != nil {
		return err
	}
	tables, rough, err := x.tables(p)
	defer func() {
		for _, t := range tables {
			t.Close()
		}
	}()
	if err != nil {
		return x.tooMany(p, err)
	}
	if !p.Whole {
		return x.evaluate(p, tables, rough)
	}
	return x.encodeTable(tables[0], p.Leaves[0].Range)
}

// encodeTable writes a table as the answer.
func (x *exchange) encodeTable(t *merge.Table, ranged bool) error {
	_, span := x.s.room(x.ctx, "encode")
	defer span.End()
	if err := x.out.Begin(); err != nil {
		return err
	}
	turn, err := x.begin()
	if err != nil {
		return err
	}
	defer turn.End()
	enc := merge.NewEncoder(x.out, x.limits.MaxResponseBytes)
	enc.Look = turn.Look
	cut, err := enc.Table(t, ranged, x.dec.Request.Limit)
	if err != nil {
		return err
	}
	if cut {
		x.warnings.Add("results truncated due to limit")
	}
	return x.finishJSON()
}

// tables asks for all leaves at once and returns each one's numbers. rough are those of them whose
// last bits may decide about the answer.
func (x *exchange) tables(p *plan.Plan) (out []*merge.Table, rough []int, err error) {
	parts, err := x.parts(p)
	drop := func(tables []*merge.Table) {
		for _, t := range tables {
			if t != nil {
				t.Close()
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	x.keepStored(p.Leaves, parts)
	out = make([]*merge.Table, len(p.Leaves))
	for i, l := range p.Leaves {
		var own []*merge.Table
		for j := range parts {
			t, result := parts[j].table, &parts[j].result
			if parts[j].asked.part != i {
				continue
			}
			own = append(own, t)
			parts[j].table = nil
			x.infos.Add(x.placed(result.Infos, l)...)
			switch {
			case result.Truncated:
				err = &answer.Inexact{Why: "a shard cut its answer to a part"}
			case t.Histograms:
				err = &answer.Inexact{Why: "native histograms lose their schema in a shard's JSON"}
			case l.Mode == plan.ModePass:
				x.warnings.Add(x.placed(result.Warnings, l)...)
			case len(result.Warnings) > 0:
				err = &answer.Inexact{Why: "a shard's answer to a part came with a warning: " + x.placed(result.Warnings[:1], l)[0]}
			}
		}
		if err == nil && l.Mode == plan.ModeParcels {
			own, err = x.parcels(l, p.Together)
		}
		if err == nil {
			var loose bool
			if out[i], loose, err = x.join(l, own); loose {
				rough = append(rough, i)
			}
		} else {
			drop(own)
		}
		if err == nil && len(rough) > 0 && p.Raw {
			err = errLastBit // what is read raw is read once
		}
		if err != nil {
			closeParts(parts)
			drop(out)
			return nil, nil, err
		}
	}
	return out, rough, nil
}

// keepStored remembers what servers that read from other stores, or may, said of what they read for
// any part: what is read raw from them in a later attempt lacks as much, and cannot say so.
func (x *exchange) keepStored(leaves []*plan.Leaf, parts []part) {
	for i := range parts {
		if p := &parts[i]; p.asked.shard.MayReadElsewhere() {
			said := slices.DeleteFunc(slices.Clone(p.result.Warnings), ofEngine)
			x.stored.Add(x.placed(said, leaves[p.asked.part])...)
		}
	}
}

// ofEngine tells whether a server's warning is about what it evaluated, and not about what it read,
// such as that a store behind it did not answer.
func ofEngine(warning string) bool { return strings.HasPrefix(warning, "PromQL warning: ") }

// errLastBit marks an answer that may be another one with the exact sums.
var errLastBit = &answer.Inexact{Why: "the last bit of a sum may decide about the answer"}

// join makes one table of the shards' answers to a leaf. It is rough where its last bits may decide
// about the answer.
func (x *exchange) join(l *plan.Leaf, tables []*merge.Table) (t *merge.Table, rough bool, err error) {
	switch {
	case len(tables) == 0: // all its shards are lost, and the answer goes without them
		return &merge.Table{Grid: l.Grid}, false, nil
	case l.Folds:
		sums := (l.Fold == merge.FoldSum || l.Fold == merge.FoldAvg) && len(tables) > 1
		whole := !sums || !l.Strict && !l.Loose && len(l.Near) == 0 || wholeNumbers(tables)
		if !whole && l.Strict {
			for _, t := range tables {
				t.Close()
			}
			return nil, false, errLastBit
		}
		rough = !whole && l.Loose
		if t, err = merge.Fold(l.Fold, tables, x.budget); err == nil && !whole && closeTo(t, l.Near) {
			t.Close()
			return nil, false, &answer.Inexact{Why: "a sum is as good as equal to the number that it is compared with"}
		}
	default:
		t, err = merge.Union(tables)
	}
	if errors.Is(err, merge.ErrInexact) || errors.Is(err, merge.ErrTwice) {
		return nil, false, &answer.Inexact{Why: err.Error()}
	}
	if err != nil {
		return nil, false, err
	}
	if err := x.budget.AddSeries(len(t.Series)); err != nil {
		t.Close()
		return nil, false, err
	}
	return t, rough, nil
}

// wholeNumbers tells whether all values are whole and small enough for their sums to be exact.
func wholeNumbers(tables []*merge.Table) bool {
	for _, t := range tables {
		for i := range t.Series {
			for _, v := range t.Series[i].Values {
				if !value.IsStaleNaN(v) && (v != math.Trunc(v) || math.Abs(v) > 1<<49) {
					return false
				}
			}
		}
	}
	return true
}

// closeTo tells whether a value is one of the numbers but for rounding.
func closeTo(t *merge.Table, numbers []float64) bool {
	for i := range t.Series {
		for _, v := range t.Series[i].Values {
			for _, n := range numbers {
				if !math.IsInf(n, 0) && math.Abs(v-n) <= 1e-9*math.Abs(n) {
					return true
				}
			}
		}
	}
	return false
}

// refusedByShard turns a shard's own verdict on a part that the client did not write into another
// attempt: raw says what Prometheus would say to the whole.
func refusedByShard(err error) error {
	var e *qerr.Error
	if errors.As(err, &e) && (e.Kind == qerr.BadData || e.Kind == qerr.TooExpensive) && e.Bound == "" {
		return &answer.Inexact{Why: "a shard refused a part: " + e.Message}
	}
	return err
}

// leafQueryable serves leaves from their tables and everything else raw.
type leafQueryable struct {
	tables []*merge.Table
	raw    storage.Queryable
	turn   raw.Turn
}

// Querier implements storage.Queryable.
func (q leafQueryable) Querier(mint, maxt int64) (storage.Querier, error) {
	inner, err := q.raw.Querier(mint, maxt)
	return leafQuerier{inner, q.tables, q.turn}, err
}

type leafQuerier struct {
	storage.Querier
	tables []*merge.Table
	turn   raw.Turn
}

// Select implements storage.Querier.
func (q leafQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	id, ok := plan.LeafOf(ms)
	if !ok {
		return q.Querier.Select(ctx, sorted, hints, ms...)
	}
	if id < 0 || id >= len(q.tables) {
		return storage.ErrSeriesSet(fmt.Errorf("there is no leaf %d", id))
	}
	return plan.TableSet(q.tables[id], q.turn)
}
