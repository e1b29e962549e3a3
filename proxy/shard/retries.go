package shard

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// retryShare is how many calls may be made once more for each call that is made. With what may have been saved up and the floor that stays below a tenth, over
	// some hundred calls already.
	retryShare = 0.06
	// retryBurst is how many of them may be saved up: what a server had under way when it died is asked again at once.
	retryBurst = 128
	// retryFloor is how many there are at the beginning, and again in time however few calls are made, one in retryEvery: a call that fails alone is made again.
	retryFloor = 10
	retryEvery = 5 * time.Second
)

// retries is what all requests together may ask once more: a call that broke, one that another replica is asked after a failure or beside a slow one, and the
// calls of a request that starts again. Where servers fail, all requests would otherwise ask them, and their copies, several times over.
type retries struct {
	refused prometheus.Counter

	mu    sync.Mutex
	saved float64
	at    time.Time // when the floor was looked at last
}

func newRetries() *retries {
	return &retries{saved: retryFloor, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "spillway_shard_retries_refused_total",
		Help: "Times that nothing was asked once more after a failure, since what is asked twice already was a tenth of all calls.",
	})}
}

// earn counts a call.
func (b *retries) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = min(retryBurst, b.saved+retryShare)
}

// take takes so many calls, if they are there.
func (b *retries) take(n int) bool {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved < retryFloor && !b.at.IsZero() {
		b.saved = min(retryFloor, b.saved+float64(now.Sub(b.at))/float64(retryEvery))
	}
	b.at = now
	if b.saved < float64(n) {
		return false
	}
	b.saved -= float64(n)
	return true
}

// MayRetry takes from what all requests together may ask once more: so many calls, or none where less is left.
func (t *Topology) MayRetry(calls int) bool {
	if t.metrics.again.take(calls) {
		return true
	}
	t.metrics.again.refused.Inc()
	return false
}

// MayFailOver tells whether another replica may be asked after this failure. It costs nothing after a call that never reached a server, nor after one to a server
// that is gone meanwhile and is asked nothing more.
func (t *Topology) MayFailOver(err error) bool {
	return Unasked(err) || errors.Is(err, errWentDown) || t.MayRetry(1)
}

// turnFrom makes the next request begin with another replica of the shard than this one, which has failed a call.
func (s *Shard) turnFrom(r *Replica) {
	if len(s.Replicas) > 1 && int(s.base.Load()) == r.Index {
		s.base.CompareAndSwap(int32(r.Index), int32((r.Index+1)%len(s.Replicas)))
	}
}
