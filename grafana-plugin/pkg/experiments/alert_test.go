package experiments

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// An alert sees no notice, so that what is left out is an error where one asks: the series that
// should fire may be among them. What a query ranks is asked for, and is none.
func TestAlertsOnAllSeries(t *testing.T) {
	nodes := make([]prom.Series, 5)
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		nodes[i] = one(float64(i), "cluster", "c", "namespace", "n", "pod", "p-"+name, "uid", "u-"+name, "experiment", "e", "node", name)
	}
	histograms := of(nodes[0])
	histograms.Histograms = 2
	for _, c := range []struct {
		name, settings, query string
		answer                prom.Answer
		says                  string
	}{
		{"an own query", `{"maxSeries":4}`, `"promql","expr":"up"`, of(nodes...), "1 series are not shown: the query gives 5"},
		{"at one moment", `{"maxSeries":4}`, `"promql","expr":"up","instant":true`, of(nodes...), "1 series are not shown"},
		{"as many as are shown", `{"maxSeries":5}`, `"promql","expr":"up","instant":true`, of(nodes...), ""},
		{"histograms", "", `"promql","expr":"up","instant":true`, histograms, "2 series are native histograms"},
		{"GPUs", `{"maxSeries":4}`, `"gpu_timeseries","groupBy":["node"]`, of(nodes...), "4 of 5 series are shown"},
		{"the lowest", `{"maxSeries":4}`, `"gpu_timeseries","groupBy":["node"],"rank":"bottom","k":2`, of(nodes...), ""},
		{"the network", `{"maxSeries":4}`, `"network","view":"infiniband"`, of(nodes...), "2 of 5 nodes are shown"},
		{"rows", `{"maxRows":4}`, `"nodes"`, of(nodes...), "1 of 5 nodes are left out"},
		{"rows that the query cuts", `{"maxRows":4}`, `"nodes","limit":2`, of(nodes...), ""},
	} {
		for _, alert := range []bool{false, true} {
			r := hourly(t, scripted(func(query string) prom.Answer {
				if strings.Contains(query, nodesCounted) { // no cluster is lost
					return prom.Answer{}
				}
				return c.answer
			}), c.settings, `{"queryType":`+c.query+`}`)
			r.Alert = alert
			frames, err := r.Do(t.Context())
			switch {
			case alert && c.says != "":
				if err == nil || !strings.Contains(err.Error(), c.says) || len(frames) > 0 {
					t.Errorf("%s: %d frames, %v; want an error with %q", c.name, len(frames), err, c.says)
				}
			case err != nil || !strings.Contains(noticesOf(r), c.says):
				t.Errorf("%s, alert %t: %v, notices %q; want %q", c.name, alert, err, noticesOf(r), c.says)
			}
		}
	}
}

// Nor is one evaluated where a number is too small: for want of a price, of evaluations, or of
// whatever would tell of sick GPUs in a part of the clusters.
func TestAlertsOnNumbersThatAreTooSmall(t *testing.T) {
	for _, c := range []struct{ world, settings, query, says string }{
		{"replaced", `{"prices":{"H100":2}}`, `"cost","view":"total","experiments":["same"]`, "There is no price for NVIDIA A100"},
		{"replaced", `{"prices":{"default":2}}`, `"cost","view":"total","experiments":["same","mixed"]`, ""},
		{"replaced", `{"prices":{"default":2}}`, `"cost","view":"total"`, "The GPUs of 1 nodes became those of another model"},
		{"late", "", `"cost","view":"total","experiments":["late"]`, "50 % of the evaluations"},
		{"late", "", `"cost","view":"total","experiments":["even"]`, ""},
		{"half", "", `"gpu_health","view":"count"`, `The recording rules of sick GPUs are missing in cluster "d"`},
		{"half", "", `"gpu_health","view":"count","clusters":["d"]`, `The recording rules of sick GPUs are missing in cluster "d"`},
		{"half", "", `"gpu_health","view":"count","clusters":["c"]`, ""},
	} {
		for _, alert := range []bool{false, true} {
			r := worldOf(t, c.world).run(t, settingsOf(t, c.settings), `{"queryType":`+c.query+`}`, 0, 2*time.Hour)
			if c.world != "late" {
				r.Until = r.From.Add(195 * time.Minute)
			}
			r.Alert = alert
			_, err := r.Do(t.Context())
			switch {
			case alert && c.says != "":
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: an alert on %s: %v; want an error with %q", c.world, c.query, err, c.says)
				}
			case err != nil && !strings.Contains(err.Error(), cmp.Or(c.says, "\x00")),
				err == nil && !strings.Contains(noticesOf(r), c.says):
				t.Errorf("%s: %s, alert %t: %v, notices %q; want %q", c.world, c.query, alert, err, noticesOf(r), c.says)
			}
		}
	}
}

// What a cluster does not measure is left out where something of what is chosen ran there. Of other
// clusters it is a notice: an alert that has nothing to show is evaluated.
func TestAlertsBesideAnotherCluster(t *testing.T) {
	const says = `The recording rules of sick GPUs are missing in cluster "d"`
	for _, c := range []struct {
		chosen string
		ends   bool
	}{
		{`,"experiments":["x"]`, false},
		{`,"experiments":["x"],"teams":["t"]`, false},
		{`,"experiments":["x","y"]`, true},
		{"", true},
	} {
		r := worldOf(t, "half").run(t, settingsOf(t, ""), `{"queryType":"gpu_health","view":"count"`+c.chosen+`}`, 0, 120*minute)
		r.Alert = true
		frames, err := r.Do(t.Context())
		if c.ends && (err == nil || !strings.Contains(err.Error(), says)) ||
			!c.ends && (err != nil || len(frames) == 0 || frames[0].Rows() == 0) {
			t.Errorf("an alert on %s: %d frames, %v", c.chosen, len(frames), err)
		}
		if got := noticesOf(r); !strings.Contains(got, says) {
			t.Errorf("%s: notices %q", c.chosen, got)
		}
	}
}
