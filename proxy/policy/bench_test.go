package policy

import (
	"testing"
	"time"
)

// BenchmarkDecide is the judging of small dashboard panels, as loadtest/mix has them.
func BenchmarkDecide(b *testing.B) {
	for _, p := range []struct{ name, text string }{
		{"selector", `DCGM_FI_DEV_GPU_UTIL{node="gpu-00001"}`},
		{"max", `max by (gpu) (DCGM_FI_DEV_GPU_TEMP{node="gpu-00001"})`},
		{"rate", `sum by (mode) (rate(node_cpu_seconds_total{node="gpu-00001",mode!="idle"}[5m]))`},
		{"quotient", `1 - node_memory_MemAvailable_bytes{node="gpu-00001"} / node_memory_MemTotal_bytes{node="gpu-00001"}`},
		{"condition", `kube_node_status_condition{node="gpu-00001",status="true"}`},
		{"sum", `sum by (name) (workqueue_depth)`},
		{"quantile", `histogram_quantile(0.99, sum by (le) (rate(apiserver_request_duration_seconds_bucket{resource="pods",verb="GET"}[5m])))`},
		{"regexp", `sum by (namespace) (rate(container_cpu_usage_seconds_total{namespace=~"research-.+"}[5m]))`},
	} {
		b.Run(p.name, func(b *testing.B) {
			req, limits := rangeQuery(p.text, time.Hour, 30*time.Second), testLimits()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decide(req, limits, testGroup, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
