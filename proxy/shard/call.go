package shard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// DefaultMaxBytes bounds an answer's inflated bytes where CallOptions gives no bound.
const DefaultMaxBytes = 64 << 20

// CallOptions bound one call to a replica.
type CallOptions struct {
	// MaxBytes is the most that the answer's body may come to once inflated; 0 is DefaultMaxBytes.
	// A body that goes over it is an error of the bound max_response_bytes and costs its
	// connection.
	MaxBytes int64
	// Class chooses the gate that the call passes; the zero value passes none.
	Class Class
	// Plain asks the server not to compress: less work on both sides, more bytes between them.
	Plain bool
	// Partial lets a Thanos Query leave out stores of its own that it cannot reach;
	// Response.Partial then says so. Without it such an answer is an error.
	Partial bool
	// Spare tells that another replica of the shard is asked the same, so that this one is not
	// waited for when it does not begin an answer that needs no computing, or when a health probe
	// finds it gone. It concerns Replica.Do alone.
	Spare bool
	// Computes tells that the server computes before it answers though its endpoint does not say
	// so: it may be silent for as long as with a query.
	Computes bool
	// Hold takes room, until the caller gives it back, for an answer of which more than 1 MiB is
	// read before its reader asks for it; nil is none.
	Hold func(bytes int64) error
	// Held is how many bytes the call is estimated to make the server hold, by which it is one or
	// more places wide; 0 is not known.
	Held int64
	// Needs is how many bytes all calls of the request together are estimated to make the server
	// hold, where that is more than Held, which is a part of it: by that it is heavy.
	Needs int64
	// AtMost tells that Held is an upper bound, by which the call takes places, and for which it is
	// not sent to another server, or to none: that Needs decides alone.
	AtMost bool
	// Entered tells that the caller has a place for the call, by Shard.Enter or Topology.EnterAll;
	// else the call waits for one.
	Entered bool
	// Waits is called before the call waits for one of all servers' places, process_calls, and over
	// when it has one or none: no other server is nearer to one. It may be nil.
	Waits func() (over func())
}

// Response is a shard's answer: status 200 and a body of the type that the endpoint promises.
type Response struct {
	// Header is the answer's header as the shard sent it, for reading only; nothing of it may reach
	// a client.
	Header http.Header
	// Body is inflated and bounded. Every error of Read is a *qerr.Error that names the replica.
	// Reading it to io.EOF frees the connection for the next call; closing it before ends the
	// connection. It must be closed.
	Body io.ReadCloser
	// Replica is the server that answered.
	Replica *Replica
	// Partial says why a Thanos Query's answer is not whole, for a warning to the client; empty
	// where it is, and always without CallOptions.Partial.
	Partial string
}

// Arrived tells whether all of the answer is here before the first Read, so that reading it waits
// for nobody. False may also mean that it is not known.
func (r *Response) Arrived() bool {
	b, ok := r.Body.(*body).raw.(interface{ Arrived() bool })
	return ok && b.Arrived()
}

// Took is how long the server took, from when the call had its slot: until its answer began, and,
// as far as its body has been read, in all. Times in which nobody read are not included, so that of
// a fan-out's calls only those count as slow that were.
func (r *Response) Took() (began, all time.Duration) { return r.Body.(*body).call.took(time.Time{}) }

// Malformed is the error for an answer that arrived whole and makes no sense: JSON of a wrong
// shape, series out of order. It names the replica, counts against it, and keeps the first bytes of
// the body for the log. Call it before Body is closed.
func (r *Response) Malformed(cause error) *qerr.Error { return r.Body.(*body).malformed(cause) }

// leastPatience is the least time that a read of a body may take where another replica could be
// asked; the request's deadline ends it sooner. Servers that collect their garbage, or that share
// their processors, pause for some hundred milliseconds.
const leastPatience = time.Second

// outcomeSilent is the outcome of a call that was not made, since its server is known to answer
// nothing. Without it who asks for such a server would see no calls at all.
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
	hurried  atomic.Bool   // it is less than a server may take, since a copy can be asked
	deadline *timers.Timer // nil without one
	unwatch  func() bool
	left     atomic.Int64 // when the parent ended, Unix nanoseconds; 0 while it has not
	atOnce   bool         // see answersAtOnce
	answered bool         // headers came
	began    atomic.Bool  // the same, for progress
	body     *body
	release  func()
	leave    func()    // of a race, called last; nil for nobody
	over     bool      // it has ended
	header   time.Time // when the answer's header came
	// nanoseconds that reads of the body took: what lies between two reads is ours, or our
	// client's, not the server's
	reading atomic.Int64
	ended   func()        // called at the end; nil for nobody
	quiet   *timers.Timer // counts the call as one that the server is silent on
	once    sync.Once
	settled atomic.Bool
}

// try is how one attempt is made.
type try struct {
	CallOptions
	failover bool // another replica can be asked: do not wait for this one for ever
	trial    bool
	probe    bool            // our own questions: not counted by the breaker, not refused for a misconfigured replica
	without  []string        // stores that a Thanos Query is told not to ask
	asked    []string        // stores that it asks of its own, where it cannot be told
	began    func(time.Time) // called once the gate is passed; nil for nobody
	ended    func()          // called when a call that was answered has ended, body and all; nil for nobody
}

// margin is what is kept of the remaining time for ourselves: to read the shard's own timeout error
// and to write the answer.
func margin(remaining time.Duration) time.Duration {
	return min(max(remaining/20, 10*time.Millisecond), 500*time.Millisecond, remaining/4)
}

// Do asks this replica. The request is rebuilt from req; of ctx the deadline, the cause and the
// trace are used. A connection that breaks before the answer's header is tried once more, unless
// another replica is asked the same or retries are used up. The error is a *qerr.Error: BadData or
// TooExpensive with the shard's own sentence, Timeout when the request's deadline passed (the
// replica is named), Overloaded when its gate had no room before that, Canceled with the cause kept
// when the client left, and ShardFailed for everything else that a server can do wrong.
func (r *Replica) Do(ctx context.Context, req *endpoint.Request, o CallOptions) (*Response, error) {
	if err := r.admit(ctx); err != nil {
		return nil, err
	}
	resp, err := r.careful(ctx, req, writer(req), try{CallOptions: o, failover: o.Spare})
	if err != nil && isReset(err) && ctx.Err() == nil && !o.Spare && r.Shard.MayRetry(1) {
		r.count(r.up.metrics.retries)
		if resp, err = r.careful(ctx, req, writer(req), try{CallOptions: o, failover: o.Spare}); err != nil {
			r.Shard.Wasted(err)
		}
	}
	return resp, err
}

// attempt is one request over one connection.
func (r *Replica) attempt(ctx context.Context, id endpoint.ID, build builder, t try) (*Response, error) {
	if err := r.mayAttempt(ctx, id, t); err != nil {
		if t.trial {
			r.up.breaker.neutral()
		}
		return nil, err
	}
	release, err := r.enter(ctx, t)
	if err != nil {
		return nil, r.noRoom(t, err)
	}
	c := &call{r: r, id: id, parent: ctx, probe: t.probe, release: release, ended: t.ended}
	given := c.begin(t)
	forget := func() {}
	if t.failover {
		forget = r.up.whenDown(func() { c.cancel(errWentDown) })
	}
	if r.Thanos() && !t.probe {
		build = r.thanosBuilder(id, build, thanos.Instructions{Partial: t.Partial, Without: t.without})
		if thanos.Warns(id) {
			t.asked = r.askedStores()
		}
	}
	c.watchSilence()
	sent := false
	defer func() {
		if !sent { // a fault of ours must not keep the places that the call has
			forget()
			c.end(errOurFault)
		}
	}()
	resp, err := c.send(build, given, t.Plain || id.Decode() == endpoint.DecodeRead) // the chunks of remote read are compressed already
	sent = true
	forget()
	c.quiet.Stop()
	c.progress.Stop()
	if err != nil {
		e := c.explain(err, nil)
		c.wasLate(e)
		c.end(e)
		return nil, e
	}
	c.hasBegun()
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
		c.patience = min(c.patience, max(time.Until(dl)/3, leastPatience))
		c.hurried.Store(c.patience < r.up.opts.ProgressTimeout)
	}
	if r.Thanos() && !t.probe {
		if e := c.judgeThanos(out, given, t); e != nil {
			c.end(e)
			_ = out.Body.Close()
			return nil, e
		}
	}
	return out, nil
}

// mayAttempt refuses a request that the server is not to be sent: that it does not serve, or while
// it is not to be asked.
func (r *Replica) mayAttempt(ctx context.Context, id endpoint.ID, t try) error {
	if ctx.Err() != nil {
		return r.ctxError(ctx)
	}
	if r.Thanos() && !thanos.Serves(id) {
		return r.errNotServed(id)
	}
	if t.probe {
		return nil
	}
	if e := r.refused(time.Now()); e != nil {
		if errors.Is(e, errMute) {
			r.count(r.up.metrics.requests, outcomeSilent)
		}
		return e
	}
	if e := r.shed(ctx, &t.CallOptions); e != nil {
		return e
	}
	r.up.metrics.again.earn()
	r.Shard.hedge.again.earn()
	return nil
}

// enter passes the gates: that of the call's class, and the shard's.
func (r *Replica) enter(ctx context.Context, t try) (release func(), err error) {
	outer, began := func() {}, time.Now()
	if g := r.up.gates.of(t.Class); g != nil {
		if outer, err = g.acquire(ctx, r.Name(), began); err != nil {
			return nil, err
		}
	}
	if t.probe || t.Entered {
		return outer, nil
	}
	leave, err := r.Shard.enter(ctx, t.Held, began, t.Waits)
	if err != nil {
		outer()
		return nil, err
	}
	return func() { leave(); outer() }, nil
}

// begin starts the call's clocks, and returns how long the server is given; 0 is for ever.
func (c *call) begin(t try) (given time.Duration) {
	r, ctx := c.r, c.parent
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
		c.ctx, c.span = r.up.tracer.Start(c.ctx, "shard "+string(c.id), r.span...)
	}
	c.unwatch = context.AfterFunc(ctx, func() { c.left.Store(time.Now().UnixNano()) })
	if dl, ok := ctx.Deadline(); ok {
		remaining := time.Until(dl)
		m := margin(remaining)
		given = max(remaining-m, time.Millisecond)
		// We stop waiting a little before the request does, so that a partial answer can still name
		// this shard.
		c.deadline = r.up.timers.AfterFunc(remaining-m/2, func() { c.cancel(errShardDeadline) })
	}
	c.progress = r.up.timers.New(func() {
		switch {
		case !c.began.Load():
			c.cancel(errHeaderTimeout)
		case c.hurried.Load():
			c.cancel(errStalledSoon)
		default:
			c.cancel(errStalled)
		}
	})
	c.atOnce = answersAtOnce(c.id) && !t.Computes
	if t.failover && c.atOnce && !(r.Thanos() && thanos.Told(c.id)) { // of a store that hangs whoHangs tells more
		c.progress.Reset(r.up.opts.HeaderTimeout)
	}
	return given
}

// hasBegun notes that the answer's header has come.
func (c *call) hasBegun() {
	c.answered, c.header = true, time.Now()
	c.began.Store(true)
	if c.probe {
		return
	}
	r, took := c.r, c.header.Sub(c.started)
	r.up.lag.heard()
	r.up.unanswered.Add(-1)
	r.counters().header.Observe(took.Seconds())
	r.paced(took, c.header)
	if c.atOnce {
		r.up.began(took)
	}
}

// noRoom counts a call that found no room at a gate.
func (r *Replica) noRoom(t try, err error) error {
	if t.trial {
		r.up.breaker.neutral()
	}
	r.count(r.up.metrics.requests, qerr.From(err).Kind.String())
	return err
}

// answersAtOnce tells the endpoints whose answer a sound server begins within seconds. The others
// compute first: for them silence means nothing, and another replica is asked only when the health
// probe says that this one is gone.
func answersAtOnce(id endpoint.ID) bool {
	s := id.Selects()
	return s != endpoint.SelectsComputed && s != endpoint.SelectsStored
}

func (c *call) arm() {
	c.progress.Reset(c.patience)
	c.quiet.Reset(silentAfter)
}

func (c *call) disarm() {
	c.progress.Stop()
	c.quiet.Stop()
}
