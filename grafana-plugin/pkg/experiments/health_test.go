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
		frames, err := gpuHealth(t.Context(), w.run(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["tiny"]}`, gpusFrom, gpusUntil))
		if err != nil {
			t.Fatal(err)
		}
		frames[0].Fields = frames[0].Fields[:10]
		equal(t, "rows", rows(t, frames[0]), []string{"eu-1 | gpu-a | 2 | GPU-eu-a2 | " + h100 + " | tiny-0 | Xid 43 | app | 1 | 40m"})
	})
	t.Run("before anything happened", func(t *testing.T) {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"gpu_health","experiments":["tiny"],"view":"count"}`, gpusFrom, 30*time.Minute)
		frames, err := gpuHealth(t.Context(), r)
		if err != nil {
			t.Skipf("something is not set up in this world: %v", err)
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
			"class=dead 1 none", "class=hard 1 none", "class=memory 2 none", "class=action 0 none", "class=link 1 none", "class=soft 1 none", "class=unknown 0 none",
			"class=thermal 2 none", "class=unmeasured 0 none", "class=app 1 none",
		})
	})
}

// Where DCGM does not say who holds a GPU, whatever is wrong on the node while a pod of the experiment is there is its fault.
func TestFaultsWithoutHolders(t *testing.T) {
	at := func(minutes ...int64) []prom.Point {
		var out []prom.Point
		for _, m := range minutes {
			out = append(out, prom.Point{T: m * 60_000, V: float64(m)})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		fault []prom.Point
		holds []hold
		want  []prom.Point
		pod   string
	}{
		{"while it was held", at(5), []hold{{"a", at(4, 5, 6)}}, at(5), "a"},
		{"eleven minutes afterwards", at(17), []hold{{"a", at(4, 5, 6)}}, at(17), "a"},
		{"twelve minutes afterwards", at(18), []hold{{"a", at(4, 5, 6)}}, nil, ""},
		{"before", at(3), []hold{{"a", at(4, 5, 6)}}, nil, ""},
		{"only then", at(1, 5, 40), []hold{{"a", at(4, 5, 6)}}, at(5), "a"},
		{"the one that has it, not the one that had it", at(9), []hold{{"a", at(4, 5, 6)}, {"b", at(8, 9)}}, at(9), "b"},
		{"two at once", at(5), []hold{{"a", at(5)}, {"b", at(5)}}, at(5), ""},
		{"nobody", at(5), nil, nil, ""},
	} {
		f := fault{points: c.fault}.during(c.holds, time.Minute)
		if !slices.Equal(f.points, c.want) || f.pod != c.pod {
			t.Errorf("%s: points %v of pod %q, want %v of %q", c.name, f.points, f.pod, c.want, c.pod)
		}
	}
}

func TestRises(t *testing.T) {
	p := func(at int64, v float64) prom.Point { return prom.Point{T: at, V: v} }
	for _, c := range []struct {
		name       string
		have, want []prom.Point
	}{
		{"from the beginning on", []prom.Point{p(1, 2), p(2, 2)}, nil},
		{"new", []prom.Point{p(2, 2), p(3, 2)}, []prom.Point{p(2, 2)}},
		{"more", []prom.Point{p(1, 2), p(2, 5), p(3, 5), p(4, 6)}, []prom.Point{p(2, 3), p(4, 1)}},
		{"the driver was loaded again", []prom.Point{p(1, 5), p(2, 1), p(3, 2)}, []prom.Point{p(3, 1)}},
	} {
		if got := rises(c.have, 1); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
