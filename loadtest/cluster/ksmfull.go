package cluster

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// ksmFullFamilies are the families of kube-state-metrics that few look at and
// every server has, in the order in which it writes them.
func ksmFullFamilies() []family {
	return slices.Concat(ksmFullNodes(), ksmFullContainers(), ksmFullPods(), ksmFullDeployments())
}

func ksmFullNodes() []family {
	g := model.MetricTypeGauge
	return []family{
		{"kube_lease_owner", "Information about the Lease's owner.", g, eachNode(func(_ *page, e *emitter, s *nodeState, name string) {
			e.add(curve{base: 1}, "lease", name, "owner_kind", "Node", "owner_name", name, "namespace", "kube-node-lease", "lease_holder",
				name)
		})},
		{"kube_lease_renew_time", "Kube lease renew time.", g, eachNode(func(_ *page, e *emitter, s *nodeState, name string) {
			e.add(curve{kind: now}, "lease", name, "namespace", "kube-node-lease")
		})},
		{"kube_node_status_addresses", "Node address information.", g, eachNode(func(p *page, e *emitter, s *nodeState, name string) {
			e.add(curve{base: 1}, "node", name, "type", "InternalIP", "address", p.m.nodeIP(s.node))
		})},
	}
}

func ksmFullContainers() []family {
	g := model.MetricTypeGauge
	state := func(name, help string, from, until func(*pod) int64) family {
		return family{name, help, g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.scheduled, q.a.removed, curve{kind: span, a: from(q), b: until(q)}, q.container1()...)
		})}
	}
	scheduled := func(q *pod) int64 { return q.a.scheduled }
	started := func(q *pod) int64 { return q.a.started }
	ended := func(q *pod) int64 { return q.a.ended }
	removed := func(q *pod) int64 { return q.a.removed }
	return []family{
		{"kube_pod_container_info", "Information about a container in a pod.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			image := "registry.research.example/" + q.app + ":2026.11"
			e.addIn(q.a.scheduled, q.a.removed, curve{base: 1}, append(q.container1(), "image_spec", image, "image", image,
				"image_id", image+"@sha256:"+strings.ReplaceAll(q.uid, "-", ""), "container_id",
				"containerd://"+strings.ReplaceAll(q.uid, "-", ""))...)
		})},
		{
			"kube_pod_container_state_started", "Start time in unix timestamp for a pod container.", g,
			eachPod(func(_ *page, e *emitter, q *pod) {
				e.addIn(q.a.started, q.a.removed, curve{base: float64(q.a.started) / 1000}, q.container1()...)
			}),
		},
		state("kube_pod_container_status_ready", "Describes whether the containers readiness check succeeded.", started, ended),
		state("kube_pod_container_status_running", "Describes whether the container is currently in running state.", started, ended),
		state("kube_pod_container_status_terminated", "Describes whether the container is currently in terminated state.", ended, removed),
		state("kube_pod_container_status_waiting", "Describes whether the container is currently in waiting state.", scheduled, started),
	}
}

func ksmFullPods() []family {
	g := model.MetricTypeGauge
	flag := func(name, help string, more ...string) family {
		return family{name, help, g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.created, q.a.removed, curve{base: 1}, append(q.id(), more...)...)
		})}
	}
	when := func(name, help string, at func(*pod) int64) family {
		return family{name, help, g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(at(q), q.a.removed, curve{base: float64(at(q)) / 1000}, q.id()...)
		})}
	}
	scheduled := func(q *pod) int64 { return q.a.scheduled }
	started := func(q *pod) int64 { return q.a.started }
	return []family{
		{"kube_pod_ips", "Pod IP addresses.", g, eachPod(func(p *page, e *emitter, q *pod) {
			e.addIn(q.a.scheduled, q.a.removed, curve{base: 1}, append(q.id(), "ip", p.m.podIP(q), "ip_family", "4")...)
		})},
		flag("kube_pod_restart_policy", "Describes the restart policy in use by this pod.", "type", "OnFailure"),
		flag("kube_pod_scheduler", "The scheduler for a pod.", "name", "default-scheduler"),
		flag("kube_pod_service_account", "The service account for a pod.", "service_account", "default"),
		when("kube_pod_status_container_ready_time", "Readiness achieved time in unix timestamp for a pod containers.", started),
		when("kube_pod_status_initialized_time", "Initialized time in unix timestamp for a pod.", scheduled),
		when("kube_pod_status_ready_time", "Readiness achieved time in unix timestamp for a pod.", started),
		{"kube_pod_status_qos_class", "The pods current qosClass.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			for i, class := range []string{"BestEffort", "Burstable", "Guaranteed"} {
				v := 0.0
				if (i == 2) == (q.exp != nil) && i != 0 {
					v = 1
				}
				e.addIn(q.a.created, q.a.removed, curve{base: v}, append(q.id(), "qos_class", class)...)
			}
		})},
		{"kube_pod_status_reason", "The pod status reasons.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			for _, r := range []string{"Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"} {
				e.addIn(q.a.created, q.a.removed, curve{}, append(q.id(), "reason", r)...)
			}
		})},
		{"kube_pod_status_scheduled", "Describes the status of the scheduling process for the pod.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			e.addIn(q.a.created, q.a.removed, curve{kind: span, a: q.a.scheduled, b: q.a.removed}, append(q.id(), "condition", "true")...)
			e.addIn(q.a.created, q.a.removed, curve{kind: span, a: q.a.created, b: q.a.scheduled}, append(q.id(), "condition", "false")...)
			e.addIn(q.a.created, q.a.removed, curve{}, append(q.id(), "condition", "unknown")...)
		})},
		{"kube_pod_tolerations", "Information about the pod tolerations.", g, eachPod(func(_ *page, e *emitter, q *pod) {
			for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
				e.addIn(q.a.created, q.a.removed, curve{base: 1},
					append(q.id(), "key", key, "operator", "Exists", "value", "", "effect", "NoExecute", "toleration_seconds", "300")...)
			}
		})},
	}
}

func ksmFullDeployments() []family {
	g := model.MetricTypeGauge
	return []family{
		{"kube_deployment_status_condition", "The current status conditions of a deployment.", g, func(p *page, e *emitter) {
			for _, row := range p.m.table("deployment").rows {
				for _, c := range [][2]string{{"Available", "MinimumReplicasAvailable"}, {"Progressing", "NewReplicaSetAvailable"}} {
					for _, status := range []string{"true", "false", "unknown"} {
						v := 0.0
						if status == "true" {
							v = 1
						}
						e.add(curve{base: v}, "namespace", row[0], "deployment", row[1], "reason", c[1], "condition", c[0], "status",
							status)
					}
				}
			}
		}},
	}
}
