package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func TestHealth(t *testing.T) {
	// Of the clusters only full is left: nothing is missing.
	var others []string
	for _, c := range strings.Fields("no-labels no-names no-rules no-pods idle no-requests cpu-only others-gpus no-allocated no-dcgm no-profiling set-aside no-pod no-node no-gpu-rules no-faults no-fault-rules") {
		others = append(others, fmt.Sprintf("cluster=%q", c))
	}
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
