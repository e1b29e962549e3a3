package cluster

import (
	"strconv"
	"sync"

	"github.com/prometheus/common/model"
)

// familiesOf returns what a job's pages consist of. The lists depend on job and
// detail only and are built once.
func familiesOf(job string, d Detail) []family {
	key := job + strconv.Itoa(int(d))
	if f, ok := pageFamilies.Load(key); ok {
		return f.([]family)
	}
	f, _ := pageFamilies.LoadOrStore(key, buildFamilies(job, d))
	return f.([]family)
}

var pageFamilies sync.Map

func buildFamilies(job string, d Detail) []family {
	fams := react(job, ownFamilies(job, d))
	return append(fams, jumpFamily(job, fams))
}

func ownFamilies(job string, d Detail) []family {
	plain := func(name string) []family {
		f := append(fromSchema(name, d, exporterClock), processFamilies(d)...)
		if d == Full && name != "etcd" {
			f = append(f, fromSchema("runtime", d, exporterClock)...)
		}
		return f
	}
	switch job {
	case JobAPIServer:
		own := apiServerFamilies(d)
		for _, f := range plain("apiserver") {
			if f.name != "process_resident_memory_bytes" { // it has its own
				own = append(own, f)
			}
		}
		return own
	case JobEtcd, JobEtcdEvents:
		return append(etcdFamilies(), plain("etcd")...)
	case JobControllerManager:
		return plain("controllermanager")
	case JobScheduler:
		return append([]family{{
			"scheduler_pending_pods", "Number of pending pods, by the queue type.", model.MetricTypeGauge,
			emitPendingPods,
		}}, plain("scheduler")...)
	case JobKubeStateMetrics:
		return append(ksmFamilies(d), fromSchema("ksm", d, exporterClock)...)
	case JobAPIServerSLIs:
		return sliFamilies()
	case JobAutoscaler:
		return autoscalerFamilies(d)
	case JobCoreDNS:
		return plain("coredns")
	case JobPrometheus:
		return plain("prometheus")
	case JobNode:
		return nodeFamilies(d)
	case JobDCGM:
		return dcgmFamilies(d)
	case JobKubelet:
		return kubeletFamilies(d)
	case JobCadvisor:
		return cadvisorFamilies(d)
	}
	switch job {
	case JobIPTables:
		return iptablesFamilies(d)
	case JobProblemDetector:
		return npdFamilies()
	case JobNodeMesh:
		return meshFamilies()
	}
	panic("cluster: no families for job " + job)
}

// etcdFamilies: who leads is decided by the seed, one member of three.
func etcdFamilies() []family {
	g := model.MetricTypeGauge
	member := func(p *page, ord int) string {
		return strconv.FormatUint(hash(p.m.seed, hashString(0, p.t.Job), uint64(ord))|1<<63, 16)
	}
	return []family{
		{"etcd_server_has_leader", "Whether or not a leader exists. 1 is existence, 0 is not.", g, func(_ *page, e *emitter) { e.add(curve{base: 1}) }},
		{"etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise.", g, func(p *page, e *emitter) {
			v := 0.0
			if p.t.ord == int(hash(p.m.seed, hashString(1, p.t.Job))%3) {
				v = 1
			}
			e.add(curve{base: v})
		}},
		{"etcd_server_id", "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.", g, func(p *page, e *emitter) {
			e.add(curve{base: 1}, "server_id", member(p, p.t.ord))
		}},
		{"etcd_server_proposals_committed_total", "The total number of consensus proposals committed.", g, emitProposals},
		{"etcd_server_proposals_applied_total", "The total number of consensus proposals applied.", g, emitProposals},
		{"etcd_mvcc_db_total_size_in_bytes", "Total size of the underlying database physically allocated in bytes.", g, emitDBSize},
		{"etcd_mvcc_db_total_size_in_use_in_bytes", "Total size of the underlying database logically in use in bytes.", g, emitDBSize},
		{"etcd_network_known_peers", "The current number of known peers.", g, func(p *page, e *emitter) {
			for i := range 3 {
				e.add(curve{base: 1}, "Local", member(p, p.t.ord), "Remote", member(p, i))
			}
		}},
		{
			"etcd_network_peer_round_trip_time_seconds", "Round-Trip-Time histogram between peers.", model.MetricTypeHistogram,
			func(p *page, e *emitter) {
				for i := range 3 {
					if i != p.t.ord {
						pairs := []string{"To", member(p, i)}
						_, h := e.weight(pairs)
						e.histogram(0, never, e.rate(0.033, true, h, p.pr), dist{0.0006, 0.5}, peerLEs, peerBounds, pairs...)
					}
				}
			},
		},
	}
}

// emitProposals: what is committed is applied at once, so both are one curve;
// the larger the cluster, the more is written.
func emitProposals(p *page, e *emitter) {
	e.add(e.rate(40+float64(p.m.o.Nodes)/4, true, hash(p.m.seed, hashString(2, p.t.Job)), p.pr))
}

// emitDBSize: in use is always a part of what is allocated.
func emitDBSize(p *page, e *emitter) {
	c := curve{kind: gauge, base: 3e8 + 2e5*float64(p.m.o.Nodes), whole: true}
	c.amp = c.base / 20
	if e.fam.name == "etcd_mvcc_db_total_size_in_use_in_bytes" {
		c.scale = 0.61
	}
	e.add(wave(c, p.h))
}

// emitPendingPods: the pods of gangs that wait for nodes.
func emitPendingPods(p *page, e *emitter) {
	for _, queue := range []string{"active", "backoff", "gated", "unschedulable"} {
		c := curve{}
		if queue == "unschedulable" {
			c = curve{kind: gauge, k: 1, st: p.waitingPods()}
		}
		e.add(c, "queue", queue)
	}
}

var peerLEs, peerBounds = leSet("0.0001|0.0002|0.0004|0.0008|0.0016|0.0032|0.0064|0.0128|0.0256|0.0512|0.1024|0.2048|0.4096|0.8192|1.6384|3.2768|+Inf")
