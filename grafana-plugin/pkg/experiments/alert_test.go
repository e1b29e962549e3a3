package experiments

import (
	"fmt"
	"strings"
	"testing"

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
			r := hourly(t, scripted(func(string) prom.Answer { return c.answer }), c.settings, `{"queryType":`+c.query+`}`)
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
