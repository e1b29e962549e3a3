package cluster

import (
	"crypto/md5" //nolint:gosec // Prometheus' hashmod action is defined by it
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
)

// Target is one exporter page of the cluster, as service discovery shows it.
type Target struct {
	// Job and Instance are the labels of these names. Together they are unique.
	Job, Instance string
	// MetricsPath is the path that the real exporter serves its page under; the
	// model's handler serves it under /scrape/{job}/{instance}.
	MetricsPath string
	// Labels are further target labels: node where the page belongs to one.
	Labels labels.Labels

	node int // -1: none
	ord  int // which of several equal instances
}

type targetKey struct{ job, instance string }

// Jobs in the order of Targets.
const (
	JobAPIServer         = "kube-apiserver"
	JobEtcd              = "etcd"
	JobEtcdEvents        = "etcd-events"
	JobControllerManager = "kube-controller-manager"
	JobScheduler         = "kube-scheduler"
	JobKubeStateMetrics  = "kube-state-metrics"
	JobCoreDNS           = "coredns"
	JobPrometheus        = "prometheus"
	JobNode              = "node-exporter"
	JobDCGM              = "dcgm-exporter"
	JobKubelet           = "kubelet"
	JobCadvisor          = "cadvisor"
)

// Targets lists every page, control plane first, then node by node. The slice
// is shared: do not change it.
func (m *Model) Targets() []Target { return m.targets }

func (m *Model) nodeName(n int) string { return fmt.Sprintf("gpu-%05d", n) }
func (m *Model) nodeIP(n int) string {
	n += 256
	return fmt.Sprintf("10.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff)
}
func (m *Model) rack(n int) int        { return n / m.o.NodesPerRack }
func (m *Model) rackName(n int) string { return fmt.Sprintf("r%03d", m.rack(n)) }

func (m *Model) makeTargets() {
	add := func(t Target) { m.targets = append(m.targets, t) }
	plane := func(job string, n, port int, path string) {
		for i := range n {
			add(Target{Job: job, Instance: fmt.Sprintf("10.0.0.%d:%d", 10+i, port), MetricsPath: path, node: -1, ord: i})
		}
	}
	plane(JobAPIServer, m.o.APIServers, 6443, "/metrics")
	plane(JobEtcd, 3, 2381, "/metrics")
	plane(JobEtcdEvents, 3, 2382, "/metrics")
	plane(JobControllerManager, 1, 10257, "/metrics")
	plane(JobScheduler, 1, 10259, "/metrics")
	plane(JobKubeStateMetrics, m.o.KubeStateMetrics, 8080, "/metrics")
	plane(JobCoreDNS, 2, 9153, "/metrics")
	plane(JobPrometheus, promServers, 9090, "/metrics")
	plane(JobAPIServerSLIs, m.o.APIServers, 6443, "/metrics/slis")
	plane(JobAutoscaler, 1, 8085, "/metrics")
	if m.o.Exporters&WithNodeMesh != 0 {
		for i := range probers {
			ls := labels.FromStrings("prober", "prober-"+strconv.Itoa(i))
			add(Target{
				Job: JobNodeMesh, Instance: fmt.Sprintf("10.0.1.%d:9427", 10+i), MetricsPath: "/metrics", Labels: ls, node: -1,
				ord: i,
			})
		}
	}
	for n := range m.o.Nodes {
		ip := m.nodeIP(n)
		ls := labels.FromStrings("node", m.nodeName(n))
		add(Target{Job: JobNode, Instance: ip + ":9100", MetricsPath: "/metrics", Labels: ls, node: n})
		add(Target{Job: JobDCGM, Instance: ip + ":9400", MetricsPath: "/metrics", Labels: ls, node: n})
		add(Target{Job: JobKubelet, Instance: ip + ":10250", MetricsPath: "/metrics", Labels: ls, node: n})
		add(Target{Job: JobCadvisor, Instance: ip + ":10250", MetricsPath: "/metrics/cadvisor", Labels: ls, node: n})
		if m.o.Exporters&WithIPTables != 0 {
			add(Target{Job: JobIPTables, Instance: ip + ":9455", MetricsPath: "/metrics", Labels: ls, node: n})
		}
		if m.o.Exporters&WithProblemDetector != 0 {
			add(Target{Job: JobProblemDetector, Instance: ip + ":20257", MetricsPath: "/metrics", Labels: ls, node: n})
		}
	}
	m.index = make(map[targetKey]int, len(m.targets))
	for i := range m.targets {
		m.index[targetKey{m.targets[i].Job, m.targets[i].Instance}] = i
	}
}

// Find returns the target of a job and instance.
func (m *Model) Find(job, instance string) (Target, bool) {
	i, ok := m.index[targetKey{job, instance}]
	if !ok {
		return Target{}, false
	}
	return m.targets[i], true
}

// Shard says which of n shards scrapes the target: what Prometheus' relabel
// action hashmod computes of the label node, or of instance where there is no
// node. All pages of a node are on one shard, so joins over node stay there.
// n below 1 counts as 1.
func Shard(t Target, n int) int {
	if n <= 1 {
		return 0
	}
	v := t.Labels.Get("node")
	if v == "" {
		v = t.Instance
	}
	sum := md5.Sum([]byte(v)) //nolint:gosec // as above
	return int(binary.BigEndian.Uint64(sum[8:]) % uint64(n))
}
