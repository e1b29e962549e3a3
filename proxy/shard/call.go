package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// DefaultMaxBytes bounds an answer's inflated bytes where CallOptions gives no bound.
const DefaultMaxBytes = 64 << 20

// CallOptions bound one call to a replica.
type CallOptions struct {
	// MaxBytes is the most that the answer's body may come to once inflated; 0 is DefaultMaxBytes. A body that goes over it is an error of the bound
	// max_response_bytes and costs its connection.
	MaxBytes int64
	// Class chooses the gate that the call passes; the zero value passes none.
	Class Class
	// Plain asks the server not to compress: less work on both sides, more bytes between them.
	Plain bool
	// Partial lets a Thanos Query leave out stores of its own that it cannot reach; Response.Partial then says so. Without it such an answer is an error.
	Partial bool
	// Spare tells that another replica of the shard is asked the same, so that this one is not waited for when it does not begin an answer that needs no
	// computing, or when a health probe finds it gone. It concerns Replica.Do alone.
	Spare bool
	// Entered tells that the caller has a place for the call, by Shard.Enter or Topology.EnterAll; else the call waits for one.
	Entered bool
}

// Response is a shard's answer: status 200 and a body of the type that the endpoint promises.
type Response struct {
	// Header is the answer's header as the shard sent it, for reading only; nothing of it may reach a client.
	Header http.Header
	// Body is inflated and bounded. Every error of Read is a *qerr.Error that names the replica. Reading it to io.EOF frees the connection for the next
	// call; closing it before ends the connection. It must be closed.
	Body io.ReadCloser
	// Replica is the server that answered.
	Replica *Replica
	// Partial says why a Thanos Query's answer is not whole, for a warning to the client; empty where it is, and always without CallOptions.Partial.
	Partial string
}

// Arrived tells whether all of the answer is here before the first Read, so that reading it waits for nobody. False may also mean that it is not known.
func (r *Response) Arrived() bool {
	b, ok := r.Body.(*body).raw.(interface{ Arrived() bool })
	return ok && b.Arrived()
}

// Took is how long the server took, from the call's slot: until its answer began, and, as far as its body has been read, in all. Times in which nobody read are
// not in it, so that of a fan-out's calls only those are slow that were.
func (r *Response) Took() (began, all time.Duration) { return r.Body.(*body).call.took(time.Time{}) }

// Malformed is the error for an answer that arrived whole and makes no sense: JSON of a wrong shape, series out of order. It names the replica, counts
// against it, and keeps the first bytes of the body for the log. Call it before Body is closed.
func (r *Response) Malformed(cause error) *qerr.Error { return r.Body.(*body).malformed(cause) }

// outcomeSilent is the outcome of a call that was not made, since its server is known to answer nothing. Without it who asks for such a server would see no calls at all.
const outcomeSilent = "silent"

// call is one HTTP request to one replica, from the gate to the end of the body.
type call struct {
	r       *Replica
	id      endpoint.ID
	parent  context.Context
	ctx     context.Context
	cancel  context.CancelCauseFunc
	started time.Time
	span    trace.Span
	probe   bool // one of the prober's questions

	progress *timers.Timer // one timer: the headers', then each read's
	patience time.Duration // of each read of the body
	deadline *timers.Timer // nil without one
	unwatch  func() bool
	left     atomic.Int64 // when the parent ended, Unix nanoseconds; 0 while it has not
	answered bool         // headers came
	began    atomic.Bool  // the same, for progress
	body     *body
	release  func()
	leave    func()        // of a race, called last; nil for nobody
	header   time.Time     // when the answer's header came
	reading  atomic.Int64  // nanoseconds that reads of the body took: what lies between two reads is ours, or our client's, not the server's
	ended    func()        // called at the end; nil for nobody
	quiet    *timers.Timer // counts the call as one that the server is silent on
	once     sync.Once
	settled  atomic.Bool
}

// try is how one attempt is made.
type try struct {
	CallOptions
	failover bool // another replica can be asked: do not wait for this one for ever
	trial    bool
	probe    bool            // our own questions: not counted by the breaker, not refused for a misconfigured replica
	began    func(time.Time) // called once the gate is passed; nil for nobody
	ended    func()          // called when a call that was answered has ended, body and all; nil for nobody
}

// builder writes the request for a base URL and the time that the shard is given (0: no deadline).
type builder func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error)

// writer is the builder of an API request. Every endpoint that knows the parameter is told how long it may take, always less than we have ourselves.
func writer(req *endpoint.Request) builder {
	return func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error) {
		if timeout <= 0 || req.Timeout > 0 && req.Timeout <= timeout {
			return req.Write(ctx, base)
		}
		clone := *req // shallow: only the timeout differs, and Write changes nothing
		clone.Timeout = timeout
		return clone.Write(ctx, base)
	}
}

// margin is what is kept of the remaining time for ourselves: to read the shard's own timeout error and to write the answer.
func margin(remaining time.Duration) time.Duration {
	return min(max(remaining/20, 10*time.Millisecond), 500*time.Millisecond, remaining/4)
}

// Do asks this replica. The request is rebuilt from req; of ctx the deadline, the cause and the trace are used. A connection that breaks before the
// answer's header is tried once more, unless another replica is asked the same or retries are used up. The error is a *qerr.Error: BadData or TooExpensive with the shard's own sentence, Timeout when the request's
// deadline passed (the replica is named), Overloaded when its gate had no room before that, Canceled with the cause kept when the client left, and
// ShardFailed for everything else that a server can do wrong.
func (r *Replica) Do(ctx context.Context, req *endpoint.Request, o CallOptions) (*Response, error) {
	if err := r.admit(ctx); err != nil {
		return nil, err
	}
	resp, err := r.careful(ctx, req, writer(req), try{CallOptions: o, failover: o.Spare})
	if err != nil && isReset(err) && ctx.Err() == nil && !o.Spare && r.Shard.MayRetry(1) {
		r.up.metrics.retries.WithLabelValues(r.labels()...).Inc()
		if resp, err = r.careful(ctx, req, writer(req), try{CallOptions: o, failover: o.Spare}); err != nil {
			r.Shard.Wasted(err)
		}
	}
	return resp, err
}

// attempt is one request over one connection.
func (r *Replica) attempt(ctx context.Context, id endpoint.ID, build builder, t try) (*Response, error) {
	if ctx.Err() != nil {
		if t.trial {
			r.up.breaker.neutral()
		}
		return nil, r.ctxError(ctx)
	}
	if r.Thanos() && thanosLacks[id] {
		if t.trial {
			r.up.breaker.neutral()
		}
		return nil, r.errNotServed(id)
	}
	if !t.probe {
		if e := r.refused(time.Now()); e != nil {
			if t.trial {
				r.up.breaker.neutral()
			}
			if errors.Is(e, errMute) {
				r.up.metrics.requests.WithLabelValues(append(r.labels(), outcomeSilent)...).Inc()
			}
			return nil, e
		}
		r.up.metrics.again.earn()
		r.Shard.hedge.again.earn()
	}
	c := &call{r: r, id: id, parent: ctx, probe: t.probe, release: func() {}, ended: t.ended}
	if g := r.up.gates.of(t.Class); g != nil {
		release, err := g.acquire(ctx, r.Name())
		if err != nil {
			return nil, r.noRoom(t, err)
		}
		c.release = release
	}
	if !t.probe && !t.Entered {
		leave, err := r.Shard.Enter(ctx)
		if err != nil {
			c.release()
			return nil, r.noRoom(t, err)
		}
		if class := c.release; r.up.gates.of(t.Class) != nil {
			c.release = func() { leave(); class() }
		} else {
			c.release = leave
		}
	}
	c.started = time.Now()
	if t.began != nil {
		t.began(c.started)
	}
	r.up.inflight.Add(1)
	if !t.probe {
		r.up.unanswered.Add(1)
	}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.span = trace.SpanFromContext(context.Background())           // a span that records nothing
	if !t.probe && trace.SpanContextFromContext(ctx).IsSampled() { // the engine in between may not record
		c.ctx, c.span = r.up.tracer.Start(c.ctx, "shard "+string(id), r.span...)
	}
	c.unwatch = context.AfterFunc(ctx, func() { c.left.Store(time.Now().UnixNano()) })

	var given time.Duration
	if dl, ok := ctx.Deadline(); ok {
		remaining := time.Until(dl)
		m := margin(remaining)
		given = max(remaining-m, time.Millisecond)
		// We stop waiting a little before the request does, so that a partial answer can still name this shard.
		c.deadline = r.up.timers.AfterFunc(remaining-m/2, func() { c.cancel(errShardDeadline) })
	}
	c.progress = r.up.timers.New(func() {
		if c.began.Load() {
			c.cancel(errStalled)
		} else {
			c.cancel(errHeaderTimeout)
		}
	})
	if t.failover && answersAtOnce(id) {
		c.progress.Reset(r.up.opts.HeaderTimeout)
	}
	forget := func() {}
	if t.failover {
		forget = r.up.whenDown(func() { c.cancel(errWentDown) })
	}
	if r.Thanos() && !t.probe {
		build = r.thanosBuilder(id, build, t.Partial)
	}
	c.watchSilence()
	resp, err := c.send(build, given, t.Plain || id == endpoint.Read) // the chunks of remote read are compressed already
	forget()
	c.quiet.Stop()
	c.progress.Stop()
	if err != nil {
		e := c.explain(err, nil)
		c.wasLate(e)
		c.end(e)
		return nil, e
	}
	c.answered, c.header = true, time.Now()
	c.began.Store(true)
	if !t.probe {
		r.up.lag.heard()
		r.up.unanswered.Add(-1)
		r.counters().header.Observe(c.header.Sub(c.started).Seconds())
		r.paced(c.header.Sub(c.started), c.header)
		if answersAtOnce(id) {
			r.up.began(c.header.Sub(c.started))
		}
	}
	out, err := c.accept(resp)
	if err != nil {
		e := c.explain(err, nil)
		c.end(e)
		_ = resp.Body.Close() // after the context, so that nothing is drained
		return nil, e
	}
	b := out.Body.(*body)
	b.max = t.MaxBytes
	if b.max <= 0 {
		b.max = DefaultMaxBytes
	}
	// From here on a read that takes too long ends the call; the timer is armed by each read.
	c.patience = r.up.opts.ProgressTimeout
	if dl, ok := ctx.Deadline(); ok && t.failover { // so that there is time to ask the other one
		c.patience = min(c.patience, max(time.Until(dl)/3, time.Millisecond))
	}
	if r.Thanos() && !t.probe {
		if e := c.judgeThanos(out, given, t.CallOptions); e != nil {
			c.end(e)
			_ = out.Body.Close()
			return nil, e
		}
	}
	return out, nil
}

// noRoom counts a call that found no room at a gate.
func (r *Replica) noRoom(t try, err error) error {
	if t.trial {
		r.up.breaker.neutral()
	}
	r.up.metrics.requests.WithLabelValues(append(r.labels(), qerr.From(err).Kind.String())...).Inc()
	return err
}

// answersAtOnce tells the endpoints whose answer a sound server begins within seconds. The others compute first: for them silence means nothing, and
// another replica is asked only when the health probe says that this one is gone.
func answersAtOnce(id endpoint.ID) bool {
	switch id {
	case endpoint.Query, endpoint.QueryRange, endpoint.QueryExemplars, endpoint.Read, endpoint.Federate:
		return false
	default:
		return true
	}
}

func (c *call) arm() {
	c.progress.Reset(c.patience)
	c.quiet.Reset(silentAfter)
}

func (c *call) disarm() {
	c.progress.Stop()
	c.quiet.Stop()
}

func (c *call) send(build builder, given time.Duration, plain bool) (*http.Response, error) {
	req, err := build(context.WithValue(c.ctx, dialedFor{}, c.ctx), c.r.up.base, given)
	if err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "Spillway could not write the request for %s", c.r.Name())
	}
	if req.URL.Host != c.r.up.base.Host || req.URL.Scheme != c.r.up.base.Scheme {
		return nil, qerr.New(qerr.Internal, "Spillway wrote a request for another server than %s", c.r.Name())
	}
	for name, value := range c.r.up.headers {
		req.Header.Set(name, value)
	}
	encoding := "gzip"
	if plain {
		encoding = "identity"
	}
	req.Header.Set("Accept-Encoding", encoding)
	req.Header.Set("User-Agent", c.r.up.opts.UserAgent)
	propagation.TraceContext{}.Inject(c.ctx, propagation.HeaderCarrier(req.Header))
	resp, err := c.r.up.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// accept judges status and header, and sets up the body.
func (c *call) accept(resp *http.Response) (*Response, error) {
	c.span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	c.r.up.sawDate(resp.Header.Get("Date"), c.started)
	if resp.StatusCode != http.StatusOK {
		return nil, c.status(resp)
	}
	name := c.r.Name()
	b := &body{call: c, wire: counter{r: resp.Body}, raw: resp.Body}
	switch enc := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ",")); {
	case enc == "" || enc == "identity":
	case enc == "snappy" && c.id == endpoint.Read: // samples mode; the reader of the message undoes it
	case enc == "gzip" && c.id != endpoint.Read:
		b.gzipped = true
	default:
		return nil, qerr.New(qerr.ShardFailed, "%s sent an encoding that Spillway did not ask for (%s); look at what stands between them", name, clip(enc))
	}
	ct, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		ct = ""
	}
	switch {
	case c.id == endpoint.Read && (ct == "application/x-protobuf" || ct == "application/x-streamed-protobuf"):
		err = nil
	case c.id == endpoint.Federate && (ct == "text/plain" || ct == "application/openmetrics-text"):
		err = nil
	case c.id != endpoint.Read && c.id != endpoint.Federate && ct == "application/json":
		err, b.json = nil, true
	case c.id == probeText:
		err = nil
	default:
		want := "JSON"
		if c.id == endpoint.Read || c.id == endpoint.Federate {
			want = "what the endpoint promises"
		}
		first := make([]byte, headBytes)
		c.progress.Reset(c.r.up.opts.ProgressTimeout)
		n, _ := io.ReadFull(resp.Body, first) // best effort, for the log
		c.progress.Stop()
		return nil, c.malformedf(fmt.Errorf("Content-Type %q", clip(resp.Header.Get("Content-Type"))), first[:n],
			"%s answered with something that is not %s; is its url that of a Prometheus, and does a login page stand before it?", name, want)
	}
	if !b.json && resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && c.id != probeText {
		// The end of such a body is the end of the connection, which looks like a cut; JSON has a last brace, these have none.
		return nil, qerr.New(qerr.ShardFailed, "%s sent an answer with neither a length nor chunks, whose end cannot be told from a cut; "+
			"is there an HTTP/1.0 proxy before it?", name)
	}
	c.body = b
	return &Response{Header: resp.Header, Body: b, Replica: c.r}, nil
}

// end closes the books of a call, once: connection, gate, breaker, metrics, span.
func (c *call) end(err error) {
	c.once.Do(func() {
		c.progress.Stop()
		c.quiet.Stop()
		if c.deadline != nil {
			c.deadline.Stop()
		}
		c.unwatch()
		c.cancel(errCallEnded)
		now := time.Now()
		up, labels := c.r.up, c.r.labels()
		outcome := "ok"
		switch {
		case err == nil: // the breaker is told when the body is closed: its reader may yet find that it makes no sense
		case errors.Is(err, errEarlyClose):
			outcome = "cut"
			if c.parent.Err() != nil {
				outcome = c.outcome(qerr.FromContext(c.parent, err))
			}
			c.settle(errEarlyClose, now)
		default:
			outcome = c.outcome(qerr.From(err))
			c.settle(err, now)
			c.span.SetStatus(codes.Error, outcome)
		}
		if c.parent.Err() != nil && !c.probe {
			var lingered time.Duration // stays 0 where we were faster than the note of its end
			if left := c.left.Load(); left != 0 {
				lingered = max(0, now.Sub(time.Unix(0, left)))
			}
			up.metrics.linger.WithLabelValues(labels[:2]...).Observe(lingered.Seconds())
		}
		if c.body != nil {
			c.r.counters().bytes.Add(float64(c.body.wire.n))
			c.span.SetAttributes(attribute.Int64("http.response.body.size", c.body.wire.n))
		}
		if !c.probe {
			if outcome == "ok" {
				c.r.counters().ok.Inc()
			} else {
				up.metrics.requests.WithLabelValues(append(labels, outcome)...).Inc()
			}
			_, own := c.took(now)
			c.r.counters().duration.Observe(own.Seconds())
			if !c.answered {
				up.unanswered.Add(-1)
				if own >= silentAfter {
					c.r.counters().header.Observe(own.Seconds())
					c.r.paced(own, now)
				}
			}
			c.span.End()
		}
		c.release()
		up.finished()
		if c.ended != nil {
			c.ended()
		}
		if c.leave != nil {
			c.leave()
		}
	})
}

// took is what the server itself took: to begin its answer, and in all. That the others of a fan-out were waited for before its body was read is in neither.
func (c *call) took(now time.Time) (began, all time.Duration) {
	if c.header.IsZero() {
		return now.Sub(c.started), now.Sub(c.started)
	}
	began = c.header.Sub(c.started)
	return began, began + time.Duration(c.reading.Load())
}

// endedByOther tells whether the call was ended from outside with a cause that is nobody's wish and not this replica's doing, such as the failure of another one.
func (c *call) endedByOther(e *qerr.Error) bool {
	return c.parent.Err() != nil && (e.Kind == qerr.Internal || e.Kind == qerr.ShardFailed && !slices.Contains(e.Shards, c.r.Name()))
}

// outcome is the metric label of an error. A call that was ended because of another one was canceled as far as this replica is concerned.
func (c *call) outcome(e *qerr.Error) string {
	if c.endedByOther(e) {
		return qerr.Canceled.String()
	}
	return e.Kind.String()
}

// settle tells the breaker, once, what the call says about the replica.
func (c *call) settle(err error, now time.Time) {
	b := &c.r.up.breaker
	if c.probe || c.settled.Swap(true) { // a probe is the prober's affair
		return
	}
	var status *StatusError
	kind := qerr.Internal
	if err != nil {
		kind = qerr.From(err).Kind
	}
	switch {
	case err != nil && c.endedByOther(qerr.From(err)):
		b.neutral()
	case err == nil, kind == qerr.BadData:
		if c.r.up.failing.Load() != 0 {
			c.r.up.failing.Store(0)
		}
		if b.success() {
			c.r.up.opts.Logger.Info("a replica that failed too often answers again", slog.String("replica", c.r.Name()))
		}
	case errors.As(err, &status) && (status.Code == http.StatusTooManyRequests || status.later()):
		b.neutral()
	case errors.As(err, &status) && status.Code < 500:
		b.neutral() // an endpoint it does not serve, credentials it does not take: it is alive
	case kind == qerr.ShardFailed, kind == qerr.Timeout && !c.answered && now.Sub(c.started) >= c.r.up.opts.HeaderTimeout:
		c.r.Shard.turnFrom(c.r)
		c.r.up.failing.CompareAndSwap(0, c.started.UnixNano())
		if b.failure(now) && b.tell(now) {
			c.r.up.opts.Logger.Warn("a replica failed too often; others of its shard are preferred until it answers again",
				slog.String("replica", c.r.Name()), slog.Any("err", err))
		}
	default:
		b.neutral()
	}
}
