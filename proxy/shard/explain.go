package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// The causes with which this package itself ends a call.
var (
	errHeaderTimeout = errors.New("no answer in time while another replica could be asked")
	errStalled       = errors.New("the body stalled")
	errStalledSoon   = fmt.Errorf("%w for longer than is waited for while another replica could be asked", errStalled)
	errShardDeadline = errors.New("the shard's share of the request's deadline passed")
	errWentDown      = errors.New("the replica went down while it was being asked")
	errEarlyClose    = errors.New("the answer was closed before its end")
	errDialTimeout   = errors.New("no connection in time")
	errCallEnded     = errors.New("the call has ended")
	errOurFault      = errors.New("the call ended in a fault of Spillway")
)

// explain turns whatever ended a call into an error that names the replica. The contexts are asked
// before the error.
func (c *call) explain(err error, b *body) *qerr.Error {
	name := c.r.Name()
	if c.parent.Err() != nil {
		return c.r.ctxError(c.parent)
	}
	// On a busy machine the connection's own deadline can pass before the context's timer has run.
	if dl, ok := c.parent.Deadline(); ok && !time.Now().Before(dl) {
		return c.r.timeout(context.DeadlineExceeded)
	}
	var known *qerr.Error
	var dial *dialError
	cause := context.Cause(c.ctx)
	e := &qerr.Error{Kind: qerr.ShardFailed}
	switch {
	case errors.Is(cause, errShardDeadline):
		return c.r.timeout(cause)
	case errors.Is(cause, errHeaderTimeout):
		e = qerr.Wrap(qerr.ShardFailed, cause, "%s did not begin to answer within %s", name, c.r.up.opts.HeaderTimeout)
	case errors.Is(cause, errWentDown):
		e = qerr.Wrap(qerr.ShardFailed, cause, "%s stopped answering health probes while it was being asked", name)
	case errors.Is(cause, errStalled):
		if HurriedStall(cause) { // whether it is well it is asked itself
			c.r.up.silent(false)
			c.r.Shard.suspect(c.r, 1)
		} else {
			c.r.Shard.setBehind(c.r, false) // the next request begins with another one, where there is one
		}
		e = qerr.Wrap(qerr.ShardFailed, cause, "%s stalled in the middle of its answer: nothing came for %s", name, c.patience.Round(time.Millisecond))
	case errors.As(err, &known):
		if len(known.Shards) == 0 {
			known.Shards = []string{name}
		}
		return known
	case errors.Is(err, errTooLarge):
		e = qerr.Wrap(qerr.TooExpensive, err, "%s answers with more than max_response_bytes allows", name)
		e.Bound, e.Value, e.Seen = "max_response_bytes", itoa64(b.max), "more than "+itoa64(b.max)
		e.Advice = "ask for fewer series or a shorter range, or aggregate in the query"
	case errors.Is(err, errRatio), errors.Is(err, errDoubleGzip), isGzip(err):
		e = c.malformedf(err, nil, "%s sent a gzip body that Spillway does not inflate; look at what stands between them", name)
	case errors.Is(err, errNotJSON), errors.Is(err, errEmptyBody):
		return c.malformedf(err, b.head, "%s answered with something that is not JSON; is its url that of a Prometheus?", name)
	case ours(err):
		return c.r.noFile(err)
	case errors.As(err, &dial):
		e = c.r.unreached(err)
	case errors.Is(err, io.ErrUnexpectedEOF) && c.answered:
		e = qerr.Wrap(qerr.ShardFailed, err, "%s cut its answer short; its log may tell why", name)
	case c.answered:
		e = qerr.Wrap(qerr.ShardFailed, err, "%s broke the connection in the middle of its answer; its log may tell why", name)
	default:
		if e = c.r.ourFault(err); e != nil {
			break
		}
		e = qerr.Wrap(qerr.ShardFailed, &resetError{err}, "%s broke the connection before it answered; its log may tell why", name)
	}
	e.Shards = []string{name}
	return e
}

// senselessError is the private cause of the error of an answer that is none of a Prometheus.
type senselessError struct{ err error }

func (e *senselessError) Error() string { return e.err.Error() }

func (e *senselessError) Unwrap() error { return e.err }

// malformedf is malformed with a sentence. The bytes go to the log, escaped, and nowhere else; not
// those that CheckMoves gets, which may ask again and again.
func (c *call) malformedf(cause error, head []byte, format string, args ...any) *qerr.Error {
	if len(head) > 0 && !c.r.Shard.topology.checks.Load() {
		c.r.up.opts.Logger.Warn("a shard's answer makes no sense", slog.String("replica", c.r.Name()),
			slog.String("endpoint", string(c.id)),
			slog.Any("err", cause), slog.String("begins", strconv.QuoteToASCII(string(head))))
	}
	e := qerr.Wrap(qerr.ShardFailed, &senselessError{cause}, format, args...)
	e.Shards = []string{c.r.Name()}
	return e
}

func (c *call) malformed(cause error, head []byte) *qerr.Error {
	e := c.malformedf(cause, head, "%s sent an answer that makes no sense; is its url that of a Prometheus?", c.r.Name())
	c.end(e)
	c.settle(e, time.Now()) // where the body had come to its end before anyone could tell
	return e
}

// ctxError is the error of a request that ended while this replica was working for it.
func (r *Replica) ctxError(ctx context.Context) *qerr.Error {
	cause := context.Cause(ctx)
	if qerr.TimedOut(ctx) {
		return r.timeout(cause)
	}
	return qerr.From(cause)
}

func (r *Replica) timeout(cause error) *qerr.Error {
	full := ""
	if n, slots := r.up.unanswered.Load(), r.querySlots(); n >= int64(slots) {
		full = fmt.Sprintf(": %d calls of Spillway's wait there, and it evaluates %d queries at once (query.max-concurrency)", n, slots)
	}
	if note := r.storesNote(); note != "" {
		full += "; " + note
	}
	e := qerr.Wrap(qerr.Timeout, cause, "%s had not answered when the request's deadline passed%s; ask for less, or look at that server's load", r.Name(), full)
	e.Shards = []string{r.Name()}
	return e
}
