package cost

import (
	"strings"
	"testing"
)

// TestTargetAboutItself: kube-prometheus scrapes two ports of one kube-state-metrics as one job, of
// which the second shows no pod. It is no replica that lacks them all.
func TestTargetAboutItself(t *testing.T) {
	const (
		at  = `job="kube-state-metrics",instance="10.0.1.1:8443"`
		own = `job="kube-state-metrics",instance="10.0.1.1:9443"`
		pod = at + `,namespace="a",pod="p",uid="1"`
	)
	o := smallOptions(t, loaded(t, `load 30s
  up{`+at+`} 1x240
  up{`+own+`} 1x240
  kube_pod_status_phase{`+pod+`,phase="Running"} 1x240
  kube_pod_container_resource_requests{`+pod+`,container="x",resource="nvidia_com_gpu"} 1x240
`).URL())
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Total.GPUHours != 2000 || b.Total.Covered != 1 {
		t.Errorf("%s GPU hours are billed, not 2, and %v is covered", b.Total.GPUHours, b.Total.Covered)
	}
	if notes := strings.Join(b.Notes, "\n"); !strings.Contains(notes, "no replicas and were left out: 10.0.1.1:9443.") {
		t.Errorf("the notes are %q", notes)
	}
}
