package shard

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Ejected tells whether nothing comes of asking the shard: each of its replicas is down by its
// health probe, hangs, or is not to be asked at all. Waiting for such a shard is for requests that
// cannot go without it.
func (s *Shard) Ejected() bool {
	left, failing := s.left(time.Now())
	return !left && len(failing) == 0
}

// Failing tells whether of the replicas that could be asked the breakers of all are open. What one
// caller asks may fail each time on a server that is well; see WellAgain.
func (s *Shard) Failing() bool {
	left, failing := s.left(time.Now())
	return !left && len(failing) > 0
}

// left tells whether a replica is left that is not known to fail, and which ones take no part for
// nothing else than that their breakers are open.
func (s *Shard) left(now time.Time) (left bool, failing []*Replica) {
	for _, r := range s.Replicas {
		rank, ok := r.rank(now)
		switch _, hung := r.up.lagging(now); {
		case ok && rank < answersNothing:
			left = true
		case ok && rank == answersNothing && !hung:
			failing = append(failing, r)
		}
	}
	return left, failing
}

// WellAgain asks those of the replicas that failed too often something that costs little: an answer
// closes the breaker. It tells whether one is left then that is not known to fail. One request asks
// at a time, lagTimeout at most, and who asked in vain did so for the others, for a while.
func (s *Shard) WellAgain(ctx context.Context) bool {
	patience := lagTimeout
	if dl, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(dl)/4)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, context.DeadlineExceeded)
	defer cancel()
	if s.doubted.spares(patience) {
		return false
	}
	select {
	case s.doubting <- struct{}{}:
		defer func() { <-s.doubting }()
	case <-ctx.Done():
		return false
	}
	left, failing := s.left(time.Now())
	if left || len(failing) == 0 || s.doubted.spares(patience) { // who had the turn has found it out
		return left
	}
	began := time.Now()
	var all sync.WaitGroup
	for _, r := range failing {
		all.Go(func() { _ = qerr.Guard(func() error { return r.countUp(ctx) }) })
	}
	all.Wait()
	if left, _ = s.left(time.Now()); !left {
		s.doubted.note(max(time.Since(began), patience))
	}
	return left
}

// countUp asks for the number of targets, as a call that the breaker hears of.
func (r *Replica) countUp(ctx context.Context) error {
	query := "count(up)"
	if r.Thanos() {
		query = "vector(1)"
	}
	req := &endpoint.Request{ID: endpoint.Query, Query: query, Time: endpoint.At(time.Now().UnixMilli())}
	resp, err := r.Do(ctx, req, CallOptions{MaxBytes: maxErrorBody, Entered: true}) // our own: of each shard one at a time
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
