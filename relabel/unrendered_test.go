package relabel_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// TestTemplatesBeside: templates of dashboards and rules beside what is read may be the only use of
// something. A plan says so first and is not proven, until they are left out.
func TestTemplatesBeside(t *testing.T) {
	src := pages(t, map[string]string{"j/1": "used 1\nread 1\nunused 1\n"})
	for name, c := range map[string]struct {
		text string
		told bool
	}{
		"node.json.tpl":    {`{"panels":[{"targets":[{"expr":"unused{a=\"${x}\"}"}]}]}`, true},
		"node.json.tftpl":  {`{"panels": ${jsonencode(panels)}}`, true},
		"a.yaml.j2":        {"{% for x in y %}\n- expr: unused > 1\n{% endfor %}", true},
		"a.json.erb":       {`{"targets":[<%= x %>]}`, true},
		"a.gotmpl":         {"- {expr: unused}", true},
		"a.cue":            {`targets: [{expr: "unused"}]`, true},
		"a.hcl":            {`expr = "unused"`, true},
		"a.toml":           {`expr = "unused"`, true},
		"a.json5":          {`{targets: [{expr: 'unused'}]}`, true},
		"values.tpl":       {"{{ .Values.name }}", false},
		"main.tf":          {`resource "x" "y" { expression = "a" }`, false},
		"a.txt":            {`{"expr": "unused"}`, false},
		"README.md.gotmpl": {"expr: up == 0", false},
		"nodes.json.j2":    {`[{"targets": ["{{ host }}:9100"], "labels": {"job": "node"}}]`, false},
	} {
		for pattern, told := range map[string]bool{"": c.told, "*" + filepath.Ext(name): false} {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "d.json"), `{"title":"T","schemaVersion":39,"panels":[{"targets":[{"expr":"used"}]}]}`)
			write(t, filepath.Join(dir, name), c.text)
			set := queries("read")
			if pattern != "" {
				if err := set.Exclude(pattern); err != nil {
					t.Fatal(err)
				}
			}
			if err := uses.Dashboards(set, dir); err != nil {
				t.Fatal(err)
			}
			p := plan(t, src, set)
			alarmed := strings.Contains(strings.Join(p.Alarms, "\n"), "Not rendered, and not read: "+dir)
			if alarmed != told || (p.Inputs.Unrendered > 0) != told || strings.Contains(p.Unproven(), "not rendered") != told {
				t.Errorf("%s without %q: alarms %q, unproven %q", name, pattern, p.Alarms, p.Unproven())
			}
		}
	}
}
