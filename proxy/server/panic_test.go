package server

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// TestAPanicIsOneRequestsError: a fault of Spillway while it reads series ends the request that met
// it, with 500 and nothing of the cause; it is counted, the log has where it was, and what the
// request held is free again.
func TestAPanicIsOneRequestsError(t *testing.T) {
	r := newRig(t, []rigGroup{{"heron", false, []int{2}}}, "")
	const query = `quantile(0.5, up)` // of two replicas without a heartbeat: read series by series
	r.s.observe = func(raw.Selected) { panic("boom") }
	got := r.getForm("/api/v1/query", url.Values{"query": {query}})
	if got.status != 500 || strings.Contains(string(got.body), "boom") {
		t.Errorf("%s", got)
	}
	if n := r.metric("spillway_panics_total"); n != 1 {
		t.Errorf("spillway_panics_total is %g", n)
	}
	if log := strings.Join(r.log.atLeast(slog.LevelError), "\n"); !strings.Contains(log, "boom") ||
		!strings.Contains(log, "panic_test.go") {
		t.Errorf("the log does not say where it was: %.2000s", log)
	}
	r.s.observe = nil
	if got := r.getForm("/api/v1/query", url.Values{"query": {query}}); got.status != 200 {
		t.Errorf("afterwards: %s", got)
	}
	r.idle()
}
