package alertmanager

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// texts are the templates of a receiver, by where they stand.
func texts(at string, node any, out map[string]string) {
	switch n := node.(type) {
	case []any:
		for i, v := range n {
			texts(fmt.Sprintf("%s[%d]", at, i), v, out)
		}
	case map[string]any:
		for k, v := range n {
			texts(at+"."+k, v, out)
		}
	case string:
		if strings.Contains(n, "{{") {
			out[at] = n
		}
	}
}

// TestPagesSayWhatTheyAreAbout renders what receivers say with amtool, in Alertmanager's own way:
// whatever alerts there are in a group, and though these have no summary in common, a page says its
// alert, its cluster, what tells it from another page and what it is about, and nothing is empty.
func TestPagesSayWhatTheyAreAbout(t *testing.T) {
	amtool, err := Find("amtool")
	if err != nil {
		t.Fatal(err)
	}
	var conf struct{ Receivers []map[string]any }
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	alert := func(summary string) map[string]any {
		return map[string]any{
			"status": "firing", "labels": ls("alertname", "RulerFailing", "cluster", "jaguar", "severity", "critical", "reason", "stuck"),
			"annotations": ls("summary", summary, "description", summary+" Since noon.", "runbook_url", "https://example.com/R.md"),
			"startsAt":    "2026-11-21T12:00:00Z", "endsAt": "0001-01-01T00:00:00Z",
		}
	}
	const one, other = "No ruler evaluates some of its rules any more.", "Alerts do not reach Alertmanager."
	empty := regexp.MustCompile(`^\W*$|<no value>|: *\[|: *$`)
	for _, c := range []struct {
		alerts []any
		common map[string]string
	}{
		{[]any{alert(one)}, ls("summary", one)},
		{[]any{alert(one), alert(one)}, ls("summary", one)},
		{[]any{alert(one), alert(other)}, ls()},
	} {
		data, err := json.Marshal(map[string]any{
			"receiver": "critical", "status": "firing", "alerts": c.alerts, "externalURL": "https://alertmanager.example.com",
			"groupLabels":       ls("alertname", "RulerFailing", "cluster", "jaguar", "reason", "stuck", "zone", ""),
			"commonAnnotations": c.common,
			"commonLabels":      ls("alertname", "RulerFailing", "cluster", "jaguar", "severity", "critical"),
		})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "data.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		all, pages := map[string]string{}, 0
		for _, r := range conf.Receivers {
			texts(fmt.Sprint(r["name"]), r, all)
		}
		for at, text := range all {
			out, err := exec.CommandContext(t.Context(), amtool, "template", "render",
				"--template.glob="+filepath.Join(t.TempDir(), "*.tmpl"), "--template.data="+file, "--template.text="+text).CombinedOutput()
			said := strings.TrimSpace(string(out))
			if err != nil || empty.MatchString(said) {
				t.Errorf("%s of %d alerts: %q (%v)", at, len(c.alerts), said, err)
			}
			if !strings.HasSuffix(at, "pagerduty_configs[0].description") {
				continue
			}
			pages++
			if want := "RulerFailing: " + one + " [jaguar stuck]"; said != want {
				t.Errorf("%s of %d alerts: %q, want %q", at, len(c.alerts), said, want)
			}
		}
		if pages != 2 {
			t.Errorf("%d receivers page", pages)
		}
	}
}
