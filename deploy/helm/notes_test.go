package helm

import (
	"os"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// notesOf is what Helm prints when the chart is installed with the values.
func notesOf(t *testing.T, values map[string]any) string {
	t.Helper()
	c, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "spillway", Namespace: "monitoring"}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	return files["spillway/templates/NOTES.txt"]
}

// TestWhoScrapesTheRemediator: its metrics are on the port of its webhook, so that nobody reaches
// them who is not named; where nobody is, the notes say so, since alerts about it are mute then.
func TestWhoScrapesTheRemediator(t *testing.T) {
	prometheus := app("prometheus", "monitoring", "prometheus")
	of := func(label string) []any {
		return []any{obj{"podSelector": obj{"matchLabels": obj{"app.kubernetes.io/name": label}}}}
	}
	for _, c := range []struct {
		what                 string
		clients, metricsFrom []any
		scraped, warned      bool
	}{
		{"both", of("alertmanager"), of("prometheus"), true, false},
		{"clients alone", of("alertmanager"), []any{}, false, true},
		{"who scrapes alone", []any{}, of("prometheus"), true, false},
		{"neither", []any{}, []any{}, true, true}, // within the namespace
	} {
		values := valuesOf(t, ciFiles(t)["remediator"])
		values["remediator"].(obj)["clients"] = c.clients
		values["networkPolicy"].(obj)["metricsFrom"] = c.metricsFrom
		if got := clusterOf(t, values).reaches(prometheus, janitor, 8080); got != c.scraped {
			t.Errorf("%s: Prometheus reaches the remediator: %v", c.what, got)
		}
		if got := clusterOf(t, values).reaches(stranger, janitor, 8080); got {
			t.Errorf("%s: everybody reaches the webhook", c.what)
		}
		notes := notesOf(t, values)
		if got := strings.Contains(notes, "Prometheus in networkPolicy.metricsFrom"); got != c.warned {
			t.Errorf("%s: the notes tell of it: %v\n%s", c.what, got, notes)
		}
		values["networkPolicy"].(obj)["enabled"] = false
		if strings.Contains(notesOf(t, values), "metricsFrom") {
			t.Errorf("%s: the notes tell of policies that are not there", c.what)
		}
	}
	b, err := os.ReadFile("../../docs/install.md")
	if err != nil || !strings.Contains(string(b), "| Prometheus | remediator | 8080 | scrapes; nobody where none is named") {
		t.Error("docs/install.md does not say that nobody scrapes the remediator unless named", err)
	}
}
