package experiments

import (
	"strings"
	"testing"
	"time"
)

// From a scrape of kube-state-metrics that fails until the rules are evaluated again pods are known
// and their phases are not. Nobody knows then that none runs: there is no 0 of them, and an alert
// is not evaluated. Where somebody deleted the pods, 0 is the truth.
func TestPhasesThatAreNotKnown(t *testing.T) {
	const (
		said  = `The phases of pods are not known in cluster "dim"`
		until = 100*minute + 30*time.Second
	)
	w := worldOf(t, "unphased")
	for _, c := range []struct {
		query string
		want  []string
		knows bool
	}{
		{`"status"`, []string{
			"cluster=bright, phase=Running 1 ", "cluster=bright, phase=Pending 0 ", "cluster=bright, phase=Failed 0 ",
			"cluster=swept, phase=Running 0 ", "cluster=swept, phase=Pending 0 ", "cluster=swept, phase=Failed 0 ",
		}, false},
		{`"status","clusters":["dim"]`, nil, false},
		{`"status","clusters":["swept"]`, []string{
			"cluster=swept, phase=Running 0 ", "cluster=swept, phase=Pending 0 ", "cluster=swept, phase=Failed 0 ",
		}, true},
		{`"status","view":"total"`, []string{"Running 1", "Pending 0", "Failed 0"}, false},
		{`"status","view":"total","clusters":["dim"]`, nil, false},
		{`"pods"`, []string{"c-0 Unknown 0", "p-0 Unknown 8", "p-3 Running 8", "p-1 Gone 8", "p-2 Gone 8"}, false},
		{`"pending"`, nil, false},
		{`"experiments"`, []string{"cpu dim unknown", "e bright running", "e dim running", "e swept running"}, false},
		{`"experiments","clusters":["bright","swept"]`, []string{"e bright running", "e swept running"}, true},
	} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":`+c.query+`}`, 10*minute, until)
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var got []string
		switch {
		case strings.Contains(c.query, "total"):
			for _, f := range frames[0].Fields {
				got = append(got, f.Config.DisplayNameFromDS+" "+text(f, 0))
			}
		case strings.HasPrefix(c.query, `"status"`):
			got = numbers(t, frames)
		case strings.HasPrefix(c.query, `"pods"`):
			got = rowsOf(t, frames[0], "pod", "phase", "gpus")
		case strings.HasPrefix(c.query, `"experiments"`):
			got = rowsOf(t, frames[0], "experiment", "cluster", "state")
		}
		equal(t, c.query, got, c.want)
		if got := noticesOf(r); strings.Contains(got, said) == c.knows || strings.Contains(got, "Nothing is seen") {
			t.Errorf("%s: notices %q", c.query, got)
		}
		r = w.run(t, settingsOf(t, ""), `{"queryType":`+c.query+`}`, 10*minute, until)
		r.Alert = true
		if _, err := r.Do(t.Context()); (err == nil) != c.knows || err != nil && !strings.Contains(err.Error(), said) {
			t.Errorf("an alert on %s: %v", c.query, err)
		}
	}
}
