package cluster

import (
	"math"
	"strings"

	"github.com/prometheus/common/model"
)

func kubeletFamilies(d Detail) []family {
	g := model.MetricTypeGauge
	own := []family{
		{"kubelet_running_pods", "Number of pods that have a running pod sandbox.", g, func(p *page, e *emitter) {
			e.add(curve{kind: gauge, k: 1, st: p.host.running})
		}},
		{"kubelet_running_containers", "Number of containers currently running.", g, func(p *page, e *emitter) {
			e.add(curve{kind: gauge, k: 1, st: p.host.running}, "container_state", "running")
		}},
		{"kubelet_node_name", "The node's name. The count is always 1.", g, func(p *page, e *emitter) {
			e.add(curve{base: 1}, "node", p.m.nodeName(p.node))
		}},
	}
	if d == Full {
		for _, name := range []string{"kubelet_active_pods", "kubelet_desired_pods"} {
			own = append(own, family{name, "The number of pods, static ones apart.", g, func(p *page, e *emitter) {
				e.add(curve{kind: gauge, k: 1, st: p.host.running}, "static", "")
				e.add(curve{}, "static", "true")
			}})
		}
		own = append(own, fromSchema("runtime", d, exporterClock)...)
	}
	return append(append(own, fromSchema("kubelet", d, exporterClock)...), processFamilies(d)...)
}

// cadvisor's series: one set for each container, one for each pod's sandbox
// (network) and rows for cgroups that are no pods.

type cadvisorField struct {
	name, help string
	typ        model.MetricType
	detail     Detail
	// For a pod with GPUs and for a daemon: a rate, or a level.
	gang, daemon float64
	network      bool
	cgroups      bool
	special      kind // now or since: a time, not a measure
}

var cadvisorFields = []cadvisorField{
	{
		"container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", model.MetricTypeCounter, Lean, 14, 0.04, false,
		true,
		constant,
	},
	{
		"container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", model.MetricTypeCounter, Full, 11, 0.03, false,
		true, constant,
	},
	{
		"container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", model.MetricTypeCounter, Full, 3, 0.01,
		false,
		true, constant,
	},
	{
		"container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", model.MetricTypeCounter, Full, 10, 10, false,
		false, constant,
	},
	{
		"container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", model.MetricTypeCounter, Full, 0.1, 0.2,
		false,
		false, constant,
	},
	{"container_fs_reads_bytes_total", "Cumulative count of bytes read.", model.MetricTypeCounter, Full, 4e7, 200, false, false, constant},
	{
		"container_fs_writes_bytes_total", "Cumulative count of bytes written.", model.MetricTypeCounter, Full, 1.5e7, 900, false, false,
		constant,
	},
	{"container_last_seen", "Last time a container was seen by the exporter.", model.MetricTypeGauge, Full, 0, 0, false, true, now},
	{"container_memory_cache", "Number of bytes of page cache memory.", model.MetricTypeGauge, Full, 3.1e10, 1e7, false, true, constant},
	{"container_memory_rss", "Size of RSS in bytes.", model.MetricTypeGauge, Lean, 8.8e10, 4e7, false, true, constant},
	{"container_memory_swap", "Container swap usage in bytes.", model.MetricTypeGauge, Full, 0, 0, false, true, constant},
	{"container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed.", model.MetricTypeGauge, Full, 1.3e11, 6e7, false, true, constant},
	{
		"container_memory_working_set_bytes", "Current working set in bytes.", model.MetricTypeGauge, Lean, 9.6e10, 5e7, false, true,
		constant,
	},
	{"container_memory_failcnt", "Number of memory usage hits limits.", model.MetricTypeCounter, Full, 0, 0, false, true, constant},
	{
		"container_network_receive_bytes_total", "Cumulative count of bytes received.", model.MetricTypeCounter, Lean, 6e6, 9000, true,
		false,
		constant,
	},
	{
		"container_network_transmit_bytes_total", "Cumulative count of bytes transmitted.", model.MetricTypeCounter, Lean, 5e6, 12000, true,
		false, constant,
	},
	{
		"container_network_receive_packets_total", "Cumulative count of packets received.", model.MetricTypeCounter, Full, 5200, 30, true,
		false, constant,
	},
	{
		"container_network_transmit_packets_total", "Cumulative count of packets transmitted.", model.MetricTypeCounter, Full, 4100, 30,
		true,
		false, constant,
	},
	{"container_network_receive_errors_total", "Cumulative count of errors encountered while receiving.", model.MetricTypeCounter, Full, 0, 0, true, false, constant},
	{"container_network_transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting.", model.MetricTypeCounter, Full, 0, 0, true, false, constant},
	{"container_oom_events_total", "Count of out of memory events observed for the container.", model.MetricTypeCounter, Lean, 0, 0, false, false, constant},
	{"container_processes", "Number of processes running inside the container.", model.MetricTypeGauge, Full, 41, 3, false, true, constant},
	{"container_sockets", "Number of open sockets for the container.", model.MetricTypeGauge, Full, 210, 9, false, true, constant},
	{"container_spec_cpu_quota", "CPU quota of the container.", model.MetricTypeGauge, Full, 1.6e7, 2e4, false, false, constant},
	{
		"container_spec_memory_limit_bytes", "Memory limit for the container.", model.MetricTypeGauge, Lean, 1.6e12, 2e8, false, false,
		constant,
	},
	{"container_start_time_seconds", "Start time of the container since unix epoch in seconds.", model.MetricTypeGauge, Full, 0, 0, false, true, since},
	{"container_threads", "Number of threads running inside the container.", model.MetricTypeGauge, Full, 900, 22, false, true, constant},
}

func cadvisorFamilies(d Detail) []family {
	out := []family{
		{"cadvisor_version_info", "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.", model.MetricTypeGauge, func(_ *page, e *emitter) {
			e.add(curve{base: 1}, "cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", "6.8.0-1021-nvidia",
				"osVersion", "Ubuntu 22.04.5 LTS")
		}},
		{
			"machine_cpu_cores", "Number of logical CPU cores.", model.MetricTypeGauge,
			func(p *page, e *emitter) { p.eachBoot(e, curve{base: 192}) },
		},
		{
			"machine_memory_bytes", "Amount of memory installed on the machine.", model.MetricTypeGauge,
			func(p *page, e *emitter) { p.eachBoot(e, curve{base: memTotal}) },
		},
	}
	for i := range cadvisorFields {
		f := &cadvisorFields[i]
		if f.detail <= d {
			out = append(out, family{f.name, f.help, f.typ, func(p *page, e *emitter) { f.emit(p, e, d) }})
		}
	}
	return out
}

// eachBoot emits what is labelled by the machine's boot: after a restart it is
// another series.
func (p *page) eachBoot(e *emitter, c curve) {
	id := strings.ReplaceAll(uuid(hash(p.m.seed, 'm', uint64(p.node))), "-", "")
	for i, boot := range p.machine.starts {
		end := never
		if i+1 < len(p.machine.starts) {
			end = p.machine.starts[i+1]
		}
		e.addIn(boot, end, c, "boot_id", uuid(hash(p.h, uint64(boot))), "machine_id", id, "system_uuid",
			uuid(hash(p.m.seed, 'u', uint64(p.node))))
	}
}

func (f *cadvisorField) emit(p *page, e *emitter, d Detail) {
	for i := range p.host.pods {
		q := &p.host.pods[i]
		if q.a.ended <= q.a.started {
			continue
		}
		id := "/kubepods.slice/kubepods-pod" + strings.ReplaceAll(q.uid, "-", "_") + ".slice"
		name := strings.ReplaceAll(q.uid, "-", "")
		pairs := []string{
			"container", q.container, "id", id + "/cri-containerd-" + name + ".scope", "image",
			"registry.research.example/" + q.app + ":2026.11", "name", name, "namespace", q.space.name, "pod", q.name,
		}
		if f.network {
			pairs = []string{
				"id", id, "image", "registry.k8s.io/pause:3.10", "interface", "eth0", "name", name, "namespace", q.space.name,
				"pod", q.name,
			}
		}
		if strings.HasSuffix(f.name, "usage_seconds_total") {
			pairs = append([]string{"cpu", "total"}, pairs...)
		}
		v := f.daemon
		if q.exp != nil {
			v = f.gang
		}
		pr := &process{q.starts(p.machine)}
		c := f.curve(e, v, pr, pairs)
		if q.prom != nil {
			c = q.prom.container(f, c)
		}
		e.addIn(q.a.started, q.a.ended, c, pairs...)
	}
	if !f.cgroups {
		return
	}
	cgroups := []string{"/", "/kubepods.slice"}
	if d == Full {
		cgroups = append(cgroups, "/system.slice", "/system.slice/containerd.service", "/system.slice/kubelet.service")
	}
	for _, id := range cgroups {
		pairs := []string{"id", id}
		if strings.HasSuffix(f.name, "usage_seconds_total") {
			pairs = []string{"cpu", "total", "id", id}
		}
		e.add(f.curve(e, 4*f.gang, p.machine, pairs), pairs...)
	}
}

// starts lists when the pod's container was started: counters begin there.
func (q *pod) starts(machine *process) []int64 {
	if q.prom != nil {
		return q.prom.starts
	}
	if q.exp == nil {
		return machine.starts
	}
	s := []int64{q.a.started}
	for _, r := range q.a.inPlace {
		s = append(s, r.back)
	}
	return s
}

func (f *cadvisorField) curve(e *emitter, v float64, pr *process, pairs []string) curve {
	w, h := e.weight(pairs)
	switch {
	case f.special != constant:
		return curve{kind: f.special, pr: pr}
	case strings.HasPrefix(f.name, "container_spec_"):
		return curve{base: math.Round(v * w)}
	case f.typ == model.MetricTypeCounter:
		return e.rate(v*w, !strings.Contains(f.name, "seconds"), h, pr)
	default:
		return wave(curve{kind: gauge, base: v * w, amp: 0.06 * v * w, whole: true}, h)
	}
}
