package experiments

import (
	"strings"
	"testing"
	"time"
)

// Over a month, what was there for minutes is not lost between the points that are looked at.

const month = 30 * 24 * time.Hour

// The nodes that have gone within the hour have a model and its price, and the machine that was
// replaced is told of.
func TestCostOfShortLivedNodes(t *testing.T) {
	w := worldOf(t, "brief")
	settings := settingsOf(t, `{"prices":{"NVIDIA H100":2,"NVIDIA H200":3}}`)
	r := w.run(t, settings, `{"queryType":"cost","experiments":["short"]}`, -month, 120*minute)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "cost", rowsOf(t, frames[0], "experiment", "model", "gpu_hours", "cost"), []string{"short NVIDIA H100 4 8"})
	if got := noticesOf(r); strings.Contains(got, "another model") || strings.Contains(got, "price") {
		t.Errorf("notices %q", got)
	}
	r = w.run(t, settings, `{"queryType":"cost","experiments":["replaced"]}`, -month, 120*minute)
	if frames, err = r.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "cost of the replaced one", rowsOf(t, frames[0], "experiment", "model"), []string{"replaced NVIDIA H200"})
	if got := noticesOf(r); !strings.Contains(got, "The GPUs of 1 nodes became those of another model") {
		t.Errorf("notices %q", got)
	}
}

// A pod of minutes has its own age, and one of a cluster that is lost has not gone.
func TestShortLivedPods(t *testing.T) {
	w := worldOf(t, "brief")
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"pods","clusters":["c"]}`, -month, 120*minute)[0]
	equal(t, "pods", rowsOf(t, f, "pod", "phase", "created", "age"), []string{
		"p-2 Gone 31m0s 120", "p-0 Gone 1h1m0s 1740", "p-1 Gone 20m0s 5400",
	})
	f = w.frames(t, settingsOf(t, ""), `{"queryType":"pods","clusters":["dark"]}`, -10*time.Hour, 250*minute)[0]
	equal(t, "pods of a lost cluster", rowsOf(t, f, "pod", "phase", "age"), []string{"q-0 Unknown 60"})
}

// What is drawn at a point of the panel is found.
func TestShortLines(t *testing.T) {
	r := worldOf(t, "brief").run(t, settingsOf(t, ""), `{"queryType":"gpu_timeseries","experiments":["short"]}`, -month, 120*minute)
	r.MaxPoints = 1000
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", lines(t, frames), []string{`experiment=short "short" percent: 1 from 86.66666666666667m 90 to 86.66666666666667m 90`})
}

// Lists have the experiments that died in their first minutes.
func TestShortLivedExperiments(t *testing.T) {
	w := worldOf(t, "brief")
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"experiments"}`, -month, 120*minute)[0]
	equal(t, "experiments", rowsOf(t, f, "experiment", "namespace", "state", "pods", "gpus", "created", "seen"), []string{
		"replaced n ended 1 8 20m0s 1h50m0s", "short n ended 1 8 1h5m0s 1h30m0s", "brief moment ended 1 8 31m0s 33m0s",
	})
	f = w.frames(t, settingsOf(t, ""), `{"queryType":"experiments","search":"RIE"}`, -month, 120*minute)[0]
	equal(t, "what is searched for", rowsOf(t, f, "experiment"), []string{"brief"})
	f = w.frames(t, settingsOf(t, ""), `{"queryType":"experiments","experiments":["brief"]}`, -month, 120*minute)[0]
	equal(t, "what is chosen", rowsOf(t, f, "experiment", "created", "seen"), []string{"brief 31m0s 33m0s"})
	names, err := w.run(t, settingsOf(t, ""), `{"queryType":"experiments"}`, -month, 120*minute).Names(t.Context(), "namespace")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "namespaces", names, []string{"moment", "n"})
}
