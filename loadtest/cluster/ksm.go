package cluster

import (
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
)

// kube-state-metrics: a page over the whole cluster, made node by node.

// ksmFamilies are the families of the page, in the order in which the exporter writes them.
func ksmFamilies(d Detail) []family {
	fams := slices.Concat(ksmNamespaces(), ksmNodes(), ksmPods(), ksmJobs())
	if d == Full {
		fams = append(fams, ksmFullFamilies()...)
	}
	return fams
}

func ksmNamespaces() []family {
	g := model.MetricTypeGauge
	return []family{
		{"kube_namespace_created", "Unix creation timestamp.", g, eachNamespace(func(p *page, e *emitter, n *namespace) {
			e.add(curve{base: float64(p.m.start / 1000)}, "namespace", n.name)
		})},
		{
			"kube_namespace_labels", "Kubernetes labels converted to Prometheus labels.", g,
			eachNamespace(func(_ *page, e *emitter, n *namespace) {
				if n.team == "" {
					e.add(curve{base: 1}, "namespace", n.name)
					return
				}
				e.add(curve{base: 1}, "namespace", n.name, "label_team", n.team)
			}),
		},
		{"kube_namespace_status_phase", "The phase of a namespace.", g, eachNamespace(func(_ *page, e *emitter, n *namespace) {
			e.add(curve{base: 1}, "namespace", n.name, "phase", "Active")
			e.add(curve{}, "namespace", n.name, "phase", "Terminating")
		})},
	}
}

func ksmNodes() []family {
	g := model.MetricTypeGauge
	return []family{
		{"kube_node_created", "Unix creation timestamp.", g, eachNode(func(p *page, e *emitter, s *nodeState, name string) {
			for _, c := range p.m.created(s.node) {
				e.addIn(c.from, c.until, curve{base: float64(c.from / 1000)}, "node", name)
			}
		})},
		{"kube_node_info", "Information about a cluster node.", g, eachNode(emitNodeInfo)},
		{
			"kube_node_labels", "Kubernetes labels converted to Prometheus labels.", g,
			eachNode(func(p *page, e *emitter, s *nodeState, name string) {
				e.add(curve{base: 1}, "node", name, "label_nvidia_com_gpu_product", p.m.product(s.node), "label_rack",
					p.m.rackName(s.node),
					"label_topology_kubernetes_io_zone", "z"+strconv.Itoa(p.m.rack(s.node)%3))
			}),
		},
		{
			"kube_node_spec_unschedulable", "Whether a node can schedule new pods.", g,
			eachNode(func(_ *page, e *emitter, s *nodeState, name string) {
				c := curve{}
				if evs := s.of(-1, NodeCordoned, NodeUpgrade, NodeAbsent); len(evs) > 0 {
					c.set(1, active(evs))
				}
				e.add(c, "node", name)
			}),
		},
		{"kube_node_spec_taint", "The taint of a cluster node.", g, eachNode(emitNodeTaints)},
		{"kube_node_status_allocatable", "The allocatable for different resources of a node that are available for scheduling.", g, eachNode(emitNodeResources)},
		{"kube_node_status_capacity", "The capacity for different resources of a node.", g, eachNode(emitNodeResources)},
		{"kube_node_status_condition", "The condition of a cluster node.", g, eachNode(emitNodeCondition)},
	}
}

func ksmPods() []family {
	g := model.MetricTypeGauge
	return []family{
		{"kube_pod_container_resource_requests", "The number of requested resource by a container.", g, eachPod(emitPodResources)},
		{"kube_pod_container_resource_limits", "The number of requested limit resource by a container.", g, eachPod(emitPodLimits)},
		{
			"kube_pod_container_status_restarts_total", "The number of container restarts per container.", model.MetricTypeCounter,
			eachPod(emitPodRestarts),
		},
		{"kube_pod_container_status_waiting_reason", "Describes the reason the container is currently in waiting state.", g, eachPod(emitWaitingReason)},
		{"kube_pod_container_status_last_terminated_reason", "Describes the last reason the container was in terminated state.", g, eachPod(emitTerminatedReason)},
		{"kube_pod_created", "Unix creation timestamp.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.created, q.a.removed, curve{base: float64(q.a.created) / 1000}, q.id()...)
		})},
		{"kube_pod_info", "Information about pod.", g, eachPod(emitPodInfo)},
		{"kube_pod_labels", "Kubernetes labels converted to Prometheus labels.", g, eachPod(emitPodLabels)},
		{"kube_pod_owner", "Information about the Pod's owner.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.created, q.a.removed, curve{base: 1},
				append(q.id(), "owner_kind", q.owner[0], "owner_name", q.owner[1], "owner_is_controller", "true")...)
		})},
		{"kube_pod_start_time", "Start time in unix timestamp for a pod.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.scheduled, q.a.removed, curve{base: float64(q.a.scheduled) / 1000}, q.id()...)
		})},
		{"kube_pod_status_phase", "The pods current phase.", g, eachPod(emitPodPhase)},
		{"kube_pod_status_ready", "Describes whether the pod is ready to serve requests.", g, eachPod(emitPodReady)},
		{"kube_pod_status_scheduled_time", "Unix timestamp when pod moved into scheduled status.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.scheduled, q.a.removed, curve{base: float64(q.a.scheduled) / 1000}, q.id()...)
		})},
		{"kube_pod_status_unschedulable", "Describes the unschedulable status for the pod.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			if q.a.scheduled-q.a.created > 20*second {
				e.addIn(q.a.created+5*second, q.a.scheduled, curve{base: 1}, q.id()...)
			}
		})},
	}
}

func ksmJobs() []family {
	g := model.MetricTypeGauge
	return []family{
		{"kube_job_status_failed", "The number of pods which reached Phase Failed and the reason for failure.", g, emitJobs(func(x *experiment) float64 { return float64(len(x.attempts) - 1) })},
		{"kube_job_spec_parallelism", "The maximum desired number of pods the job should run at any given time.", g, emitJobs(func(x *experiment) float64 { return float64(x.size()) })},
	}
}

// The control plane notices a silent node after the grace period, and a
// returned one after its first status update.
const (
	notReadyAfter = 40 * second
	readyAfter    = 10 * second
)

func eachNamespace(f func(*page, *emitter, *namespace)) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		for i := range p.m.spaces {
			f(p, e, &p.m.spaces[i])
		}
	}
}

func eachNode(f func(*page, *emitter, *nodeState, string)) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		for n := range p.m.o.Nodes {
			s := &nodeState{node: n, ill: p.m.ill[n]}
			s.down = spans(p.m.tl.events(NodeDown, p.m.nodeName(n), p.from-readyAfter, p.until+1))
			e.absent = p.m.absent(n)
			f(p, e, s, p.m.nodeName(n))
		}
		e.absent = nil
	}
}

// eachPod walks system pods node by node and gangs pool by pool: one gang is in
// memory at a time.
func eachPod(f func(*page, *emitter, *pod)) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		yield := func(q *pod) { f(p, e, q) }
		for n := range p.m.o.Nodes {
			e.absent = p.m.absent(n)
			p.m.systemPods(n, nil, p.until, yield)
		}
		e.absent = nil
		p.m.eachExperiment(p.from, p.until, func(x *experiment) { x.pods(p.from, p.until, yield) })
	}
}

func emitJobs(value func(*experiment) float64) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		p.m.eachExperiment(p.from, p.until, func(x *experiment) {
			c := curve{base: value(x)}
			if e.fam.name == "kube_job_status_failed" {
				st := &steps{}
				for n, a := range x.attempts {
					if a.failed {
						st.push(a.ended, float64(n+1))
					}
				}
				c = curve{kind: gauge, k: 1, st: st}
			}
			e.addIn(x.attempts[0].created, x.removed, c, "namespace", x.space.name, "job_name", x.name+"-w")
		})
	}
}

func (q *pod) id() []string {
	return []string{"namespace", q.space.name, "pod", q.name, "uid", q.uid}
}

func (q *pod) container1() []string { return append(q.id(), "container", q.container) }

func emitNodeInfo(p *page, e *emitter, s *nodeState, name string) {
	e.add(curve{base: 1}, "node", name, "kernel_version", p.m.system(s.node).kernel, "os_image", p.m.system(s.node).image,
		"container_runtime_version", "containerd://1.7.24",
		"kubelet_version", "v1.34.4", "kubeproxy_version", "deprecated", "provider_id", "sim://"+p.m.o.Cluster+"/"+name, "pod_cidr",
		p.m.nodeIP(s.node)+"/24",
		"system_uuid", uuid(hash(p.m.seed, 'u', uint64(s.node))), "internal_ip", p.m.nodeIP(s.node))
}

func emitNodeTaints(p *page, e *emitter, s *nodeState, name string) {
	for _, d := range s.down {
		e.addIn(d.from+notReadyAfter, d.until+readyAfter, curve{base: 1}, "node", name, "key", "node.kubernetes.io/unreachable",
			"value", "", "effect", "NoSchedule")
	}
	for _, d := range spans(s.of(-1, NodeNotReady)) {
		for _, effect := range []string{"NoSchedule", "NoExecute"} {
			e.addIn(d.from, d.until, curve{base: 1}, "node", name, "key", "node.kubernetes.io/not-ready", "value", "", "effect",
				effect)
		}
	}
	for _, d := range spans(s.of(-1, NodeCordoned, NodeUpgrade, NodeAbsent)) {
		e.addIn(d.from, d.until, curve{base: 1}, "node", name, "key", "node.kubernetes.io/unschedulable", "value", "", "effect",
			"NoSchedule")
	}
	for _, d := range s.of(-1, NodeAbsent) {
		e.addIn(d.from, d.until, curve{base: 1}, "node", name, "key", "ToBeDeletedByClusterAutoscaler", "value",
			strconv.FormatInt(d.from/1000, 10), "effect", "NoSchedule")
	}
	for _, d := range spans(s.of(-1, NodeCordoned)) {
		e.addIn(d.from, d.until, curve{base: 1}, "node", name, "key", "spillway.dev/remediation", "value", "drain", "effect",
			"NoSchedule")
	}
	for _, d := range spans(s.of(-1, NodesReserved)) {
		e.addIn(d.from, d.until, curve{base: 1}, "node", name, "key", "team", "value", p.m.usualTeam(s.node), "effect",
			"NoSchedule")
	}
}

func emitNodeResources(p *page, e *emitter, s *nodeState, name string) {
	alloc := 1.0
	if e.fam.name == "kube_node_status_allocatable" {
		alloc = 0.98
	}
	e.add(curve{base: 192 * alloc}, "node", name, "resource", "cpu", "unit", "core")
	e.add(curve{base: 3.4e12}, "node", name, "resource", "ephemeral_storage", "unit", "byte")
	e.add(curve{base: 2.164663517184e12 * alloc}, "node", name, "resource", "memory", "unit", "byte")
	for _, o := range p.m.offers(s.node) {
		gpus := curve{}
		for _, n := range o.of {
			gpus.base += n
		}
		var bare []event
		if alloc < 1 {
			if st := s.sick(o); st != nil {
				gpus = curve{kind: gauge, base: gpus.base, k: -1, st: st}
			}
			bare = p.m.bare(s.node)
		}
		pairs := []string{"node", name, "resource", o.resource, "unit", "integer"}
		without(bare, 0, never, func(from, until int64) { e.addIn(from, until, gpus, pairs...) })
		for _, b := range bare { // the plugin has not registered yet
			e.addIn(b.from, b.until, curve{}, pairs...)
		}
	}
	e.add(curve{base: 110}, "node", name, "resource", "pods", "unit", "integer")
}

func emitNodeCondition(p *page, e *emitter, s *nodeState, name string) {
	lost := &steps{}
	for _, d := range s.down {
		if d.until-d.from > notReadyAfter {
			lost.push(d.from+notReadyAfter, 1)
			lost.push(d.until+readyAfter, 0)
		}
	}
	conditions := []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
	if p.m.o.Exporters&WithProblemDetector != 0 {
		for _, c := range npdConditions {
			conditions = append(conditions, c.name)
		}
	}
	for _, c := range conditions {
		good, bad := "false", "true"
		if c == "Ready" {
			good, bad = "true", "false"
		}
		wrong := during(s.of(-1, conditionKinds[c]...), once)
		for _, status := range []string{"true", "false", "unknown"} {
			v := curve{kind: gauge, st: lost}
			switch status {
			case good:
				v.base, v.k = 1, -1
			case "unknown":
				v.k = 1
			case bad:
			}
			switch {
			case wrong != nil && status != "unknown":
				// A node that does not report is unknown first and anything else second.
				v.base, v.k, v.st = 0, 1, instead(wrong, lost, status == bad)
			case len(lost.at) == 0:
				v = curve{base: v.base}
			}
			e.add(v, "node", name, "condition", c, "status", status)
		}
	}
}

// conditionKinds are the troubles that turn a condition of a node.
var conditionKinds = map[string][]Kind{
	"Ready":              {NodeNotReady},
	"ReadonlyFilesystem": {NodeDiskReadOnly},
	"XfsShutdown":        {NodeDiskError},
}

// instead is 1 while wrong is on (or off, if not when) and lost is not.
func instead(wrong, lost *steps, when bool) *steps {
	at := slices.Concat([]int64{0}, wrong.at, lost.at)
	slices.Sort(at)
	st := &steps{}
	for _, t := range slices.Compact(at) {
		v := 0.0
		if (wrong.level(t) != 0) == when && lost.level(t) == 0 {
			v = 1
		}
		st.push(t, v)
	}
	return st
}

func emitPodResources(p *page, e *emitter, q *pod) {
	put := func(v float64, resource, unit string) {
		id := q.container1()
		// The node label is empty until the pod has one.
		e.addIn(q.a.created, q.a.scheduled, curve{base: v}, append(id, "node", "", "resource", resource, "unit", unit)...)
		e.addIn(q.a.scheduled, q.a.removed, curve{base: v}, append(id, "node", p.m.nodeName(q.node), "resource", resource, "unit", unit)...)
	}
	switch {
	case q.prom != nil:
		put(4, "cpu", "core")
		put(promLimit/2, "memory", "byte")
		return
	case q.exp == nil:
		put(0.1, "cpu", "core")
		return
	}
	put(float64(q.gpus*20)*q.share(), "cpu", "core")
	put(float64(q.gpus)*2e11*q.share(), "memory", "byte")
	if !p.m.o.Claims {
		put(float64(q.gpus), p.m.cut(q.node, q.gpu).resource, "integer")
	}
}

// emitPodLimits: memory has one where it is known to run out, GPUs always.
func emitPodLimits(p *page, e *emitter, q *pod) {
	switch {
	case q.prom != nil:
		e.addIn(q.a.scheduled, q.a.removed, curve{base: promLimit},
			append(q.container1(), "node", p.m.nodeName(q.node), "resource", "memory", "unit", "byte")...)
	case q.exp != nil && p.m.o.Detail == Full && !p.m.o.Claims:
		e.addIn(q.a.scheduled, q.a.removed, curve{base: float64(q.gpus)},
			append(q.container1(), "node", p.m.nodeName(q.node), "resource", p.m.cut(q.node, q.gpu).resource, "unit", "integer")...)
	}
}

func emitPodRestarts(_ *page, e *emitter, q *pod) {
	c := curve{}
	if len(q.a.inPlace) > 0 {
		st := &steps{}
		for i, r := range q.a.inPlace {
			st.push(r.back, float64(i+1))
		}
		c = curve{kind: gauge, k: 1, st: st}
	}
	e.addIn(q.a.scheduled, q.a.removed, c, q.container1()...)
}

func emitWaitingReason(_ *page, e *emitter, q *pod) {
	for _, r := range q.a.inPlace {
		e.addIn(r.died, r.back, curve{base: 1}, append(q.container1(), "reason", "CrashLoopBackOff")...)
	}
	if q.exp == nil {
		return
	}
	e.addIn(q.a.scheduled, q.a.started, curve{base: 1}, append(q.container1(), "reason", "ContainerCreating")...)
}

func emitTerminatedReason(_ *page, e *emitter, q *pod) {
	for i := 0; i < len(q.a.inPlace); {
		// The last death's reason stands until one with another comes.
		from, reason := q.a.inPlace[i].died, q.a.inPlace[i].reason
		for i++; i < len(q.a.inPlace) && q.a.inPlace[i].reason == reason; {
			i++
		}
		until := q.a.removed
		if i < len(q.a.inPlace) {
			until = q.a.inPlace[i].died
		}
		if reason == "" {
			reason = "OOMKilled"
		}
		e.addIn(from, until, curve{base: 1}, append(q.container1(), "reason", reason)...)
	}
}

func emitPodInfo(p *page, e *emitter, q *pod) {
	info := func(from, until int64, host, ip, node string) {
		e.addIn(from, until, curve{base: 1},
			append(q.id(), "host_ip", host, "pod_ip", ip, "node", node, "created_by_kind", q.owner[0], "created_by_name", q.owner[1],
				"priority_class", "", "host_network", "false")...)
	}
	info(q.a.created, q.a.scheduled, "", "", "")
	info(q.a.scheduled, q.a.removed, p.m.nodeIP(q.node), p.m.podIP(q), p.m.nodeName(q.node))
}

func (m *Model) podIP(q *pod) string {
	return "172." + strconv.Itoa(16+q.node>>12&0xf) + "." + strconv.Itoa(q.node>>4&0xff) + "." +
		strconv.Itoa((q.node&0xf)<<4|q.gpu&0xf|q.rank&1)
}

func emitPodLabels(p *page, e *emitter, q *pod) {
	id := append(q.id(), "label_app", q.app)
	if x := q.exp; x != nil {
		id = append(id, "label_jobset_sigs_k8s_io_jobset_name", x.name, "label_jobset_sigs_k8s_io_restart_attempt", strconv.Itoa(q.n),
			"label_batch_kubernetes_io_job_completion_index", strconv.Itoa(q.rank))
		name, team := p.m.called(x)
		if x.labelled || name != x.name {
			id = append(id, "label_experiment", name)
			if team != "" {
				id = append(id, "label_team", team)
			}
		}
	}
	e.addIn(q.a.created, q.a.removed, curve{base: 1}, id...)
}

func emitPodPhase(_ *page, e *emitter, q *pod) {
	put := func(phase string, from, until int64) {
		e.addIn(q.a.created, q.a.removed, curve{kind: span, a: from, b: until}, append(q.id(), "phase", phase)...)
	}
	none := q.a.removed
	put("Pending", q.a.created, q.a.started)
	put("Running", q.a.started, q.a.ended)
	if q.a.failed {
		put("Succeeded", none, none)
		put("Failed", q.a.ended, q.a.removed)
	} else {
		put("Succeeded", q.a.ended, q.a.removed)
		put("Failed", none, none)
	}
	put("Unknown", none, none)
}

func emitPodReady(p *page, e *emitter, q *pod) {
	var not []event
	for _, r := range q.a.inPlace {
		not = append(not, event{from: r.died, until: max(r.back, r.ready)})
	}
	for _, a := range p.m.ill[q.node] {
		if a.kind == NodeNotReady { // its pods are marked with it
			not = append(not, a.event)
		}
	}
	slices.SortFunc(not, func(a, b event) int { return int(a.from - b.from) })
	st := &steps{}
	without(spans(not), q.a.started, q.a.ended, func(from, until int64) {
		st.push(from, 1)
		st.push(until, 0)
	})
	e.addIn(q.a.created, q.a.removed, curve{kind: gauge, k: 1, st: st}, append(q.id(), "condition", "true")...)
	e.addIn(q.a.created, q.a.removed, curve{kind: gauge, base: 1, k: -1, st: st}, append(q.id(), "condition", "false")...)
	e.addIn(q.a.created, q.a.removed, curve{}, append(q.id(), "condition", "unknown")...)
}
