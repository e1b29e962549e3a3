package experiments

import (
	"math"
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

// Of what was there for a few evaluations nothing is told of how many were too few or too many: one
// more or less than whole Intervals is much of them. An alert is evaluated.
func TestCostOfFewEvaluations(t *testing.T) {
	for _, c := range []struct {
		chosen      string
		from, until time.Duration
		hours       float64
	}{
		{`"brief"`, 60 * minute, 119*minute + 50*time.Second, 5},
		{`"over"`, 60*minute + 50*time.Second, 119*minute + 50*time.Second, 3},
		{`"brief","over"`, 60*minute + 50*time.Second, 119*minute + 50*time.Second, 8},
		// Others tell for them.
		{`"brief","even"`, 60 * minute, 119*minute + 50*time.Second, 64},
	} {
		r := worldOf(t, "late").run(t, settingsOf(t, ""), `{"queryType":"cost","view":"total","experiments":[`+c.chosen+`]}`, c.from, c.until)
		r.Alert = true
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Errorf("an alert on %s: %v", c.chosen, err)
			continue
		}
		if got := values[float64](t, frames[0], "Value")[0] * 60; math.Abs(got-c.hours) > 1e-6 || noticesOf(r) != "" {
			t.Errorf("%s: %g minutes, want %g; notices %q", c.chosen, got, c.hours, noticesOf(r))
		}
	}
}

// What is counted of a compared run is too little, or too much, as what is counted of a range is:
// a notice names the run.
func TestCompareOfEvaluations(t *testing.T) {
	r := worldOf(t, "late").run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary","experiments":["even","late","fast","gap"]}`,
		100*time.Minute, 2*time.Hour)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "runs", rowsOf(t, frames[0], "run", "gpu_hours"), []string{
		"even 2.0166666666666666", "late 1.0166666666666666", "fast 4.016666666666667", "gap 1",
	})
	got := noticesOf(r)
	for _, said := range []string{
		"50 % of the evaluations of rule group experiment.pods are missing, as where one takes longer than 1m (ruleInterval): GPU hours of late are too low by as much.",
		"Rule group experiment.pods is evaluated 2.0 times in each 1m (ruleInterval): GPU hours of fast are too high by as much.",
		`GPU hours of gap may be too low: only 50 % of its time was recorded in cluster "g".`,
	} {
		if !strings.Contains(got, said) {
			t.Errorf("notices %q, want %q", got, said)
		}
	}
	if strings.Contains(got, "GPU hours of even") {
		t.Errorf("notices %q", got)
	}
}

// An alert on cost is not evaluated where a part of the time was not recorded, or a part of the use
// not measured. What was before a cluster was known at all is no gap for an alert, nor is it that
// nothing is measured, as where there is no DCGM.
func TestAlertsOnCostOfAPart(t *testing.T) {
	const unmeasured = "The use of 49 % of these GPU hours was not measured"
	for _, c := range []struct {
		chosen      string
		from, until time.Duration
		notice      string
		ends        bool
	}{
		{`"experiments":["even"]`, 0, 2 * time.Hour, "", false},
		{`"experiments":["gap"]`, 0, 2 * time.Hour, `only 49 % of this time was recorded in cluster "g"`, true},
		// The gap is where the range begins, and something was known before.
		{`"experiments":["gap"]`, 50 * minute, 2 * time.Hour, `only 43 % of this time was recorded in cluster "g"`, true},
		{`"experiments":["new"]`, 0, 2 * time.Hour, `only 51 % of this time was recorded in cluster "n"`, false},
		{`"experiments":["new","gap"]`, 0, 2 * time.Hour, `of this time, where it is least, was recorded in clusters "g", "n"`, true},
		{`"experiments":["new","gap"]`, 95 * minute, 2 * time.Hour, "", false},
		{`"experiments":["unseen"]`, 0, 2 * time.Hour, "The use of these GPUs was not measured", false},
		{`"experiments":["seen late"]`, 0, 2 * time.Hour, unmeasured, true},
		{`"experiments":["even","seen late"]`, 70 * minute, 2 * time.Hour, "", false},
	} {
		for _, alert := range []bool{false, true} {
			r := worldOf(t, "late").run(t, settingsOf(t, ""), `{"queryType":"cost","view":"total",`+c.chosen+`}`, c.from, c.until)
			r.Alert = alert
			_, err := r.Do(t.Context())
			if alert && c.ends {
				if err == nil || !strings.Contains(err.Error(), c.notice) {
					t.Errorf("an alert on %s from %s: %v; want an error with %q", c.chosen, c.from, err, c.notice)
				}
				continue
			}
			if got := noticesOf(r); err != nil || !strings.Contains(got, c.notice) || c.notice == "" && got != "" {
				t.Errorf("%s from %s, alert %t: %v, notices %q; want %q", c.chosen, c.from, alert, err, got, c.notice)
			}
		}
	}
}
