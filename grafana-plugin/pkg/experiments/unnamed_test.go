package experiments

import (
	"strings"
	"testing"
	"time"
)

// A cluster that was set up, and in which the labels that name experiments are lost or the rules
// fail, is told from one in which the last experiment has ended: pods of experiments run on.
func TestDiagnoseNamesThatAreLost(t *testing.T) {
	w := worldOf(t, "unnamed")
	for _, after := range []time.Duration{110 * minute, 1900 * minute} {
		for cluster, want := range map[string]string{
			"bare":   `kube-state-metrics gives no labels of pods in cluster "bare"`,
			"other":  `No pod in cluster "other" has a label that names an experiment`,
			"broken": `pods have labels that name experiments, and there is no experiment:pod:info`,
			"over":   "", "sound": "",
		} {
			found, _, err := Diagnose(t.Context(), w.asker, settingsOf(t, ""), NeedPods, []string{cluster}, time.UnixMilli(0).Add(after))
			if err != nil {
				t.Fatal(err)
			}
			if n := len(found); n > 1 || (n == 1) != (want != "") || n == 1 && !strings.Contains(found[0].Missing, want) {
				t.Errorf("%s after %s: %+v", cluster, after, found)
			}
		}
	}
}

// Whatever is asked, that is told where what is chosen ran there, and no alert is evaluated. It
// takes no question more where all is well.
func TestWhateverIsAskedOfNamesThatAreLost(t *testing.T) {
	w := worldOf(t, "unnamed")
	for _, query := range []string{`"experiments"`, `"cost","view":"total"`, `"status"`, `"pods"`} {
		for _, c := range []struct {
			chosen string
			until  time.Duration
			in     string
		}{
			{"", 110 * minute, `in clusters "bare", "broken", "other"`},
			{"", 90 * minute, ""},
			{`,"clusters":["bare","sound"]`, 110 * minute, `in cluster "bare"`},
			{`,"clusters":["over","sound"]`, 110 * minute, ""},
			{`,"experiments":["f"],"clusters":["bare","sound"]`, 110 * minute, ""},
		} {
			r := w.run(t, settingsOf(t, ""), `{"queryType":`+query+c.chosen+`}`, 30*minute, c.until)
			if _, err := r.Do(t.Context()); err != nil {
				t.Errorf("%s%s: %v", query, c.chosen, err)
			}
			got := noticesOf(r)
			if lost := "Experiments are not known any more " + c.in; strings.Contains(got, "Experiments are not known") != (c.in != "") ||
				c.in != "" && !strings.Contains(got, lost) {
				t.Errorf("%s%s until %s: notices %q", query, c.chosen, c.until, got)
			}
			r = w.run(t, settingsOf(t, ""), `{"queryType":`+query+c.chosen+`}`, 30*minute, c.until)
			r.Alert = true
			if _, err := r.Do(t.Context()); (err != nil) != (c.in != "") {
				t.Errorf("an alert on %s%s until %s: %v", query, c.chosen, c.until, err)
			}
		}
	}
}
