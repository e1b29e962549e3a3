package server

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// computation is what the engine evaluates: a plan at the steps of a grid, over the tables of its
// leaves, of which some are rough, and over series that are read.
type computation struct {
	plan   *plan.Plan
	grid   merge.Grid
	tables []*merge.Table
	rough  []int
	// parcel is of which series of a leaf it is; nil where it is of all.
	parcel *parcel
}

// parcel is what makes a computation one of some of a leaf's series: those that the matchers
// select.
type parcel struct {
	leaf   *plan.Leaf
	only   []*labels.Matcher
	held   *heldBy
	ran    *atomic.Int64 // nanoseconds of evaluation of all parcels until now
	copies *readCopies
	note   func(infos []string) // is told what the engine remarks
}

// compute has the engine evaluate, and hands over the result.
func (x *exchange) compute(c computation, use func(*promql.Result, promql.Query, *evaluation.Turn) error) error {
	ctx, span := x.s.room(x.ctx, "evaluate")
	defer span.End()
	turn, err := x.s.gate.Begin(x.ctx, x.lane)
	if err != nil {
		return err
	}
	defer turn.End()
	defer x.evaluating(c, turn)()
	ev, err := x.prepare(c, turn)
	if err != nil {
		return err
	}
	query := func(expr parser.Expr, tables []*merge.Table) (promql.Query, error) {
		return ev.query(ctx, expr, tables)
	}
	var rest string
	if len(c.rough) > 0 {
		rest = tree.String(c.plan.Expr) // an evaluation changes the tree
	}
	qry, err := query(c.plan.Expr, c.tables)
	if err != nil {
		e := qerr.Wrap(qerr.BadData, err, "invalid parameter %q: %s", "query", err)
		e.Verbatim = true // the engine is Prometheus'
		return e
	}
	defer qry.Close()
	res := qry.Exec(ctx)
	if res.Err != nil {
		return x.tooMany(c.plan, x.engineError(ctx, res.Err, ev.kind.samples))
	}
	if len(c.rough) > 0 && !steady(ctx, res, rest, c.tables, c.rough, query) {
		if ctx.Err() != nil {
			return qerr.FromContext(ctx, context.Cause(ctx))
		}
		return errLastBit
	}
	if mixed, err := c.plan.Together.Mixed(); err != nil {
		return &answer.LostReplica{Names: []string{mixed}, Err: err}
	}
	if err := x.remarks(c, res); err != nil {
		return err
	}
	return use(res, qry, turn)
}

// evaluating tells those who watch the request that it is evaluated, until what it returns is
// called. Of parcels, which are several at a time, that is told once for all; there a turn counts
// as one evaluation with those of the parcels before it.
func (x *exchange) evaluating(c computation, turn *evaluation.Turn) (end func()) {
	reads, began := c.plan.Mode == plan.ModeRaw, time.Now()
	read := func() {
		if reads {
			x.calls.add(time.Since(began))
		}
	}
	switch {
	case c.parcel == nil:
		x.client.pause = turn.Pause
		x.watched.Evaluated(true)
		if x.doing.set(workFold); reads && c.plan.Raw {
			x.doing.set(workRead)
		}
		return func() {
			x.watched.Evaluated(false)
			read()
		}
	case reads:
		before := c.parcel.ran.Load()
		turn.After(time.Duration(before))
		return func() {
			c.parcel.ran.Add(int64(turn.Used()) - before)
			read()
		}
	}
	return read // what is made of parcels is little
}

// remarks takes over what the engine warns of and remarks.
func (x *exchange) remarks(c computation, res *promql.Result) error {
	if c.parcel != nil {
		return x.noteParcel(c.parcel, res)
	}
	x.warnTwice()
	warnings, infos := res.Warnings.AsStrings(x.dec.Request.Query, 10, 10)
	x.warnings.Add(warnings...)
	x.infos.Add(infos...)
	return nil
}

// evaluator prepares evaluations of one computation: by an engine of some kind, at its steps, over
// the series that are read where some are.
type evaluator struct {
	x      *exchange
	turn   *evaluation.Turn
	kind   engineKind
	series storage.Queryable
	meter  raw.Meter
	grid   merge.Grid
	step   time.Duration
	ranged bool
}

// prepare makes the evaluator of a computation, and weighs what the engine makes by itself.
func (x *exchange) prepare(c computation, turn *evaluation.Turn) (*evaluator, error) {
	req := x.dec.Request
	e := &evaluator{
		x: x, turn: turn, meter: x.budget, grid: c.grid, step: req.Step, ranged: req.ID.Span() != endpoint.SpanInstant,
		series: storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil }),
		kind: engineKind{
			// The engine's own samples are bounded by max_samples and by what half of memory.budget
			// could hold of them.
			samples: min(x.limits.MaxSamples, x.st.pool.One()/sampleBytes), interval: x.evaluationInterval(),
			delayed: x.st.top.DelayedNameRemoval(), starts: x.st.top.UseStartTimestamps(), units: x.st.top.TypeAndUnitLabels(),
		},
	}
	whole := x.dec.Expr
	if c.parcel != nil {
		whole, e.ranged, e.step = c.plan.Expr, c.parcel.leaf.Range, time.Duration(c.grid.Step)*time.Millisecond
		e.meter = c.parcel.held
	}
	making, err := x.making(c.plan, c.tables, e.meter.Hold)
	if err != nil {
		return nil, err
	}
	steps := int64(c.grid.Len())
	points := pointsPerSeries(whole, steps, e.step, e.kind.interval)
	if err := e.meter.Hold(heldByConstants(c.plan.Expr, points)); err != nil {
		return nil, err
	}
	if c.plan.Mode != plan.ModeRaw {
		return e, nil
	}
	fetched := x.fetcher(c.plan.Together)
	fetched.Meter = e.meter
	fetched.PerSeries = heldPerSeries(whole, points)
	fetched.Turn, fetched.WorkPerSeries = turn, workPerSeries(c.plan.Expr, steps)
	if making != nil {
		fetched.Judge = making.judge
	}
	if e.series = fetched; c.parcel != nil {
		e.series = x.parcelOf(fetched, c.parcel)
	}
	return e, nil
}

// query prepares an expression over tables and the series that are read.
func (e *evaluator) query(ctx context.Context, expr parser.Expr, tables []*merge.Table) (promql.Query, error) {
	from := e.series
	if len(tables) > 0 {
		from = leafQueryable{tables, from, e.turn}
	}
	e.turn.Watch(expr)
	e.turn.Rows(expr, evaluation.Grid{Steps: int64(e.grid.Len()), Step: e.step.Milliseconds(), Interval: e.kind.interval.Milliseconds()},
		e.x.madeSeries(e.meter.Hold))
	engine, text := e.x.s.engines.take(e.kind, expr)
	req, start := e.x.dec.Request, time.UnixMilli(e.grid.Start)
	opts := promql.NewPrometheusQueryOpts(e.x.stats() == "all", req.LookbackDelta)
	if !e.ranged {
		return engine.NewInstantQuery(ctx, from, opts, text, start)
	}
	return engine.NewRangeQuery(ctx, from, opts, text, start, time.UnixMilli(e.grid.End), e.step)
}

// copiesFailed decides about replicas that failed while series were read. Where others were read
// the answer is of these, and says what it may lack; it is refused where they are known to lack it
// and nobody would see that. Else all is planned anew without those that failed, if anybody is
// left.
func (x *exchange) copiesFailed(f raw.Failure) error {
	if x.ctx.Err() != nil {
		return nil
	}
	s := x.st.top.Shard(f.Slice)
	if len(f.Left) == 0 {
		well, err := s.Well()
		others := err == nil && slices.ContainsFunc(well, func(r *shard.Replica) bool {
			return !slices.Contains(f.Failed, r.Name()) && !x.attempt.Avoids(r.Name())
		})
		if others && slices.ContainsFunc(f.Failed, func(name string) bool { return !x.attempt.Avoids(name) }) {
			return &answer.LostReplica{Names: f.Failed, Err: f.Err}
		}
		return nil // the shard is lost
	}
	var failed []*shard.Replica
	for _, name := range f.Failed {
		x.failing.add(name)
		if r := x.st.top.Replica(name); r != nil && !r.Gone(x.ctx) {
			failed = append(failed, r)
		}
	}
	left := make([]*shard.Replica, len(f.Left))
	for i, name := range f.Left {
		left[i] = x.st.top.Replica(name)
	}
	if len(failed) == 0 || slices.Contains(left, nil) {
		return nil
	}
	missing, err := plan.Missing(x.ctx, s, failed, left, plan.Window{From: f.From, Until: f.Until}, x.view.Now(), x.unseen())
	if missing {
		for _, r := range failed {
			key, text := plan.Unread(r.Name())
			x.twice.add(text, key)
		}
	}
	return err
}

// unseen tells whether nobody reads the warnings of the answer: it has no place for them, or is for
// a rule, or its caller has said that it must lack nothing, as rulers do.
func (x *exchange) unseen() bool {
	req := x.dec.Request
	return !req.ID.JSON() || x.alerting || req.PartialResponse != nil && !*req.PartialResponse
}

// fetcher is the storage of series that are read raw.
func (x *exchange) fetcher(together *plan.Together) *raw.Queryable {
	q := x.view.Raw(plan.Reading{
		Budget: x.budget, MaxBytes: x.limits.MaxResponseBytes, Lost: x.rawLost(), Together: together,
		Gone:  func(s *shard.Shard) bool { return x.attempt.LeavesOut(s.Name()) },
		Avoid: x.avoids,
		Note:  func(key, text string) { x.twice.add(text, key) }, Unseen: x.unseen(),
	})
	q.Observe, q.Width, q.PerSlice = x.s.observe, x.width(), max(1, x.st.top.ReadSlots()/2)
	part := x.part()
	q.SparePatience, q.SlicePatience = x.sparePatience(), func(slice string) time.Duration {
		if x.mayLackNamed(slice) {
			return part
		}
		return 0
	}
	q.Again = func(slice, failed string, err error) bool {
		together.Failed(slice, failed, err)
		return x.st.top.Shard(slice).MayFailOver(err)
	}
	q.Failed, q.Used = x.copiesFailed, together.Used
	q.Read = func(raw.Fetched) { x.reads.Add(1) }
	if x.account != nil {
		q.Read = func(f raw.Fetched) {
			x.reads.Add(1)
			x.account.fetched(f)
		}
		q.Observe = func(s raw.Selected) {
			x.account.selected(s)
			if x.s.observe != nil {
				x.s.observe(s)
			}
		}
	}
	q.Twice = func(a, b string, lbls labels.Labels) {
		if plan.AlertSeries(lbls.Get(model.MetricNameLabel)) {
			return // several shards evaluate the same alert
		}
		x.s.metrics.duplicates.WithLabelValues(a, b).Inc()
		x.twice.add(fmt.Sprintf("series are held by two shards, %s and %s, such as %s; they are merged as copies of one: drop them on one of the two, or list both as replicas", a, b,
			clip.Text(lbls.String(), 256)), a+" "+b)
	}
	return q
}
