package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

// Each server's own metrics are read now and then, for its memory and its limit. A server that does
// not serve them is not watched, and is asked like one that is well.

const (
	// vitalsTimeout bounds one reading. A server that has no memory left takes long for it.
	vitalsTimeout = 8 * time.Second
	// vitalsHold is how many intervals a reading counts for.
	vitalsHold = 3
	// unwatchedAfter is how many readings running must say that a server does not serve its
	// metrics, unwatchedEvery how many intervals pass then before it is asked again.
	unwatchedAfter, unwatchedEvery = 3, 30
	// maxVitals bounds what is read of one page. A Prometheus of 2,000 targets has 400 kB, and is
	// read to where the last wanted metric stands.
	maxVitals = 8 << 20
	// vitalsRest is how much is read beyond that, so that the connection can be used again.
	vitalsRest = 256 << 10
	// vitalsAtOnce is how many servers are read at once.
	vitalsAtOnce = 64
)

// errOthersPage is the error of a page that another process serves than the one that is asked
// queries.
var errOthersPage = errors.New("metrics of no Prometheus and no Thanos Query, as of a gateway before one; name the server's own page by metrics")

// watched is what there is to a server's own metrics. It outlives a reload.
type watched struct {
	watch   vitals.Watch
	reading atomic.Bool
	shed    atomic.Int64  // calls that were not made
	soon    chan struct{} // has a place for the wish that it be asked at once

	mu    sync.Mutex
	why   string    // why it is not watched; empty where it is, or was not tried yet
	none  int       // readings running that said so
	told  bool      // the log has that the server is sick
	asked time.Time // when it was asked last
}

// Vitals is what the server's own metrics tell about it.
func (r *Replica) Vitals() vitals.Vitals {
	if r.metrics == nil {
		return vitals.Nothing()
	}
	return r.up.watched.watch.Now(r.memoryLimit, time.Now())
}

// Unwatched says why it is not known how the server is by its own metrics; empty where it is.
func (r *Replica) Unwatched() string {
	if r.metrics == nil {
		return "its configuration says so (metrics: none)"
	}
	r.up.watched.mu.Lock()
	why := r.up.watched.why
	r.up.watched.mu.Unlock()
	if why == "" {
		v := r.Vitals()
		why = v.Why()
	}
	return why
}

// vitalsLoop reads the server's metrics until ctx ends.
func (r *Replica) vitalsLoop(ctx context.Context) {
	interval := r.Shard.topology.stretch(r.up.opts.VitalsEvery)
	w := &r.up.watched
	w.mu.Lock()
	last := w.asked // by the topology before this one
	w.mu.Unlock()
	wait := max(time.Duration(rand.Float64()*float64(min(interval, time.Second))), interval-time.Since(last)) // not all at once, and soon
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.up.watched.soon:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		next := interval
		if !r.readVitals(ctx, interval) {
			next *= unwatchedEvery
		}
		wait = next + time.Duration((rand.Float64()-0.5)*0.2*float64(next))
	}
}

// readVitals reads the server's metrics once; false where it has none to be read. What goes wrong
// otherwise is no sign of sickness: what was seen before holds a while longer.
func (r *Replica) readVitals(ctx context.Context, interval time.Duration) (serves bool) {
	w := &r.up.watched
	if !w.reading.CompareAndSwap(false, true) { // the topology before this one does
		return true
	}
	defer w.reading.Store(false)
	places := r.Shard.topology.crowd.pages
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return true
	}
	asked, holds := time.Now(), vitalsHold*interval+vitalsTimeout
	s, err := r.fetchVitals(ctx)
	if ctx.Err() != nil {
		return true
	}
	w.mu.Lock()
	w.asked = asked
	w.mu.Unlock()
	why := ""
	switch {
	case err == nil:
		r.tellVitals(w.watch.Saw(s, r.memoryLimit, holds, asked))
		if !r.Vitals().Mixed { // else each process that answers would have the past of the others forgotten
			r.Shard.beats.Started(r.Index, s.Started, asked)
		}
	case clientStatus(err):
		why = fmt.Sprintf("%s answers with status %d", r.metrics, statusOf(err))
	case errors.Is(err, vitals.ErrNothing), errors.Is(err, errOthersPage):
		why = r.metrics.String() + " has " + err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		w.watch.Forget()
		return true
	default:
		r.up.opts.Logger.Debug("a server's own metrics were not read; what was seen before holds a while longer", slog.String("replica", r.Name()), slog.Any("err", err))
		w.watch.Late(holds, time.Now())
		return true
	}
	return r.unwatch(why)
}

// unwatch takes in why a reading has shown that the server's metrics cannot be read, empty where
// they could; false once several running have.
func (r *Replica) unwatch(why string) (serves bool) {
	w := &r.up.watched
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == "" {
		w.why, w.none = "", 0
		return true
	}
	if w.none++; w.none < unwatchedAfter {
		return true
	}
	before := w.why
	w.why = why
	if before == "" {
		w.watch.Forget()
		r.up.opts.Logger.Info("a server's own metrics cannot be read, so its memory is not watched; it is asked like one that is well (metrics, docs/shards.md)",
			slog.String("replica", r.Name()), slog.String("why", why))
	}
	return false
}

// fetchVitals asks the server for its metrics, by their names where it knows how to, and reads the
// page as it comes.
func (r *Replica) fetchVitals(ctx context.Context) (vitals.Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, vitalsTimeout, context.DeadlineExceeded)
	defer cancel()
	resp, err := r.attempt(ctx, vitalsText, func(ctx context.Context, _ *url.URL, _ time.Duration) (*http.Request, error) {
		u := *r.metrics
		u.RawQuery = url.Values{"name[]": vitals.Names()}.Encode()
		return http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	}, try{CallOptions: CallOptions{MaxBytes: maxVitals}, probe: true})
	if err != nil {
		return vitals.Sample{}, err
	}
	defer resp.Body.Close()
	s, err := vitals.Read(resp.Body)
	if err == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, vitalsRest) // what is left costs a connection at most
		if !s.Own && !r.ownPage {
			err = errOthersPage
		}
	}
	return s, err
}

// tellVitals writes to the log that a server got sick, or is no longer.
func (r *Replica) tellVitals(is vitals.State) {
	w := &r.up.watched
	sick := is == vitals.Sick
	w.mu.Lock()
	told := w.told
	if is != vitals.Unknown { // else it is not known to have got better
		w.told = sick
	}
	w.mu.Unlock()
	if sick == told || is == vitals.Unknown {
		return
	}
	v := r.Vitals()
	log, what := r.up.opts.Logger.Info, "a server has memory again; queries that need much of it are sent to it again"
	if sick {
		log, what = r.up.opts.Logger.Warn, "a server has nearly no memory left; queries that need much of it are not sent to it until it has"
	}
	log(what, slog.String("replica", r.Name()), slog.Int64("held", v.Held), slog.Int64("limit", v.Of))
}

var (
	descMemory = prometheus.NewDesc("spillway_shard_memory_bytes",
		"Memory of a replica's server that it cannot give back, by its own metrics: what it needs, where its runtime knows its limit, else garbage as well. 0 while it is not known.", replicaLabels, nil)
	descMemoryLimit = prometheus.NewDesc("spillway_shard_memory_limit_bytes",
		"What a replica's server may hold at most: its GOMEMLIMIT, or the memory_limit of the configuration where that is less or the only one. 0 while it is not known.", replicaLabels, nil)
	descHealth = prometheus.NewDesc("spillway_shard_health",
		"1 for how a replica's server is by its own metrics, 0 for the others: sound, busy (it holds 80 % of its memory limit), sick (90 %), or unknown.", append(replicaLabels, "state"), nil)
)

// collectVitals is the gauges of each replica.
func (t *Topology) collectVitals(gauge func(d *prometheus.Desc, v float64, l ...string)) {
	for r := range t.replicas() {
		v := r.Vitals()
		for _, s := range vitals.States() {
			is := 0.0
			if s == v.State {
				is = 1
			}
			gauge(descHealth, is, append(r.labels(), string(s))...)
		}
		gauge(descMemory, float64(max(v.Held, 0)), r.metricLabels...)
		gauge(descMemoryLimit, float64(max(v.Of, 0)), r.metricLabels...)
	}
}

// VitalsInfo is what the admin view shards tells of a server's own metrics. Of numbers -1 is not
// known.
type VitalsInfo struct {
	// State is sound, busy, sick or unknown.
	State vitals.State `json:"state"`
	// At is when they were read; left out where nothing is known.
	At time.Time `json:"at,omitzero"`
	// Unwatched is why the state is not known; empty where it is, and before they were read.
	Unwatched string `json:"unwatched"`
	// HeldBytes is the memory that the server cannot give back, LimitBytes what it may have at
	// most, RestBytes the least that it has held in the last hour, and ResidentBytes its resident
	// memory, with pages of files that the kernel takes back.
	HeldBytes     int64 `json:"heldBytes"`
	LimitBytes    int64 `json:"limitBytes"`
	RestBytes     int64 `json:"restBytes"`
	ResidentBytes int64 `json:"residentBytes"`
	// Queries are evaluated there, for whomever, of MaxQueries at once at most; Series are in its
	// head.
	Queries    int64 `json:"queries"`
	MaxQueries int64 `json:"maxQueries"`
	Series     int64 `json:"series"`
}

func (r *Replica) vitalsInfo() VitalsInfo {
	v := r.Vitals()
	return VitalsInfo{
		State: v.State, At: v.At, Unwatched: r.Unwatched(), HeldBytes: v.Held, LimitBytes: v.Of, RestBytes: v.Rest,
		ResidentBytes: v.Resident, Queries: v.Queries, MaxQueries: v.MaxQueries, Series: v.Series,
	}
}

// Memory is what the server holds of what it may, for people; empty where it is not known.
func (i VitalsInfo) Memory() string {
	switch {
	case i.HeldBytes < 0:
		return ""
	case i.LimitBytes <= 0:
		return admit.FormatBytes(i.HeldBytes)
	}
	return fmt.Sprintf("%s of %s (%d %%)", admit.FormatBytes(i.HeldBytes), admit.FormatBytes(i.LimitBytes), 100*i.HeldBytes/i.LimitBytes)
}

// Alarm is the state where that is a reason to look at the server; else empty.
func (i VitalsInfo) Alarm() string {
	if i.State == vitals.Busy || i.State == vitals.Sick {
		return string(i.State)
	}
	return ""
}
