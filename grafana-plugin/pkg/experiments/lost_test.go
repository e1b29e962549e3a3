package experiments

import (
	"strings"
	"testing"
	"time"
)

// Where nothing is seen of a cluster any more, nobody knows whether what was there then has ended;
// what ended before has.
func TestLostCluster(t *testing.T) {
	w := worldOf(t, "lost")
	const said = `Nothing is seen in cluster "dark" since 1970-01-01 02:00:00 UTC`
	for _, until := range []time.Duration{140 * minute, 200 * minute} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"experiments"}`, 10*minute, until)
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "experiments", rowsOf(t, frames[0], "experiment", "cluster", "state", "gpus", "seen"), []string{
			"e dark unknown 8 2h0m0s", "f light ended 8 2h0m0s", "done dark ended 8 1h0m0s",
		})
		if got := noticesOf(r); !strings.Contains(got, said) || strings.Contains(got, "light") {
			t.Errorf("notices of experiments: %q", got)
		}
		r = w.run(t, settingsOf(t, ""), `{"queryType":"pods"}`, 10*minute, until)
		if frames, err = r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "pods", rowsOf(t, frames[0], "pod", "phase", "gpus"), []string{
			"p-0 Unknown 8", "p-2 Succeeded 0", "p-1 Gone 8", "q-0 Gone 8",
		})
		if got := noticesOf(r); !strings.Contains(got, said) || strings.Contains(got, "light") {
			t.Errorf("notices of pods: %q", got)
		}
		r = w.run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary","experiments":["e","f","done"]}`, 10*minute, until)
		if frames, err = r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "runs", rowsOf(t, frames[0], "run", "ended", "duration"), []string{"e - 6000", "f 2h0m0s 6000", "done 1h0m0s 2400"})
		if got := noticesOf(r); !strings.Contains(got, said) || strings.Contains(got, "light") {
			t.Errorf("notices of runs: %q", got)
		}
	}
	// Before that, and where a list is chosen from.
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"experiments"}`, 10*minute, 110*minute)[0]
	equal(t, "before", rowsOf(t, f, "experiment", "state"), []string{"e running", "f running", "done ended"})
	list, err := w.run(t, settingsOf(t, ""), `{"queryType":"experiments","experiments":["e"]}`, 10*minute, 140*minute).Recent(t.Context())
	if err != nil || len(list) != 1 || list[0].State != unknown {
		t.Errorf("%+v, %v", list, err)
	}
}
