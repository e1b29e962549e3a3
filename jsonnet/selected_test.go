package mixin

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// TestSelected runs the selectors of docs/alerts.md over the objects that are rendered with its
// values, beside a rule of the chart kube-prometheus-stack: each server loads what it is for, and
// the chart's own rules stay where they were.
func TestSelected(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	var selectors []labels.Selector
	for _, m := range regexp.MustCompile("(?m)^\\| .*\\| `(\\{matchLabels: .*\\})` \\|$").FindAllStringSubmatch(string(page), -1) {
		var s metav1.LabelSelector
		if err := yaml.UnmarshalStrict([]byte(m[1]), &s); err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		selectors = append(selectors, selector)
	}
	values := regexp.MustCompile("`(kubernetes: \\{labels: .*?\\}\\})`").FindSubmatch(page)
	if len(selectors) != 3 || values == nil {
		t.Fatalf("docs/alerts.md has %d selectors, and these values: %q", len(selectors), values)
	}
	config := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(config, values[1], 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Render(Options{Config: config, Format: FormatK8s})
	if err != nil {
		t.Fatal(err)
	}
	const chart = "the chart's"
	objects := map[string]labels.Set{chart: {"app": "kube-prometheus-stack", "release": "kube-prometheus-stack"}}
	for name, b := range files {
		if name, ok := strings.CutPrefix(name, "prometheusrules/"); ok {
			var o metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(b, &o); err != nil {
				t.Fatal(err)
			}
			objects[name] = o.Labels
		}
	}
	if len(objects) < 20 {
		t.Fatalf("only %d objects", len(objects))
	}
	for name, set := range objects {
		spillway := name == "shard-spillway.yaml"
		for i, want := range []bool{
			name == chart || strings.HasPrefix(name, "shard-") && !spillway, // the shards
			strings.HasPrefix(name, "global-"),                              // the ruler
			spillway,                                                        // what watches both
		} {
			if got := selectors[i].Matches(set); got != want {
				t.Errorf("%s selects %s: %t", selectors[i], name, got)
			}
		}
	}
}
