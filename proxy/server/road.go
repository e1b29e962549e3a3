package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/coalesce"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// serveAPI answers a request to the API.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	client, qe := s.road(w, r, nil)
	tell(r, client, qe)
}

// tell tells a client what went wrong, where anything did.
func tell(r *http.Request, client *clientWriter, qe *qerr.Error) {
	if qe == nil {
		return
	}
	if client.wrote || qe.Kind == qerr.Canceled {
		abort(r) // half an answer must not look like a whole one, and neither must none
	}
	client.Header().Set(verdictHeader, string(policy.Refuse))
	// Where this process was late, the end of the request has passed: what went wrong is told
	// anyway.
	client.until = time.Time{}
	client.extend()
	if client.refusal != nil {
		client.refusal.refuse(client, qe) // whoever asks why is told, and that is a success
	} else {
		qe.WriteTo(client)
	}
	// The deadline stays: what was written is small, and net/http sends it after this.
}

// inner is what this process asks itself: a request that was understood already, and an account of
// it where one is wanted.
type inner struct {
	req     *endpoint.Request
	account *account
	tenant  *tenant.Tenant // who it is asked for; nil is whoever sends it
	// page tells that a page of ours, or the admin API, asks for whoever looks at it: it is that
	// one's request like any other, which is seen, counted and ended as such.
	page bool
	// operator tells that whoever runs Spillway asks: over the admin listener, or on the command
	// line. That is no tenant, and sees everything.
	operator bool
	// trial tells that a rewrite is tried, and takes what comes of it; nil elsewhere. Who asks is
	// said by it, and what was written by a client meets whatever refuses clients.
	trial *trial
}

// road is the road of a request, from room to room: who asks, what is asked for, within which
// bounds, the answer, what went wrong, and what is left in metrics, log and usage log. The error is
// what the client is told; it is not written. With own the request r says who asks, and own what.
func (s *Server) road(w http.ResponseWriter, r *http.Request, own *inner) (*clientWriter, *qerr.Error) {
	x, ctx, leave := s.enter(w, r)
	defer leave()
	err := x.identify(ctx, r, own)
	if err == nil {
		ctx = x.inLane(ctx, r, own)
		x.whole = ctx
		err = x.understand(ctx, r, own)
	}
	if err == nil {
		err = x.decide(ctx)
	}
	if err == nil {
		err = x.answer()
	}
	qe := s.linked(x, s.explain(x, r, err))
	if x.trial != nil {
		s.finishTrial(x, qe != nil)
	} else {
		s.finish(x, qe)
	}
	return x.client, qe
}

// enter begins a request: its id, its span, and the context that ends with a cause: a client that
// left, our deadline, or the end of draining. leave gives back all that the request holds.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) (x *exchange, ctx context.Context, leave func()) {
	x = &exchange{s: s, st: s.acquire(), asker: asker{began: s.now(), uid: identity.NewID(), peer: identity.HolderOf(r), header: r.Header}}
	w.Header().Set("X-Spillway-Request-Id", x.uid)
	x.client = &clientWriter{ResponseWriter: w, rc: http.NewResponseController(w), most: s.opts.writePatience}
	// A client that leaves ends its request by left alone: others may wait for the answer.
	ctx, x.span = s.tracer.Start(s.propagator.Extract(context.WithoutCancel(r.Context()), headerCarrier(r.Header)), "request",
		trace.WithSpanKind(trace.SpanKindServer))
	s.metrics.inflight.Inc()
	who := identity.Request{ID: x.uid, Peer: x.peer, Arrived: time.Now().UnixNano()}
	if who.Via = identity.ViaOf(r); who.Via == "" {
		who.Via = identity.From(r.Context()).Via // of the request for which this process asks itself
	}
	ctx, x.end = context.WithCancelCause(identity.With(ctx, who))
	left := context.AfterFunc(r.Context(), x.left)
	drained := context.AfterFunc(s.drained, func() { x.end(context.Cause(s.drained)) })
	return x, ctx, func() {
		x.close()
		drained()
		left()
		x.end(nil)
		s.metrics.inflight.Dec()
		x.span.End()
		x.st.release()
	}
}

// identify finds out who asks. Where there are tenants, nobody else is answered but the operator.
func (x *exchange) identify(ctx context.Context, r *http.Request, own *inner) (err error) {
	_, room := x.s.room(ctx, "identity")
	defer room.End()
	x.caller = identity.FromRequest(r)
	x.alerting = x.caller.Alert || x.caller.Rule != ""
	switch via := identity.From(ctx).Via; {
	case own != nil:
	case via.Loops(x.s.id):
		return qerr.New(qerr.ShardFailed, "this request has come through this Spillway already: the url of a replica in the configuration is Spillway's own, or that of one which asks it; put the Prometheus' or Thanos' address there")
	case via.TooLong(): // no failure of ours: a Spillway before this one passes on what its client made up
		return qerr.New(qerr.BadData, "the header %s names more Spillways than can stand one behind the other; leave it out, and let fewer ask each other", identity.HeaderVia)
	}
	switch {
	case own != nil && own.trial != nil:
		x.caller, x.tenant, x.trial = own.trial.caller, own.tenant, own.trial
		return nil
	case own != nil && own.tenant != nil:
		x.tenant = own.tenant
	case own != nil && own.operator:
	default:
		if x.tenant, err = x.s.walls.identify(x.st.tenants, r); err != nil {
			x.caller = identity.Caller{} // nobody's word
			x.s.challenge(x.client, x.st, err)
			return err
		}
	}
	x.caller = x.tenant.Caller(x.caller)
	return nil
}

// understand finds out what the request asks for.
func (x *exchange) understand(ctx context.Context, r *http.Request, own *inner) (err error) {
	defer x.recovered(&err)
	if own != nil {
		x.id, x.req, x.account, x.inner, x.page = own.req.ID, own.req, own.account, true, own.page
		x.said = own.req
		if own.trial == nil {
			x.exempt, x.wall = own.operator || own.tenant != nil, own.tenant != nil
		} else {
			x.exempt = own.operator
		}
		return nil
	}
	s := x.s
	hasBody := r.Body != nil && r.Body != http.NoBody
	if hasBody {
		_ = x.client.rc.SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
	if hasBody || len(r.URL.RawQuery) > endpoint.UnheldQuery {
		x.body = admit.NewBudget(x.st.pool, admit.Limits{}).By(identity.From(ctx).Peer)
	}
	_, span := s.room(ctx, "endpoint")
	if e, _, err := endpoint.Lookup(r); err == nil {
		x.id = e.ID
	}
	x.req, err = endpoint.Parse(r, endpoint.Options{StrictParameters: x.st.cfg.StrictParameters, Hold: func(n int64) error {
		err := x.body.Hold(n)
		conn(r).headHeld() // a long URL is the first thing that is held; what comes of the body may take its time
		return err
	}})
	conn(r).headHeld()
	span.End()
	if err != nil {
		return err // the deadline stays: net/http reads what is left of the body before it answers
	}
	x.said = x.req
	if x.req.ID.Evaluates() {
		x.account = accountOf(x.header.Get(explainHeader))
	}
	if hasBody {
		_ = x.client.rc.SetReadDeadline(time.Time{})
	}
	if n := len(x.req.Dropped); n > 0 {
		s.metrics.dropped.WithLabelValues(string(x.req.ID)).Add(float64(n))
	}
	return nil
}

// decide puts the request within its bounds, its deadline first, or refuses it.
func (x *exchange) decide(ctx context.Context) (err error) {
	defer x.recovered(&err)
	s, req := x.s, x.req
	x.limits = x.tenant.Bound(x.st.cfg.LimitsFor(req.ID))
	if x.trial != nil {
		x.limits, x.wall = x.trial.bound(x.limits, x.st.pool.Limit()), true
	}
	now := s.now()
	_, span := s.room(ctx, "policy")
	x.dec, err = x.bound(ctx, x.lookingBack(req), now)
	if err == nil { // by what its caller has written
		err = x.forbid()
	}
	if err == nil && x.tenant.Narrow() {
		err = x.narrow(now)
	}
	span.End()
	if err != nil {
		return err
	}
	x.lookDropped()
	deadline := time.Now().Add(x.dec.Deadline)
	// It ends in close, not here: what went wrong is explained by the state of the context at that
	// time.
	x.ctx, x.stop = s.timers.WithDeadline(ctx, deadline, func() error { return deadlineError(x.dec.Deadline, x.limits.Timeout) })
	x.client.until = deadline.Add(time.Second)
	x.view = plan.NewView(x.st.top, now).Narrow(x.s.walls.reads(x.tenant, req.ID))
	// Read and federate have no place for a warning that is looked at, and Grafana's alerts are
	// evaluated without a look at one, so the configuration alone makes none of these answers
	// partial: who acts on them would not know. For that the word of any caller will do.
	x.partial = len(x.st.lacks) > 0 && req.ID.JSON() && !x.alerting
	if req.PartialResponse != nil {
		x.partial, x.chosen = *req.PartialResponse, *req.PartialResponse
	}
	if x.trial != nil { // what lacks anything says nothing of what would come of it
		x.partial, x.chosen = false, false
	}
	if x.partial {
		x.loseEjected()
	}
	x.foresee()
	x.show()
	x.watched = s.heap.Join(x.held, x.end)
	return nil
}

// lookingBack is the request with the shards' lookback where it has none of its own: what it reads
// is reckoned with that one, and a shard's own default must not decide.
func (x *exchange) lookingBack(req *endpoint.Request) *endpoint.Request {
	if !req.ID.Evaluates() || req.LookbackDelta != 0 {
		return req
	}
	own := *req
	own.LookbackDelta = x.lookback()
	return &own
}

// narrow puts the tenant's matchers into what was decided about, and decides again: the caller's
// own text was within its bounds, so it may be longer by the matchers now.
func (x *exchange) narrow(now time.Time) error {
	expr := x.dec.Expr
	req, err := x.s.walls.enforce(x.tenant, x.req, expr, x.dec.Selectors)
	if err != nil {
		return err
	}
	l := policy.Limits(x.limits)
	l.MaxQueryBytes += int64(max(len(req.Query)-len(x.req.Query), 0)) + x.tenant.Bytes()
	known := policy.Known{Once: x.tenant.Regexps()}
	for _, ms := range x.dec.Selectors {
		known.Regexps.Know(ms)
	}
	if x.dec, err = policy.DecideKnown(x.lookingBack(req), l, x.st.owned, now, &known); err != nil {
		return err
	}
	if expr != nil && (tree.String(x.dec.Expr) != req.Query || !plan.Same(expr, x.dec.Expr)) {
		e := qerr.New(qerr.BadData, "the matchers of tenant %s cannot be written into this query without making it another one", x.tenant.Name)
		e.Advice = "write its ranges, steps and offsets as plain durations of whole milliseconds"
		return e
	}
	x.req = req
	selects := x.dec.Selectors
	if x.dec.OfInfo != nil { // what info() reads is narrowed by the view
		selects = nil
		for i, ms := range x.dec.Selectors {
			if !x.dec.OfInfo[i] {
				selects = append(selects, ms)
			}
		}
	}
	return x.s.walls.check(x.tenant, req, selects)
}

// answer answers the request, or gives it the answer to an identical one that is under way.
func (x *exchange) answer() (err error) {
	for {
		flight, lead := x.board()
		switch {
		case flight == nil:
			return x.attempts()
		case lead:
			return x.land(flight, x.attempts())
		}
		switch err := x.given(flight); {
		case errors.Is(err, coalesce.ErrLarge):
			return x.attempts()
		case !errors.Is(err, coalesce.ErrAbandoned): // or else whoever comes first leads the next one
			return err
		}
	}
}

// attempts makes attempts until one succeeds or none is left to make.
func (x *exchange) attempts() (err error) {
	defer x.recovered(&err)
	defer func() { _ = x.client.settle(x.ctx, nil) }() // of one that panicked
	x.leaveStats()
	for {
		x.beginAttempt()
		err := x.client.settle(x.ctx, handlers[x.req.ID](x))
		if err == nil {
			return nil
		}
		if !x.nextAttempt(err) {
			return x.lastWord(err)
		}
		x.lookShadow()
		x.out.Close()
		x.budget.Close()
		x.before += x.budget.ByteSeconds()
	}
}

// partialWarning begins each warning about a shard that an answer goes without.
const partialWarning = "partial answer: "

// beginAttempt is the beginning of an attempt: nothing is held, written or remarked.
func (x *exchange) beginAttempt() {
	l := x.limits
	budget := admit.NewBudget(x.st.pool,
		admit.Limits{MaxSeries: l.MaxSeries, MaxSamples: l.MaxSamples, MaxBytes: l.MaxResponseBytes, Told: x.strict.MaxSeries}).
		By(identity.From(x.ctx).Peer)
	x.holding = holding{budget: budget, out: merge.NewWriter(x.client, budget), twice: &notes{}}
	x.weighed.Store(budget)
	x.doing.set(workPlan)
	x.out.OnCommit = x.commit
	x.warnings.Add(x.dec.Warnings...)
	x.warnings.Add(x.stored.List()...)
	x.warnings.Add(x.drops.Warnings...)
	x.infos.Add(x.drops.Infos...)
	for _, name := range x.attempt.Without {
		x.warnings.Add(partialWarning + "shard " + name + " did not answer; its series are missing")
	}
}

// recovered turns a panic in a room into its error.
func (x *exchange) recovered(err *error) {
	if p := recover(); p != nil {
		*err = x.s.panicked(p, debug.Stack())
	}
}

// explain turns an error into what the client is told, asking first what became of the request; nil
// where there is none.
func (s *Server) explain(x *exchange, r *http.Request, err error) *qerr.Error {
	if err == nil {
		return nil
	}
	qe := s.sentence(x, r, err)
	if qe.Kind == qerr.TooExpensive && x.account != nil && x.account.only {
		x.account.told = x.explanation(qe)
		if !x.inner { // else refuse is not called, which closes it
			x.account.held = admit.NewBudget(x.st.pool, admit.Limits{}).By(identity.HolderOf(r))
		}
		x.client.refusal = x.account
	}
	return qe
}

// sentence is the error as the client is told it.
func (s *Server) sentence(x *exchange, r *http.Request, err error) *qerr.Error {
	if x.wrong == nil {
		x.wrong = x.cause(err)
	}
	// Where the request was slow net/http has cancelled the context for the read that failed, but
	// the client is there.
	if r.Context().Err() != nil && x.wrong.Kind != qerr.SlowRequest {
		return qerr.From(qerr.ErrClientLeft)
	}
	return x.wrong
}

// cause is the error as everybody is told it who waits for the answer.
func (x *exchange) cause(err error) *qerr.Error {
	var fault *qerr.Panic
	if errors.As(err, &fault) {
		return qerr.From(x.s.panicked(fault.Value, fault.Stack))
	}
	var qe *qerr.Error
	if errors.As(err, &qe) && qe.Kind != qerr.Internal {
		return x.rewritten(x.counsel(shard.Busy(qe)))
	}
	if x.ctx != nil {
		return x.counsel(qerr.FromContext(x.ctx, err))
	}
	return qerr.From(err)
}

// finish is the one place that counts and logs a request.
func (s *Server) finish(x *exchange, qe *qerr.Error) {
	took, span := s.now().Sub(x.began), x.span
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
	if x.lane != "" {
		s.metrics.lanes.WithLabelValues(x.lane).Inc()
	}
	s.metrics.series.WithLabelValues(ep).Add(float64(x.budget.Series()))
	s.metrics.samples.WithLabelValues(ep).Add(float64(x.budget.Samples()))
	s.metrics.read.WithLabelValues(ep).Add(float64(x.budget.Bytes()))
	s.metrics.written.WithLabelValues(ep).Add(float64(x.client.n.Load()))
	if x.budget != nil {
		s.metrics.peak.Observe(float64(x.peak()))
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.String("spillway.endpoint", ep), attribute.String("spillway.verdict", string(verdict)),
			attribute.String("spillway.request_id", x.uid),
			attribute.String("spillway.outcome", outcome), attribute.Int64("spillway.series", x.budget.Series()),
			attribute.Int64("spillway.samples", x.budget.Samples()))
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
			slog.String("id", x.uid), slog.String("endpoint", ep), slog.String("verdict", string(verdict)), slog.String("outcome", outcome),
			slog.Duration("duration", took), slog.Int64("series", x.budget.Series()), slog.Int64("bytes", x.client.n.Load()),
			slog.Any("caller", x.caller),
		}
		if x.req != nil && x.req.Query != "" {
			attrs = append(attrs, slog.String("query", clip.Text(x.req.Query, 256)))
		}
		if len(x.shadowRules) > 0 {
			attrs = append(attrs, slog.Any("shadow_rules", x.shadowRules))
		}
		if qe != nil {
			attrs = append(attrs, slog.String("bound", bound), slog.String("err", clip.Text(qe.Error(), 2048)))
		}
		s.log.LogAttrs(x.context(), level, "request", attrs...)
	}
	room := unrecorded
	if span.IsRecording() {
		_, room = s.tracer.Start(trace.ContextWithSpan(context.Background(), span), "usage")
	}
	s.attribute(x, qe)
	s.recordUsage(x, string(verdict), bound)
	room.End()
}
