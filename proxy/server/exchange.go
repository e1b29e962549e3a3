package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// exchange is one request on its way through the rooms. It belongs to the goroutine that serves the request.
type exchange struct {
	s      *Server
	st     *state
	ctx    context.Context
	stop   context.CancelFunc
	id     endpoint.ID // known even where the request was not understood; empty outside the table
	req    *endpoint.Request
	limits config.Limits
	dec    *policy.Decision
	view   *plan.View
	budget *merge.Budget
	out    *merge.Writer
	client *clientWriter
	header http.Header // of the client's request; only content negotiation and attribution look at it

	partial  bool
	warnings merge.Notes
	infos    merge.Notes
	drops    dropped.Found  // what drop rules have taken away of what it asks for
	attempt  answer.Attempt // the one that is made now
	gone     nameSet        // shards that were found to fail; several goroutines tell
	account  *account       // what explain tells; nil where nobody asked
	twice    notes          // of series that two shards hold
	late     error          // of the first server that was waited for until the deadline
	cut      bool           // the answer was truncated by a bound
	calls    shardSeconds
	asked    int                     // calls to shards that another attempt would repeat
	end      context.CancelCauseFunc // ends the request with a cause
	watched  *heap.Request
	weighed  atomic.Pointer[merge.Budget] // what the heap's watch asks how much it holds
	doing    string                       // what the request's time is spent on, for the sentence of its deadline
	rawHere  string                       // why its series are read and evaluated here; empty where they are not
	rawCause plan.Cause                   // likewise, as the metric of plans has it
}

// serveAPI answers a request to the API.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	client, qe := s.road(w, r, nil)
	if qe == nil {
		return
	}
	if client.wrote || qe.Kind == qerr.Canceled {
		// Half an answer must not look like a whole one, and neither must none. net/http cuts the connection and logs nothing.
		panic(http.ErrAbortHandler)
	}
	client.Header().Set(verdictHeader, string(policy.Refuse))
	client.extend(time.Now().Add(writePatience))
	if client.refusal != nil {
		client.refusal.refuse(client, qe) // whoever asks why is told, and that is a success
	} else {
		qe.WriteTo(client)
	}
	_ = client.rc.SetWriteDeadline(time.Time{})
}

// inner is what this process asks itself: a request that was understood already, and an account of it where one is wanted.
type inner struct {
	req     *endpoint.Request
	account *account
}

// road is the road of a request: parse, identity, policy, answer, usage. The error is what the client is told; it is not written. With own the request r says who asks, and own what.
func (s *Server) road(w http.ResponseWriter, r *http.Request, own *inner) (*clientWriter, *qerr.Error) {
	start := s.now()
	st := s.acquire()
	defer st.release()
	id := identity.NewID()
	w.Header().Set("X-Spillway-Request-Id", id)
	client := &clientWriter{ResponseWriter: w, rc: http.NewResponseController(w)}

	rctx := s.propagator.Extract(r.Context(), headerCarrier(r.Header))
	rctx, span := s.tracer.Start(rctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	x := &exchange{s: s, st: st, client: client, header: r.Header}
	_, room := s.room(rctx, "identity")
	caller := identity.FromRequest(r)
	room.End()
	s.metrics.inflight.Inc()
	defer s.metrics.inflight.Dec()

	// The cause of the end is kept: a client that left, our deadline, or the end of draining.
	ctx, cancel := context.WithCancelCause(identity.With(rctx, identity.Request{ID: id, Peer: identity.Peer(r)}))
	defer cancel(nil)
	defer context.AfterFunc(r.Context(), func() { cancel(qerr.ErrClientLeft) })()
	defer context.AfterFunc(s.drained, func() { cancel(context.Cause(s.drained)) })()

	x.end = cancel
	defer x.close()
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = s.panicked(p)
			}
		}()
		if err := x.understand(ctx, r, own); err != nil {
			return err
		}
		return x.run(ctx)
	}()
	var qe *qerr.Error
	if err != nil {
		qe = s.explain(x, r, err)
	}
	s.finish(x, span, caller, id, start, qe)
	if qe != nil && qe.Kind == qerr.TooExpensive && x.account != nil && x.account.only {
		x.account.told = x.account.explanation(x.req.Query, qe)
		client.refusal = x.account
	}
	return client, qe
}

// close gives back what the request held.
func (x *exchange) close() {
	x.watched.Leave()
	if x.out != nil {
		x.out.Close()
	}
	x.budget.Close()
	if x.stop != nil {
		x.stop()
	}
}

const verdictHeader = "X-Spillway-Verdict"

// understand finds out what the request asks for.
func (x *exchange) understand(ctx context.Context, r *http.Request, own *inner) error {
	if own != nil {
		x.id, x.req, x.account = own.req.ID, own.req, own.account
		return nil
	}
	s := x.s
	hasBody := r.Body != nil && r.Body != http.NoBody
	if hasBody {
		_ = x.client.rc.SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
	_, span := s.room(ctx, "endpoint")
	if e, _, err := endpoint.Lookup(r); err == nil {
		x.id = e.ID
	}
	req, err := endpoint.Parse(r, endpoint.Options{StrictParameters: x.st.cfg.StrictParameters})
	span.End()
	x.req = req
	if err != nil {
		return err // the deadline stays: net/http reads what is left of the body before it answers
	}
	if req.ID == endpoint.Query || req.ID == endpoint.QueryRange {
		x.account = accountOf(x.header.Get(explainHeader))
	}
	if hasBody {
		_ = x.client.rc.SetReadDeadline(time.Time{})
	}
	if n := len(req.Dropped); n > 0 {
		s.metrics.dropped.WithLabelValues(string(req.ID)).Add(float64(n))
	}
	return nil
}

// run goes through the rooms up to the finished answer.
func (x *exchange) run(ctx context.Context) (err error) {
	s, req := x.s, x.req
	x.limits = x.st.cfg.LimitsFor(req.ID)
	now := s.now()

	_, span := s.room(ctx, "policy")
	x.dec, err = policy.Decide(req, policyLimits(x.limits), x.st.owned, now)
	span.End()
	if err != nil {
		return err
	}
	x.lookDropped()
	deadline := time.Now().Add(x.dec.Deadline)
	// It ends in close, not here: what went wrong is explained by the state of the context at that time.
	x.ctx, x.stop = s.timers.WithDeadline(ctx, deadline, func() error { return deadlineError(x.dec.Deadline, x.limits.Timeout) })
	x.client.until = deadline.Add(time.Second)
	x.view = plan.NewView(x.st.top, now)
	// Read and federate have no place for a warning, so the configuration alone makes none of their answers partial: a ruler or another Prometheus would
	// not know.
	x.partial = x.st.cfg.PartialResponse == config.PartialWarn && req.ID != endpoint.Read && req.ID != endpoint.Federate
	if req.PartialResponse != nil {
		x.partial = *req.PartialResponse
	}
	if x.partial {
		x.loseEjected()
	}
	x.watched = s.heap.Join(func() int64 { return x.weighed.Load().Held() }, x.end)
	handle := handlers[req.ID]
	for {
		x.budget = merge.NewBudget(x.st.pool, merge.Limits{
			MaxSeries: x.limits.MaxSeries, MaxSamples: x.limits.MaxSamples, MaxBytes: x.limits.MaxResponseBytes,
		})
		x.weighed.Store(x.budget)
		x.out = merge.NewWriter(x.client, x.budget)
		x.out.OnCommit = x.commit
		x.warnings, x.infos = merge.Notes{}, merge.Notes{}
		x.twice.reset()
		x.asked = 0
		x.warnings.Add(x.dec.Warnings...)
		x.warnings.Add(x.drops.Warnings...)
		x.infos.Add(x.drops.Infos...)
		for _, name := range x.attempt.Without {
			x.warnings.Add("partial answer: shard " + name + " did not answer; its series are missing")
		}
		err = handle(x)
		if err == nil {
			return nil
		}
		if !x.nextAttempt(err) {
			return x.lastWord(err)
		}
		x.out.Close()
		x.budget.Close()
	}
}

// lastWord is the error of a request that makes no further attempt.
func (x *exchange) lastWord(err error) error {
	if x.late != nil && qerr.From(err).Kind == qerr.Timeout {
		return x.late
	}
	if qerr.TimedOut(x.ctx) && shard.Stalled(err) { // it went on in drops, until no time was left for its copy: that is the deadline's end
		late := *qerr.From(err)
		late.Kind = qerr.Timeout
		return &late
	}
	return err
}

// nextAttempt tells whether the request begins again, as answer.Attempt.Next has it and as far as the budget for asking again allows, and sees to what the reason entails.
func (x *exchange) nextAttempt(err error) bool {
	if qerr.From(err).Kind == qerr.Timeout {
		x.wasLate(err)
	}
	query, now := x.dec.Request.Query, x.s.now()
	next, reason := x.attempt.Next(err, answer.Case{
		Over: x.ctx.Err() != nil || x.client.wrote, Partial: x.partial, Shards: x.st.shards, Gone: x.gone.sorted(),
	})
	switch reason {
	case answer.Apart:
		x.s.metrics.inexact.Inc()
		x.s.inexacts.put(query, next.Raw, now)
	case answer.Order:
		x.s.reordered.put(query, err.Error(), now)
	case answer.Replica:
		if s := x.shardOf(next.After); s == nil || !x.mayAskAgain(s, x.asked) {
			return false
		}
		for _, name := range next.After.Names {
			if r := x.st.top.Replica(name); r != nil && len(r.Shard.Replicas) > 1 {
				r.Gone(x.ctx) // it is known then for what is planned again
			}
		}
	default:
		if x.ctx.Err() == nil && !x.client.wrote {
			x.askedInVain(x.shardOf(x.attempt.After), err)
		}
		if reason == answer.None {
			return false
		}
		x.countLost(len(next.Without) - len(x.attempt.Without))
	}
	x.attempt = next
	return true
}

// countLost counts shards that the answer goes without.
func (x *exchange) countLost(n int) {
	x.s.metrics.partial.WithLabelValues(string(x.req.ID)).Add(float64(n))
}

// loseEjected leaves out the shards that are known to fail, at once, where the caller accepts that: each request would find out anew otherwise, at the price of
// most of its time. Where no shard would be left, all are asked.
func (x *exchange) loseEjected() {
	var gone []string
	for _, g := range x.st.top.Groups {
		for _, s := range g.Shards {
			if s.Ejected() && x.concerns(s) {
				gone = append(gone, s.Name())
			}
		}
	}
	if len(gone) == x.st.shards {
		return
	}
	x.attempt = x.attempt.Leaving(gone...)
	x.countLost(len(gone))
}

// concerns tells whether the shard can hold what the request selects. What selects nothing, such as rules, concerns all.
func (x *exchange) concerns(s *shard.Shard) bool {
	switch x.req.ID {
	case endpoint.Query, endpoint.QueryRange, endpoint.QueryExemplars, endpoint.Series, endpoint.Labels, endpoint.LabelValues:
	default:
		return true
	}
	for _, ms := range x.dec.Selectors {
		if slices.ContainsFunc(x.view.Legs(ms, x.dec.Start, x.dec.End), func(l plan.Leg) bool { return l.Shard == s }) {
			return true
		}
	}
	return len(x.dec.Selectors) == 0 && x.id != endpoint.Query && x.id != endpoint.QueryRange
}

// wasLate remembers the first server that used up the request's time: should there be none left for the others, it is to be named, not they.
func (x *exchange) wasLate(err error) {
	if x.late == nil {
		x.late = err
	}
}

// commit sets the headers; it runs before the first byte of an answer.
func (x *exchange) commit(size int64) {
	h := x.client.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(verdictHeader, string(x.verdict()))
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
}

func (x *exchange) verdict() policy.Verdict {
	if x.dec == nil {
		return policy.Refuse
	}
	if x.cut {
		return policy.Clamp
	}
	return x.dec.Verdict
}

// finishJSON ends an answer that was begun with out.Begin.
func (x *exchange) finishJSON() error {
	_, span := x.s.room(x.ctx, "write")
	defer span.End()
	return x.out.Finish(x.warnings.List(), x.infos.List())
}

// explain turns an error into what the client is told, asking first what became of the request.
func (s *Server) explain(x *exchange, r *http.Request, err error) *qerr.Error {
	var qe *qerr.Error
	if errors.As(err, &qe) && qe.Kind == qerr.SlowRequest {
		return qe // net/http has cancelled the context for the read that failed, but the client is there
	}
	if r.Context().Err() != nil {
		return qerr.From(qerr.ErrClientLeft)
	}
	if errors.As(err, &qe) && qe.Kind != qerr.Internal {
		return x.counsel(shard.Busy(qe))
	}
	if x.ctx != nil {
		return x.counsel(qerr.FromContext(x.ctx, err))
	}
	return qerr.From(err)
}

// finish is the one place that counts and logs a request.
func (s *Server) finish(x *exchange, span trace.Span, caller identity.Caller, id string, start time.Time, qe *qerr.Error) {
	took := s.now().Sub(start)
	ep, verdict, bound := "none", x.verdict(), ""
	if x.id != "" {
		ep = string(x.id)
	}
	outcome := "success"
	if qe != nil {
		outcome = qe.Kind.String()
		bound = qe.Bound
		if qe.Kind != qerr.Canceled {
			verdict = policy.Refuse
		}
		if bound != "" {
			s.metrics.refusals.WithLabelValues(ep, bound).Inc()
		}
		if qe.Kind == qerr.Canceled {
			s.metrics.canceled.WithLabelValues(ep).Inc()
		}
		span.SetStatus(codes.Error, outcome)
	}
	s.metrics.requests.WithLabelValues(ep, string(verdict), outcome).Inc()
	s.metrics.duration.WithLabelValues(ep).Observe(took.Seconds())
	s.metrics.series.WithLabelValues(ep).Add(float64(x.budget.Series()))
	s.metrics.samples.WithLabelValues(ep).Add(float64(x.budget.Samples()))
	s.metrics.read.WithLabelValues(ep).Add(float64(x.budget.Bytes()))
	s.metrics.written.WithLabelValues(ep).Add(float64(x.client.n))
	if x.budget != nil {
		s.metrics.peak.Observe(float64(x.budget.Peak()))
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.String("spillway.endpoint", ep), attribute.String("spillway.verdict", string(verdict)), attribute.String("spillway.request_id", id),
			attribute.String("spillway.outcome", outcome), attribute.Int64("spillway.series", x.budget.Series()), attribute.Int64("spillway.samples", x.budget.Samples()))
		if bound != "" {
			span.SetAttributes(attribute.String("spillway.bound", bound))
		}
	}

	level := slog.LevelDebug
	if qe != nil {
		switch qe.Kind {
		case qerr.Internal:
			level = slog.LevelError
		case qerr.ShardFailed, qerr.Timeout:
			if s.digest.first(qe) {
				level = slog.LevelWarn
			}
		}
	}
	s.digest.request(ep, took, qe)
	if s.log.Enabled(x.context(), level) {
		attrs := []slog.Attr{
			slog.String("id", id), slog.String("endpoint", ep), slog.String("verdict", string(verdict)), slog.String("outcome", outcome),
			slog.Duration("duration", took), slog.Int64("series", x.budget.Series()), slog.Int64("bytes", x.client.n), slog.Any("caller", caller),
		}
		if x.req != nil && x.req.Query != "" {
			attrs = append(attrs, slog.String("query", clip(x.req.Query, 256)))
		}
		if qe != nil {
			attrs = append(attrs, slog.String("bound", bound), slog.String("err", clip(qe.Error(), 2048)))
		}
		s.log.LogAttrs(x.context(), level, "request", attrs...)
	}
	room := unrecorded
	if span.IsRecording() {
		_, room = s.tracer.Start(trace.ContextWithSpan(context.Background(), span), "usage")
	}
	s.recordUsage(x, caller, id, start, string(verdict), bound)
	room.End()
}

func (x *exchange) context() context.Context {
	if x.ctx == nil {
		return context.Background()
	}
	return x.ctx
}

func deadlineError(d, ours time.Duration) *qerr.Error {
	e := qerr.Wrap(qerr.Timeout, context.DeadlineExceeded, "the request did not finish within its %s", d)
	e.Bound, e.Value, e.Seen = policy.BoundTimeout, d.String(), "more than "+d.String()
	if d >= ours {
		e.Advice = "shorten the range, select fewer series, or use a recording rule"
	} else {
		e.Advice = "give it more time (timeout=), up to " + ours.String()
	}
	return e
}

func policyLimits(l config.Limits) policy.Limits {
	return policy.Limits{
		Timeout: l.Timeout, MaxSeries: l.MaxSeries, MaxSamples: l.MaxSamples, MaxResponseBytes: l.MaxResponseBytes, MaxRange: l.MaxRange,
		MetadataRange: l.MetadataRange, MaxQueryBytes: l.MaxQueryBytes, Unselective: l.Unselective,
	}
}
