package experiments

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The panel shows an hour; the runs are older than that, but for one.
const (
	compareFrom  = 4040 * time.Minute
	compareUntil = 4100 * time.Minute
)

func TestCompareSeries(t *testing.T) {
	w := worldOf(t, "compare")
	r := w.run(t, settingsOf(t, ""), `{"queryType":"compare","experiments":["new","old","twice","never","old"]}`, compareFrom, compareUntil)
	frames, err := compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	// Each begins at From. Ten minutes after its beginning new has the faster GPUs of us-1 too.
	equal(t, "lines", lines(t, frames), []string{
		`run=new "new" percent: 61 from 4040m 40 to 4100m 60`,
		`run=old "old" percent: 61 from 4040m 80 to 4100m 80`,
		`run=twice "twice" percent: 51 from 4040m 20 to 4090m 20`,
	})
	if got := values[float64](t, frames[0], "Value"); got[9] != 40 || got[10] != 60 {
		t.Errorf("nine and ten minutes after the beginning of new: %v and %v", got[9], got[10])
	}
	if got, want := noticesOf(r), "never had no running pod with GPUs in the 30 days before 1970-01-03 20:20:00 UTC."; got != want {
		t.Errorf("notices %q, want %q", got, want)
	}
	if n := len(r.executed); n > 20 {
		t.Errorf("%d queries:\n%s", n, strings.Join(r.executed, "\n"))
	}
}

// Between steps: the beginning of a run is never drawn before From, and all runs have points at the
// same times.
func TestCompareAlignment(t *testing.T) {
	w := worldOf(t, "compare")
	r := w.run(t, settingsOf(t, ""), `{"queryType":"compare","experiments":["new","old"],"clusters":["eu-1"]}`, compareFrom+7*time.Second, compareUntil+7*time.Second)
	r.Interval = 7 * time.Minute
	frames, err := compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	a, b := values[time.Time](t, frames[0], "Time"), values[time.Time](t, frames[1], "Time")
	if !a[0].Equal(r.From) || !b[0].Equal(r.From) || a[1].Sub(a[0]) != 7*time.Minute || !a[1].Equal(b[1]) || a[len(a)-1].After(r.Until) {
		t.Errorf("times %v and %v; the panel is from %v to %v", a, b, r.From, r.Until)
	}
}

func TestCompareSummary(t *testing.T) {
	w := worldOf(t, "compare")
	for _, c := range []struct {
		name, query string
		until       time.Duration
		want        []string
	}{
		{"whole runs, in the query's order", `"experiments":["new","old","twice"]`, compareUntil, []string{
			"new | eu-1, us-1 | 4000m | - | 6000 | 9.767 | 58.63 | 1 | 0 | 6",
			"old | eu-1 | 60m | 180m | 7200 | 8.067 | 80 | 1 | 1 | 4",
			"twice | eu-1 | 3000m | 3050m | 3000 | 0.85 | 20 | 0 | 0 | 1",
		}},
		{"in one cluster", `"experiments":["new","old"],"clusters":["us-1"]`, compareUntil, []string{
			"new | us-1 | 4010m | - | 5400 | 3.033 | 100 | 0 | 0 | 2",
		}},
		{"the earlier run of the name", `"experiments":["twice","old"]`, 400 * time.Minute, []string{
			"twice | eu-1 | 60m | 100m | 2400 | 0.6833 | 10 | 0 | 0 | 1",
			"old | eu-1 | 60m | 180m | 7200 | 8.067 | 80 | 1 | 1 | 4",
		}},
		{"before it began", `"experiments":["new","old"]`, 3999 * time.Minute, []string{
			"old | eu-1 | 60m | 180m | 7200 | 8.067 | 80 | 1 | 1 | 4",
		}},
		{"one that comes back later in the hour", `"experiments":["back","old"]`, 125 * time.Minute, []string{
			"back | eu-1 | 60m | 80m | 1200 | 0.35 | 30 | 0 | 1 | 1",
			"old | eu-1 | 60m | - | 3900 | 4.4 | 80 | 1 | 0 | 4",
		}},
		{"after it came back", `"experiments":["back","never"]`, 200 * time.Minute, []string{
			"back | eu-1 | 60m | 170m | 6600 | 1.033 | 30 | 0 | 1 | 1",
		}},
		{"one that runs and of which the end is not seen", `"experiments":["old","new"]`, 120 * time.Minute, []string{
			"old | eu-1 | 60m | - | 3600 | 4.067 | 80 | 1 | 0 | 4",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary",`+c.query+`}`, c.until-time.Hour, c.until)
			frames, err := compare(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := columns(frames[0]), "run clusters started ended duration gpu_hours mean_util restarts failures gpus from to"; got != want {
				t.Errorf("columns %s, want %s", got, want)
			}
			var got []string
			for _, row := range rows(t, frames[0]) { // all but from and to
				got = append(got, strings.Join(strings.Split(row, " | ")[:10], " | "))
			}
			equal(t, "rows", got, c.want)
			if len(c.want) == 3 {
				golden(t, "compare_summary", frames)
			}
		})
	}
}

// One run is drawn and none is not; both say what to choose.
func TestCompareOfFew(t *testing.T) {
	w := worldOf(t, "compare")
	for _, c := range []struct {
		query string
		want  int
	}{{`"experiments":["new"]`, 1}, {`"experiments":["new"],"view":"summary"`, 1}, {`"experiments":[]`, 0}, {`"view":"summary"`, 0}} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"compare",`+c.query+`}`, compareFrom, compareUntil)
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", c.query, err)
		}
		got := 0
		for _, f := range frames {
			got += min(f.Rows(), 1)
		}
		if got != c.want || !strings.Contains(strings.Join(notices(frames[0]), "\n"), "Choose 2 to 8") {
			t.Errorf("%s: %d frames with rows, want %d; notices %q", c.query, got, c.want, notices(frames[0]))
		}
	}
}

// Nothing is drawn of what came after the panel's end, though it is known today.
func TestCompareInThePast(t *testing.T) {
	w := worldOf(t, "compare")
	frames, err := compare(t.Context(), w.run(t, settingsOf(t, ""), `{"queryType":"compare","experiments":["new","old"]}`, 3970*time.Minute, 4030*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", lines(t, frames), []string{`run=new "new" percent: 31 from 3970m 40 to 4000m 60`, `run=old "old" percent: 61 from 3970m 80 to 4030m 80`})
	// Between two evaluations of the rules a run goes on.
	frames, err = compare(t.Context(), w.run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary","experiments":["new","old"],"clusters":["us-1"]}`,
		compareFrom, compareUntil+90*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "runs", rows(t, frames[0]), []string{"new | us-1 | 4010m | - | 5490 | 3.067 | 100 | 0 | 0 | 2 | 240540000 | 246090000"})
}

// Of a metric that one of the runs does not have.
func TestCompareWithoutAMetric(t *testing.T) {
	r := worldOf(t, "compare").run(t, settingsOf(t, ""), `{"queryType":"compare","metric":"power","experiments":["new","old"]}`, compareFrom, compareUntil)
	frames, err := compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", lines(t, frames), []string{`run=new "new" watt: 61 from 4040m 300 to 4100m 300`})
	if got, want := noticesOf(r), "Nothing is known of this metric of old since 1970-01-01 01:00:00 UTC, when it began."; got != want {
		t.Errorf("notices %q, want %q", got, want)
	}
}

// Links to a run's own dashboard have its time: the panel's may be another.
func TestCompareRangesOfRuns(t *testing.T) {
	r := worldOf(t, "compare").run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary","experiments":["new","old"]}`, compareFrom, compareUntil)
	frames, err := compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	// From an interval before the first sample to the last one; one that runs to the panel's end.
	equal(t, "ranges", rowsOf(t, frames[0], "run", "from", "to"), []string{
		fmt.Sprint("new ", (3999 * time.Minute).Milliseconds(), " ", compareUntil.Milliseconds()),
		fmt.Sprint("old ", (59 * time.Minute).Milliseconds(), " ", (180 * time.Minute).Milliseconds()),
	})
}
