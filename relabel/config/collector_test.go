package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// Aliases of aliases, and one within its own anchor, are few nodes that are reached by many ways:
// each is looked at once.
func TestCollectorAliases(t *testing.T) {
	const self = "a: &a [*a, *a, *a, *a, *a, *a, *a, *a]\n"
	const merges = "a: &a {<<: [*a, *a, *a, *a, *a, *a, *a, *a, {b: *a}], x: {metric_relabel_configs: *a}}\nscrape_configs: [*a, *a]\n"
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	deep := strings.Repeat("{d: ", 40) + "{scrape_configs: [{job_name: j, metric_relabel_configs: [{source_labels: [a], regex: b, action: drop}]}]}" + strings.Repeat("}", 40)
	for name, c := range map[string]struct {
		text string
		jobs int
	}{
		"itself":   {"b: " + deep + "\n" + self, 1},
		"a bomb":   {bomb + "b: " + deep + "\n", 1},
		"merges":   {merges, 0},
		"together": {self + "s: &s [{job_name: j}]\nx: {scrape_configs: *s}\ny: {scrape_configs: *s}\n", 1},
	} {
		for where, head := range map[string]string{
			"text":      "kind: ConfigMap\ndata:\n  x: |\n    # job_name metric_relabel_configs\n",
			"collector": "kind: OpenTelemetryCollector\nspec:\n  config:\n    # metric_relabel_configs\n",
			"other":     "kind: VMAgent\nspec:\n  config:\n    # metric_relabel_configs\n",
		} {
			text := head + "    " + strings.ReplaceAll(strings.TrimSuffix(c.text, "\n"), "\n", "\n    ") + "\n"
			o := within(t, text)
			if where == "other" {
				if strings.Contains(c.text, "drop") != (len(o.Unread) == 1) {
					t.Errorf("%s, %s: %q", name, where, o.Unread)
				}
				continue
			}
			if len(o.Jobs) != c.jobs {
				t.Errorf("%s, %s: %d jobs", name, where, len(o.Jobs))
			}
		}
	}
}

// within are the objects of a text, which are read at once.
func within(t *testing.T, text string) *Objects {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan *Objects, 1)
	go func() {
		o, _ := ReadObjects(path)
		read <- o
	}()
	select {
	case o := <-read:
		return o
	case <-time.After(20 * time.Second):
		t.Fatalf("not read within 20 s:\n%s", text)
		return nil
	}
}
