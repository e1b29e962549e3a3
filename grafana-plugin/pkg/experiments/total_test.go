package experiments

import (
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// What the dashboards' stats show is one frame: Grafana's transformations that make one of several
// lose what is told with the first of them.
func TestTotalsAreOneFrame(t *testing.T) {
	for _, c := range []struct {
		world, query, of, by string
		kind                 data.FrameType
		want                 []string
	}{
		{
			"pods", `{"queryType":"status","view":"total"`, "now", "phase", data.FrameTypeNumericWide,
			[]string{"Running", "Pending", "Failed"},
		},
		{"gpus", `{"queryType":"gpu_health","view":"total"`, "count", "none", data.FrameTypeNumericMulti, []string{""}},
	} {
		ask := func(query string) data.Frames {
			return worldOf(t, c.world).frames(t, settingsOf(t, ""), query, minute, 100*time.Minute)
		}
		sums, got := map[string]float64{}, []string{}
		for _, f := range ask(strings.Replace(c.query, "total", c.of, 1) + "}") {
			v, _ := f.Fields[0].FloatAt(0)
			sums[f.Fields[0].Labels[c.by]] += v
		}
		frames := ask(c.query + "}")
		if len(frames) != 1 || frames[0].Meta.Type != c.kind {
			t.Fatalf("%s: %d frames, the first of type %s", c.query, len(frames), frames[0].Meta.Type)
		}
		for _, f := range frames[0].Fields {
			got = append(got, f.Config.DisplayNameFromDS)
			if v, _ := f.FloatAt(0); v != sums[f.Labels[c.by]] {
				t.Errorf("%s: %v of %s, want %v", c.query, v, f.Labels, sums)
			}
		}
		equal(t, c.query, got, c.want)
		frames = ask(c.query + `,"experiments":["nobody's"]}`)
		if len(frames) != 1 || len(frames[0].Fields) > 0 || frames[0].Meta.Type != c.kind || len(notices(frames[0])) == 0 {
			t.Errorf("%s of nobody: %d frames, notices %q", c.query, len(frames), notices(frames[0]))
		}
	}
	// It has the warnings, and the pods of all clusters.
	r := hourly(t, scripted(func(query string) prom.Answer {
		pod := func(cluster string) prom.Series {
			return one(1, "cluster", cluster, "namespace", "n", "pod", "p", "uid", "u", "experiment", "e", "phase", "Running")
		}
		a := of(pod("a"), pod("b"))
		if strings.Contains(query, "kube_pod_status_phase") {
			a = of(pod("a"))
			if strings.Contains(query, `"b"`) {
				a = of(pod("b"))
			}
			a.Warnings = []string{"A shard is away."}
		}
		return a
	}), "", `{"queryType":"status","view":"total"}`)
	frames, err := r.Do(t.Context())
	if err != nil || len(frames) != 1 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	if v, _ := frames[0].Fields[0].FloatAt(0); v != 2 || !strings.Contains(strings.Join(notices(frames[0]), "\n"), "A shard is away.") {
		t.Errorf("%v pods run, notices %q", v, notices(frames[0]))
	}
}
