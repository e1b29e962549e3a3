package shard

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// account is what is counted of one server at one place: of a group, a shard and a host. Every
// topology that has the server there holds it, whichever way the server is reached (a token that is
// changed makes it another upstream), and with the last of them its series go. What is counted
// afterwards, by a call that outlives its topology, is counted nowhere: else its series would be
// back for good.
type account struct {
	labels []string
	refs   int // of replicas; under the metrics' mu

	mu       sync.RWMutex
	gone     bool
	counting sync.Once
	counters counters
}

// counters are the replica's own in the metrics of sound calls, looked up once: that is dearer than
// counting.
type counters struct {
	ok, bytes        prometheus.Counter
	duration, header prometheus.Observer
}

// nowhere is what is counted of a server that no topology has any more.
var nowhere = counters{
	ok: prometheus.NewCounter(prometheus.CounterOpts{}), bytes: prometheus.NewCounter(prometheus.CounterOpts{}),
	duration: prometheus.NewHistogram(prometheus.HistogramOpts{}), header: prometheus.NewHistogram(prometheus.HistogramOpts{}),
}

// counters are those of the replica's account.
func (r *Replica) counters() *counters {
	a := r.account
	a.counting.Do(func() {
		a.mu.RLock()
		defer a.mu.RUnlock()
		if a.gone {
			a.counters = nowhere
			return
		}
		m := r.up.metrics
		a.counters = counters{
			ok: m.requests.WithLabelValues(append(r.labels(), "ok")...), bytes: m.bytes.WithLabelValues(r.labels()...),
			duration: m.duration.WithLabelValues(r.labels()[:2]...), header: m.header.WithLabelValues(r.labels()...),
		}
		// from 0 on: the first event, as a rule the only one, is not seen where the series begins
		// with it
		m.quarantined.WithLabelValues(r.labels()...)
	})
	return &a.counters
}

// count adds one to a counter of the replica, with the values of the labels that follow its own.
func (r *Replica) count(v *prometheus.CounterVec, more ...string) {
	r.account.mu.RLock()
	defer r.account.mu.RUnlock()
	if !r.account.gone {
		v.WithLabelValues(append(r.labels(), more...)...).Inc()
	}
}

// lingered counts how long a call went on after its request had ended.
func (r *Replica) lingered(d time.Duration) {
	r.account.mu.RLock()
	defer r.account.mu.RUnlock()
	if !r.account.gone {
		r.up.metrics.linger.WithLabelValues(r.labels()[:2]...).Observe(d.Seconds())
	}
}

// account is that of a replica with these labels (group, shard, replica), which is to be given back
// by forget, once.
func (m *metrics) account(l []string) *account {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[[3]string(l)]
	if a == nil {
		a = &account{labels: l}
		m.accounts[[3]string(l)] = a
		m.shards[[2]string(l)]++
	}
	a.refs++
	return a
}

// forget gives the account of a replica back, and drops its counters where nobody else has it; with
// the last one of a shard go those of the shard.
func (m *metrics) forget(a *account) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.refs--; a.refs > 0 {
		return
	}
	delete(m.accounts, [3]string(a.labels))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	match := prometheus.Labels{"group": a.labels[0], "shard": a.labels[1], "replica": a.labels[2]}
	for _, v := range []*prometheus.CounterVec{m.requests, m.retries, m.failover, m.bytes, m.hedged, m.wins, m.quarantined, m.shed} {
		v.DeletePartialMatch(match)
	}
	m.header.DeletePartialMatch(match)
	shard := [2]string(a.labels)
	if m.shards[shard]--; m.shards[shard] > 0 {
		return
	}
	delete(m.shards, shard)
	m.duration.DeleteLabelValues(shard[:]...)
	m.linger.DeleteLabelValues(shard[:]...)
}
