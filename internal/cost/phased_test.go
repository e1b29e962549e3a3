package cost

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestNoPhase: where pods request GPUs and the phase Running was dropped, there is no bill of 0;
// where none of them ran, there is one.
func TestNoPhase(t *testing.T) {
	dropped := regexp.MustCompile(`(?m)^  kube_pod_status_phase.*\n`).ReplaceAllString(small, "")
	o := smallOptions(t, loaded(t, dropped).URL())
	if _, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "relabel/testdata/cost.promql") ||
		!strings.Contains(err.Error(), "pods of ibis request something from 2026-11-01T00:00:00Z on") {
		t.Errorf("without the phase: %v", err)
	}
	waits := regexp.MustCompile(`(phase="Running"}).*`).ReplaceAllString(small, "$1 0x119")
	o = smallOptions(t, loaded(t, waits).URL())
	if b, err := Make(t.Context(), o); err != nil || b.Total.GPUHours != 0 {
		t.Errorf("where all wait: %+v, %v", b, err)
	}
	price := 0.5
	o.Directory.CPUPrice = &price
	if b, err := Make(t.Context(), o); err != nil || !strings.Contains(strings.Join(b.Notes, "\n"), "No pod requested cores or memory") {
		t.Errorf("without requests of cores: %+v, %v", b, err)
	}
	// From the second hour on.
	later := regexp.MustCompile(`(phase="Running"}).*`).ReplaceAllString(small, "$1 1x59 _x60")
	o = smallOptions(t, loaded(t, later).URL())
	o.Names.Selector = `job="kube-state-metrics",cluster="jaguar"`
	o.Range.To = smallFrom.Add(2 * time.Hour)
	if _, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "from 2026-11-01T01:00:00Z on") {
		t.Errorf("dropped in the middle: %v", err)
	}
}
