package shard

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

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
		up := c.r.up
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
			c.r.lingered(lingered)
		}
		if c.body != nil {
			c.r.counters().bytes.Add(float64(c.body.wire.n))
			c.span.SetAttributes(attribute.Int64("http.response.body.size", c.body.wire.n))
		}
		if !c.probe {
			if outcome == "ok" {
				c.r.counters().ok.Inc()
			} else {
				c.r.count(up.metrics.requests, outcome)
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
		c.over = true
		if c.leave != nil {
			c.leave()
		}
	})
}

// thenLeave has leave called once the call has ended; at once where its body has been read to the
// end by who judged it. Who reads the body calls it.
func (c *call) thenLeave(leave func()) {
	if c.over {
		leave()
		return
	}
	c.leave = leave
}

// took is what the server itself took: to begin its answer, and in all. That the others of a
// fan-out were waited for before its body was read is in neither.
func (c *call) took(now time.Time) (began, all time.Duration) {
	if c.header.IsZero() {
		return now.Sub(c.started), now.Sub(c.started)
	}
	began = c.header.Sub(c.started)
	return began, began + time.Duration(c.reading.Load())
}

// endedByOther tells whether the call was ended from outside with a cause that is nobody's wish and
// not this replica's doing, such as the failure of another one.
func (c *call) endedByOther(e *qerr.Error) bool {
	return c.parent.Err() != nil && (e.Kind == qerr.Internal || e.Kind == qerr.ShardFailed && !slices.Contains(e.Shards, c.r.Name()))
}

// outcome is the metric label of an error. A call that was ended because of another one was
// canceled as far as this replica is concerned.
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
	case errors.As(err, new(*storesError)), errors.As(err, new(*damageError)), HurriedStall(err): // the server is well, or may be
		c.r.Shard.turnFrom(c.r)
		b.neutral()
	case err == nil, kind == qerr.BadData:
		c.r.works(c.started)
	case errors.As(err, &status) && (status.Code == http.StatusTooManyRequests || status.later()):
		b.neutral()
	case errors.As(err, &status) && status.Code < 500:
		b.neutral() // an endpoint it does not serve, credentials it does not take: it is alive
	case kind == qerr.ShardFailed, kind == qerr.Timeout && !c.answered && c.atOnce && now.Sub(c.started) >= c.r.up.opts.HeaderTimeout:
		c.r.Shard.turnFrom(c.r)
		c.r.up.failing.CompareAndSwap(0, c.started.UnixNano())
		if b.failure(now) && b.tell(now) {
			c.r.up.opts.Logger.Warn("a replica failed too often; others of its shard are preferred until it answers again",
				slog.String("replica", c.r.Name()), slog.Any("err", err))
		}
	case kind == qerr.Timeout && !c.answered && now.Sub(c.started) >= c.r.up.opts.HeaderTimeout:
		c.r.Shard.turnFrom(c.r) // it takes part as before; the next request begins with a copy that is as whole
		b.neutral()
	default:
		b.neutral()
	}
}

// works notes that the server has answered what it was asked at the time, which closes its breaker.
func (r *Replica) works(began time.Time) {
	if r.up.failing.Load() != 0 {
		r.up.failing.Store(0)
	}
	r.up.answers(began)
	if r.up.breaker.success() {
		r.up.opts.Logger.Info("a replica that failed too often answers again", slog.String("replica", r.Name()))
	}
}
