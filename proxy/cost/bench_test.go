package cost

import (
	"testing"
)

// BenchmarkHeld is what looking at a dashboard's query takes.
func BenchmarkHeld(b *testing.B) {
	e := parsed(b, `sum by (namespace) (rate(container_cpu_usage_seconds_total{cluster="jaguar"}[5m])) / on (namespace) group_left sum by (namespace) (kube_pod_container_resource_requests{resource="cpu"})`)
	b.ReportAllocs()
	for b.Loop() {
		Held(e, Grid{Steps: 241, Step: 15_000, Interval: 60_000}, floats(1), nil)
	}
}
