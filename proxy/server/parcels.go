package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
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

// Where the servers' state keeps an aggregate over more series than may be held at a time from
// them, as where no replica is whole, it is evaluated here in parcels: each is the series of some
// targets, or some of one that has too many. What a parcel holds is given back once it is
// evaluated; meanwhile the next one is read.

// tooMany marks a refusal of an evaluation that can be made in parcels, of series that are read
// because of the servers' state, or left to the shards, of those that are read for statistics; both
// are more than may be held at a time.
func (x *exchange) tooMany(p *plan.Plan, err error) error {
	switch {
	case !moreThanAtOnce(err):
		return err
	case x.stats() != "" && x.trial == nil:
		return &answer.TooManyCounted{Err: err}
	case x.stats() == "" && p.Cause.Parcels():
		return &answer.TooMany{Err: err}
	}
	return err
}

// moreThanAtOnce tells whether an error is about what is held at a time.
func moreThanAtOnce(err error) bool {
	var e *qerr.Error
	return errors.As(err, &e) && (e.Bound == policy.BoundMaxSeries || e.Bound == policy.BoundMaxSamples || e.Bound == "memory.budget")
}

// parcels evaluates a leaf in parcels, and returns what each has given.
func (x *exchange) parcels(l *plan.Leaf, together *plan.Together) (out []*merge.Table, err error) {
	defer func() {
		if err != nil {
			for _, t := range out {
				t.Close()
			}
			out = nil
		}
	}()
	values, err := x.valuesOf(l, plan.ParcelLabel, nil)
	if err != nil {
		return nil, err
	}
	x.rawHere, x.rawCause, x.inParcels = l.Why, l.Cause, true
	x.doing.set(workParcels)
	x.watched.Evaluated(true)
	defer x.watched.Evaluated(false)
	f := footing{x: x, leaf: l, together: together}
	size, _ := strconv.Atoi(x.learned(&x.s.parcelled, x.written))
	size, err = f.run(plan.ParcelLabel, values, size, nil)
	x.warnTwice()
	if err != nil {
		return f.tables(), err
	}
	if x.trial == nil { // what fits into a trial's small bounds is nobody else's size
		x.s.parcelled.put(x.learnt(x.dec.Request.Query), strconv.Itoa(size), x.s.now())
	}
	return f.tables(), nil
}

// run makes parcels of the series that the matchers select, by the values of a label, of so many at
// first; 0 is as many as any parcel may have. It returns how many the next one would have.
func (f *footing) run(label string, values []string, size int, given []*labels.Matcher) (int, error) {
	most := cmp.Or(f.x.s.parcel, parcelValues)
	p := &parcelling{values: values, size: cmp.Or(min(size, most), most), most: most, room: f.x.limits.MaxSeries, beside: parcelsAtOnce}
	err := p.run(func(some []string, alone bool) (series int, smaller bool, err error) {
		only := append(slices.Clip(given), matcherOf(label, some))
		series, smaller, err = f.add(only)
		if smaller && alone && len(some) < 2 && len(given) == 0 {
			return series, false, f.divide(only, err)
		}
		return series, smaller, err
	})
	return p.size, err
}

// maxDividers is how many labels are looked at for one to divide a target by: first those that tell
// apart what Kubernetes has many of.
const maxDividers = 16

// unlikely is 0 for labels that have many values in most clusters, and 1 for others.
func unlikely(label string) int {
	switch label {
	case "pod", "uid", "node", "namespace", "name", "id":
		return 0
	}
	return 1
}

// divide makes parcels of a target whose series are too many for one, as those of
// kube-state-metrics are: by the label that has the most values of those that may divide it. Where
// there is none the error is that of the target.
func (f *footing) divide(target []*labels.Matcher, tooMany error) error {
	names, err := f.x.valuesOf(f.leaf, "", target)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !f.leaf.Divides(name, f.x.st.top.TypeAndUnitLabels()) })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(unlikely(a), unlikely(b)) })
	var by string
	var values []string
	for _, name := range names[:min(len(names), maxDividers)] {
		own, err := f.x.valuesOf(f.leaf, name, target)
		if err != nil {
			return err
		}
		if len(own) > len(values) {
			by, values = name, own
		}
	}
	if len(values) < 2 {
		return tooMany
	}
	_, err = f.run(by, values, 0, target)
	return err
}

// footing is what the parcels of a leaf have in common.
type footing struct {
	x        *exchange
	leaf     *plan.Leaf
	together *plan.Together

	mu     sync.Mutex
	copies map[string]map[string]bool // of each shard, that were read for the first of them
	seen   map[uint64]struct{}
	full   bool // the results are more than max_series
	made   []parcelTable
}

// parcelTable is what a parcel has given, with what it is of.
type parcelTable struct {
	of    string
	table *merge.Table
}

// add makes a parcel of the series that the matchers select.
func (f *footing) add(only []*labels.Matcher) (series int, smaller bool, err error) {
	of, err := f.x.parcel(f.leaf, f.together, only, f.note)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = f.settle(of.copies)
	}
	if err == nil {
		err = f.rows(of.table, f.x.limits.MaxSeries)
	}
	if err != nil {
		of.table.Close()
		return of.series, moreThanAtOnce(err) && !f.full, err
	}
	f.made = append(f.made, parcelTable{plan.Selector(only), of.table})
	return of.series, false, nil
}

// note takes over an information about the evaluation of a parcel.
func (f *footing) note(infos []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.x.infos.Add(infos...)
}

// tables are what the parcels have given, in one order whichever was made first.
func (f *footing) tables() []*merge.Table {
	slices.SortFunc(f.made, func(a, b parcelTable) int { return strings.Compare(a.of, b.of) })
	var out []*merge.Table
	for _, m := range f.made {
		out = append(out, m.table)
	}
	return out
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

// settle compares the copies that were read for a parcel with those of the first ones. Where one
// has gone or come, its samples are in some of the parcels alone, and so they are where it failed
// for some selectors of the parcel: all is asked again without it.
func (f *footing) settle(own *readCopies) error {
	for shard, copies := range own.used {
		for _, name := range own.failed[shard] {
			if copies[name] {
				return notEverywhere(name)
			}
		}
		before, ok := f.copies[shard]
		if !ok {
			if f.copies == nil {
				f.copies = map[string]map[string]bool{}
			}
			f.copies[shard] = copies
			continue
		}
		for _, sets := range [2][2]map[string]bool{{before, copies}, {copies, before}} {
			for name := range sets[0] {
				if !sets[1][name] {
					return notEverywhere(name)
				}
			}
		}
	}
	return nil
}

// notEverywhere is the loss of a replica that some of the series were read from, and not all.
func notEverywhere(replica string) error {
	err := qerr.New(qerr.ShardFailed, "%s was read for a part of the series, and not for another", replica)
	return &answer.LostReplica{Names: []string{replica}, Err: err}
}

// readCopies are the copies of each shard that a parcel was read from, and those that failed for
// one of its selectors.
type readCopies struct {
	mu     sync.Mutex
	used   map[string]map[string]bool
	failed map[string][]string
}

// note takes over what raw.Queryable.Used tells.
func (c *readCopies) note(shard string, used, failed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used == nil {
		c.used, c.failed = map[string]map[string]bool{}, map[string][]string{}
	}
	if c.used[shard] == nil {
		c.used[shard] = map[string]bool{}
	}
	for _, name := range used {
		c.used[shard][name] = true
	}
	c.failed[shard] = append(c.failed[shard], failed...)
}

// valuesOf are the values of a label on a leaf's series that the matchers select too, of all
// replicas that are read; of no label the names of those that the series have.
func (x *exchange) valuesOf(l *plan.Leaf, label string, given []*labels.Matcher) ([]string, error) {
	id := endpoint.LabelValues
	if label == "" {
		id = endpoint.Labels
	}
	var questions []question
	parts := 0
	for _, r := range l.Reads {
		for _, leg := range r.Legs {
			from, until := max(r.From, leg.From), min(r.Until, leg.Until)
			req := &endpoint.Request{
				ID: id, Label: label, Match: []string{plan.Selector(plan.Filled(append(slices.Clip(leg.Matchers), given...)))},
				Start: endpoint.At(from), End: endpoint.At(until), Timeout: x.dec.Request.Timeout,
			}
			parts++ // each has to be answered: no other one is a copy of it
			qs, err := x.askCopies(question{shard: leg.Shard, req: req, class: shard.Light, plain: true, part: parts}, from, until)
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
	if name := x.didNotSay(questions, r.asked); name != "" { // what only it has would be in no parcel
		err := qerr.New(qerr.ShardFailed, "%s did not say which targets it has, and another replica of its shard did", name)
		return nil, &answer.LostReplica{Names: []string{name}, Err: err}
	}
	delete(found, "")
	values := make([]string, 0, len(found))
	for v := range found {
		values = append(values, v)
	}
	slices.Sort(values)
	return values, nil
}

// didNotSay is a replica that was asked and did not answer each time, where another one of its
// shard did; empty where there is none.
func (x *exchange) didNotSay(asked, answered []question) string {
	left := map[*shard.Replica]int{}
	said := map[*shard.Shard]bool{}
	for _, q := range asked {
		if q.replica != nil && !x.attempt.Avoids(q.replica.Name()) {
			left[q.replica]++
		}
	}
	for _, q := range answered {
		said[q.shard] = true
		left[q.replica]--
	}
	for r, n := range left {
		if n > 0 && said[r.Shard] {
			return r.Name()
		}
	}
	return ""
}

// labelBytes is what a value takes in a map and a list beside its text.
const labelBytes = 48

// evaluated is a leaf over the series of a parcel: what that gives, the copies that were read, and
// how many series.
type evaluated struct {
	table  *merge.Table
	copies *readCopies
	series int
}

// parcel evaluates a leaf over the series that the matchers select. Where they are too many, how
// many is told with the error.
func (x *exchange) parcel(l *plan.Leaf, together *plan.Together, only []*labels.Matcher, note func([]string)) (out evaluated, err error) {
	inner, outer, err := l.Parcel()
	if err != nil {
		return out, qerr.Wrap(qerr.Internal, err, "a part of the query cannot be read: %s", l.Text)
	}
	out.copies = &readCopies{}
	own := &parcel{leaf: l, only: only, held: &heldBy{Budget: x.budget}, ran: &x.ranHere, copies: out.copies, note: note}
	defer own.held.drop()
	compute := func(mode plan.Mode, expr parser.Expr, tables ...*merge.Table) (t *merge.Table, err error) {
		p := &plan.Plan{
			Mode: mode, Raw: mode == plan.ModeRaw, Expr: expr, Cause: plan.CauseNone, Leaves: []*plan.Leaf{l}, Together: together,
		}
		c := computation{plan: p, grid: l.Grid, tables: tables, parcel: own}
		err = x.compute(c, func(res *promql.Result, _ promql.Query, _ *evaluation.Turn) (err error) {
			t, err = merge.TableOf(matrixOf(res), l.Grid, x.budget)
			return err
		})
		if err == nil && t.Histograms {
			err = &answer.Inexact{Why: "native histograms are not put together from parcels"}
		}
		return t, err
	}
	if out.table, err = compute(plan.ModeRaw, inner); err == nil && outer != nil {
		of := out.table
		out.table, err = compute(plan.ModeLocal, outer, of)
		of.Close()
	}
	out.series = own.held.series()
	return out, err
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
func (x *exchange) noteParcel(c *parcel, res *promql.Result) error {
	warnings, infos := res.Warnings.AsStrings(c.leaf.Text, 10, 10)
	if len(warnings) > 0 {
		return &answer.Inexact{Why: "a parcel's evaluation came with a warning: " + warnings[0]}
	}
	c.note(x.placed(infos, c.leaf))
	return nil
}

// parcelOf is what a parcel is read by. What is told of it is told without the parcel's own
// matcher: what is selected in parcels is so together.
func (x *exchange) parcelOf(q *raw.Queryable, c *parcel) storage.Queryable {
	q.Width, q.PerSlice = max(1, q.Width/parcelsAtOnce), max(1, q.PerSlice/parcelsAtOnce)
	without := func(ms []*labels.Matcher) []*labels.Matcher {
		return slices.DeleteFunc(slices.Clone(ms), func(m *labels.Matcher) bool { return slices.Contains(c.only, m) })
	}
	if observe := q.Observe; observe != nil {
		q.Observe = func(s raw.Selected) {
			s.Matchers = without(s.Matchers)
			observe(s)
		}
	}
	used := q.Used
	q.Used = func(shard string, of, failed []string) {
		c.copies.note(shard, of, failed)
		used(shard, of, failed) // what is read beside the parcels is of the same ones
	}
	if read := q.Read; read != nil {
		q.Read = func(f raw.Fetched) {
			f.Matchers = without(f.Matchers)
			read(f)
		}
	}
	if judge := q.Judge; judge != nil {
		q.Judge = func(ms []*labels.Matcher, n, longest int) error { return judge(without(ms), n, longest) }
	}
	return parcelQueryable{q, c.only}
}

// parcelQueryable reads series that have more matchers.
type parcelQueryable struct {
	storage.Queryable
	only []*labels.Matcher
}

// Querier implements storage.Queryable.
func (q parcelQueryable) Querier(mint, maxt int64) (storage.Querier, error) {
	inner, err := q.Queryable.Querier(mint, maxt)
	return parcelQuerier{inner, q.only}, err
}

type parcelQuerier struct {
	storage.Querier
	only []*labels.Matcher
}

// Select implements storage.Querier.
func (q parcelQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if hints != nil { // by which nothing but what is read is to be told apart
		hints = &storage.SelectHints{Start: hints.Start, End: hints.End, Step: hints.Step, Range: hints.Range}
	}
	return q.Querier.Select(ctx, sorted, hints, append(slices.Clip(ms), q.only...)...)
}

// heldBy is a budget that knows what is held through it.
type heldBy struct {
	*admit.Budget

	mu    sync.Mutex
	held  int64
	count int // of series
}

// AddSeries implements raw.Meter.
func (t *heldBy) AddSeries(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count += n
	return t.Budget.AddSeries(n)
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

// series are how many were counted.
func (t *heldBy) series() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// drop gives back what is still held, and the series.
func (t *heldBy) drop() {
	t.Drop(t.held)
	t.DropSeries(int64(t.series()))
}
