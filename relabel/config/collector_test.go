package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rules that two jobs of a collector share are written with one $ once, and left out of both where
// they have a variable.
func TestCollectorAnchors(t *testing.T) {
	for regex, want := range map[string]int{"a$$$$": 2, "a": 2, "${env:X}": 0} {
		text := `kind: OpenTelemetryCollector
spec:
  config:
    receivers:
      prometheus:
        config:
          scrape_configs:
          - {job_name: a, metric_relabel_configs: &rules [{source_labels: [x], regex: 'REGEX', target_label: y, replacement: '$${1}'}]}
          - {job_name: b, metric_relabel_configs: *rules}
`
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(text, "REGEX", regex, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		o, problems := ReadObjects(path)
		if len(problems) > 0 || len(o.Jobs) != want || len(o.Unread) != 2-want {
			t.Fatalf("%s: %v, %d jobs, %q", regex, problems, len(o.Jobs), o.Unread)
		}
		for _, j := range o.Jobs {
			if c := j.Rules[0].Config; c.Replacement != "${1}" || c.Regex.String() != strings.ReplaceAll(regex, "$$", "$") {
				t.Errorf("job %s: %s %s", j.Name, c.Replacement, c.Regex)
			}
		}
	}
}
