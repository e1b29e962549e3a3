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
	retryShare = 0.05
	// retryBurst is how many of them may be saved up: what a server had under way when it died is asked again at once.
	retryBurst = 256
	// retryFloor is how many there are again in time however few calls are made, one in retryEvery. All that may be saved up is there at the beginning: a
	// dashboard that opens on a quiet proxy beside a replica that has just died makes a hundred calls at once, and its breaker has seen none of them.
	retryFloor = 64
	retryEvery = time.Second
	// retryWasted is what it costs besides where what was asked once more failed too: where copies answer, all that a dead server had under way is asked again;
	// where they do not, hardly anything is.
	retryWasted = 200
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
	return &retries{saved: retryBurst, refused: prometheus.NewCounter(prometheus.CounterOpts{
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

// waste takes more for a call that was made once more in vain.
func (b *retries) waste() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = max(0, b.saved-retryWasted)
}

// Wasted says that what MayRetry or MayFailOver allowed to be asked once more has failed again.
func (t *Topology) Wasted() { t.metrics.again.waste() }

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
