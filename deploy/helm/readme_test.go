package helm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// leaf is a value of the chart: its path, its default as JSON, and the comment above it.
type leaf struct{ path, def, meaning string }

// leaves are the values of values.yaml. A mapping without a comment is a section.
func leaves(t *testing.T) []leaf {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	var out []leaf
	var walk func(n *yaml.Node, at string)
	walk = func(n *yaml.Node, at string) {
		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			meaning := strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(key.HeadComment, "#"), "\n#", ""))
			if meaning == "" && value.Kind == yaml.MappingNode && len(value.Content) > 0 {
				walk(value, at+key.Value+".")
				continue
			}
			if meaning == "" {
				t.Errorf("values.yaml: %s%s has no comment", at, key.Value)
			}
			var v any
			if err := value.Decode(&v); err != nil {
				t.Fatal(err)
			}
			def, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, leaf{at + key.Value, string(def), meaning})
		}
	}
	walk(doc.Content[0], "")
	return out
}

// TestReadme writes the table of README.md from values.yaml.
func TestReadme(t *testing.T) {
	const begin, end = "<!-- values: written by go test ./deploy/helm -run Readme -update -->\n", "<!-- end -->\n"
	file := filepath.Join(dir, "README.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("README.md has no place for the table")
	}
	var table strings.Builder
	table.WriteString("\n| value | default | meaning |\n|---|---|---|\n")
	for _, l := range leaves(t) {
		bars := strings.NewReplacer("|", `\|`)
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", l.path, bars.Replace(l.def), bars.Replace(l.meaning))
	}
	table.WriteString("\n")
	golden(t, file, []byte(head+begin+table.String()+end+tail))
}

// TestSchemaKnowsValues: what values.yaml has is what the schema has, section by section.
func TestSchemaKnowsValues(t *testing.T) {
	properties := func(s schema) schema {
		then, _ := s["then"].(schema)
		if p, ok := then["properties"].(schema); ok {
			p["enabled"] = yesOrNo
			return p
		}
		return s["properties"].(schema)
	}
	known := map[string]bool{}
	for _, l := range leaves(t) {
		s := valuesSchema(t)
		var steps []string
		for step := range strings.SplitSeq(l.path, ".") {
			steps = append(steps, step)
			known[strings.Join(steps, ".")] = true
			next, ok := properties(s)[step].(schema)
			if !ok {
				t.Errorf("the schema does not know %s", l.path)
				break
			}
			s = next
		}
	}
	c, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	var compare func(s schema, at string, values map[string]any)
	compare = func(s schema, at string, values map[string]any) {
		for key, of := range properties(s) {
			path := strings.TrimPrefix(at+"."+key, ".")
			if !known[path] && path != "global" {
				t.Errorf("values.yaml does not have %s, which the schema takes", path)
			}
			if sub, ok := values[key].(map[string]any); ok && known[path] {
				if of, ok := of.(schema); ok && (of["then"] != nil || of["properties"] != nil) && !isLeaf(t, path) {
					compare(of, path, sub)
				}
			}
		}
	}
	compare(valuesSchema(t), "", c.Values)
}

func isLeaf(t *testing.T, path string) bool {
	for _, l := range leaves(t) {
		if l.path == path {
			return true
		}
	}
	return false
}

// TestMixinIsLinked: the rules and dashboards of the chart are those of alerts/ and dashboards/,
// all of them, by links, so that no copy can be old.
func TestMixinIsLinked(t *testing.T) {
	for of, pattern := range map[string]string{
		"../../alerts/global": "mixin/rules/global/*.yaml", "../../alerts/shard": "mixin/rules/shard/*.yaml",
		"../../dashboards": "mixin/dashboards/*.json",
	} {
		want, err := filepath.Glob(filepath.Join(of, filepath.Base(pattern)))
		if err != nil || len(want) == 0 {
			t.Fatalf("%s: %d files (%v)", of, len(want), err)
		}
		got, _ := filepath.Glob(filepath.Join(dir, pattern)) // a pattern that was just good
		if len(got) != len(want) {
			t.Errorf("%s: %d files, the chart has %d: ln -s ../../../../../dashboards/NAME.json deploy/helm/spillway/mixin/dashboards/", of, len(want), len(got))
		}
		for _, g := range got {
			real, err := filepath.EvalSymlinks(g)
			if w, _ := filepath.EvalSymlinks(filepath.Join(of, filepath.Base(g))); err != nil || real != w {
				t.Errorf("%s leads to %s, not %s (%v)", g, real, w, err)
			}
		}
	}
}

// TestMixinWithoutLinks: of a chart whose links are lost, as in what Flux serves of a repository,
// it is said where there is one that has none, and not that one file is missing.
func TestMixinWithoutLinks(t *testing.T) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	c.Files = slices.DeleteFunc(c.Files, func(f *chart.File) bool { return strings.HasPrefix(f.Name, "mixin/") })
	for _, part := range []string{"rules", "dashboards"} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		values["mixin"] = map[string]any{part: map[string]any{"enabled": true}}
		release := chartutil.ReleaseOptions{Name: "spillway", Namespace: "monitoring", IsInstall: true, Revision: 1}
		all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Render(c, all); err == nil || !strings.Contains(err.Error(), "mixin."+part+": this chart has no "+part) ||
			!strings.Contains(err.Error(), "spillway-chart-VERSION.tgz") {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// TestReleaseFits: Helm keeps the whole chart and all that it rendered in one Secret, which may
// have 1 MiB; as Helm packs it (pkg/storage/driver), with all of the mixin.
func TestReleaseFits(t *testing.T) {
	c, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	values := valuesOf(t, ciFiles(t)["operator"])
	values["mixin"] = map[string]any{
		"rules":      map[string]any{"enabled": true, "files": []any{"global/*.yaml", "shard/*.yaml"}},
		"dashboards": map[string]any{"enabled": true, "files": []any{"*.json"}},
	}
	all, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	var manifest strings.Builder
	kinds := map[string]int{}
	for _, o := range all {
		kinds[o.kind()]++
		manifest.WriteString(o.text)
	}
	rules, _ := filepath.Glob("../../alerts/*/*-rules.yaml") // a pattern that is good
	dashboards, _ := filepath.Glob("../../dashboards/*.json")
	if kinds["PrometheusRule"] <= len(rules) || kinds["ConfigMap"] != len(dashboards) {
		t.Errorf("%v: want more than %d files of rules, and %d dashboards", kinds, len(rules), len(dashboards))
	}
	b, err := json.Marshal(map[string]any{"chart": c, "manifest": manifest.String(), "config": values})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // a level that there is
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := base64.StdEncoding.EncodedLen(packed.Len()); n > 900<<10 {
		t.Errorf("a release takes %d bytes of the 1 MiB of a Secret", n)
	} else {
		t.Logf("a release with all of the mixin takes %d KiB", n>>10)
	}
}
