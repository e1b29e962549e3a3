package uses

import (
	"slices"
	"strings"
)

// builtins are the metrics that Flagger's own checks, request-success-rate and request-duration,
// read by mesh or ingress. A Canary names the checks, never the metrics.
var builtins = []struct {
	provider string // its beginning
	metrics  []string
}{
	{"appmesh", []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_rq_time_bucket"}},
	{"linkerd", []string{"response_total", "response_latency_ms_bucket"}},
	{"istio", []string{"istio_requests_total", "istio_request_duration_milliseconds_bucket"}},
	{"contour", []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_rq_time_bucket"}},
	{"gloo", []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_rq_time_bucket"}},
	{"knative", []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_rq_time_bucket"}},
	{"kuma", []string{"envoy_cluster_upstream_rq", "envoy_cluster_upstream_rq_time_bucket"}},
	{"nginx", []string{"nginx_ingress_controller_requests", "nginx_ingress_controller_response_duration_seconds_sum", "nginx_ingress_controller_response_duration_seconds_count"}},
	{"kubernetes", []string{"http_request_duration_seconds_bucket", "http_request_duration_seconds_count"}},
	{"gatewayapi", []string{"http_request_duration_seconds_bucket", "http_request_duration_seconds_count"}},
	{"skipper", []string{
		"skipper_response_duration_seconds_bucket", "skipper_serve_route_duration_seconds_sum",
		"skipper_serve_route_duration_seconds_count",
	}},
	{"traefik", []string{"traefik_service_request_duration_seconds_bucket"}},
	{"osm", []string{"osm_request_total", "osm_request_duration_ms_bucket"}},
	{"apisix", []string{"apisix_http_status", "apisix_http_latency_bucket"}},
}

// canary adds what the checks of a Canary read that Flagger has built in. Where the provider is not
// named, its controller's flag decides, and any of them may be it.
func (a *asker) canary(n *node) {
	if n.text("kind") != "Canary" {
		return
	}
	provider := strings.ToLower(n.text("spec", "provider"))
	for _, field := range []string{"analysis", "canaryAnalysis"} {
		for _, m := range n.list("spec", field, "metrics") {
			name := m.text("name")
			if m.get("templateRef") != nil || m.text("query") != "" || name != "request-success-rate" && name != "request-duration" {
				continue
			}
			a.reads(m, a.title+", check "+name, builtinMetrics(provider))
		}
	}
}

// builtinMetrics are those of a provider; of all of them where it is not known.
func builtinMetrics(provider string) []string {
	var all []string
	for _, b := range builtins {
		if provider != "" && strings.HasPrefix(provider, b.provider) {
			return b.metrics
		}
		for _, metric := range b.metrics {
			if !slices.Contains(all, metric) {
				all = append(all, metric)
			}
		}
	}
	return all
}
