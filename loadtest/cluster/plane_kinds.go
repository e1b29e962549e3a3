package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// WholeCluster is the target of troubles that are nobody's in particular.
const WholeCluster = "cluster"

// Troubles of DNS, the control plane, pods, the autoscaler and monitoring. None
// of them is drawn from the seed: they happen only where they are staged. Shares
// are of 1; Value 0 always means the default given.
const (
	// DNSErrors: upstream refuses and CoreDNS answers SERVFAIL. Target is
	// WholeCluster; Value is the share of all answers (0.2).
	DNSErrors Kind = "DNSErrors"
	// DNSSlow: every second query waits for upstream. Target is WholeCluster;
	// Value is the median of those, s (2).
	DNSSlow Kind = "DNSSlow"
	// APIThrottling: one client's LISTs of pods are refused with 429 by priority
	// and fairness. Target is its flow schema; Value is the share of all
	// requests (0.1).
	APIThrottling Kind = "APIThrottling"
	// APIThrottlingInFlight: the plain in-flight limit refuses with 429: flow
	// control counts none of them. Target is WholeCluster; Value as above.
	APIThrottlingInFlight Kind = "APIThrottlingInFlight"
	// APIErrors: an admission webhook does not answer and POSTs of pods fail
	// with 500. Target is WholeCluster; Value is the share of all requests (0.05).
	APIErrors Kind = "APIErrors"
	// APISlow: every second request but watches is slow. Target is WholeCluster
	// or one API server's instance; Value is the median of those, s (2; ten times
	// that for LISTs of everything).
	APISlow Kind = "APISlow"
	// APIAggregatorDown: the aggregated API of the metrics server is gone; its
	// 503s are in apiserver_request_terminations_total only. Target is
	// WholeCluster; Value is their number a second on each instance (1).
	APIAggregatorDown Kind = "APIAggregatorDown"
	// APIServerMemory: one API server's heap has grown. Target is its instance;
	// Value is its resident memory, bytes (1.3e11).
	APIServerMemory Kind = "APIServerMemory"
	// APIWatchTraffic: the watches of one resource carry far more. Target is the
	// resource; Value is bytes a second over all API servers (2e8).
	APIWatchTraffic Kind = "APIWatchTraffic"
	// EtcdFsyncSlow: one member's disk is slow. Target is its instance; Value is
	// the median of its fsyncs, s (0.05).
	EtcdFsyncSlow Kind = "EtcdFsyncSlow"
	// EtcdDBGrows: the database grows evenly for three quarters of the time, to
	// Value, a share of the quota (0.9), and is compacted and defragmented at
	// Until. Target is an etcd job, as all members hold the same, or one instance.
	EtcdDBGrows Kind = "EtcdDBGrows"
	// EtcdHung: all members of one etcd job hang and are killed and started again
	// at Until. They do not answer, nor do the API servers' own pages (which ask
	// etcd); /metrics/slis does and says that etcd is ill, unless it is that of the
	// events. What the API servers counted meanwhile shows afterwards. Target is
	// the job.
	EtcdHung Kind = "EtcdHung"
	// EtcdNoLeader: the members of one etcd job lost each other. They answer, but
	// commit nothing; the API servers' writes fail with 500. Target is the job.
	EtcdNoLeader Kind = "EtcdNoLeader"
	// EtcdLeaderChurn: leaders follow one another. Target is the job; Value is
	// the number of changes, evenly spread (one each two minutes, 4 at least).
	EtcdLeaderChurn Kind = "EtcdLeaderChurn"
	// GangHalfPending: a running gang loses its pods at From; of the new ones the
	// first half get their nodes and wait for the others, which are pending until
	// Until. Target is an experiment of at least two pods that runs at From.
	GangHalfPending Kind = "GangHalfPending"
	// PodsPendingGPUsFree: experiments end and leave a quarter of the GPUs free,
	// yet a gang that asks for them gets no node. Target is WholeCluster; Value
	// is the number of the gang's pods, each of a whole node's GPUs (4).
	PodsPendingGPUsFree Kind = "PodsPendingGPUsFree"
	// AutoscalerStuck: the autoscaler's loop stands still; its page answers.
	// Target is WholeCluster.
	AutoscalerStuck Kind = "AutoscalerStuck"
	// AutoscalerScaleUpFailing: the provider has no such machines. Target is
	// WholeCluster; Value is failures a minute (2).
	AutoscalerScaleUpFailing Kind = "AutoscalerScaleUpFailing"
	// PrometheusMemoryNearLimit: unbounded /api/v1/series calls hold a server's
	// memory near its limit. Target is its instance; Value is the working set as
	// a share of the limit (0.93).
	PrometheusMemoryNearLimit Kind = "PrometheusMemoryNearLimit"
	// PrometheusOOMLoop: a server is killed at its limit, replays its log, and is
	// killed again. Target is its instance; Value is the number of kills, evenly
	// spread from From on (one each ten minutes, 3 at least).
	PrometheusOOMLoop Kind = "PrometheusOOMLoop"
	// PrometheusReplaying: a server is started again at From and replays its log
	// until Until: up, not ready. Target is its instance.
	PrometheusReplaying Kind = "PrometheusReplaying"
	// CardinalityJump: a release puts a request's id into a label on every page
	// of one job. Target is the job; Value is how many times as many series its
	// pages have (2). Heads of Prometheus servers fill by as much until Until.
	CardinalityJump Kind = "CardinalityJump"
)

// planeKind says which targets and values a kind takes.
type planeKind struct {
	// check is asked once the model's targets exist.
	check  func(*Model, Trouble) error
	lo, hi float64 // of Value, both allowed; hi 0: the kind has no Value
	value  float64 // what Value 0 means
}

var planeKinds = map[Kind]planeKind{
	DNSErrors:                 {checkWhole, 0.001, 0.99, 0.2},
	DNSSlow:                   {checkWhole, 0.001, 60, 2},
	APIThrottling:             {checkFlowSchema, 0.001, 0.99, 0.1},
	APIThrottlingInFlight:     {checkWhole, 0.001, 0.99, 0.1},
	APIErrors:                 {checkWhole, 0.001, 0.99, 0.05},
	APISlow:                   {checkAPISlow, 0.001, 60, 2},
	APIAggregatorDown:         {checkWhole, 0.01, 1e4, 1},
	APIServerMemory:           {checkInstance(JobAPIServer), 1e6, 1e13, 1.3e11},
	APIWatchTraffic:           {checkResource, 1, 1e12, 2e8},
	EtcdFsyncSlow:             {checkInstance(JobEtcd, JobEtcdEvents), 0.0001, 8, 0.05},
	EtcdDBGrows:               {checkEtcdData, 0.05, 1, 0.9},
	EtcdHung:                  {checkJob(JobEtcd, JobEtcdEvents), 0, 0, 0},
	EtcdNoLeader:              {checkJob(JobEtcd, JobEtcdEvents), 0, 0, 0},
	EtcdLeaderChurn:           {checkJob(JobEtcd, JobEtcdEvents), 1, 10000, 0},
	GangHalfPending:           {checkRunningGang, 0, 0, 0},
	PodsPendingGPUsFree:       {checkWhole, 1, 1000, 4},
	AutoscalerStuck:           {checkWhole, 0, 0, 0},
	AutoscalerScaleUpFailing:  {checkWhole, 0.1, 600, 2},
	PrometheusMemoryNearLimit: {checkInstance(JobPrometheus), 0.1, 1, 0.93},
	PrometheusOOMLoop:         {checkInstance(JobPrometheus), 1, 10000, 0},
	PrometheusReplaying:       {checkInstance(JobPrometheus), 0, 0, 0},
	CardinalityJump:           {checkJob(Jobs()...), 1.01, 100, 2},
}

// checkTroubles refuses staged troubles that would change nothing, because
// their target is not in this model, and fills in values left out.
func (m *Model) checkTroubles() error {
	for i, t := range m.o.Troubles {
		k, ok := planeKinds[t.Kind]
		if !ok {
			continue
		}
		if err := k.check(m, t); err != nil {
			return fmt.Errorf("troubles[%d]: %s: %w", i, t.Kind, err)
		}
		switch {
		case k.hi == 0 && t.Value != 0:
			return fmt.Errorf("troubles[%d]: %s: value %v: this kind has none; leave it 0", i, t.Kind, t.Value)
		case k.hi > 0 && t.Value != 0 && !(t.Value >= k.lo && t.Value <= k.hi):
			return fmt.Errorf("troubles[%d]: %s: value %v is outside %v to %v (0 means %v)", i, t.Kind, t.Value, k.lo, k.hi, k.value)
		}
	}
	for key, evs := range m.tl.staged {
		for i := range evs {
			if evs[i].value == 0 {
				evs[i].value = planeDefault(key.kind, evs[i])
			}
		}
	}
	return nil
}

// planeDefault is what Value 0 means; for what comes again and again that
// depends on how long it lasts.
func planeDefault(k Kind, e event) float64 {
	minutes := float64(e.until-e.from) / float64(time.Minute.Milliseconds())
	switch k {
	case EtcdLeaderChurn:
		return max(4, float64(int(minutes/2)))
	case PrometheusOOMLoop:
		return max(3, float64(int(minutes/10)))
	}
	return planeKinds[k].value
}

func checkWhole(_ *Model, t Trouble) error {
	if t.Target != WholeCluster {
		return fmt.Errorf("target %q: give %q, it is the whole cluster's", t.Target, WholeCluster)
	}
	return nil
}

func checkJob(jobs ...string) func(*Model, Trouble) error {
	return func(_ *Model, t Trouble) error {
		if !slices.Contains(jobs, t.Target) {
			return fmt.Errorf("target %q is none of the jobs %s", t.Target, strings.Join(jobs, ", "))
		}
		return nil
	}
}

func checkInstance(jobs ...string) func(*Model, Trouble) error {
	return func(m *Model, t Trouble) error {
		var known []string
		for i := range m.targets {
			if slices.Contains(jobs, m.targets[i].Job) {
				if m.targets[i].Instance == t.Target {
					return nil
				}
				known = append(known, m.targets[i].Instance)
			}
		}
		return fmt.Errorf("target %q is no instance of %s; there are %s", t.Target, strings.Join(jobs, " or "), strings.Join(known, ", "))
	}
}

func checkAPISlow(m *Model, t Trouble) error {
	if t.Target == WholeCluster {
		return nil
	}
	return checkInstance(JobAPIServer)(m, t)
}

func checkEtcdData(m *Model, t Trouble) error {
	if checkJob(JobEtcd, JobEtcdEvents)(m, t) == nil {
		return nil
	}
	return checkInstance(JobEtcd, JobEtcdEvents)(m, t)
}

func checkFlowSchema(_ *Model, t Trouble) error {
	var known []string
	for _, row := range tables["f"].rows {
		if row[0] == "exempt" {
			continue // nothing of it is ever refused
		}
		if row[0] == t.Target {
			return nil
		}
		known = append(known, row[0])
	}
	return fmt.Errorf("target %q is no flow schema that can be throttled; there are %s", t.Target, strings.Join(known, ", "))
}

func checkResource(m *Model, t Trouble) error {
	var known []string
	for i := range m.kinds {
		if m.kinds[i].resource == t.Target {
			return nil
		}
		known = append(known, m.kinds[i].resource)
	}
	return fmt.Errorf("target %q is no resource of this cluster; there are %s", t.Target, strings.Join(known, ", "))
}

func checkRunningGang(m *Model, t Trouble) error {
	at := t.From.UnixMilli()
	found := false
	for i := range m.pools {
		for _, x := range m.experiments(&m.pools[i], at, at) {
			if x.name != t.Target {
				continue
			}
			found = true
			if x.size() < 2 {
				return fmt.Errorf("target %s has one pod: no half of it can wait; take a wider one from Experiments", t.Target)
			}
			for n, a := range x.attempts[1:] {
				// The trouble has ended the one before already.
				if was := x.attempts[n]; was.started < at && was.ended == at && was.failed && a.halfUntil != 0 {
					return nil
				}
			}
		}
	}
	if found {
		return fmt.Errorf("target %s does not run at %s, or is about to end; take an earlier time inside one of its Runs", t.Target, t.From.UTC().Format(time.RFC3339))
	}
	return fmt.Errorf("target %q is no experiment that exists at %s; Experiments lists them", t.Target, t.From.UTC().Format(time.RFC3339))
}
