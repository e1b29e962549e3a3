package helm

import (
	"os"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestPluginDatasource: what Grafana would read is a data source of the plugin's type that asks the
// Service of the release, with the uid of the plugin's own example and nothing lost of jsonData.
func TestPluginDatasource(t *testing.T) {
	all, err := render(valuesOf(t, ciFiles(t)["plugin"]))
	if err != nil {
		t.Fatal(err)
	}
	of := func(text []byte) map[string]any {
		var f struct{ Datasources []map[string]any }
		if err := yaml.Unmarshal(text, &f); err != nil || len(f.Datasources) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		return f.Datasources[0]
	}
	cm := find[*corev1.ConfigMap](t, all, "spillway-plugin")
	got := of([]byte(cm.Data["spillway-experiments.yaml"]))
	b, err := os.ReadFile("../../grafana-plugin/provisioning/datasources/experiments.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := of(b)
	for _, key := range []string{"name", "uid", "type", "access"} {
		if got[key] != want[key] {
			t.Errorf("%s is %v, the plugin's example has %v", key, got[key], want[key])
		}
	}
	settings := map[string]any{
		"idleBelow": 10.0, "timeout": 30.0, "currency": "EUR", "prices": map[string]any{"default": 2.1},
		// Grafana makes one $ of it, and would look for a variable of its environment else.
		"links": []any{map[string]any{"title": "Run", "url": "https://runs.example.org/$${experiment}"}},
	}
	if !reflect.DeepEqual(got["jsonData"], any(settings)) || cm.Labels["grafana_datasource"] != "1" || cm.Namespace != "grafana" {
		t.Errorf("%v in %s with %v", got, cm.Namespace, cm.Labels)
	}
	service := find[*corev1.Service](t, all, "spillway")
	if url := got["url"].(string); url != "http://"+service.Name+"."+service.Namespace+".svc:9090/spillway" {
		t.Errorf("it asks %s", url)
	}
}
