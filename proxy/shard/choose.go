package shard

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Do asks one replica of the shard: the one that served last while it is well, else the first
// listed that is. Once, if time is left, another one is asked: after a failure of the server (5xx,
// 429, a broken connection, a health probe that finds it gone), never after its verdict on the
// request (400, 422) and never once an answer's header has arrived. With no other replica to ask, a
// connection that broke before the header, and a Retry-After that fits into the remaining time, are
// tried again on the same server. All this holds only while retries are not used up (see retries).
// Errors are those of Replica.Do; where no replica can be asked at all, the error says why for
// each.
func (s *Shard) Do(ctx context.Context, req *endpoint.Request, o CallOptions) (*Response, error) {
	s.awaitProbes(ctx)
	if ctx.Err() != nil {
		return nil, s.Replicas[0].ctxError(ctx)
	}
	now := time.Now()
	order, err := s.order(now)
	if err != nil {
		return nil, err
	}
	if s.heavy(&o) != "" {
		order = easiest(order, now)
		if e := order[0].shed(ctx, &o); e != nil { // nobody else has memory either
			return nil, e
		}
	}
	if len(order) == 1 {
		return s.alone(ctx, order[0], req, o)
	}
	first := order[0]
	resp, err := s.ask(ctx, first, req, try{CallOptions: o, failover: true})
	if err == nil || !retryable(err) || ctx.Err() != nil {
		return resp, err
	}
	if !s.MayFailOver(err) {
		return nil, err
	}
	first.count(first.up.metrics.failover)
	resp, second := s.ask(ctx, order[1], req, try{CallOptions: o})
	if second != nil {
		s.Wasted(second)
		return nil, both(err, second)
	}
	return resp, nil
}

// alone asks the one replica that there is to be asked, twice where that may help.
func (s *Shard) alone(ctx context.Context, r *Replica, req *endpoint.Request, o CallOptions) (*Response, error) {
	resp, err := s.ask(ctx, r, req, try{CallOptions: o})
	if err == nil || !retryable(err) || ctx.Err() != nil {
		return resp, err
	}
	var status *StatusError
	switch {
	case refusedAlone(err) && statusOf(err) == http.StatusTooManyRequests: // so would it be again
		return nil, err
	case isReset(err) && s.MayRetry(1):
	case errors.As(err, &status) && status.RetryAfter > 0 && !status.unasked && fits(ctx, status.RetryAfter) && s.MayRetry(1):
		timer := time.NewTimer(status.RetryAfter)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, err
		}
	default:
		return nil, err
	}
	r.count(r.up.metrics.retries)
	if resp, err = s.ask(ctx, r, req, try{CallOptions: o}); err != nil {
		s.Wasted(err)
	}
	return resp, err
}

// both is the second replica's failure with the first one's before it, so that whoever reads it
// looks at both servers. A verdict on the request stands alone.
func both(first, second error) error {
	f, s := qerr.From(first), qerr.From(second)
	if s.Kind != qerr.ShardFailed && s.Kind != qerr.Timeout {
		return second
	}
	e := *s // its private cause goes along
	e.Message = f.Message + "; then " + s.Message
	e.Shards = slices.Concat(f.Shards, s.Shards)
	return &e
}

// maxRetryWait is the longest Retry-After that a request waits for by itself.
const maxRetryWait = 10 * time.Second

// fits tells whether half of the remaining time is left after the wait.
func fits(ctx context.Context, wait time.Duration) bool {
	dl, ok := ctx.Deadline()
	return wait <= maxRetryWait && ok && wait <= time.Until(dl)/2
}

// retryable tells failures of the server from its verdicts on the request. What one copy refuses to
// Spillway, or does not serve, another one may: a gateway, a password and a path prefix are a
// copy's own.
func retryable(err error) bool {
	return refused(err) || qerr.From(err).Kind == qerr.ShardFailed && !clientStatus(err)
}

// refused tells whether a server refuses what it was asked to Spillway, or does not serve it.
func refused(err error) bool {
	switch statusOf(err) {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

func (s *Shard) ask(ctx context.Context, r *Replica, req *endpoint.Request, t try) (*Response, error) {
	_, t.trial = r.up.breaker.allow(time.Now())
	resp, err := r.careful(ctx, req, r.writer(req), t)
	if err == nil {
		s.base.Store(int32(r.Index))
	}
	return resp, err
}

// Base is the replica that a request to the shard would go to now. The error names the shard and
// says why none of its replicas can be asked.
func (s *Shard) Base() (*Replica, error) {
	order, err := s.order(time.Now())
	if err != nil {
		return nil, err
	}
	return order[0], nil
}

// Usable are the replicas that can be asked now, the one that Base returns first. Where none can,
// the error says why for each.
func (s *Shard) Usable() ([]*Replica, error) { return s.order(time.Now()) }

// Well are the replicas that are neither down nor failing one call after the other, the one that
// Base returns first. They are asked where all copies are asked, since waiting for one that is
// known not to answer would make every such request as slow as its deadline. Where no replica is
// well, it is only the one that Base returns: failing servers are not asked twice as much as sound
// ones.
func (s *Shard) Well() ([]*Replica, error) {
	now := time.Now()
	order, err := s.order(now)
	if err != nil {
		return nil, err
	}
	n := 0 // they are sorted by rank
	for n < len(order) {
		if rank, ok := order[n].rank(now); !ok || rank >= 3 {
			break
		}
		n++
	}
	return order[:max(n, 1)], nil
}

// order sorts the replicas that may be asked: those that are well before those that are not, the
// one that served last before the others, then as listed. A replica that is doubtful is never left
// out for that; only one that is misconfigured is, one that cannot even be connected to for two
// probes running, and one that says itself that it is starting, since asking it costs time and
// gives nothing.
func (s *Shard) order(now time.Time) ([]*Replica, error) {
	if len(s.Replicas) == 1 {
		if _, ok := s.Replicas[0].rank(now); !ok {
			return nil, s.unusable()
		}
		return slices.Clone(s.Replicas), nil
	}
	type ranked struct {
		r    *Replica
		rank int
	}
	var usable []ranked
	for _, r := range s.Replicas {
		rank, ok := r.rank(now)
		if ok {
			usable = append(usable, ranked{r, rank})
		}
	}
	if len(usable) == 0 {
		return nil, s.unusable()
	}
	last := int(s.base.Load())
	slices.SortStableFunc(usable, func(a, b ranked) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		switch last {
		case a.r.Index:
			return -1
		case b.r.Index:
			return 1
		}
		return 0
	})
	out := make([]*Replica, len(usable))
	for i, u := range usable {
		out[i] = u.r
	}
	return out, nil
}

// answersNothing is the least rank of a replica whose queries come to nothing now.
const answersNothing = 3

// rank is 0 for a replica that is well, more for one that is doubtful; false for one that is not
// asked.
func (r *Replica) rank(now time.Time) (int, bool) {
	if len(r.misconfigured()) > 0 {
		return 0, false
	}
	u := r.up
	u.mu.Lock()
	down, unreachable, cooling := u.health.state == Down, u.health.unreachable, now.Before(u.notYet)
	starting := u.health.starting != ""
	u.mu.Unlock()
	breaker := u.breaker.current(now)
	lagging, hung := u.lagging(now)
	switch {
	case unreachable >= 2, starting:
		return 0, false
	case down:
		return answersNothing + 1, true
	case breaker == Open, hung:
		return answersNothing, true
	case cooling, lagging:
		return 2, true
	case breaker == HalfOpen:
		return 1, true
	default:
		return 0, true
	}
}

// doubt is rank as one number: the larger, the less is to be hoped for.
func (r *Replica) doubt(now time.Time) int {
	if rank, ok := r.rank(now); ok {
		return rank
	}
	return math.MaxInt
}

// unusable is the error of a shard that nobody can be asked for.
func (s *Shard) unusable() *qerr.Error {
	var why, names []string
	misconfigured := 0
	for _, r := range s.Replicas {
		names = append(names, r.Name())
		if m := r.misconfigured(); len(m) > 0 {
			why = append(why, r.Name()+" is misconfigured: "+strings.Join(m, "; "))
			misconfigured++
			continue
		}
		what, since := r.Trouble()
		if r.Starting() == "" {
			what = "cannot be reached"
		}
		why = append(why, r.Name()+" "+what+Since(since))
	}
	e := qerr.New(qerr.ShardFailed, "shard %s has no replica that can be asked: %s", s.Name(), strings.Join(why, ", "))
	switch misconfigured {
	case 0:
		e.Advice = "see whether it runs, and start it; or correct its url"
	case len(s.Replicas):
		e.Advice = "correct the configuration as it says there; spillway check config --online names the line"
	default:
		e.Advice = "see whether those that cannot be reached run, and correct the configuration of the others as it says there"
	}
	if slices.ContainsFunc(s.Replicas, func(r *Replica) bool { return r.Starting() != "" }) {
		st := &StatusError{Code: http.StatusServiceUnavailable, RetryAfter: startsAgain, unasked: true, cause: errStarting}
		e = qerr.Wrap(qerr.ShardFailed, st, "%s", e.Message)
		e.Advice, e.RetryAfter = "wait until it is ready: it is asked again then, within seconds", startsAgain
	}
	e.Shards = names
	return e
}
