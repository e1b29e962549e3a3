package cost

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Names are the labels and selectors by which a bill finds its metrics. The zero value is what
// deploy/ sets up.
type Names struct {
	// Selector chooses the kube-state-metrics targets, for their metrics and for up. Default:
	// job="kube-state-metrics".
	Selector string
	// ClusterLabel tells clusters apart. Default: cluster.
	ClusterLabel string
	// ReplicaLabel tells the replicas of one kube-state-metrics apart. Default: instance.
	ReplicaLabel string
	// ShardLabel tells the shards of a sharded kube-state-metrics (--shard) apart, each of which
	// has a part of the pods. Default: none, all are replicas.
	ShardLabel string
	// Resource is what is billed, as kube-state-metrics spells it. Default: nvidia_com_gpu.
	Resource string
	// ExperimentLabels are looked at in this order, as labels of kube_pod_labels. Default:
	// DefaultExperimentLabels.
	ExperimentLabels []string
	// TeamLabels are looked at in this order, as labels of kube_namespace_labels. Default:
	// DefaultTeamLabels.
	TeamLabels []string
	// ModelLabel is the GPU model, as a label of kube_node_labels; of a node without it GKE's own
	// label counts. Default:
	// label_nvidia_com_gpu_product.
	ModelLabel string
	// ClassLabels are looked at in this order, as labels of kube_node_labels, for the class of a
	// node: spot, on-demand, reserved. Default: DefaultClassLabels.
	ClassLabels []string
	// CardsPerNode is how many cards a node has that hands out shares of them (time slicing, MIG)
	// and whose GPUs Activity does not name. Default: 8.
	CardsPerNode int
	// AdminNamespaces are those, as a regular expression, whose ResourceClaims only look on
	// (adminAccess). Default: those of NVIDIA's operator and driver.
	AdminNamespaces string
	// ReservationTaint is the key of the taint that keeps a node for the team that is its value.
	// Default: team, as in the recording rules.
	ReservationTaint string
	// Activity is the metric of how busy a GPU is, 0 to 1, with the labels namespace, pod,
	// node and gpu.
	// Default: DCGM_FI_PROF_GR_ENGINE_ACTIVE.
	Activity string
}

// DefaultExperimentLabels name the experiment of a pod: its own label, else what made it: JobSet,
// Kubeflow, Ray, LeaderWorkerSet, Kueue, Volcano, Job. They are those of the recording rules.
var DefaultExperimentLabels = []string{
	"label_experiment", "label_jobset_sigs_k8s_io_jobset_name", "label_training_kubeflow_org_job_name", "label_ray_io_cluster",
	"label_leaderworkerset_sigs_k8s_io_name", "label_kueue_x_k8s_io_pod_group_name", "label_volcano_sh_job_name",
	"label_batch_kubernetes_io_job_name", "label_job_name",
}

// DefaultTeamLabels name the team of a namespace. They are those of the recording rules.
var DefaultTeamLabels = []string{"label_team", "label_owner", "label_cost_center"}

// ofNodes are the labels of nodes that a bill reads.
func (n Names) ofNodes() []string {
	var out []string
	for _, l := range slices.Concat([]string{n.ModelLabel, gkeModel}, gkeShares, n.ClassLabels) {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

func (n Names) withDefaults() Names {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&n.Selector, `job="kube-state-metrics"`)
	def(&n.ClusterLabel, "cluster")
	def(&n.ReplicaLabel, "instance")
	def(&n.Resource, "nvidia_com_gpu")
	def(&n.ModelLabel, "label_nvidia_com_gpu_product")
	def(&n.ReservationTaint, "team")
	def(&n.Activity, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
	def(&n.AdminNamespaces, "gpu-operator|nvidia-gpu-operator|nvidia-dra-driver-gpu")
	if n.CardsPerNode == 0 {
		n.CardsPerNode = 8
	}
	if len(n.ExperimentLabels) == 0 {
		n.ExperimentLabels = DefaultExperimentLabels
	}
	if len(n.ClassLabels) == 0 {
		n.ClassLabels = DefaultClassLabels
	}
	if len(n.TeamLabels) == 0 {
		n.TeamLabels = DefaultTeamLabels
	}
	return n
}

var taintKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-zA-Z0-9]([-\w.]*[a-zA-Z0-9])?$`)

var resourceName = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// validate returns everything that is wrong with n, after defaults.
func (n Names) validate() error {
	var errs []error
	check := func(flag string, names ...string) {
		for _, v := range names {
			if !labelName.MatchString(v) {
				errs = append(errs, fmt.Errorf("--%s=%s is no label name", flag, v))
			}
		}
	}
	check("cluster-label", n.ClusterLabel)
	check("replica-label", n.ReplicaLabel)
	if n.ShardLabel != "" {
		check("shard-label", n.ShardLabel)
	}
	check("experiment-label", n.ExperimentLabels...)
	check("team-label", n.TeamLabels...)
	check("model-label", n.ModelLabel)
	check("class-label", n.ClassLabels...)
	check("activity-metric", n.Activity)
	if !resourceName.MatchString(n.Resource) {
		errs = append(errs, fmt.Errorf("--resource=%s: kube-state-metrics spells it with _ for all that is no letter or digit: --resource=%s", n.Resource,
			regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(n.Resource, "_")))
	}
	if !taintKey.MatchString(n.ReservationTaint) {
		errs = append(errs, fmt.Errorf("--reservation-taint=%s is no key of a taint: write one such as team or lab.example/team", n.ReservationTaint))
	}
	if _, err := regexp.Compile(n.AdminNamespaces); err != nil {
		errs = append(errs, fmt.Errorf("--admin-namespaces=%s: %w", n.AdminNamespaces, err))
	}
	if n.CardsPerNode < 1 {
		errs = append(errs, fmt.Errorf("--cards-per-node=%d: a node with GPUs has at least one card", n.CardsPerNode))
	}
	if _, err := parser.NewParser(parser.Options{}).ParseMetricSelector("up{" + n.Selector + "}"); err != nil {
		errs = append(errs, fmt.Errorf(`--kube-state-metrics.selector=%s: write matchers such as job="kube-state-metrics": %w`, n.Selector, err))
	}
	return errors.Join(errs...)
}

// query is one of the questions of a bill: text makes it for windows of length d and, where
// byNamespace or byNode, for some namespaces or nodes.
type query struct {
	name                string
	byNamespace, byNode bool
	text                func(d, in string) string
}

// label is by which a query is asked in parts; empty where it is not.
func (q query) label() string {
	switch {
	case q.byNamespace:
		return "namespace"
	case q.byNode:
		return "node"
	}
	return ""
}

// queries are what is asked for each stretch of windows. All are sums, maxima and counts over range
// selectors, which shards can work out for themselves.
type queries struct {
	namespaces, running, phases, requests, allocated, podLabels, namespaceLabels, active query
	nodeLabels, capacity, allocatable, ready, seen, reservations, devices, cards         query
	claimQueries
	workQueries
}

func (n Names) queries() queries {
	pod := []string{n.ClusterLabel, "namespace", "pod", "uid"}
	by := func(more ...string) string { return "by (" + strings.Join(more, ", ") + ")" }
	ksm := func(metric, matchers, in string) string {
		return metric + "{" + join(n.Selector, matchers, in) + "}"
	}
	resource := "resource=~" + strconv.Quote(n.resources())
	requests := "kube_pod_container_resource_requests"
	mostOf := func(metric, d, in string, labels ...string) string { // of the billed resource
		return "max " + by(labels...) + " (max_over_time(" + ksm(metric, resource, in) + "[" + d + "]))"
	}
	node := func(metric, matchers string, more ...string) query {
		return query{name: metric, text: func(d, _ string) string {
			labels := append([]string{n.ClusterLabel, "node", n.ReplicaLabel}, more...)
			return "sum " + by(labels...) + " (sum_over_time(" + ksm(metric, matchers, "") + "[" + d + "]))"
		}}
	}
	labelled := func(metric string, keys, labels []string, byNamespace bool) query {
		return query{name: metric, byNamespace: byNamespace, text: func(d, in string) string {
			return "max " + by(slices.Concat(keys, labels)...) + " (max_over_time(" + ksm(metric, "", in) + "[" + d + "]))"
		}}
	}
	running := func(d, in string) string {
		return "sum " + by(append(slices.Clone(pod), n.ReplicaLabel)...) + " (sum_over_time(" +
			ksm("kube_pod_status_phase", `phase="Running"`, in) + "[" + d + "]))"
	}
	return queries{
		namespaces: query{name: "namespaces", text: func(d, _ string) string {
			return "group " + by(n.ClusterLabel, "namespace") + " (last_over_time(" + ksm(requests, resource, "") + "[" + d + "]))"
		}},
		running: query{name: "running", byNamespace: true, text: func(d, in string) string { return running(d, in) + " > 0" }},
		phases:  n.phases(),
		requests: query{name: "requests", byNamespace: true, text: func(d, in string) string {
			return mostOf(requests, d, in, append(slices.Clone(pod), "container", "node", "resource")...) + " > 0"
		}},
		// The same as what running and requests give when they are joined here, joined by the
		// servers instead.
		allocated: query{name: "allocated", byNamespace: true, text: func(d, in string) string {
			on := "on (" + strings.Join(pod, ", ") + ")"
			return "sum " + by(n.ClusterLabel, n.ReplicaLabel) + " (" + running(d, in) + " * " + on + " group_left () sum " + by(pod...) +
				" (" + mostOf(requests, d, in, append(slices.Clone(pod), "container", "resource")...) + "))"
		}},
		podLabels:       labelled("kube_pod_labels", pod, n.ExperimentLabels, true),
		namespaceLabels: labelled("kube_namespace_labels", []string{n.ClusterLabel, "namespace"}, n.TeamLabels, true),
		active: query{name: "activity", byNamespace: true, text: func(d, in string) string {
			// DCGM shows blanks as huge numbers.
			return "avg " + by(n.ClusterLabel, "namespace", "pod") + " (avg_over_time((" + n.Activity + "{" + join(`pod!=""`, in) +
				"} <= 1)[" + d + ":1m]))"
		}},
		nodeLabels: labelled("kube_node_labels", []string{n.ClusterLabel, "node"},
			n.ofNodes(), false),
		capacity:    node("kube_node_status_capacity", resource, "resource"),
		allocatable: node("kube_node_status_allocatable", resource, "resource"),
		ready:       node("kube_node_status_condition", `condition="Ready",status="true"`),
		// For how long the node was there, ready or not.
		seen: query{name: "nodes seen", text: func(d, _ string) string {
			return "sum " + by(n.ClusterLabel, "node", n.ReplicaLabel) + " (count_over_time(" +
				ksm("kube_node_status_condition", `condition="Ready",status="true"`, "") + "[" + d + "]))"
		}},
		reservations: query{name: "kube_node_spec_taint", text: func(d, _ string) string {
			of := "key=" + strconv.Quote(n.ReservationTaint) + `,value!=""`
			return "max " + by(n.ClusterLabel, "node", n.ReplicaLabel, "value", "effect") + " (sum_over_time(" +
				ksm("kube_node_spec_taint", of, oneOf("effect", reserving)) + "[" + d + "]))"
		}},
		// Only asked where a card is shared.
		devices: query{name: "devices", text: func(d, _ string) string {
			return mostOf("kube_node_status_capacity", d, "", n.ClusterLabel, "node", "resource")
		}},
		cards: query{name: "cards", text: func(d, _ string) string {
			seen := func(metric string) string { return "max_over_time(" + metric + `{node!=""}[` + d + "])" }
			return "count " + by(n.ClusterLabel, "node") + " (group " + by(n.ClusterLabel, "node", "gpu") +
				" (" + seen(n.Activity) + " or " + seen(claimMetric) + "))"
		}},
		claimQueries: n.claimQueries(),
		workQueries:  n.workQueries(running),
	}
}

// resources are, as a regular expression, those that are billed.
func (n Names) resources() string {
	re := regexp.QuoteMeta(n.Resource)
	if n.Resource == wholeResource {
		re += "|" + sharedResource
	}
	if strings.HasPrefix(n.Resource, "nvidia_com_") { // MIG is NVIDIA's
		re += "|" + sliceResources
	}
	return re
}

// phases is only asked where pods request something and none ran: of none may it be known.
func (n Names) phases() query {
	return query{name: "phases", text: func(d, _ string) string {
		return "group by (" + n.ClusterLabel + ") (last_over_time(kube_pod_status_phase{" + join(n.Selector, `phase="Running"`) +
			"}[" + d + "]))"
	}}
}

// up selects the scrapes of kube-state-metrics.
func (n Names) up(d string) string { return "up{" + n.Selector + "}[" + d + "]" }

// answered is 1 for each cluster of which a scrape was answered.
func (n Names) answered(d string) string {
	return "max by (" + n.ClusterLabel + ") (max_over_time(" + n.up(d) + "))"
}

// oneOf is the matcher for some values of a label.
func oneOf(label string, names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return label + "=~" + strconv.Quote(strings.Join(quoted, "|"))
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ",")
}
