package experiments

import (
	"strings"
	"testing"
	"time"
)

// GPU hours are counts of evaluations. Where those were late, too many or not there at all, a
// notice says so, and the idle share is right all the same.
func TestCostOfEvaluations(t *testing.T) {
	w := worldOf(t, "late")
	for _, c := range []struct{ experiment, want, notice string }{
		{"even", "t | even | c | unknown | 2 | 1 | 0.5", ""},
		{"late", "t | late | c | unknown | 1 | 0.5 | 0.5", "50 % of the evaluations of rule group experiment.pods are missing"},
		{"fast", "t | fast | c | unknown | 4 | 2 | 0.5", "Rule group experiment.pods is evaluated 2.0 times in each 1m (ruleInterval)"},
		{"gap", "t | gap | g | unknown | 0.9833 | 0.5 | 0.5085", `only 49 % of this time was recorded in cluster "g"`},
	} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"cost","experiments":["`+c.experiment+`"]}`, 0, 2*time.Hour)
		frames, err := cost(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c.experiment, rows(t, frames[0]), []string{c.want})
		if got := noticesOf(r); !strings.Contains(got, c.notice) || c.notice == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%s: notices %q, want %q", c.experiment, got, c.notice)
		}
	}
}
