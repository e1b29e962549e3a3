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
// whatever version, with those of kube-state-metrics 1; Kubecost is made of it. Kiali's are Istio's
// and those of the dashboards that it has for runtimes. Jaeger's are of spans, by the prefixes that
// are usual; another one is a setting of its own.
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
	{"Kiali", []string{"kiali", "kiali-server", "kiali-operator"}, families(`
		base:classloader_current_loaded_class_count base:classloader_total_unloaded_class_count base:gc_complete_scavenger_count
		base:gc_complete_scavenger_time_seconds base:gc_young_generation_scavenger_count base:gc_young_generation_scavenger_time_seconds
		base:memory_committed_heap_bytes base:memory_max_heap_bytes base:memory_used_heap_bytes base:thread_count base:thread_daemon_count
		base:thread_max_count container_cpu_usage_seconds_total container_memory_working_set_bytes envoy_cluster_upstream_cx_active
		envoy_cluster_upstream_rq_total envoy_listener_downstream_cx_active envoy_listener_http_downstream_rq
		envoy_server_memory_allocated envoy_server_memory_heap_size envoy_server_uptime go_gc_duration_seconds_count go_goroutines go_info
		go_memstats_alloc_bytes_total go_memstats_next_gc_bytes istio_build istio_request_bytes{} istio_request_duration_milliseconds{}
		istio_request_messages_total istio_requests_total istio_response_bytes{} istio_response_messages_total
		istio_tcp_connections_closed_total istio_tcp_connections_opened_total istio_tcp_received_bytes_total istio_tcp_sent_bytes_total
		jvm_buffer_count jvm_buffer_memory_used_bytes jvm_buffer_total_capacity_bytes jvm_classes_loaded jvm_memory_committed_bytes
		jvm_memory_max_bytes jvm_memory_used_bytes jvm_threads_daemon jvm_threads_daemon_threads jvm_threads_live jvm_threads_live_threads
		jvm_threads_states_threads kiali_api_failures_total kiali_api_processing_duration_seconds{} kiali_graph_cache_hits_total
		kiali_graph_cache_misses_total kiali_graph_generation_duration_seconds{} kiali_tracing_processing_duration_seconds{}
		nodejs_active_handles_total nodejs_active_requests_total nodejs_eventloop_lag_seconds nodejs_heap_space_size_available_bytes
		nodejs_heap_space_size_total_bytes nodejs_heap_space_size_used_bytes pilot_info pilot_proxy_convergence_time_count
		pilot_proxy_convergence_time_sum pilot_services pilot_xds pilot_xds_pushes process_cpu_seconds_total process_resident_memory_bytes
		tomcat_global_error_total tomcat_global_received_bytes_total tomcat_global_sent_bytes_total tomcat_servlet_error_total
		tomcat_sessions_active_current tomcat_sessions_created_total tomcat_sessions_rejected_total vendor:loaded_modules
		vendor:memory_heap_usage_bytes vendor:memory_non_heap_usage_bytes vendor:thread_count vertx_eventbus_bytesRead{}
		vertx_eventbus_bytesWritten{} vertx_eventbus_handlers vertx_eventbus_pending vertx_eventbus_processingTime_seconds{}
		vertx_http_client_bytesReceived{} vertx_http_client_bytesSent{} vertx_http_client_connections vertx_http_client_requestCount_total
		vertx_http_client_responseTime_seconds{} vertx_http_client_wsConnections vertx_http_server_bytesReceived{}
		vertx_http_server_bytesSent{} vertx_http_server_connections vertx_http_server_requestCount_total
		vertx_http_server_responseTime_seconds{} vertx_http_server_wsConnections vertx_pool_inUse vertx_pool_queue_delay_seconds{}
		vertx_pool_queue_size vertx_pool_ratio vertx_pool_usage_seconds{} workload_manager_active_proxy_count`)},
	{"KRR", []string{"krr"}, strings.Fields(`
		container_cpu_usage_seconds_total container_memory_working_set_bytes kube_job_owner kube_pod_container_resource_limits
		kube_pod_container_resource_requests kube_pod_container_status_last_terminated_reason kube_pod_owner kube_pod_status_phase
		kube_replicaset_owner kube_replicationcontroller_owner machine_cpu_cores machine_memory_bytes`)},
}

// jaegerReads are the metrics of spans that Jaeger reads where a setting says so.
var jaegerReads = program{name: "Jaeger", metrics: strings.Fields(`
		calls calls_total duration_bucket duration_milliseconds_bucket duration_seconds_bucket latency_bucket traces_span_metrics_calls
		traces_span_metrics_calls_total traces_span_metrics_duration_bucket traces_span_metrics_duration_milliseconds_bucket
		traces_span_metrics_duration_seconds_bucket traces_span_metrics_latency_bucket traces_spanmetrics_calls
		traces_spanmetrics_calls_total traces_spanmetrics_duration_bucket traces_spanmetrics_duration_milliseconds_bucket
		traces_spanmetrics_duration_seconds_bucket traces_spanmetrics_latency_bucket span_metrics_calls span_metrics_calls_total
		span_metrics_duration_bucket span_metrics_duration_milliseconds_bucket span_metrics_duration_seconds_bucket
		span_metrics_latency_bucket`)}

// tempoReads are the metrics that Grafana asks Prometheus for where it draws a service graph of
// Tempo's, or leads from a span to its metrics.
var tempoReads = program{name: "Grafana's service graph", metrics: families(`
		traces_service_graph_request_total traces_service_graph_request_failed_total traces_service_graph_request_server_seconds
		traces_service_graph_request_server_seconds{} traces_service_graph_request_client_seconds
		traces_service_graph_request_client_seconds{} traces_spanmetrics_calls_total traces_spanmetrics_latency
		traces_spanmetrics_latency{} traces_spanmetrics_duration_seconds traces_spanmetrics_duration_seconds{}
		traces_span_metrics_calls_total traces_span_metrics_duration traces_span_metrics_duration{}
		traces_span_metrics_duration_seconds traces_span_metrics_duration_seconds{}`)}

// families are names of metrics, with those of the histograms that are written with braces.
func families(text string) []string {
	var out []string
	for _, name := range strings.Fields(text) {
		family, histogram := strings.CutSuffix(name, "{}")
		if !histogram {
			out = append(out, name)
			continue
		}
		out = append(out, family+"_bucket", family+"_count", family+"_sum")
	}
	return out
}

// jaeger finds the setting by which Jaeger reads the metrics of spans from Prometheus.
var jaeger = regexp.MustCompile(`^METRICS_STORAGE_TYPE=prometheus$`)

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
	case n.text("kind") == "Kiali" && strings.HasPrefix(n.text("apiVersion"), "kiali.io/"):
		names = append(names, "kiali")
	case n.get("kubecostModel").object() || n.get("kubecostProductConfigs").object():
		names = append(names, "kubecost")
	}
	for _, q := range builtIns {
		if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(q.images, name) }) {
			a.builtIn(n, q)
		}
	}
	if n.get("metric_backends").object() || jaeger.MatchString(n.text("name")+"="+n.text("value")) {
		a.builtIn(n, jaegerReads)
	}
	if n.get("serviceMap").object() || n.get("tracesToMetrics").object() || n.text("queryType") == "serviceMap" {
		a.builtIn(n, tempoReads)
	}
	at, named := n.get("storage"), n.get("prometheus-address") != nil || strings.HasSuffix(plainKey(key), "args")
	if named && at.text() == "prometheus" {
		a.recommended(at, a.title)
	}
}

// spans adds what Jaeger reads, if a text, with its key or without, is its setting.
func (a *asker) spans(n *node, key, text string) {
	if jaeger.MatchString(text) || jaeger.MatchString(key+"="+text) {
		a.builtIn(n, jaegerReads)
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
	a.set.warn(a.reads(n, a.title+", "+q.name, q.metrics), q.warning())
}

// warning tells how it is known what the program asks.
func (q program) warning() string {
	return "the queries of " + q.name + " are built into it: the metrics that its sources name are kept; what another version reads " +
		"counts as unused, unless a usage log has it"
}

// serviceGraph adds what Grafana asks for the service graph of a panel, once for a dashboard.
func (w *walker) serviceGraph(n *node, panel string) {
	if w.graph {
		return
	}
	w.graph = true
	where := w.title
	if panel != "" {
		where += ", " + panel
	}
	a := asker{set: w.set, file: w.file, as: w.kind}
	w.set.warn(a.reads(n, where+", "+tempoReads.name, tempoReads.metrics), tempoReads.warning())
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
