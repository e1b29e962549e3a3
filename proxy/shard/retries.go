package shard

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// retryShare is how many calls may be made once more for each call that is made. With what may
	// have been saved up that stays below a tenth, over some hundred calls already; the floor comes
	// on top, which is more than that where less than ten calls are made in retryEvery.
	retryShare = 0.05
	// retryBurst is how many of them may be saved up: what a server had under way when it died is
	// asked again at once.
	retryBurst = 256
	// retryFloor is how many there are again in time however few calls are made, one in retryEvery.
	// All that may be saved up is there at the beginning: a dashboard that opens on a quiet proxy
	// beside a replica that has just died makes a hundred calls at once, and its breaker has seen
	// none of them.
	retryFloor = 64
	retryEvery = time.Second
	// retryWasted is what it costs besides where what was asked once more failed too: where copies
	// answer, all that a dead server had under way is asked again; where they do not, hardly
	// anything is. One shard of which nobody answers does not use up what is there for others;
	// several do: after a second one's it is retryWastedMore.
	retryWasted, retryWastedMore = 100, 200

	// A shard has savings of its own beside those of all: half as much at once, and a second
	// failure costs nearly all of it, down to a debt that is paid off in a minute. So a shard of
	// which nobody answers is hardly asked twice, and the others keep what is theirs.
	shardBurst, shardFloor = retryBurst / 2, retryFloor / 2
	shardWasted, shardDebt = 100, 60
)

// retries is what may be asked once more: a call that broke, one that another replica is asked
// after a failure or beside a slow one, and the calls of a request that starts again. Where servers
// fail, all requests would otherwise ask them, and their copies, several times over. There is one
// for each shard and one for all of them.
type retries struct {
	burst, floor, wasted, more, debt float64

	mu    sync.Mutex
	saved float64
	at    time.Time // when the floor was looked at last
	last  *hedger   // of the shard for which a call was made once more in vain last
}

func newRetries() *retries {
	return &retries{burst: retryBurst, floor: retryFloor, wasted: retryWasted, more: retryWastedMore, saved: retryBurst}
}

func newShardRetries() *retries {
	return &retries{burst: shardBurst, floor: shardFloor, wasted: shardWasted, more: shardWasted, debt: shardDebt, saved: shardBurst}
}

func newRetriesRefused() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_shard_retries_refused_total",
		Help: "Times that nothing was asked once more after a failure, since what is asked twice already was a tenth of all calls, or of a shard's.",
	})
}

// earn counts a call.
func (b *retries) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = min(b.burst, b.saved+retryShare)
}

// take takes so many calls, if they are there.
func (b *retries) take(n int) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < b.floor && !b.at.IsZero() {
		b.saved = min(b.floor, b.saved+float64(now.Sub(b.at))/float64(retryEvery))
	}
	b.at = now
	if b.saved < float64(n) {
		return false
	}
	b.saved -= float64(n)
	return true
}

// give gives back what was taken for calls that nobody was asked.
func (b *retries) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = min(b.burst, b.saved+float64(n))
}

// waste takes more for a call of the shard's that was made once more in vain.
func (b *retries) waste(s *Shard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := b.wasted
	if b.last != nil && b.last != s.hedge {
		cost = b.more
	}
	b.last, b.saved = s.hedge, max(-b.debt, b.saved-cost)
}

// mayRetry takes a call from what the shard may ask once more, and so many from what all requests
// together may: all, or none where less is left.
func (s *Shard) mayRetry(calls int) bool {
	own, all := s.hedge.again, s.topology.metrics.again
	if !own.take(calls) {
		return false
	}
	if !all.take(calls) {
		own.give(calls)
		return false
	}
	return true
}

// MayRetry takes that many calls from those that the shard, and all requests together, may make
// once more after a failure of the shard, or none where fewer are left.
func (s *Shard) MayRetry(calls int) bool {
	if s.mayRetry(calls) {
		return true
	}
	s.topology.metrics.retriesRefused.Inc()
	return false
}

// MayFailOver tells whether another replica may be asked after this failure. It costs nothing after
// a call that is Free, nor after one to a server that is gone meanwhile and is asked nothing more.
func (s *Shard) MayFailOver(err error) bool {
	return Free(err) || errors.Is(err, errWentDown) || clientStatus(err) || s.MayRetry(1)
}

// Free tells whether the failed call cost the server nothing, so that others may be asked again for
// it: it never reached the server, or was answered with 401, 403, 404 or 405. What nobody serves is
// not to use up what is there for servers that die.
func Free(err error) bool { return Unasked(err) || refused(err) }

// Wasted says that what MayRetry or MayFailOver allowed to be asked once more has failed again. A
// second call that never reached a server says nothing against asking twice, and has cost nobody
// anything; one that a Spillway refused by itself says nothing of others.
func (s *Shard) Wasted(again error) {
	if !retryable(again) || Unasked(again) || clientStatus(again) || refusedAlone(again) || errors.As(again, new(*damageError)) {
		return
	}
	s.hedge.again.waste(s)
	s.topology.metrics.again.waste(s)
}

// turnFrom makes the next request begin with another replica of the shard than this one, which has
// failed a call.
func (s *Shard) turnFrom(r *Replica) {
	if len(s.Replicas) > 1 && int(s.base.Load()) == r.Index {
		s.base.CompareAndSwap(int32(r.Index), int32((r.Index+1)%len(s.Replicas)))
	}
}
