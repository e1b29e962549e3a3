package live

import (
	"maps"
	"testing"
)

const prices = `{"prices":{"default":2},"currency":"EUR"}`

// TestTruth asks every type of query of real servers behind the real proxy and compares with what
// the models know to be so: a run spread over two clusters, two copies of kube-state-metrics, names
// of pods used again, runs that began and ended inside the window, faults.
func TestTruth(t *testing.T) {
	s := newStage(t, prices)
	for _, c := range []struct {
		name string
		test func(*testing.T, *stage)
	}{
		{"experiments", testExperiments},
		{"status", testStatus},
		{"pods", testPods},
		{"pending", testPending},
		{"nodes", testNodes},
		{"gpu_timeseries", testGPUTimeSeries},
		{"gpu_health", testGPUHealth},
		{"network", testNetwork},
		{"events", testEvents},
		{"cost", testCost},
		{"compare", testCompare},
		{"stragglers", testStragglers},
		{"promql", testPromQL},
		{"hostile", testHostile},
		{"plugin", testPlugin},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func testPromQL(t *testing.T, s *stage) {
	want := map[string]float64{}
	for _, p := range s.of(spread) {
		if p.phase(s.until) == "Running" {
			want[p.cluster] += float64(len(p.GPUs))
		}
	}
	got := map[string]float64{}
	for _, f := range s.frames(t, `{"queryType":"promql","expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","instant":true,"experiments":["`+spread+`"]}`) {
		for _, field := range f.Fields {
			if field.Labels != nil {
				v, _ := field.FloatAt(0)
				got[field.Labels["cluster"]] = v
			}
		}
	}
	if !maps.Equal(got, want) || len(want) != 2 {
		t.Errorf("GPUs by cluster %v, and in truth %v", got, want)
	}
}
