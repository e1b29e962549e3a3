package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/stats"
	"go.opentelemetry.io/otel/attribute"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// query answers query and query_range.
func (x *exchange) query() error {
	q := x.question()
	if x.s.observeSteps != nil {
		x.s.observeSteps(q.Grid, false)
	}
	if x.attempt.NoStats {
		x.infos.Add(x.whyNoStats())
	}
	p, err := x.plan(q)
	if err != nil {
		return err
	}
	if p.Cause == plan.CauseNotWhole {
		if pieces := x.view.Stretches(x.ctx, q); pieces != nil {
			return x.stretches(q, pieces, nil, "no replica of some shard is whole over all steps; they are answered in stretches")
		}
	}
	if p.Cause == plan.CauseSick && p.Shard != nil && p.Shard.Group.Trusted() && p.Shard.Divides(x.dec.End) {
		if pieces := x.view.Stretches(x.ctx, q); pieces != nil {
			return x.stretches(q, pieces, nil, "group "+p.Shard.Group.Name+" has other shards than a while ago; the steps that read the time before are answered apart")
		}
	}
	if p.Refused == nil {
		n, heavy, err := x.pieces(q, p)
		if err != nil {
			return err
		}
		x.heavy = heavy
		if n > 1 {
			why := fmt.Sprintf("all steps at once would make a server hold more than max_shard_bytes; they are asked in %d pieces", n)
			return x.stretches(q, q.Divide(n), heavy, why)
		}
	}
	if told, err := x.tell(p.Root, p.Refused); told || err != nil {
		return err
	}
	if x.trial == nil { // which is part of a request that was counted
		x.s.metrics.plans.WithLabelValues(planKind(p), string(cmp.Or(p.Cause, plan.CauseNone))).Inc()
	}
	x.blame(p)
	if p.Raw {
		x.expect(x.foreseen.Load().Fetched())
	}
	if p.Mode == plan.ModeRaw {
		x.rawHere, x.rawCause = cmp.Or(x.attempt.Raw, p.Why), p.Cause
	}
	if p.Refused != nil {
		if lost := x.attempt.After; lost != nil {
			return lost // without those that failed it would have to be evaluated from series, which is not what is the matter
		}
		return p.Refused
	}
	switch {
	case p.Whole && p.Mode == plan.ModePass && !x.spliced(p.Leaves[0]):
		return x.pass(p.Leaves[0])
	case p.Whole && p.Mode != plan.ModePush && p.Leaves[0].Streams:
		return x.splice(p)
	case len(p.Leaves) > 0:
		return x.assemble(p)
	}
	return x.evaluate(p, nil, nil)
}

// blame counts a plan that a shard keeps raw, once for the request.
func (x *exchange) blame(p *plan.Plan) {
	if !x.attempt.Parcels && x.trial == nil {
		x.s.metrics.blame(p)
	}
}

// tell gives the plan to whoever asked for it. It is true where that is all of the answer.
func (x *exchange) tell(root *plan.Node, refused error) (told bool, err error) {
	if x.account == nil {
		return false, nil
	}
	x.account.root = root
	e := x.explanation(cmp.Or(refused, x.cannotAsk()))
	if e.Size() > x.limits.MaxResponseBytes {
		x.account, x.largePlan = nil, true // whatever would tell of it
		return true, errLargePlan(e.Size(), x.limits.MaxResponseBytes)
	}
	if x.account.only {
		x.account.told = e
		return true, x.writePlan(e)
	}
	x.out.Tail = x.tail
	return false, nil
}

// spliced tells whether one shard's own answer needs what splicing does: a matrix whose labels are
// set is checked to be in order, and a Thanos Query does not know limit.
func (x *exchange) spliced(l *plan.Leaf) bool {
	req, part := x.dec.Request, l.Parts[0]
	if x.stats() != "" {
		return false
	}
	t := x.dec.Expr.Type()
	if part.Relabel != nil && (l.Range || t == parser.ValueTypeMatrix) {
		return true
	}
	return req.Limit > 0 && part.Shard.Thanos() && t == parser.ValueTypeVector
}

// planKind is a plan as the metric of plans has it.
func planKind(p *plan.Plan) string {
	if p.Whole || len(p.Leaves) == 0 {
		return string(p.Mode)
	}
	kind := plan.ModeSplice
	for _, l := range p.Leaves {
		switch l.Mode {
		case plan.ModeParcels:
			return string(plan.ModeParcels)
		case plan.ModePush:
			kind = plan.ModePush
		}
	}
	if p.Raw {
		return "mixed"
	}
	return string(kind)
}

// question is the request's query, to be planned.
func (x *exchange) question() plan.Query {
	req := x.dec.Request
	if req.ID.Span() == endpoint.SpanInstant && !req.Time.Set {
		req.Time = endpoint.At(x.view.Now().UnixMilli())
	}
	q := plan.Query{
		Text: req.Query, Expr: x.dec.Expr, NoExplain: x.account == nil, Grid: x.grid(), Range: req.ID.Span() == endpoint.SpanSteps,
		Interval: x.evaluationInterval(), Raw: x.attempt.Raw, NoPass: x.attempt.Raw != "", Constant: x.dec.Constant,
		Avoid: x.avoids,
		Lost:  func(s *shard.Shard) bool { return x.attempt.LeavesOut(s.Name()) },
	}
	q.Heavy, q.Ordered = x.dec.Heavy, x.ordered()
	q.Parcels = x.attempt.Parcels || x.s.parcel > 0 || x.learned(&x.s.parcelled, x.written) != ""
	for _, w := range x.dec.Windows {
		q.Windows = append(q.Windows, plan.Window{From: w.Start, Until: w.End})
	}
	q.Inexact = q.Raw != ""
	if q.Raw == "" && x.stats() != "" {
		q.Raw = "stats counts the samples of one evaluation"
	}
	if q.Raw == "" {
		q.Raw = x.learned(&x.s.inexacts, x.form)
		q.Inexact = q.Raw != ""
	}
	return q
}

// ordered tells whether the order of the series at an instant has to be that which they have with
// all their labels: that of ranges where it is known not to be, or a limit cuts by it, and that of
// a sort by labels, which goes by all of them where those that it names are equal.
func (x *exchange) ordered() bool {
	req := x.dec.Request
	switch {
	case req.ID.Span() != endpoint.SpanInstant || x.dec.Expr == nil:
		return false
	case x.dec.Expr.Type() == parser.ValueTypeMatrix:
		return req.Limit > 0 || x.attempt.Sorted || x.learned(&x.s.reordered, x.written) != ""
	}
	return sortsByLabel(x.dec.Expr)
}

func sortsByLabel(n parser.Node) bool {
	if c, ok := n.(*parser.Call); ok && (c.Func.Name == "sort_by_label" || c.Func.Name == "sort_by_label_desc") {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if sortsByLabel(child) {
			return true
		}
	}
	return false
}

// form is the query with how it is asked, with a limit or not: what is not exact over a week of
// steps may be over an hour, and a dashboard that refreshes asks for about as many of them each
// time.
func (x *exchange) form() string {
	g := x.grid()
	req := x.dec.Request
	return fmt.Sprintf("%s\x00%d\x00%d\x00%t", req.Query, g.Step, bits.Len(uint(g.Len())), req.Limit > 0)
}

// plan plans a query.
func (x *exchange) plan(q plan.Query) (*plan.Plan, error) {
	ctx, span := x.s.room(x.ctx, "plan")
	defer span.End()
	p, err := x.view.Query(ctx, q)
	if p != nil && span.IsRecording() {
		span.SetAttributes(attribute.String("spillway.mode", string(p.Mode)), attribute.String("spillway.why", p.Why))
	}
	return p, err
}

// lookback is the lookback of the shards' engines, Prometheus' default while it is not known.
func (x *exchange) lookback() time.Duration {
	if d := x.st.top.Lookback(); d > 0 {
		return d
	}
	return defaultLookback
}

const defaultLookback = 5 * time.Minute

// pass streams one shard's own answer through.
func (x *exchange) pass(l *plan.Leaf) error {
	qs := x.questions([]*plan.Leaf{l}, true)
	req := x.dec.Request.Clone()
	req.Query, req.PartialResponse, req.Stats = l.Parts[0].Query, x.noPart(), x.stats()
	qs[0].req, qs[0].wholes, qs[0].asked = req, nil, x.expected() // it is streamed: what was written stays
	r, err := x.ask(qs)
	if err != nil {
		return err
	}
	defer r.close()
	if err := x.out.Begin(); err != nil {
		return err
	}
	_, span := x.s.room(x.ctx, "merge")
	res, err := merge.Pass(x.ctx, x.out, r.sources[0], x.budget)
	span.End()
	if err != nil {
		return x.bodyError(r, err)
	}
	if len(res.Counts) == 0 {
		res.Counts = []merge.Count{{Series: res.Series, Samples: x.budget.Samples()}}
	}
	x.account.answers(r, res.Counts)
	x.warnings.Add(x.placed(res.Warnings, l)...)
	x.infos.Add(x.placed(res.Infos, l)...)
	if res.Truncated {
		x.warnings.Add("results truncated due to limit")
	}
	return x.finishJSON()
}

// defaultEvaluationInterval is Prometheus' own default.
const defaultEvaluationInterval = time.Minute

// evaluationInterval is the step of a subquery that has none: that of the shards, Prometheus'
// default while it is not known.
func (x *exchange) evaluationInterval() time.Duration {
	if d := x.st.top.EvaluationInterval(); d > 0 {
		return d
	}
	return defaultEvaluationInterval
}

// evaluate runs Prometheus' engine over series read from the shards, and over the tables of the
// plan's leaves, of which some are rough, and writes what it returns.
func (x *exchange) evaluate(p *plan.Plan, tables []*merge.Table, rough []int) error {
	return x.compute(computation{plan: p, grid: x.grid(), tables: tables, rough: rough}, x.encode)
}

// grid is when the query is evaluated.
func (x *exchange) grid() merge.Grid {
	req := x.dec.Request
	if req.ID.Span() == endpoint.SpanInstant {
		return merge.Grid{Start: req.Time.Ms, End: req.Time.Ms}
	}
	return merge.Grid{Start: req.Start.Ms, End: req.End.Ms, Step: req.Step.Milliseconds()}
}

// begin takes a place among the evaluations. It is somebody else's while the client takes its time
// to read.
func (x *exchange) begin() (*evaluation.Turn, error) {
	turn, err := x.s.gate.Begin(x.ctx, x.lane)
	x.client.pause = turn.Pause
	return turn, err
}

// encode writes a result as Prometheus would.
func (x *exchange) encode(res *promql.Result, qry promql.Query, turn *evaluation.Turn) error {
	req := x.dec.Request
	_, span := x.s.room(x.ctx, "encode")
	defer span.End()
	if err := x.out.Begin(); err != nil {
		return err
	}
	enc := merge.NewEncoder(x.out, x.limits.MaxResponseBytes)
	enc.Look = turn.Look
	if x.stats() != "" {
		enc.Stats = stats.NewQueryStats(qry.Stats())
	}
	cut := func(n int) int {
		if req.Limit > 0 && n > req.Limit {
			x.warnings.Add("results truncated due to limit")
			return req.Limit
		}
		return n
	}
	var err error
	switch v := res.Value.(type) {
	case promql.Vector:
		v = v[:cut(len(v))]
		if err = x.budget.AddSamples(int64(len(v))); err == nil {
			err = enc.Vector(v)
		}
	case promql.Matrix:
		v = v[:cut(len(v))]
		if err = x.budget.AddSamples(int64(v.TotalSamples())); err == nil {
			err = enc.Matrix(v)
		}
	case promql.Scalar:
		err = enc.Scalar(v)
	case promql.String:
		err = enc.String(v)
	default:
		err = qerr.New(qerr.Internal, "the engine returned a value of an unknown kind")
	}
	if err != nil {
		return err
	}
	return x.finishJSON()
}

// engineError turns what the engine says into what the client is told.
func (x *exchange) engineError(ctx context.Context, err error, most int64) error {
	var storageErr promql.ErrStorage
	if errors.As(err, &storageErr) {
		err = storageErr.Err
	}
	var lost *answer.LostShard
	var own *qerr.Error
	if errors.As(err, &own) && own.Kind == qerr.Timeout && len(own.Shards) > 0 {
		return err // the deadline, and who was waited for
	}
	if ctx.Err() != nil {
		return qerr.FromContext(ctx, err)
	}
	if errors.As(err, &lost) || errors.As(err, &own) {
		return err
	}
	var tooMany promql.ErrTooManySamples
	var timeout promql.ErrQueryTimeout
	var canceled promql.ErrQueryCanceled
	switch {
	case errors.As(err, &tooMany):
		e := qerr.Refuse(policy.BoundMaxSamples, itoa(most), "more than "+itoa(most), "shorten the range, widen the step or select fewer series",
			"the query loads more samples than max_samples allows (%d)", most)
		if most < x.limits.MaxSamples {
			e.Message = "the query loads more samples than half of memory.budget has room for (" + itoa(most) + ")"
		}
		return e
	case errors.As(err, &timeout), errors.As(err, &canceled):
		return deadlineError(x.dec.Deadline, x.limits.Timeout)
	}
	return qerr.Wrap(qerr.TooExpensive, err, "%s", err) // what Prometheus answers with 422: a many-to-many match, a duplicate label set
}

// warnTwice warns of series that two shards hold, once for each pair of shards.
func (x *exchange) warnTwice() { x.twice.each(func(msg string) { x.warnings.Add(msg) }) }

// rawLost decides about shards that no replica of which answered: an error that a partial answer
// may go on without.
func (x *exchange) rawLost() func(string, error) error {
	return func(name string, err error) error {
		if x.attempt.LeavesOut(name) {
			return nil
		}
		if x.ctx.Err() == nil && x.shardLost(err) {
			x.gone.add(name)
			return &answer.LostShard{Name: name, Err: err}
		}
		return err
	}
}
