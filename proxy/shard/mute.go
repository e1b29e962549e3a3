package shard

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// A server that answers no call, and not our own question either, is mute where no sound replica
// stands beside it. To wait for it would take each request that needs it all of its time, and hold
// the request's memory and connections as long. So calls to a mute server fail at once; it is asked
// our question again and again, and any answer of it ends this.

// errMute is the private cause of a call that is not made because its server is mute.
var errMute = errors.New("the server is known to be silent")

// aloneWith tells whether no replica of the shard but this one is sound.
func (s *Shard) aloneWith(r *Replica, now time.Time) bool {
	for _, o := range s.Replicas {
		if rank, ok := o.rank(now); o != r && ok && rank == 0 {
			return false
		}
	}
	return true
}

// muteIt makes calls to the replica fail at once from now on. It has been silent for as long as it
// left our question unanswered, at least.
func (s *Shard) muteIt(r *Replica, unanswered time.Duration) {
	if r.up.lag.mute.CompareAndSwap(0, time.Now().Add(-unanswered-silentAfter).UnixNano()) {
		s.topology.opts.Logger.Warn("a server answers nothing, and no other replica of its shard is sound; requests that need it fail at once until it answers again",
			slog.String("replica", r.Name()))
	}
}

// unmute has the replica asked again; false where it was not mute.
func (s *Shard) unmute(r *Replica) bool {
	since := r.up.lag.mute.Swap(0)
	if since == 0 {
		return false
	}
	s.topology.opts.Logger.Info("a server that answered nothing answers again", slog.String("replica", r.Name()),
		slog.Duration("after", time.Since(time.Unix(0, since)).Round(time.Second)))
	return true
}

// Mute is since when the replica is known to answer nothing while no other one of its shard is
// sound; zero where that is not so.
func (r *Replica) Mute() time.Time {
	if at := r.up.lag.mute.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// muted is the failure of a call that is not made, since the server would not answer it; nil where
// that is not known.
func (r *Replica) muted() *qerr.Error {
	since := r.Mute()
	if since.IsZero() {
		return nil
	}
	r.Shard.suspect(r, 0) // who looks at it may have ended with a topology, in the middle of that
	e := qerr.Wrap(qerr.ShardFailed, errMute, "%s takes connections and answers nothing%s: no request, nor Spillway's own small query", r.Name(), Since(since))
	e.Advice = "look at that server's processor, memory and disk, and at who takes its query slots (query.max-concurrency); it is asked every " + lagEvery.String() + ", and used again once it answers"
	e.Shards = []string{r.Name()}
	return e
}

var descMute = prometheus.NewDesc("spillway_shard_replica_silent",
	"1 while a replica answers nothing, not Spillway's own small query either, and no other one of its shard is sound: requests that need it fail at once.", replicaLabels, nil)
