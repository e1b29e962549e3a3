package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// warning answers as another does, and warns.
type warning struct{ prom.Asker }

func (w warning) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	a, err := w.Asker.Instant(ctx, query, at)
	a.Warnings = append(a.Warnings, "shard ibis is away")
	return a, err
}

// allButFull are texts of the clusters but full, in which nothing is missing.
func allButFull() []string {
	var others []string
	for _, c := range strings.Fields("no-labels no-names no-rules no-pods idle no-requests cpu-only others-gpus no-allocated no-dcgm no-profiling set-aside no-pod no-node no-gpu-rules no-faults no-fault-rules") {
		others = append(others, fmt.Sprintf("cluster=%q", c))
	}
	return others
}

func TestHealth(t *testing.T) {
	others := allButFull()
	check := func(without ...string) (*backend.CheckHealthResult, health) {
		h, err := setup(t, append(without, others...)...).CheckHealth(t.Context(), &backend.CheckHealthRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var details health
		if err := json.Unmarshal(h.JSONDetails, &details); err != nil {
			t.Fatalf("%s: %v", h.JSONDetails, err)
		}
		if details.Version != localprom.Version || details.Findings == nil {
			t.Errorf("%+v", details)
		}
		return h, details
	}
	if h, d := check(); h.Status != backend.HealthStatusOk || len(d.Findings) != 0 ||
		h.Message != "The proxy answers (version "+localprom.Version+"), and everything that is shown here is set up." {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	if h, d := check("NVLINK"); h.Status != backend.HealthStatusOk || len(d.Findings) != 1 || !strings.Contains(h.Message, "One thing is not set up: dcgm-exporter tells nothing in cluster \"full\" of NVLink") {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	if h, d := check("NVLINK", "infiniband"); h.Status != backend.HealthStatusOk || len(d.Findings) != 2 ||
		!strings.Contains(h.Message, "2 things are not set up") ||
		!strings.Contains(d.Verbose, "dcgm-counters.csv") {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	if h, d := check("experiment:"); h.Status != backend.HealthStatusError || len(d.Findings) == 0 || !strings.Contains(h.Message, "there is nothing to show: kube-state-metrics gives no labels of pods") ||
		!strings.Contains(h.Message, "--metric-labels-allowlist=pods=[experiment,") {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	for _, tc := range []struct {
		answer http.HandlerFunc
		says   string
	}{
		{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusForbidden) }, "credentials"},
		{func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "no Prometheus API"},
		{func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "buildinfo") {
				_, _ = io.WriteString(w, `{"status":"success","data":{"version":"1"}}`)
				return
			}
			qerr.Overload("max_concurrency", "20", time.Second, "try again", "all slots are taken").WriteTo(w)
		}, "all slots are taken"},
	} {
		h, err := served(t, "", tc.answer).CheckHealth(t.Context(), &backend.CheckHealthRequest{})
		if err != nil || h.Status != backend.HealthStatusError || !strings.Contains(h.Message, tc.says) {
			t.Errorf("%+v, %v, want one with %q", h, err, tc.says)
		}
	}
}

// A shard that is away is told where nothing is missing, and nothing is said to be set up that
// was not seen.
func TestHealthWarns(t *testing.T) {
	others := allButFull()
	for without, says := range map[string]string{
		"": "The proxy answers (version " + localprom.Version + "), but not with everything: shard ibis is away. " +
			"All else that is shown here is set up.",
		"NVLINK": "so it may be there and not be seen: shard ibis is away",
	} {
		list := others
		if without != "" {
			list = append(others[:len(others):len(others)], without)
		}
		d := setup(t, list...)
		d.asker = warning{d.asker}
		h, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var details health
		if err := json.Unmarshal(h.JSONDetails, &details); err != nil || !slices.Equal(details.Warnings, []string{"shard ibis is away"}) ||
			!strings.HasPrefix(details.Verbose, "The proxy warned: shard ibis is away") {
			t.Errorf("%v: %s", err, h.JSONDetails)
		}
		if h.Status != backend.HealthStatusOk || !strings.Contains(h.Message, says) {
			t.Errorf("%s %q, want one with %q", h.Status, h.Message, says)
		}
	}
}
