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
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

// Each server's own metrics are read now and then, for its memory and its limit. A server that does
// not serve them is not watched, and is asked like one that is well.

const (
	// vitalsTimeout bounds one reading: a server that takes longer says nothing by that.
	vitalsTimeout = 2 * time.Second
	// vitalsHold is how many intervals a reading counts for.
	vitalsHold = 3
	// unwatchedEvery is how many intervals pass before a server is asked again that does not serve
	// its metrics.
	unwatchedEvery = 30
	// maxVitals bounds what is read of one page. A Prometheus of 2,000 targets has 400 kB, and is
	// read to where the last wanted metric stands.
	maxVitals = 8 << 20
	// vitalsRest is how much is read beyond that, so that the connection can be used again.
	vitalsRest = 256 << 10
	// vitalsAtOnce is how many servers are read at once.
	vitalsAtOnce = 64
)

// watched is what there is to a server's own metrics. It outlives a reload.
type watched struct {
	watch   vitals.Watch
	reading atomic.Bool
	shed    atomic.Int64 // calls that were not made

	mu  sync.Mutex
	why string // why it is not watched; empty where it is, or was not tried yet
}

// Vitals is what the server's own metrics tell about it.
func (r *Replica) Vitals() vitals.Vitals { return r.up.watched.watch.Now(time.Now()) }

// Unwatched says why the server's own metrics are not read; empty where they are.
func (r *Replica) Unwatched() string {
	if r.metrics == nil {
		return "its configuration says so (metrics: none)"
	}
	r.up.watched.mu.Lock()
	defer r.up.watched.mu.Unlock()
	return r.up.watched.why
}

// vitalsLoop reads the server's metrics until ctx ends.
func (r *Replica) vitalsLoop(ctx context.Context) {
	interval := r.Shard.topology.stretch(r.up.opts.VitalsEvery)
	wait := time.Duration(rand.Float64() * float64(min(interval, time.Second))) // not all at once, and soon
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
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
	asked := time.Now()
	s, err := r.fetchVitals(ctx)
	if ctx.Err() != nil {
		return true
	}
	why := ""
	switch {
	case err == nil:
		was, is := w.watch.Saw(s, r.memoryLimit, vitalsHold*interval+vitalsTimeout, asked)
		r.tellVitals(was, is)
	case clientStatus(err):
		why = fmt.Sprintf("%s answers with status %d", r.metrics, statusOf(err))
	case errors.Is(err, vitals.ErrNothing):
		why = r.metrics.String() + " has " + vitals.ErrNothing.Error()
	default:
		r.up.opts.Logger.Debug("a server's own metrics were not read; what was seen before holds a while longer", slog.String("replica", r.Name()), slog.Any("err", err))
		return true
	}
	w.mu.Lock()
	before := w.why
	w.why = why
	w.mu.Unlock()
	if why != "" && before == "" {
		r.up.opts.Logger.Info("a server's own metrics cannot be read, so its memory is not watched; it is asked like one that is well (metrics, docs/shards.md)",
			slog.String("replica", r.Name()), slog.String("why", why))
	}
	return why == ""
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
	}
	return s, err
}

// tellVitals writes to the log that a server got sick, or is no longer.
func (r *Replica) tellVitals(was, is vitals.State) {
	if (was == vitals.Sick) == (is == vitals.Sick) {
		return
	}
	v := r.Vitals()
	log, what := r.up.opts.Logger.Info, "a server has memory again; queries that need much of it are sent to it again"
	if is == vitals.Sick {
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
	// Unwatched is why they are not read; empty where they are.
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
