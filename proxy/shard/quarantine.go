package shard

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// What has just broken a server is not sent to its copy (docs/decisions/0020-quarantine.md). A text
// is suspected where a call with it had run for a while, its connection broke before the answer
// began, the server was gone then, and few had run for longer. It is refused for its shard for a
// minute, then tried once, on one replica. Any answer to it clears it.

const (
	// suspectAfter is how long a call must have run: what breaks a server fills its memory first,
	// and what is innocent is mostly done sooner.
	suspectAfter = time.Second
	// maxSuspects is how many texts of one breakage are held: those that had run longest. What
	// began before the culprit is mostly done; what began after it has become slow with the server,
	// and goes on to the copy.
	maxSuspects = 3
	// heldFor is how long a suspect is refused, less than two evaluations of most rules. heldLonger
	// is for one that has broken every replica of its shard, with no answer in between.
	heldFor, heldLonger = time.Minute, 10 * time.Minute
	// oneBreakage is how long after its first broken call the calls that break belong to the same
	// breakage of a server.
	oneBreakage = 5 * time.Second
	// maxHeld bounds the memory: below 256 KiB.
	maxHeld = 1024

	boundQuarantine = "quarantine"
)

// suspect is a text that was there when a server broke.
type suspect struct {
	of     []*breakage // of the shard's servers, each one's last; no answer came in between
	times  int         // it broke one
	until  time.Time   // it is refused
	trying bool        // once that is over, one call at a time
}

// breakage is one end of a server.
type breakage struct {
	server  string
	at      time.Time
	longest []uint64 // the texts that had run longest
	texts   int      // how many there were
}

// quarantine are the suspects of all shards. The zero value is ready for use.
type quarantine struct {
	any   atomic.Bool // texts has some
	mu    sync.Mutex
	texts map[uint64]*suspect
	broke map[string]*breakage // by server, the last one
}

// running are the calls to a server whose answer has not begun.
type running struct {
	mu    sync.Mutex
	calls map[*runningCall]struct{}
}

type runningCall struct {
	req     *endpoint.Request
	started time.Time
}

// add takes a call in; leave takes it out.
func (w *running) add(req *endpoint.Request, at time.Time) (leave func()) {
	c := &runningCall{req, at}
	w.mu.Lock()
	if w.calls == nil {
		w.calls = map[*runningCall]struct{}{}
	}
	w.calls[c] = struct{}{}
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.calls, c)
		w.mu.Unlock()
	}
}

// longest are the texts that have run longest, of those that have run for suspectAfter; texts is
// how many there are in all.
func (w *running) longest(s *Shard, now time.Time) (longest []uint64, texts int) {
	w.mu.Lock()
	calls := slices.Collect(maps.Keys(w.calls))
	w.mu.Unlock()
	slices.SortFunc(calls, func(a, b *runningCall) int { return a.started.Compare(b.started) })
	seen := map[uint64]struct{}{}
	for _, c := range calls {
		key := textKey(s, c.req)
		if _, ok := seen[key]; ok {
			continue
		}
		seen[key] = struct{}{}
		if len(longest) < maxSuspects && now.Sub(c.started) >= suspectAfter {
			longest = append(longest, key)
		}
	}
	return longest, len(seen)
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

// admit refuses a text that is held. trial tells that it is the one call that may show it to be
// harmless.
func (q *quarantine) admit(r *Replica, req *endpoint.Request) (trial bool, err error) {
	if !q.any.Load() {
		return false, nil
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.texts[textKey(r.Shard, req)]
	switch {
	case s == nil:
		return false, nil
	case now.Before(s.until):
		return false, r.Shard.held(s, now)
	case s.trying:
		return false, r.Shard.held(s, now)
	}
	s.trying = true
	return true, nil
}

// held is the refusal of a text. It is a guess who broke the server, so it says what was seen.
func (s *Shard) held(t *suspect, now time.Time) *qerr.Error {
	clock := func(at time.Time) string { return at.UTC().Format(time.TimeOnly) + " UTC" }
	last := t.of[len(t.of)-1]
	var before, others []string
	for _, b := range t.of[:len(t.of)-1] {
		before = append(before, b.server)
	}
	for _, r := range s.Replicas {
		if rank, ok := r.rank(now); ok && rank < 3 && r.Name() != last.server {
			others = append(others, r.Name())
		}
	}
	what := fmt.Sprintf("%s ended at %s while %d queries of Spillway's, this one among them, ran there", last.server, clock(last.at), last.texts)
	if last.texts <= 1 {
		what = fmt.Sprintf("%s ended at %s while this query, and no other of Spillway's, ran there", last.server, clock(last.at))
	}
	if len(before) > 0 {
		what += ", after " + strings.Join(before, " and ") + " had ended over it too"
	}
	until := "until " + clock(t.until)
	if !now.Before(t.until) {
		until = "until one call that tries it has ended"
	}
	switch len(others) {
	case 0:
		until += " it is not sent to shard " + s.Name()
	case 1:
		until += " it is not sent to " + others[0] + ", which is up"
	default:
		until += " it is not sent to " + strings.Join(others, " and ") + ", which are up"
	}
	e := qerr.New(qerr.Unavailable, "%s; %s", what, until)
	e.Bound, e.Value, e.Seen = boundQuarantine, heldFor.String(), last.server
	e.Advice = "if " + last.server + " was restarted on purpose or its node died, nothing is wrong with the query; else see why it ended (its log, its memory limit) and ask for less: fewer series, a shorter range; for good, record what it comes to by a rule, give these servers more memory, or lower limits"
	if e.RetryAfter = oneBreakage; now.Before(t.until) {
		e.RetryAfter = (t.until.Sub(now) + time.Second - 1).Truncate(time.Second)
	}
	return e
}

// answered clears a text that a server has just answered, whatever was thought of it.
func (q *quarantine) answered(r *Replica, req *endpoint.Request) {
	if !q.any.Load() {
		return
	}
	key := textKey(r.Shard, req)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.texts, key)
	q.any.Store(len(q.texts) > 0)
}

// tried ends a trial of which nothing was learned.
func (q *quarantine) tried(r *Replica, req *endpoint.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.texts[textKey(r.Shard, req)]; s != nil {
		s.trying = false
	}
}

// note takes in that a server broke while it worked on a text, and holds that; nil where others are
// the likelier cause.
func (q *quarantine) note(r *Replica, req *endpoint.Request) *qerr.Error {
	now, key := time.Now(), textKey(r.Shard, req)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.texts == nil || len(q.texts) >= maxHeld || len(q.broke) >= maxHeld {
		q.texts, q.broke = map[uint64]*suspect{}, map[string]*breakage{} // a rare loss: each is found out again
	}
	b := q.broke[r.name]
	if b == nil || now.Sub(b.at) > oneBreakage {
		b = &breakage{server: r.name, at: now}
		b.longest, b.texts = r.up.running.longest(r.Shard, now)
		q.broke[r.name] = b
	}
	if !slices.Contains(b.longest, key) {
		return nil
	}
	s := q.texts[key]
	if s == nil || now.Sub(s.until) > heldLonger {
		s = &suspect{}
		q.texts[key] = s
		q.any.Store(true)
	}
	if !slices.Contains(s.of, b) {
		s.of = append(slices.DeleteFunc(s.of, func(o *breakage) bool { return o.server == b.server }), b)
		s.times++
		s.until, s.trying = now.Add(heldFor), false
		if s.times > 1 && len(s.of) >= len(r.Shard.Replicas) {
			s.until = now.Add(heldLonger)
		}
	}
	return r.Shard.held(s, now)
}

// wary is attempt for a request of a client's, whose text may be what breaks the server.
func (r *Replica) wary(ctx context.Context, req *endpoint.Request, build builder, t try) (*Response, error) {
	q := &r.up.metrics.held
	trial, err := q.admit(r, req)
	if err != nil {
		if t.trial {
			r.up.breaker.neutral()
		}
		return nil, err
	}
	var started time.Time
	began, leave := t.began, func() {}
	t.began = func(at time.Time) {
		started, leave = at, r.up.running.add(req, at)
		if began != nil {
			began(at)
		}
	}
	defer func() { leave() }() // after what broke was noted: until then it is one of those that ran
	attempted := false
	defer func() {
		if attempted {
			return
		}
		if trial { // it ended in a fault of ours, of which nothing is learned; the next call is to find out
			q.tried(r, req)
		}
		if t.trial {
			r.up.breaker.neutral()
		}
	}()
	resp, err := r.attempt(ctx, req.ID, build, t)
	attempted = true
	if err != nil && isReset(err) && ctx.Err() == nil && !started.IsZero() && time.Since(started) >= suspectAfter && r.gone(ctx) {
		if e := q.note(r, req); e != nil {
			r.count(r.up.metrics.quarantined)
			r.up.opts.Logger.Warn("a server ended while it worked on a query, which is not sent to its other replicas for a while", slog.String("replica", r.Name()),
				slog.String("endpoint", string(req.ID)), slog.String("query", cleaned(req.Query)))
			return nil, e
		}
	}
	switch {
	case err == nil:
		q.answered(r, req)
	case trial:
		q.tried(r, req)
	}
	return resp, err
}

// gone tells whether the server is not there any more, or not ready again yet. It has all of
// GoneWithin to show that it is there, whatever time the caller has left: of a caller who is gone
// before, in a hurry as he is, nothing follows.
func (r *Replica) gone(ctx context.Context) bool {
	own, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.up.opts.GoneWithin, context.DeadlineExceeded)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	var err error
	late := ownDelay(func() { err = r.ready(own) })
	if err == nil || ctx.Err() != nil {
		return false
	}
	// nobody can be called gone by somebody who does not get to listen
	return late < starved || qerr.From(err).Kind != qerr.Timeout
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
