package server

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Where no replica is whole, an aggregate over more series than may be held at a time is evaluated
// here over one parcel after another: the series of some targets. What a parcel holds is given back
// before the next one is read.

// parcelValues is how many targets are in the first parcel; half as many in the next attempt where
// their series are too many. A server takes so many alternatives of a regular expression as a set.
const parcelValues = 200

// parcelBytes is how long the values of a parcel are at most together, but for a single one.
const parcelBytes = 64 << 10

// tooMany marks a refusal of an evaluation that can be made in parcels: of series that are read
// because no replica is whole, and are more than may be held at a time.
func (x *exchange) tooMany(p *plan.Plan, err error) error {
	if p.Cause == plan.CauseNotWhole && x.dec.Request.Stats == "" && moreThanAtOnce(err) {
		return &answer.TooMany{Err: err}
	}
	return err
}

// moreThanAtOnce tells whether an error is about what is held at a time.
func moreThanAtOnce(err error) bool {
	var e *qerr.Error
	return errors.As(err, &e) && (e.Bound == policy.BoundMaxSeries || e.Bound == policy.BoundMaxSamples || e.Bound == "memory.budget")
}

// parcels evaluates a leaf over one parcel after another, and returns what each has given.
func (x *exchange) parcels(l *plan.Leaf) (out []*merge.Table, err error) {
	defer func() {
		if err != nil {
			for _, t := range out {
				t.Close()
			}
			out = nil
		}
	}()
	values, err := x.targetsOf(l)
	if err != nil {
		return nil, err
	}
	x.rawHere, x.rawCause, x.inParcels = l.Why, plan.CauseNotWhole, true
	var f footing
	add := func(only *labels.Matcher) error {
		t, err := x.parcel(l, only, &f)
		if err != nil {
			return err
		}
		out = append(out, t)
		return f.rows(t, x.limits.MaxSeries)
	}
	err = inParcels(values, cmp.Or(x.s.parcel, parcelValues), func(some []string) (smaller bool, err error) {
		err = add(matcherOf(some))
		return moreThanAtOnce(err) && !f.full, err
	})
	if err != nil {
		return out, err
	}
	return out, add(labels.MustNewMatcher(labels.MatchEqual, plan.ParcelLabel, ""))
}

// inParcels calls add with at most so many of the values at a time, in order: with half as many
// after an error where fewer may be right, and twice as many after each success.
func inParcels(values []string, most int, add func(some []string) (smaller bool, err error)) error {
	for size := most; len(values) > 0; {
		n := fitting(values, size)
		smaller, err := add(values[:n])
		switch {
		case err == nil:
			values, size = values[n:], min(2*size, most)
		case n > 1 && smaller:
			size = n / 2
		default:
			return err
		}
	}
	return nil
}

// footing is what the parcels of a leaf have in common.
type footing struct {
	copies map[string]bool     // that were read for the first of them
	now    map[string]bool     // for the one that is evaluated
	seen   map[uint64]struct{} // the results until now
	full   bool                // they are more than max_series
}

// rows counts the results of another parcel: there may be too many before all are read.
func (f *footing) rows(t *merge.Table, most int) error {
	if f.seen == nil {
		f.seen = map[uint64]struct{}{}
	}
	for i := range t.Series {
		f.seen[t.Series[i].Labels.Hash()] = struct{}{}
	}
	if f.full = len(f.seen) > most; f.full {
		return admit.NewBudget(nil, admit.Limits{MaxSeries: most}).AddSeries(len(f.seen))
	}
	return nil
}

// settle compares the copies that were read for a parcel with those of the first one. Where one has
// gone since, its samples are in some of the parcels alone: all is asked again without it.
func (f *footing) settle() error {
	if f.copies == nil {
		f.copies = f.now
	}
	for name := range f.copies {
		if !f.now[name] {
			err := qerr.New(qerr.ShardFailed, "%s was read for a part of the series, and then failed", name)
			return &answer.LostReplica{Names: []string{name}, Err: err}
		}
	}
	return nil
}

// fitting is how many of the values are in the next parcel.
func fitting(values []string, most int) int {
	bytes := 0
	for i, v := range values {
		if bytes += len(v); i == most || i > 0 && bytes > parcelBytes {
			return i
		}
	}
	return len(values)
}

// matcherOf selects the series that have one of the values.
func matcherOf(values []string) *labels.Matcher {
	if len(values) == 1 {
		return labels.MustNewMatcher(labels.MatchEqual, plan.ParcelLabel, values[0])
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return labels.MustNewMatcher(labels.MatchRegexp, plan.ParcelLabel, strings.Join(quoted, "|"))
}

// targetsOf are the values by which a leaf's series are divided, of all replicas that are read.
func (x *exchange) targetsOf(l *plan.Leaf) ([]string, error) {
	var questions []question
	for _, r := range l.Reads {
		for _, leg := range r.Legs {
			from, until := max(r.From, leg.From), min(r.Until, leg.Until)
			req := &endpoint.Request{
				ID: endpoint.LabelValues, Label: plan.ParcelLabel, Match: []string{plan.Selector(plan.Filled(leg.Matchers))},
				Start: endpoint.At(from), End: endpoint.At(until), Timeout: x.dec.Request.Timeout,
			}
			qs, err := x.askCopies(question{shard: leg.Shard, req: req, class: shard.Light, plain: true}, from, until)
			if err != nil {
				return nil, err
			}
			questions = append(questions, qs...)
		}
	}
	var mu sync.Mutex
	found, held := map[string]bool{}, int64(0)
	defer func() { x.budget.Drop(held) }()
	r, err := x.askAndRead(questions, func(_ int, _ *question, src merge.Source) error {
		list := merge.ShardStrings(x.ctx, src, false, x.budget)
		defer list.Close()
		for list.Next() {
			mu.Lock()
			if !found[string(list.At())] {
				n := int64(2 * (len(list.At()) + labelBytes))
				if err := x.budget.Hold(n); err != nil {
					mu.Unlock()
					return err
				}
				held += n
				found[string(list.At())] = true
			}
			mu.Unlock()
		}
		return list.Err()
	})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if r.broken != nil {
		return nil, x.bodyError(r, r.broken)
	}
	delete(found, "")
	values := make([]string, 0, len(found))
	for v := range found {
		values = append(values, v)
	}
	slices.Sort(values)
	return values, nil
}

// labelBytes is what a value takes in a map and a list beside its text.
const labelBytes = 48

// parcel evaluates a leaf over the series that the matcher selects.
func (x *exchange) parcel(l *plan.Leaf, only *labels.Matcher, f *footing) (t *merge.Table, err error) {
	expr, err := plan.Parser.ParseExpr(l.Text)
	if err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "a part of the query cannot be read: %s", l.Text)
	}
	before := x.budget.Series()
	defer func() { x.budget.DropSeries(x.budget.Series() - before) }()
	p := &plan.Plan{Mode: plan.ModeRaw, Raw: true, Expr: expr, Cause: plan.CauseNone}
	var mu sync.Mutex
	f.now = map[string]bool{}
	c := computation{plan: p, grid: l.Grid, only: only, leaf: l, answered: func(name string) {
		mu.Lock()
		defer mu.Unlock()
		f.now[name] = true
	}}
	err = x.compute(c, func(res *promql.Result, _ promql.Query, _ *evaluation.Turn) (err error) {
		t, err = merge.TableOf(matrixOf(res), l.Grid, x.budget)
		return err
	})
	if err == nil {
		if err = f.settle(); err != nil {
			t.Close()
			return nil, err
		}
	}
	if err == nil && t.Histograms {
		t.Close()
		return nil, &answer.Inexact{Why: "native histograms are not put together from parcels"}
	}
	return t, err
}

// matrixOf is a result of series, at one step or at several.
func matrixOf(res *promql.Result) promql.Matrix {
	v, ok := res.Value.(promql.Vector)
	if !ok {
		m, _ := res.Value.(promql.Matrix)
		return m
	}
	out := make(promql.Matrix, len(v))
	for i, s := range v {
		out[i] = promql.Series{Metric: s.Metric, Floats: []promql.FPoint{{T: s.T, F: s.F}}}
		if s.H != nil {
			out[i] = promql.Series{Metric: s.Metric, Histograms: []promql.HPoint{{T: s.T, H: s.H}}}
		}
	}
	return out
}

// noteParcel takes over what an evaluation of a parcel remarks. A warning may be about what another
// parcel has.
func (x *exchange) noteParcel(l *plan.Leaf, res *promql.Result) error {
	warnings, infos := res.Warnings.AsStrings(l.Text, 10, 10)
	if len(warnings) > 0 {
		return &answer.Inexact{Why: "a parcel's evaluation came with a warning: " + warnings[0]}
	}
	x.infos.Add(x.placed(infos, l)...)
	return nil
}

// parcelOf is what a parcel is read by. What is told of it is told without the parcel's own
// matcher: what is selected in parcels is so together.
func (x *exchange) parcelOf(q *raw.Queryable, c computation) storage.Queryable {
	without := func(ms []*labels.Matcher) []*labels.Matcher {
		return slices.DeleteFunc(slices.Clone(ms), func(m *labels.Matcher) bool { return m == c.only })
	}
	if observe := q.Observe; observe != nil {
		q.Observe = func(s raw.Selected) {
			s.Matchers = without(s.Matchers)
			observe(s)
		}
	}
	read := q.Read
	q.Read = func(f raw.Fetched) {
		c.answered(f.Copy)
		if read != nil {
			f.Matchers = without(f.Matchers)
			read(f)
		}
	}
	if judge := q.Judge; judge != nil {
		q.Judge = func(ms []*labels.Matcher, n, longest int) error { return judge(without(ms), n, longest) }
	}
	return parcelQueryable{q, c.only}
}

// parcelQueryable reads series that have one more matcher.
type parcelQueryable struct {
	storage.Queryable
	only *labels.Matcher
}

// Querier implements storage.Queryable.
func (q parcelQueryable) Querier(mint, maxt int64) (storage.Querier, error) {
	inner, err := q.Queryable.Querier(mint, maxt)
	return parcelQuerier{inner, q.only}, err
}

type parcelQuerier struct {
	storage.Querier
	only *labels.Matcher
}

// Select implements storage.Querier.
func (q parcelQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if hints != nil { // by which nothing but what is read is to be told apart: a sum and a count are of the same samples
		hints = &storage.SelectHints{Start: hints.Start, End: hints.End, Step: hints.Step, Range: hints.Range}
	}
	return q.Querier.Select(ctx, sorted, hints, append(slices.Clip(ms), q.only)...)
}

// heldBy is a budget that knows what is held through it.
type heldBy struct {
	*admit.Budget

	uses int // of each series, which count as one

	mu          sync.Mutex
	held        int64
	used, count int
}

// AddSeries implements raw.Meter.
func (t *heldBy) AddSeries(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used += n
	more := (t.used+t.uses-1)/t.uses - t.count
	t.count += more
	return t.Budget.AddSeries(more)
}

// Hold implements raw.Meter.
func (t *heldBy) Hold(n int64) error {
	if err := t.Budget.Hold(n); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held += n
	return nil
}

// Drop implements raw.Meter.
func (t *heldBy) Drop(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Budget.Drop(n)
	t.held -= n
}

// drop gives back what is still held.
func (t *heldBy) drop() { t.Drop(t.held) }
