package experiments

import (
	"strings"
	"testing"
	"time"
)

// Where what is stored of a cluster begins, or on the day its rules were installed, no run begins:
// one that was there then is not drawn as if it had.
func TestCompareWhatWasThereBeforeTheFirstSample(t *testing.T) {
	const query = `"experiments":["kept","wide","fresh","moved","plain"]`
	w := worldOf(t, "edge")
	frames, err := w.run(t, settingsOf(t, ""), `{"queryType":"compare",`+query+`}`, 540*time.Minute, 600*time.Minute).Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", lines(t, frames), []string{
		`run=fresh "fresh" percent: 61 from 540m 60 to 600m 60`,
		`run=moved "moved" percent: 61 from 540m 70 to 600m 70`,
		`run=plain "plain" percent: 61 from 540m 80 to 600m 80`,
	})
	equal(t, "notices", notices(frames[0]), []string{
		"kept was there at 1970-01-01 05:01:00 UTC, when the first is known of its clusters, and may be older: " +
			"started, duration and GPU hours are those since then, and no line is drawn from its beginning.",
		"wide was there at 1970-01-01 05:00:00 UTC, when the first is known of its clusters, and may be older: " +
			"started, duration and GPU hours are those since then, and no line is drawn from its beginning.",
	})
	frames, err = w.run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary",`+query+`}`, 540*time.Minute, 600*time.Minute).
		Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "runs", rowsOf(t, frames[0], "run", "started"), []string{
		"kept 5h1m0s", "wide 5h0m0s", "fresh 7h0m0s", "moved 3h20m0s", "plain 5h0m0s",
	})
	if got := strings.Join(notices(frames[0]), "\n"); strings.Count(got, "may be older") != 2 {
		t.Errorf("notices %q", got)
	}
}

// Nor were experiments created then that have ended since.
func TestExperimentsThatWereThereBeforeTheFirstSample(t *testing.T) {
	for _, c := range []struct {
		from time.Duration
		want string
	}{
		{100 * time.Minute, "1 experiments that have ended were there when the first is known of their cluster: they were created then or earlier."},
		{299 * time.Minute, "1 experiments that have ended were there when the time range began: they were created then or earlier."},
		{320 * time.Minute, "1 experiments that have ended were there when the time range began: they were created then or earlier."},
	} {
		r := worldOf(t, "edge").run(t, settingsOf(t, ""), `{"queryType":"experiments"}`, c.from, 600*time.Minute)
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(notices(frames[0]), "\n"); got != c.want {
			t.Errorf("from %s: notices %q, want %q", c.from, got, c.want)
		}
	}
}
