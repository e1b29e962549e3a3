package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// everywhere are values with all that may stand in another namespace than the release, there.
func everywhere(t *testing.T) map[string]any {
	t.Helper()
	values := valuesOf(t, ciFiles(t)["operator"])
	for name, section := range map[string]string{"plugin": "plugin", "remediator": "remediator"} {
		values[section] = valuesOf(t, ciFiles(t)[name])[section]
	}
	values["plugin"].(obj)["datasource"].(obj)["namespace"] = "monitoring"
	values["serviceMonitor"].(obj)["namespace"] = "monitoring"
	for _, part := range []string{"rules", "dashboards"} {
		values["mixin"].(obj)[part].(obj)["namespace"] = "monitoring"
	}
	for _, shard := range values["networkPolicy"].(obj)["shards"].([]any) {
		shard.(obj)["namespace"] = "monitoring"
	}
	return values
}

// namesOf are the objects of a release, as the API server tells them apart.
func namesOf(t *testing.T, namespace, release string, values map[string]any) (out []string) {
	t.Helper()
	all, err := renderIn(namespace, release, values)
	if err != nil {
		t.Fatal(err)
	}
	check(t, all)
	for _, o := range all {
		out = append(out, fmt.Sprintf("%s %s/%s", o.kind(), o.meta.GetNamespace(), o.meta.GetName()))
	}
	return out
}

// TestReleasesShareNothing: of two releases with one name in two namespaces, which both have
// objects in a third, nothing is the other one's: who renders the chart without Helm's own look at
// what is there (Argo CD, kubectl) would have them take it from each other. In the namespace of the
// release the names are those that they have always had. Dashboards are one Grafana's: they have
// one name everywhere, so that Helm refuses to make them twice, and an upgrade does not move them,
// which Grafana's sidecar would take for their end: it deletes by the key of the ConfigMap that
// goes.
func TestReleasesShareNothing(t *testing.T) {
	long := strings.Repeat("a", 62)
	for _, c := range [][2]string{{"dash", "dash-staging"}, {"dash", "monitoring"}, {long + "b", long + "c"}} {
		one, other := namesOf(t, c[0], "spillway", everywhere(t)), namesOf(t, c[1], "spillway", everywhere(t))
		elsewhere := 0
		for _, name := range one {
			if strings.Contains(name, " monitoring/") {
				elsewhere++
			}
			if strings.HasPrefix(name, "ConfigMap monitoring/spillway-dashboard-") {
				if !slices.Contains(other, name) {
					t.Errorf("%s of %s is another one in %s", name, c[0], c[1])
				}
				continue
			}
			if slices.Contains(other, name) {
				t.Errorf("%s is of both releases, in %s and in %s", name, c[0], c[1])
			}
			if whole := strings.Split(name, "/")[1]; len(whole) > 75 {
				t.Errorf("%s has %d characters", name, len(whole))
			}
		}
		if elsewhere < 8 {
			t.Errorf("only %d objects of %s are in another namespace: %q", elsewhere, c[0], one)
		}
	}
	got := namesOf(t, "monitoring", "spillway", everywhere(t))
	for _, want := range []string{
		"Role monitoring/spillway", "RoleBinding monitoring/spillway", "NetworkPolicy monitoring/spillway-shards-main",
		"ServiceMonitor monitoring/spillway", "ServiceMonitor monitoring/spillway-remediator", "ConfigMap monitoring/spillway-plugin",
		"PrometheusRule monitoring/spillway-shard-spillway", "ConfigMap monitoring/spillway-dashboard-proxy",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %s: %q", want, got)
		}
	}
}

// TestDatasourcesAreTwoFiles: Grafana's sidecar puts what it finds into one folder, by the keys of
// the ConfigMaps.
func TestDatasourcesAreTwoFiles(t *testing.T) {
	keys := map[string]bool{}
	for _, namespace := range []string{"dash", "dash-staging", "monitoring"} {
		all, err := renderIn(namespace, "spillway", everywhere(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			for _, line := range strings.Split(o.text, "\n") {
				if strings.HasSuffix(line, "-experiments.yaml: |") {
					keys[strings.TrimSpace(line)] = true
				}
			}
		}
	}
	if len(keys) != 3 || !keys["spillway-experiments.yaml: |"] {
		t.Errorf("the sources of three releases are in %v", keys)
	}
}
