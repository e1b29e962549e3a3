package shard

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the package's own. They outlive a reload: the new topology uses its predecessor's.
type metrics struct {
	requests *prometheus.CounterVec
	retries  *prometheus.CounterVec
	failover *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	header   *prometheus.HistogramVec
	linger   *prometheus.HistogramVec
	noFile   prometheus.Counter

	hedgeMetrics
	again          *retries
	retriesRefused prometheus.Counter
	held           quarantine
	quarantined    *prometheus.CounterVec
	shed           *prometheus.CounterVec

	mu       sync.Mutex
	accounts map[[3]string]*account // by group, shard and replica
	shards   map[[2]string]int      // how many accounts, by group and shard

	current atomic.Pointer[Topology] // whose replicas the gauges speak of
}

var (
	replicaLabels = []string{"group", "shard", "replica"}
	shardLabels   = []string{"group", "shard"}

	descState = prometheus.NewDesc("spillway_shard_replica_state", "1 for the state that a replica is in, 0 for the others.",
		append(replicaLabels, "state"), nil)
	descBreaker = prometheus.NewDesc("spillway_shard_breaker_open", "1 while a replica's breaker is open or half-open.", replicaLabels,
		nil)
	descInflight   = prometheus.NewDesc("spillway_shard_requests_in_flight", "Calls to a replica that are under way.", replicaLabels, nil)
	descUnanswered = prometheus.NewDesc("spillway_shard_requests_unanswered", "Calls to a replica whose answer has not begun; its own health probes are not among them.",
		replicaLabels, nil)
	descWaiting = prometheus.NewDesc("spillway_shard_requests_waiting", "Calls that wait for one of a replica's slots, by class.",
		append(replicaLabels, "class"), nil)
	descSkew    = prometheus.NewDesc("spillway_shard_clock_skew_seconds", "How far a replica's clock is ahead of Spillway's, by its Date header.", replicaLabels, nil)
	descHashmod = prometheus.NewDesc("spillway_shard_hashmod_trusted",
		"1 while requests are sent only to the shards that a group's hashmod names, 0 while some server of the group is not seen to keep that rule.", []string{"group"}, nil)
	descNames = prometheus.NewDesc("spillway_shard_names_trusted",
		"1 while a group is left out of requests for metrics that its names do not match, 0 while some server of the group is not seen to keep to them.", []string{"group"}, nil)
	descShardNames = prometheus.NewDesc("spillway_shard_own_names_trusted",
		"1 while metrics that a shard of the group has alone, by its names, are asked of that shard only, 0 while some other server of the group is not seen to have none of them.", []string{"group"}, nil)
	descWhole = prometheus.NewDesc("spillway_shard_replica_whole",
		"1 while a replica can be asked and lacks nothing that another of its shard has over the last closed five minutes and the last minute, by heartbeat; also of the only one that can be asked.", replicaLabels, nil)
	descLacking = prometheus.NewDesc("spillway_shard_replica_lacking_since_timestamp_seconds",
		"Since when a replica that can be asked lacks something that another of its shard has, by heartbeat, in seconds since 1970: the beginning of the first of the five minutes in which it does, as far as the last hour tells; 0 while it lacks nothing of the last closed five minutes and the last minute.", replicaLabels, nil)
	descUnreached = prometheus.NewDesc("spillway_shard_replica_unreached_ratio",
		"Share of the targets that another replica of the shard reached at its newest scrapes, within the last minute, and this one failed to reach at its own: 1 where it is cut off from all. Targets that it does not have are not in it; by a heartbeat that is up, else 0.", replicaLabels, nil)
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shard_requests_total", Help: "Calls to a replica by outcome: ok, cut (closed by Spillway before its end), silent (not made, since the replica is known to answer nothing), or the kind of error.",
		}, append(replicaLabels, "outcome")),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shard_retries_total", Help: "Calls that were made a second time to the same replica, because the connection broke before an answer or Retry-After fitted.",
		}, replicaLabels),
		failover: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shard_failovers_total", Help: "Calls that went to another replica of the shard after this one had failed.",
		}, replicaLabels),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shard_response_bytes_total", Help: "Bytes of answers' bodies as they came over the wire.",
		}, replicaLabels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_shard_request_duration_seconds", Help: "Time that a server itself took for a call: from its slot to the beginning of its answer, and in the reads of its body.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60}, NativeHistogramBucketFactor: 1.1,
			NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, shardLabels),
		header: prometheus.NewHistogramVec(prometheus.HistogramOpts{ // few buckets: there is one of these for each replica
			Name:    "spillway_shard_header_duration_seconds",
			Help:    "Time from a call's slot to the beginning of its answer; of a call that was given up without one after two seconds or more, how long it was waited for.",
			Buckets: []float64{.1, .5, 1, 2.5, 5, 10}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			NativeHistogramMinResetDuration: time.Hour,
		}, replicaLabels),
		linger: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_shard_cancel_linger_seconds", Help: "How long a call to a shard went on after its request had ended (client gone, deadline, kill).",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, shardLabels),
		noFile: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_local_dial_failures_total", Help: "Connections to shards that this machine had no file, port or buffer left for; no shard is charged with them.",
		}),
		hedgeMetrics: newHedgeMetrics(),
		again:        newRetries(), retriesRefused: newRetriesRefused(),
		quarantined: newQuarantined(), shed: newShed(),
		accounts: map[[3]string]*account{}, shards: map[[2]string]int{},
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.retries, m.failover, m.bytes, m.duration, m.header, m.linger, m.noFile, m.hedged,
		m.wins, m.retriesRefused, m.quarantined, m.shed, m,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Describe implements prometheus.Collector for the gauges.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descState, descBreaker, descInflight, descUnanswered, descWaiting, descSkew, descWhole,
		descLacking, descUnreached, descHashmod, descNames, descShardNames, descSick, descLag, descMute, descShardBy, descStoresLeftOut,
		descMemory, descMemoryLimit, descHealth,
	} {
		ch <- d
	}
	for _, d := range crowdDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector: the gauges are read from the topology of the moment.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	t := m.current.Load()
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, l ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, l...)
	}
	is := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	t.collectSick(gauge)
	t.collectVitals(gauge)
	t.collectCalls(func(d *prometheus.Desc, kind prometheus.ValueType, v float64, l ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, l...)
	})
	for _, g := range t.Groups {
		if g.Hashmod != nil {
			gauge(descHashmod, is(g.HashmodTrusted()), g.Name)
		}
		if len(g.ShardBy) > 0 {
			gauge(descShardBy, is(!g.shardByBroken()), g.Name)
		}
		if g.Names != nil {
			gauge(descNames, is(g.NamesTrusted()), g.Name)
		}
		if g.homes != nil {
			gauge(descShardNames, is(g.ShardNamesTrusted()), g.Name)
		}
	}
	now := time.Now()
	for r := range t.replicas() {
		state := r.State()
		for _, s := range states {
			gauge(descState, is(s == state), r.Shard.Group.Name, strconv.Itoa(r.Shard.Index), r.host, string(s))
		}
		gauge(descBreaker, is(r.up.breaker.current(now) != Closed), r.metricLabels...)
		gauge(descLag, is(r.Lagging()), r.metricLabels...)
		gauge(descMute, is(!r.Mute().IsZero()), r.metricLabels...)
		gauge(descStoresLeftOut, float64(len(r.storesAway())), r.metricLabels...)
		gauge(descInflight, float64(r.up.inflight.Load()), r.metricLabels...)
		gauge(descUnanswered, float64(r.up.unanswered.Load()), r.metricLabels...)
		for class, g := range map[string]*gate{"heavy": r.up.gates.heavy, "unselective": r.up.gates.unselective} {
			waiting, _ := g.Waiting()
			gauge(descWaiting, float64(waiting), append(r.labels(), class)...)
		}
		r.up.mu.Lock()
		skew := r.up.health.skew
		r.up.mu.Unlock()
		gauge(descSkew, skew.Seconds(), r.metricLabels...)
		if r.Shard.Group.Heartbeat != "" && len(r.Shard.Replicas) > 1 {
			gauge(descWhole, is(r.Shard.wholeNow(r.Index, now)), r.metricLabels...)
			since, unreached := r.lacking()
			gauge(descLacking, since, r.metricLabels...)
			gauge(descUnreached, unreached, r.metricLabels...)
		}
	}
}
