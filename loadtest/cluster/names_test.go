package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBackfillOfNames: the series that are asked for are stored as they are when all are, stale
// markers included, and no others.
func TestBackfillOfNames(t *testing.T) {
	m := mustNew(t, Options{Seed: 5, Nodes: 3, GPUsPerNode: 2, Exporters: AllExporters, Troubles: []Trouble{
		{Kind: NodeDown, Target: "gpu-00001", From: testUntil.Add(-15 * time.Minute), Until: testUntil.Add(-10 * time.Minute)},
		{Kind: GPUXidFatal, Target: "gpu-00002/1", Value: 119, From: testUntil.Add(-20 * time.Minute), Until: testUntil},
	}})
	o := BackfillOptions{From: testUntil.Add(-30 * time.Minute), Until: testUntil, Interval: time.Minute}
	write := func(names ...string) map[string][]sample {
		dir := t.TempDir()
		o.Names = names
		if _, err := m.Backfill(context.Background(), dir, o); err != nil {
			t.Fatal(err)
		}
		return readAll(t, dir)
	}
	names := []string{
		"up", "DCGM_FI_DEV_GPU_TEMP", "DCGM_EXP_XID_ERRORS_COUNT", "kube_pod_status_phase", "node_filesystem_avail_bytes",
		"apiserver_request_duration_seconds_bucket", "apiserver_request_duration_seconds_count", "node_cpu_seconds_total",
	}
	want := write()
	found := map[string]int{}
	maps.DeleteFunc(want, func(l string, _ []sample) bool {
		n := slices.IndexFunc(names, func(n string) bool { return strings.Contains(l, `__name__="`+n+`"`) })
		if n >= 0 {
			found[names[n]]++
		}
		return n < 0
	})
	got := write(names...)
	for _, n := range names {
		if found[n] == 0 {
			t.Errorf("the model has no %s: choose another one", n)
		}
	}
	for l, s := range want {
		if !equalSamples(s, got[l]) {
			t.Errorf("%s is not what it is among all", l)
		}
	}
	for l := range got {
		if _, ok := want[l]; !ok {
			t.Errorf("%s was not asked for", l)
		}
	}
}
