package main

import (
	"bytes"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// TestChart: the chart's archive is for Helm what its folder is in a checkout, rules and dashboards
// among it, and has no link in it.
func TestChart(t *testing.T) {
	log.SetOutput(io.Discard) // Helm says for each link of the folder that it follows it
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	t.Chdir("../..")
	r := release{source: told}
	var err error
	if r.chart, err = chartFiles(filepath.Dir(chartFile)); err != nil {
		t.Fatal(err)
	}
	all, err := r.pack()
	if err != nil {
		t.Fatal(err)
	}
	archive := all["spillway-chart-1.2.3.tgz"]
	if !strings.Contains(string(all[checksums]), "  spillway-chart-1.2.3.tgz\n") {
		t.Errorf("it is not among the checksums:\n%s", all[checksums])
	}
	root := unpack(t, archive) // which wants files and no links
	if _, err := os.Stat(filepath.Join(root, "spillway/mixin/rules/global/node.yaml")); err != nil {
		t.Error(err)
	}
	packed, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := loader.LoadDir(filepath.Dir(chartFile))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rawFiles(packed), rawFiles(folder); !maps.Equal(got, want) {
		t.Errorf("it has %q, the folder %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	got, want := rendered(t, packed), rendered(t, folder)
	if !maps.Equal(got, want) {
		t.Error("it renders other objects than the folder")
	}
	monitoring := got["spillway/templates/monitoring.yaml"]
	if n := strings.Count(monitoring, "kind: ConfigMap"); n < 14 || strings.Count(monitoring, "kind: PrometheusRule") < 20 {
		t.Errorf("it has %d dashboards:\n%.1000s", n, monitoring)
	}
}

func rawFiles(c *chart.Chart) map[string]string {
	out := map[string]string{}
	for _, f := range c.Raw {
		out[f.Name] = string(f.Data)
	}
	return out
}

// rendered is what the chart makes with all of the mixin.
func rendered(t *testing.T, c *chart.Chart) map[string]string {
	t.Helper()
	values, err := chartutil.ReadValuesFile("deploy/helm/spillway/ci/minimal-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values["mixin"] = map[string]any{
		"rules":      map[string]any{"enabled": true, "files": []any{"global/*.yaml", "shard/*.yaml"}},
		"dashboards": map[string]any{"enabled": true, "files": []any{"*.json"}},
	}
	about := chartutil.ReleaseOptions{Name: "spillway", Namespace: "monitoring", IsInstall: true, Revision: 1}
	full, err := chartutil.ToRenderValues(c, values, about, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, full)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
