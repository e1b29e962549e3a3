package experiments

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

func TestGPUHealth(t *testing.T) {
	w := worldOf(t, "gpus")
	const h100, h200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
	want := []string{
		"us-1 | gpu-a |  |  | NVIDIA-H200 | llama-w-2 | GPU missing | dead | 1 | 90m",
		"eu-1 | gpu-b | 0 | GPU-eu-b0 | " + h100 + " | llama-w-1 | Xid 48 | hard | 1 | 63m",
		"eu-1 | gpu-c | 0 | GPU-eu-c0 | " + h100 + " | llama-w-1 | row remapping pending | memory | 1 | 80m",
		"us-1 | gpu-a | 0 | GPU-us-a0 | " + h200 + " | llama-w-2 | uncorrectable ECC errors | memory | 2 | 71m",
		"eu-1 | gpu-a | 1 | GPU-eu-a1 | " + h100 + " | llama-w-0 | NVLink replays | link | 30 | 40m",
		"us-1 | gpu-a | 1 | GPU-us-a1 | " + h200 + " | llama-w-2 | Xid 63 | soft | 1 | 50m",
		"eu-1 | gpu-a | 0 | GPU-eu-a0 | " + h100 + " | llama-w-0 | hot | thermal | 88 | 84m",
		"eu-1 | gpu-c | 1 | GPU-eu-c1 | " + h100 + " | llama-w-1 | slowed by heat | thermal | 0.2 | 65m",
		"eu-1 | gpu-a | 0 | GPU-eu-a0 | " + h100 + " | llama-w-0 | Xid 31 | app | 3 | 30m",
	}
	r := w.run(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["llama"]}`, gpusFrom, gpusUntil)
	frames, err := gpuHealth(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "gpu_health", frames)
	for _, f := range frames[0].Fields {
		if f.Name == "text" || f.Name == "action" {
			for j, v := range values[string](t, frames[0], f.Name) {
				if v == "" || v[len(v)-1] != '.' || strings.Contains(v, "%") {
					t.Errorf("row %d: %s %q is no sentence", j, f.Name, v)
				}
			}
		}
	}
	frames[0].Fields = frames[0].Fields[:10]
	equal(t, "rows", rows(t, frames[0]), want)
	t.Run("of another experiment on the same node", func(t *testing.T) {
		frames, err := gpuHealth(t.Context(),
			w.run(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["tiny"]}`, gpusFrom, gpusUntil))
		if err != nil {
			t.Fatal(err)
		}
		frames[0].Fields = frames[0].Fields[:10]
		equal(t, "rows", rows(t, frames[0]), []string{"eu-1 | gpu-a | 2 | GPU-eu-a2 | " + h100 + " | tiny-0 | Xid 43 | app | 1 | 40m"})
	})
	t.Run("of whom nobody has assigned", func(t *testing.T) {
		f := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","teams":["unassigned"]}`, gpusFrom, gpusUntil)[0]
		equal(t, "rows", rowsOf(t, f, "pod", "fault"), []string{"tiny-0 Xid 43"})
	})
	t.Run("seen in the range's last step", func(t *testing.T) {
		f := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["llama"],"clusters":["us-1"]}`, gpusFrom, 70*time.Minute+30*time.Second)[0]
		equal(t, "rows", rowsOf(t, f, "fault", "since"), []string{"uncorrectable ECC errors 1h10m30s", "Xid 63 50m0s"})
	})
	t.Run("before anything happened", func(t *testing.T) {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["tiny"],"view":"count"}`, gpusFrom, 30*time.Minute)
		frames, err := gpuHealth(t.Context(), r)
		if err != nil {
			t.Fatalf("something is not set up in this world: %v", err)
		}
		var want []string
		for _, c := range Classes {
			want = append(want, "class="+string(c)+" 0 none")
		}
		equal(t, "counts", numbers(t, frames), want)
	})
	t.Run("count", func(t *testing.T) {
		frames, err := gpuHealth(t.Context(), w.run(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["llama"],"view":"count"}`, gpusFrom, gpusUntil))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "counts", numbers(t, frames), []string{
			"class=dead 1 none", "class=hard 1 none", "class=memory 2 none", "class=action 0 none", "class=link 1 none",
			"class=soft 1 none", "class=unknown 0 none",
			"class=thermal 2 none", "class=unmeasured 0 none", "class=app 1 none", "class=info 0 none",
		})
	})
}

// Where DCGM does not say who holds a GPU, whatever is wrong on the node while a pod of the
// experiment is there is its fault.
func TestFaultsWithoutHolders(t *testing.T) {
	at := func(minutes ...int64) []prom.Point {
		var out []prom.Point
		for _, m := range minutes {
			out = append(out, prom.Point{T: m * 60_000, V: float64(m)})
		}
		return out
	}
	of := func(pod string, minutes ...int64) hold { return hold{pod: pod, ours: true, points: at(minutes...)} }
	other := func(pod string, minutes ...int64) hold { return hold{pod: pod, points: at(minutes...)} }
	for _, c := range []struct {
		name  string
		fault []prom.Point
		holds []hold
		want  []prom.Point
		pod   string
	}{
		{"while it was held", at(5), []hold{of("a", 4, 5, 6)}, at(5), "a"},
		{"eleven minutes afterwards", at(17), []hold{of("a", 4, 5, 6)}, at(17), "a"},
		{"twelve minutes afterwards", at(18), []hold{of("a", 4, 5, 6)}, nil, ""},
		{"before", at(3), []hold{of("a", 4, 5, 6)}, nil, ""},
		{"only then", at(1, 5, 40), []hold{of("a", 4, 5, 6)}, at(5), "a"},
		{"the one that has it, not the one that had it", at(9), []hold{of("a", 4, 5, 6), of("b", 8, 9)}, at(9), "b"},
		{"two at once", at(5), []hold{of("a", 5), of("b", 5)}, at(5), ""},
		{"nobody", at(5), nil, nil, ""},
		{"somebody else, who has it now", at(9), []hold{of("a", 4, 5, 6), other("b", 8, 9)}, nil, ""},
	} {
		f := fault{points: c.fault}.during(c.holds, time.Minute)
		if !slices.Equal(f.points, c.want) || f.pod != c.pod {
			t.Errorf("%s: points %v of pod %q, want %v of %q", c.name, f.points, f.pod, c.want, c.pod)
		}
	}
	// What came at some time in (20, 26] and was seen at 27.
	for _, c := range []struct {
		name  string
		holds []hold
		seen  bool
		pod   string
	}{
		{"one that was there all the time", []hold{of("a", 18, 19, 20, 21, 22, 23, 24, 25, 26, 27)}, true, "a"},
		{"it ended that pod", []hold{of("a", 18, 19, 20, 21)}, true, "a"},
		{"it came back under its name", []hold{of("a", 18, 19, 20, 21, 25, 26, 27)}, true, "a"},
		{"another came afterwards", []hold{of("a", 18, 19, 20, 21), of("b", 24, 25, 26)}, true, ""},
		{"another came so late that it was not there", []hold{of("a", 18, 19, 20, 21), of("b", 27, 28)}, true, "a"},
		{"one that came meanwhile", []hold{of("b", 24, 25, 26)}, true, ""},
		{"one that came when it was over", []hold{of("b", 27, 28)}, false, ""},
		{"of others before, and ours when it was over", []hold{other("o", 18, 19, 20, 21, 22), of("b", 27, 28)}, false, ""},
		{"of others before, and ours meanwhile", []hold{other("o", 18, 19, 20, 21), of("b", 24, 25, 26)}, true, ""},
		{"ours before, and of others meanwhile", []hold{of("a", 18, 19, 20, 21), other("o", 24, 25, 26)}, true, ""},
		{"one that had ended", []hold{of("a", 16, 17, 18)}, true, "a"},
		{"one that had ended long ago", []hold{of("a", 8, 9, 10)}, false, ""},
		{"one that had ended, and another's afterwards", []hold{of("a", 14, 15, 16), other("o", 18, 19)}, false, ""},
		{
			"equal names in two namespaces",
			[]hold{of("a", 18, 19, 20, 21), {namespace: "n", pod: "a", ours: true, points: at(25, 26)}},
			true,
			"",
		},
	} {
		f := fault{points: at(27), came: [][2]int64{{20 * 60_000, 26 * 60_000}}}.during(c.holds, time.Minute)
		if (len(f.points) == 1) != c.seen || len(f.came) != len(f.points) || f.pod != c.pod {
			t.Errorf("%s: points %v of pod %q, want it seen: %v, of %q", c.name, f.points, f.pod, c.seen, c.pod)
		}
	}
}

// TestHolders: an Xid is the pod's that had the GPU when it came, not of one that came afterwards
// and was there when the rules counted it; where that cannot be told, no pod is named.
func TestHolders(t *testing.T) {
	w := worldOf(t, "holders")
	for _, c := range []struct {
		experiment string
		want       []string
	}{
		{"before", []string{"c | n | 0 | U0 |  | before-0 | Xid 48 | hard | 1 | 34m"}},
		// That of GPU 0 came before its pod did. Of GPU 1 it is not known: the gauge said the same
		// before, and a count is seen later than what it counts.
		{"ours", []string{"c | n | 2 | U2 |  | ours-2 | Xid 48 | hard | 1 | 34m", "c | n | 1 | U1 |  |  | uncorrectable ECC errors | memory | 2 | 39m", "c | n | 1 | U1 |  |  | Xid 94 | soft | 1 | 40m"}},
	} {
		frames := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["`+c.experiment+`"]}`, 15*time.Minute,
			50*time.Minute)
		frames[0].Fields = frames[0].Fields[:10]
		equal(t, "faults of "+c.experiment, rows(t, frames[0]), c.want)
	}
}

func TestRises(t *testing.T) {
	p := func(at int64, v float64) prom.Point { return prom.Point{T: at, V: v} }
	for _, c := range []struct {
		name       string
		have, want []prom.Point
		measured   bool
	}{
		{"from the beginning on", []prom.Point{p(1, 2), p(2, 2)}, nil, false},
		{"new", []prom.Point{p(3, 2), p(4, 2)}, []prom.Point{p(3, 2)}, true},
		{"nobody looked before", []prom.Point{p(3, 2), p(4, 2)}, nil, false},
		{"known from before the beginning", []prom.Point{p(0, 2), p(3, 2), p(4, 3)}, []prom.Point{p(4, 1)}, false},
		{"more", []prom.Point{p(1, 2), p(2, 5), p(3, 5), p(4, 6)}, []prom.Point{p(2, 3), p(4, 1)}, false},
		{"the driver was loaded again", []prom.Point{p(1, 5), p(2, 1), p(3, 2)}, []prom.Point{p(2, 1), p(3, 1)}, false},
		{"reset, and one more", []prom.Point{p(1, 1), p(2, 1), p(9, 1), p(10, 1)}, []prom.Point{p(9, 1)}, true},
		{"reset, and more than before", []prom.Point{p(1, 1), p(9, 3)}, []prom.Point{p(9, 3)}, true},
		{"not measured for a while", []prom.Point{p(1, 1), p(9, 1), p(10, 2)}, []prom.Point{p(10, 1)}, false},
	} {
		measured := func(from, until int64) bool { return c.measured && from < until-1 }
		if got := rises(c.have, 1, measured); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// What was there before the range is not new where samples are missing at its beginning; what came
// after such a hole is.
func TestOldFaultsAfterAHole(t *testing.T) {
	w := worldOf(t, "stayed")
	for from := 58 * minute; from <= 66*minute; from += minute {
		var want []string
		if from < 64*minute { // what is seen at the first point may be older than the range
			want = []string{"new Xid 79 1h5m0s", "new uncorrectable ECC errors 1h5m0s"}
		}
		f := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["e"]}`, from, from+10*minute)[0]
		equal(t, "faults from "+from.String(), rowsOf(t, f, "node", "fault", "since"), want)
	}
}

// Of two GPUs whose count of errors was gone for a while one was reset, and has had another error;
// the other was not measured.
func TestErrorAfterReset(t *testing.T) {
	w := worldOf(t, "reset")
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["e"]}`, 10*time.Minute, 80*time.Minute)[0]
	equal(t, "faults", rowsOf(t, f, "node", "fault", "value", "since"), []string{"reset uncorrectable ECC errors 1 50m0s"})
}

// Heat between two points of a long range is seen, with the most of what there was.
func TestHeatBetweenPoints(t *testing.T) {
	w := worldOf(t, "heat")
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["e"]}`, 0, 7*24*time.Hour)[0]
	equal(t, "faults", rowsOf(t, f, "node", "pod", "fault", "value"), []string{"a p-a hot 95", "b p-b hot 91", "d p-d slowed by heat 0.2"})
	counts := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["e"],"view":"count"}`, 0, 7*24*time.Hour)
	if got := strings.Join(numbers(t, counts), "\n"); !strings.Contains(got, "class=thermal 3 none") {
		t.Errorf("counts\n%s", got)
	}
}

// The share of time in which a GPU was slowed down counts once, though each pod that shares the GPU
// has a series of it.
func TestSlowedSharedGPU(t *testing.T) {
	f := worldOf(t, "timesliced").frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["e"]}`, 10*minute, 120*minute)[0]
	equal(t, "faults", rowsOf(t, f, "node", "gpu", "fault", "value"), []string{"n 0 slowed by heat 0.8"})
}

// A single hot sample is no heat of five minutes, be it the last one, which the last point of the
// range is after, or the first of its series.
func TestOneHotSample(t *testing.T) {
	w := worldOf(t, "spike")
	for _, length := range []time.Duration{24 * time.Hour, 2 * time.Hour} {
		f := w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["e"]}`, 116*minute-length, 116*minute)[0]
		equal(t, "faults of "+length.String(), rowsOf(t, f, "node", "pod", "fault", "value"), []string{"c p-c hot 90"})
	}
}

// Heat is seen however often the rule has a sample, which is not what the setting says: where that
// is twice as often, and where every second evaluation is missing.
func TestHeatAtAnyInterval(t *testing.T) {
	for load, settings := range map[string]string{
		"steadyheat": `{"ruleInterval":"30s"}`, "rareheat": ``, "rarestheat": `{"ruleInterval":"5m"}`,
	} {
		w := worldOf(t, load)
		for _, length := range []time.Duration{24 * time.Hour, 2 * time.Hour} {
			const query = `{"queryType":"gpu_health","experiments":["e"]}`
			f := w.frames(t, settingsOf(t, settings), query, 110*minute-length, 110*minute)[0]
			equal(t, load+" of "+length.String(), rowsOf(t, f, "node", "pod", "fault", "value"), []string{"c p-c hot 90"})
		}
	}
}
