package experiments

import (
	"strings"
	"testing"
	"time"
)

// Where a part of kube-state-metrics is away, pods are missing of what is shown: that is told as
// alert KubeStateMetricsIncomplete knows it, and an alert is not evaluated.
func TestWhateverIsAskedOfAPart(t *testing.T) {
	const said = `Not all is seen in cluster "part"`
	for _, query := range []string{`"status"`, `"pods"`, `"status","view":"total"`} {
		for _, c := range []struct {
			chosen string
			until  time.Duration
			part   bool
		}{
			{"", 110 * minute, true},
			{"", 90 * minute, false},
			{`,"experiments":["e"]`, 110 * minute, true},
			{`,"experiments":["f"]`, 110 * minute, false},
			{`,"clusters":["small"]`, 110 * minute, false},
		} {
			for _, alert := range []bool{false, true} {
				r := worldOf(t, "partial").run(t, settingsOf(t, ""), `{"queryType":`+query+c.chosen+`}`, 30*minute, c.until)
				r.Alert = alert
				_, err := r.Do(t.Context())
				if got := noticesOf(r); strings.Contains(got, said) != c.part || (err != nil) != (alert && c.part) {
					t.Errorf("%s%s until %s, alert %t: %v, notices %q", query, c.chosen, c.until, alert, err, got)
				}
			}
		}
	}
}
