package shard

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// What has just broken a server is not sent to its copy (docs/decisions/0020-quarantine.md). A text is suspected where a call with it had run for a while, its connection
// broke before the answer began, and the server was gone then. One that was suspected is refused for its shard for a minute, then tried once, on one replica.

const (
	// suspectAfter is how long a call must have run: what breaks a server fills its memory first, and what is innocent is mostly done sooner.
	suspectAfter = time.Second
	// goneWithin is how long the server may take to show that it is still there.
	goneWithin = 2 * time.Second
	// maxSuspects is how many texts of one breakage are held. Where more were under way none can be told from the others: they are remembered.
	maxSuspects = 3
	// heldFor is how long a suspect is refused, heldLonger one that was there when servers broke twice within that time.
	heldFor, heldLonger = time.Minute, 10 * time.Minute
	// oneBreakage is how long after its first broken call the calls that break belong to the same breakage of a server.
	oneBreakage = 5 * time.Second
	// maxHeld bounds the memory: below 256 KiB.
	maxHeld = 1024

	boundQuarantine = "quarantine"
)

// suspect is a text that was there when a server broke.
type suspect struct {
	server   string
	at       time.Time // of the breakage
	breakage time.Time // when that began
	until    time.Time // it is refused; zero where it is only remembered
	trying   bool      // once that is over, one call at a time
}

// quarantine are the suspects of all shards. The zero value is ready for use.
type quarantine struct {
	mu       sync.Mutex
	texts    map[uint64]*suspect
	broke    map[string]time.Time // when the last breakage of a server began
	together map[string][]uint64  // its texts
}

// textKey tells texts apart, by shard and endpoint; times are left out.
func textKey(s *Shard, req *endpoint.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, part := range append([]string{s.Name(), string(req.ID), req.Label, strings.Join(strings.Fields(req.Query), " ")}, req.Match...) {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	if req.ReadQuery != nil {
		for _, q := range req.ReadQuery.Queries {
			for _, m := range q.Matchers {
				_, _ = h.WriteString(m.String())
			}
		}
	}
	return h.Sum64()
}

// admit refuses a text that is held. trial tells that it is the one call that may show it to be harmless.
func (q *quarantine) admit(r *Replica, req *endpoint.Request) (trial bool, err error) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.texts) == 0 {
		return false, nil
	}
	s := q.texts[textKey(r.Shard, req)]
	switch {
	case s == nil || s.until.IsZero():
		return false, nil
	case now.Before(s.until):
		return false, r.held(s, s.until.Sub(now))
	case s.trying:
		return false, r.held(s, oneBreakage)
	}
	s.trying = true
	return true, nil
}

// held is the refusal of a text.
func (r *Replica) held(s *suspect, left time.Duration) *qerr.Error {
	left = max(time.Second, (left + time.Second - 1).Truncate(time.Second))
	e := qerr.New(qerr.Unavailable, "%s broke while it was working on this very query%s, so the query is not sent to shard %s for another %s", s.server, Since(s.at), r.Shard.Name(), left)
	e.Bound, e.Value, e.Seen = boundQuarantine, heldFor.String(), s.server
	e.Advice = "ask for less: fewer series, a shorter range, no label_replace or count_values over many series; look at why that server ended (its log, its memory limit)"
	e.RetryAfter = left
	return e
}

// tried ends the trial of a text: it was harmless, or nothing was learned.
func (q *quarantine) tried(r *Replica, req *endpoint.Request, harmless bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := textKey(r.Shard, req)
	if s := q.texts[key]; s != nil {
		if s.trying = false; harmless {
			delete(q.texts, key)
		}
	}
}

// note takes in that a server broke while it worked on a text, and tells for how long that is held.
func (q *quarantine) note(r *Replica, req *endpoint.Request) *suspect {
	now, key := time.Now(), textKey(r.Shard, req)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.texts == nil || len(q.texts) >= maxHeld {
		q.texts, q.broke, q.together = map[uint64]*suspect{}, map[string]time.Time{}, map[string][]uint64{} // a rare loss: each is found out again
	}
	if now.Sub(q.broke[r.name]) > oneBreakage {
		q.broke[r.name], q.together[r.name] = now, nil
	}
	was := q.texts[key]
	s := &suspect{server: r.name, at: now, breakage: q.broke[r.name], until: now.Add(heldFor)}
	if was != nil && was.breakage.Equal(s.breakage) {
		return was
	}
	q.texts[key] = s
	if was != nil && now.Sub(was.at) < heldLonger {
		s.until = now.Add(heldLonger)
		return s
	}
	q.together[r.name] = append(q.together[r.name], key)
	if len(q.together[r.name]) > maxSuspects {
		for _, k := range q.together[r.name] {
			if o := q.texts[k]; o != nil && o.until.Sub(o.at) <= heldFor {
				o.until = time.Time{}
			}
		}
	}
	return s
}

// careful is attempt for a request of a client's, whose text may be what breaks the server.
func (r *Replica) careful(ctx context.Context, req *endpoint.Request, build builder, t try) (*Response, error) {
	q := &r.up.metrics.held
	trial, err := q.admit(r, req)
	if err != nil {
		if t.trial {
			r.up.breaker.neutral()
		}
		return nil, err
	}
	var started time.Time
	began := t.began
	t.began = func(at time.Time) {
		if started = at; began != nil {
			began(at)
		}
	}
	resp, err := r.attempt(ctx, req.ID, build, t)
	if err != nil && isReset(err) && ctx.Err() == nil && !started.IsZero() && time.Since(started) >= suspectAfter && r.gone(ctx) {
		s := q.note(r, req)
		r.up.metrics.quarantined.WithLabelValues(r.labels()...).Inc()
		r.up.opts.Logger.Warn("a server ended while it worked on a query, which is not sent to its other replicas", slog.String("replica", r.Name()),
			slog.String("endpoint", string(req.ID)), slog.String("query", clip(req.Query)), slog.Bool("held", !s.until.IsZero()))
		e := r.held(s, max(time.Until(s.until), time.Second))
		return nil, e
	}
	if trial {
		q.tried(r, req, err == nil)
	}
	return resp, err
}

// gone tells whether the server is not there any more, or not ready again yet.
func (r *Replica) gone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, goneWithin, context.DeadlineExceeded)
	defer cancel()
	return r.ready(ctx) != nil
}

// isHeld tells the refusal of a text that is suspected: nobody else is to be asked.
func isHeld(err error) bool {
	var e *qerr.Error
	return errors.As(err, &e) && e.Bound == boundQuarantine
}

func newQuarantined() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_shard_quarantined_total", Help: "Calls on which a replica worked when it ended; their queries are not sent to its other replicas.",
	}, replicaLabels)
}
