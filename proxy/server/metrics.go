package server

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/quota"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// metrics are the server's own, on the admin listener. Each is a row of docs/metrics.md; labels are
// bounded: endpoints by the table, outcomes by the kinds of qerr, bounds by the list in policy.
type metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inflight   prometheus.Gauge
	refusals   *prometheus.CounterVec
	canceled   *prometheus.CounterVec
	shared     *prometheus.CounterVec
	partial    *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	drops      *prometheus.CounterVec
	plans      *prometheus.CounterVec
	rawShards  *prometheus.CounterVec
	inexact    prometheus.Counter
	counts     prometheus.Counter
	duplicates *prometheus.CounterVec
	series     *prometheus.CounterVec
	samples    *prometheus.CounterVec
	read       *prometheus.CounterVec
	written    *prometheus.CounterVec
	peak       prometheus.Histogram
	estimates  *prometheus.HistogramVec
	waited     prometheus.Histogram
	evictions  prometheus.Counter
	kills      prometheus.Counter
	denied     *prometheus.CounterVec
	lanes      *prometheus.CounterVec
	rewrites   *prometheus.CounterVec
	shadow     *prometheus.CounterVec
	panics     prometheus.Counter
	conns      *prometheus.GaugeVec
	connsFull  *prometheus.CounterVec
	connsOver  *prometheus.CounterVec
	unaccepted *prometheus.CounterVec

	reloadOK   prometheus.Gauge
	reloadTime prometheus.Gauge
	hash       *prometheus.GaugeVec
	hashMu     sync.Mutex
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	single := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	reads := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("spillway_requests_total", "Requests answered, by endpoint, verdict (pass, clamp, refuse) and outcome (success or the kind of error).", "endpoint", "verdict", "outcome"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_request_duration_seconds", Help: "Time from a request's arrival to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25},
		}, []string{"endpoint"}),
		inflight:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_requests_in_flight", Help: "Requests being answered now."}),
		refusals:   counter("spillway_refusals_total", "Requests refused by a bound.", "endpoint", "bound"),
		canceled:   counter("spillway_cancellations_total", "Requests whose client left before the answer was complete.", "endpoint"),
		shared:     counter("spillway_shared_answers_total", "Requests that were given the answer to an identical one that was under way.", "endpoint"),
		partial:    counter("spillway_partial_answers_total", "Shards that an answer went without because the request accepts partial answers.", "endpoint"),
		dropped:    counter("spillway_dropped_parameters_total", "Unknown request parameters that were dropped.", "endpoint"),
		drops:      counter("spillway_dropped_metric_queries_total", "Requests for what a drop rule takes away, by the rule's ID; read and federate, whose answers have no place for a warning, are among them.", "rule"),
		plans:      counter("spillway_query_plans_total", "Queries by how they were answered: pass (one shard's own answer), splice (several shards' answers side by side), push (aggregates of shards put together in Spillway), mixed (push or splice, and series evaluated in Spillway), stretches (a range query in pieces of time, since no replica holds all of it, or a server would have held more than max_shard_bytes for all of it), parcels (series that no replica holds whole, evaluated in Spillway some targets at a time), raw (series evaluated in Spillway), local (no series); and by why series were fetched: none, expression (nothing less is exact), no_heartbeat (a group of several replicas without one), or what is wrong with servers.", "mode", "cause"),
		rawShards:  counter("spillway_shard_raw_plans_total", "Queries whose series were fetched because of what is wrong with this shard, by cause; of several shards the first that was met.", "group", "shard", "cause"),
		duplicates: counter("spillway_duplicate_series_total", "Series met in raw work that two shards hold for the same time, by the names of the shards.", "shard", "other"),
		inexact:    single("spillway_query_inexact_total", "Queries whose parts, as shards answered them, could not be put together exactly, so that they were evaluated raw."),
		counts:     single("spillway_series_counts_total", "Times that a shard was asked how many series, or native histograms, a selector has there, before a query that makes much of each (max_shard_bytes)."),
		series:     counter("spillway_series_total", "Series held or returned.", "endpoint"),
		samples:    counter("spillway_samples_total", "Samples read or returned.", "endpoint"),
		read:       counter("spillway_shard_read_bytes_total", "Inflated bytes of answers that were read from shards.", "endpoint"),
		written:    counter("spillway_response_bytes_total", "Bytes of answers written to clients, before compression.", "endpoint"),
		peak: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_request_peak_bytes", Help: "Most memory of memory.budget that one request held at once.", Buckets: prometheus.ExponentialBuckets(16<<10, 8, 7),
		}),
		estimates: newEstimates(),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_evaluations_waited_seconds", Help: "How long evaluations waited for a processor, each time that one had to.", Buckets: []float64{.001, .01, .05, .25, 1, 5, 25},
		}),
		evictions:  single("spillway_evictions_total", "Requests that were ended because they held most of a memory that was nearly full."),
		kills:      single("spillway_queries_killed_total", "Requests that were ended by hand over the admin listener."),
		shadow:     counter("spillway_shadow_requests_total", "Requests that a bound in shadow (limits.shadow) would have refused, narrowed or cut, by bound.", "bound"),
		lanes:      counter("spillway_lane_requests_total", "Requests answered, by the lane that they came in.", "lane"),
		rewrites:   counter("spillway_rewrites_total", "Refusals for which something cheaper to ask was looked for, by outcome: tried (proposed; it was asked, and answered whole), estimated (proposed, and not asked), remembered (proposed; it was found for the same request lately), none (nothing was found, or lately), busy (not looked for, since there was other work waiting or the caller had many looked for).", "outcome"),
		denied:     counter("spillway_denied_requests_total", "Requests that a deny rule refused, or would have in shadow mode, by mode (refused, shadow).", "mode"),
		panics:     prometheus.NewCounter(prometheus.CounterOpts{Name: "spillway_panics_total", Help: "Requests that ended in a fault of Spillway itself; the process went on."}),
		conns:      gauge("spillway_connections", "Open client connections, by listener (main, admin, metrics).", "listener"),
		connsFull:  counter("spillway_connections_waiting_total", "Times that a listener stopped accepting because its connections were at their cap.", "listener"),
		connsOver:  counter("spillway_connections_over_share_total", "Connections of addresses that had as many as one may have: told so, or closed at once.", "listener"),
		unaccepted: counter("spillway_accept_errors_total", "Times that a client's connection could not be accepted, by listener (main, admin, metrics).", "listener"),
		reloadOK:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_config_last_reload_successful", Help: "1 if the newest attempt to load the configuration succeeded, else 0."}),
		reloadTime: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillway_config_last_reload_success_timestamp_seconds", Help: "When the configuration was last loaded with success, in seconds since 1970."}),
		hash:       gauge("spillway_config_info", "1 for the hash of the configuration in force.", "hash"),
	}
	budget := reads("spillway_memory_budget_bytes", "memory.budget: what all requests together may hold.", func() float64 { return float64(s.poolNow().Limit()) })
	most := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_memory_budget_peak_bytes",
		Help: "Most that requests held of memory.budget at once within the last one to two minutes, what refused ones asked for besides among it: more than memory.budget where some were refused.",
	}, func() float64 { return float64(s.poolNow().Peak(s.now())) })
	used := reads("spillway_memory_budget_used_bytes", "What requests hold of memory.budget now.",
		func() float64 { return float64(s.poolNow().InUse()) })
	running := reads("spillway_evaluations_running", "Evaluations at work in Spillway now, those that wait for servers left out.", func() float64 { return float64(s.gate.Running()) })
	waiting := reads("spillway_evaluations_waiting", "Evaluations that wait for a processor now.",
		func() float64 { return float64(s.gate.Waiting()) })
	held := reads("spillway_memory_held_bytes", "What was alive after the last garbage collection, and what Go holds beside its heap.", func() float64 { r, _ := s.heap.Now(); return float64(r.Held()) })
	ceiling := reads("spillway_memory_ceiling_bytes", "What may be held: GOMEMLIMIT, or the container's limit where that is less. Above 80 % large requests get no more, above 90 % the heaviest is ended.", func() float64 { _, c := s.heap.Now(); return float64(c) })
	processors := reads("spillway_processors", "How many processors' time this process may use: GOMAXPROCS, or the container's CPU limit where that is less.", quota.Processors)
	reg.MustRegister(
		keysRead(s), processors, m.evictions, m.kills, held, ceiling, m.waited, running, waiting, m.requests, m.duration, m.inflight,
		m.refusals, m.canceled, m.shared, m.partial, m.dropped, m.drops, m.plans, m.rawShards, m.inexact, m.counts, m.duplicates, m.series,
		m.samples, m.read, m.written, m.peak, m.estimates, m.panics, m.conns, m.connsFull, m.connsOver, m.unaccepted, m.reloadOK,
		m.reloadTime, m.hash, budget, most, used, m.denied, m.lanes, m.rewrites, m.shadow, denyRules{s}, tokensAway(s), journalWorking{s},
		webConfigWell{s},
	)
	return m
}

// keysRead is when the keys of signed tokens were read.
func keysRead(s *Server) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_jwks_read_timestamp_seconds",
		Help: "When the keys of tenants' signed tokens (jwt) were last read with success, in seconds since 1970; 0 where there are none, or while no token was shown. They are looked at when one is shown.",
	}, s.keysRead)
}

// tokensAway is how many files of tenants' tokens cannot be read.
func tokensAway(s *Server) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_tenant_token_files_unreadable",
		Help: "Files of tenants' tokens (bearer_token_file) that cannot be read now. The token of one that could be read before is good for ten minutes after it was, and nobody's then.",
	}, s.tokensAway)
}

// denyRules is how many rules there are to deny requests.
type denyRules struct{ s *Server }

var descDenyRules = prometheus.NewDesc("spillway_deny_rules",
	"Rules in force that deny requests, by source: config, api (the admin listener), crash (what was under way when Spillway was killed).", []string{"source"}, nil)

func (denyRules) Describe(ch chan<- *prometheus.Desc) { ch <- descDenyRules }

func (d denyRules) Collect(ch chan<- prometheus.Metric) {
	for source, n := range d.s.deny.Count(d.s.now()) {
		ch <- prometheus.MustNewConstMetric(descDenyRules, prometheus.GaugeValue, float64(n), string(source))
	}
}

// journalWorking tells of the journal of what is under way, where one is to be kept.
type journalWorking struct{ s *Server }

var descJournalWorking = prometheus.NewDesc("spillway_journal_working",
	"1 while what is under way stands in the journal of state_dir, 0 while it cannot be written: a request that gets Spillway killed then is not refused after the next start. Not there without state_dir.",
	nil, nil)

func (journalWorking) Describe(ch chan<- *prometheus.Desc) { ch <- descJournalWorking }

func (w journalWorking) Collect(ch chan<- prometheus.Metric) {
	if w.s.stateDir == "" {
		return
	}
	works := 0.0
	if w.s.journal.Working() {
		works = 1
	}
	ch <- prometheus.MustNewConstMetric(descJournalWorking, prometheus.GaugeValue, works)
}

// blame counts a plan that fetches series with the shard that its cause lies with, where it lies
// with one.
func (m *metrics) blame(p *plan.Plan) {
	if p.Shard != nil {
		m.rawShards.WithLabelValues(p.Shard.Group.Name, strconv.Itoa(p.Shard.Index), string(p.Cause)).Inc()
	}
}

// forget drops the series of those shards and drop rules of a configuration that was closed which
// the one in force does not have. A configuration between the two that lives on may bring some
// back, which go when it is closed.
func (m *metrics) forget(gone, now *state) {
	for _, g := range gone.top.Groups {
		for _, s := range g.Shards {
			if now.top.Shard(s.Name()) != nil {
				continue
			}
			m.rawShards.DeletePartialMatch(prometheus.Labels{"group": g.Name, "shard": strconv.Itoa(s.Index)})
			m.duplicates.DeletePartialMatch(prometheus.Labels{"shard": s.Name()})
			m.duplicates.DeletePartialMatch(prometheus.Labels{"other": s.Name()})
		}
	}
	if gone.drops.Hash() == now.drops.Hash() {
		return
	}
	has := now.drops.IDs()
	for id := range gone.drops.IDs() {
		if !has[id] {
			m.drops.DeleteLabelValues(id)
		}
	}
}

// configHash replaces the one series of spillway_config_info.
func (m *metrics) configHash(hash string) {
	m.hashMu.Lock()
	defer m.hashMu.Unlock()
	m.hash.Reset()
	m.hash.WithLabelValues(hash[:12]).Set(1)
}
