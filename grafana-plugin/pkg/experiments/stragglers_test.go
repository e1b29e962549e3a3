package experiments

import (
	"strings"
	"testing"
	"time"
)

// A GPU is compared with the others of the same moments: where a run went on elsewhere, what it did
// before is no measure of what it does now. One that came a moment ago is one that came after those
// that are there.
func TestStragglersOfRunsThatMoved(t *testing.T) {
	w := worldOf(t, "behind")
	for _, c := range []struct {
		experiment  string
		from, until time.Duration
		want        []string
		notice      string
	}{
		{"e", 0, 359 * minute, []string{"c | b4 | 0 | GPU-b4 | e-4 | 60 | 95 | 0.6316"}, ""},
		{"e", 0, 150 * minute, nil, "No GPU is below 80 % of the median of its experiment."},
		{
			"f", -120 * minute, 1318 * minute,
			[]string{"c | b3 | 1 | GPU-f5 | f-3 | 45 | 89.25 | 0.5042"},
			"1 GPUs are left out, which were held for less than 25 % of the time that others of their experiment were.",
		},
		// It has ended: all that was is looked at.
		{"e", 0, 600 * minute, []string{"c | b4 | 0 | GPU-b4 | e-4 | 60 | 95 | 0.6316"}, ""},
	} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"stragglers","experiments":["`+c.experiment+`"]}`, c.from, c.until)
		frames, err := stragglers(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c.experiment, rows(t, frames[0]), c.want)
		if got := noticesOf(r); got != c.notice {
			t.Errorf("%s until %s: notices %q, want %q", c.experiment, c.until, got, c.notice)
		}
	}
}

// Of nodes that are not measured nobody knows that none of their GPUs is behind.
func TestStragglersOfWhatIsNotMeasured(t *testing.T) {
	const unseen = "The GPUs of 1 nodes are left out, or judged by less than half of the time in which they were held, since this metric " +
		"of them was not measured: the slowest may be among them; the health check of the datasource says why."
	w := worldOf(t, "behind")
	for _, c := range []struct{ chosen, notice string }{
		{`"experiments":["h"]`, unseen + "\nNo GPU that was measured is below 80 % of the median of its experiment."},
		{`"experiments":["h"],"metric":"power"`, "No GPU is below 80 % of the median of its experiment."},
		// The first moments are measured a little later.
		{
			`"experiments":["k"]`, "1 GPUs are left out, which were held for less than 25 % of the time that others of their experiment were.\n" +
				"No GPU is below 80 % of the median of its experiment.",
		},
	} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"stragglers",`+c.chosen+`}`, 0, 119*minute)
		frames, err := stragglers(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c.chosen, rows(t, frames[0]), nil)
		if got := noticesOf(r); got != c.notice {
			t.Errorf("%s: notices %q, want %q", c.chosen, got, c.notice)
		}
	}
	r := w.run(t, settingsOf(t, ""), `{"queryType":"stragglers","experiments":["k"]}`, 0, 113*minute)
	if _, err := stragglers(t.Context(), r); err != nil || strings.Contains(noticesOf(r), "not measured") {
		t.Errorf("a pod that began a minute ago: %v, notices %q", err, noticesOf(r))
	}
}
