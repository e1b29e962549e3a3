package uses

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// program is one that asks Prometheus what no file has: its queries are built in. It is known
// by the last part of its image's or chart's name.
type program struct {
	name    string
	images  []string
	metrics []string
}

// builtIns are those that are known. OpenCost's metrics are those that its sources name, of
// whatever version, with those of kube-state-metrics 1; Kubecost is made of it.
var builtIns = []program{
	{"OpenCost", []string{"opencost", "cost-model", "kubecost-cost-model", "cost-analyzer", "kubecost"}, strings.Fields(`
		cluster_info container_cpu_allocation container_cpu_cfs_periods_total container_cpu_cfs_throttled_periods_total
		container_cpu_usage_seconds_total container_fs_limit_bytes container_fs_usage_bytes container_gpu_allocation
		container_memory_allocation_bytes container_memory_usage_bytes container_memory_working_set_bytes
		container_network_receive_bytes_total container_network_transmit_bytes_total DCGM_FI_DEV_BOARD_LIMIT_VIOLATION
		DCGM_FI_DEV_CLOCK_THROTTLE_REASONS DCGM_FI_DEV_CLOCKS_EVENT_REASONS DCGM_FI_DEV_DEC_UTIL DCGM_FI_DEV_FB_FREE DCGM_FI_DEV_FB_USED
		DCGM_FI_DEV_POWER_VIOLATION DCGM_FI_DEV_SYNC_BOOST_VIOLATION DCGM_FI_DEV_THERMAL_VIOLATION DCGM_FI_DEV_XID_ERRORS
		DCGM_FI_PROF_DRAM_ACTIVE DCGM_FI_PROF_GR_ENGINE_ACTIVE DCGM_FI_PROF_NVLINK_RX_BYTES DCGM_FI_PROF_NVLINK_TX_BYTES
		DCGM_FI_PROF_PCIE_RX_BYTES DCGM_FI_PROF_PCIE_TX_BYTES DCGM_FI_PROF_SM_ACTIVE DCGM_FI_PROF_SM_OCCUPANCY deployment_match_labels
		kube_namespace_annotations kube_namespace_labels kube_node_labels kube_node_status_allocatable
		kube_node_status_allocatable_cpu_cores kube_node_status_allocatable_memory_bytes kube_node_status_capacity
		kube_node_status_capacity_cpu_cores kube_node_status_capacity_memory_bytes kube_persistentvolume_capacity_bytes
		kube_persistentvolumeclaim_info kube_persistentvolumeclaim_resource_requests_storage_bytes kube_pod_annotations
		kube_pod_container_resource_limits kube_pod_container_resource_requests kube_pod_container_status_running kube_pod_labels
		kube_pod_owner kube_replicaset_owner kubecost_cluster_info kubecost_cluster_management_cost
		kubecost_cluster_memory_working_set_bytes kubecost_container_cpu_usage_irate kubecost_load_balancer_cost
		kubecost_network_internet_egress_cost kubecost_network_nat_gateway_egress_cost kubecost_network_nat_gateway_ingress_cost
		kubecost_network_region_egress_cost kubecost_network_zone_egress_cost kubecost_node_is_spot
		kubecost_pod_network_egress_bytes_total kubecost_pod_network_ingress_bytes_total kubecost_pv_info kubelet_volume_stats_used_bytes
		namespace_info node_cpu_hourly_cost node_cpu_seconds_total node_gpu_count node_gpu_hourly_cost node_ram_hourly_cost
		node_total_hourly_cost pod_pvc_allocation prometheus_target_interval_length_seconds pv_hourly_cost resourcequota_info
		resourcequota_spec_resource_limits resourcequota_spec_resource_requests resourcequota_status_used_resource_limits
		resourcequota_status_used_resource_requests service_selector_labels statefulSet_match_labels vllm:generation_tokens_total
		vllm:kv_cache_usage_perc vllm:num_preemptions_total vllm:num_requests_running vllm:num_requests_waiting
		vllm:prefix_cache_hits_total vllm:prompt_tokens_total vllm:request_prefill_time_seconds_sum
		vllm:request_time_per_output_token_seconds_sum`)},
}

// recommenderReads are the metrics that the recommender of the VerticalPodAutoscaler reads at its
// start where Prometheus is its storage; what has the labels of pods is an argument of its own.
var recommenderReads = []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"}

// recommender finds the argument that makes Prometheus its storage.
var recommender = regexp.MustCompile(`(?:^|[\s"'\x60])--?storage(?:=|\s+)["']?prometheus(?:$|[\s"';&|\\])`)

// programs adds what the programs that an object runs, or a chart brings, ask by themselves.
func (a *asker) programs(n *node, key string) {
	var names []string
	for _, k := range []string{"image", "repository", "chart", "fullImageName"} {
		names = append(names, imageName(n.text(k)))
	}
	if n.text("repo") != "" || strings.Contains(n.text("repository"), "://") { // a chart of Kustomize's, or one that another needs
		names = append(names, n.text("name"))
	}
	switch { // the values of a chart
	case key == "opencost" && (n.get("exporter").object() || n.get("prometheus").object()):
		names = append(names, key)
	case n.get("kubecostModel").object() || n.get("kubecostProductConfigs").object():
		names = append(names, "kubecost")
	}
	for _, q := range builtIns {
		if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(q.images, name) }) {
			a.builtIn(n, q)
		}
	}
	at, named := n.get("storage"), n.get("prometheus-address") != nil || strings.HasSuffix(plainKey(key), "args")
	if named && at.text() == "prometheus" {
		a.recommended(at, a.title)
	}
}

// builtIn adds what such a program asks, once for a document, and tells how that is known.
func (a *asker) builtIn(n *node, q program) {
	if a.queried[q.name] {
		return
	}
	if a.queried == nil {
		a.queried = map[string]bool{}
	}
	a.queried[q.name] = true
	a.set.warn(a.reads(n, a.title+", "+q.name, q.metrics), "the queries of "+q.name+" are built into it: the metrics that its sources "+
		"name are kept; what another version reads counts as unused, unless a usage log has it")
}

// recommended adds what the recommender reads.
func (a *asker) recommended(n *node, where string) {
	a.reads(n, where+", VPA recommender", recommenderReads)
}

// reads adds a use of metrics as they are.
func (a *asker) reads(n *node, where string, metrics []string) *Use {
	u := &Use{Kind: cmp.Or(a.as, Object), File: a.file, Line: n.first(), Where: where}
	for _, metric := range metrics {
		matcher := labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric)
		u.Needs = append(u.Needs, Need{Matchers: []*labels.Matcher{matcher}, Labels: All})
	}
	a.set.Add(u)
	return u
}

// imageName is the last part of the name of an image or chart, without tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndexByte(image, '/')+1:]
	image, _, _ = strings.Cut(image, ":")
	return image
}
