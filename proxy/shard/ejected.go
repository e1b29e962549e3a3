package shard

import (
	"context"
	"time"
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

// WellAgain asks those of the replicas that failed too often whether they answer, which closes the
// breaker. It tells whether one is left then that is not known to fail. One request asks at a time,
// a quarter of what it has left at most, and who asked in vain did so for the others, for a while.
func (s *Shard) WellAgain(ctx context.Context) bool {
	s.tryFailing(ctx, s.all(), time.Now())
	left, _ := s.left(time.Now())
	return left
}
