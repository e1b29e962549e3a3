package mixin

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// root is the folder of the repository, where the committed files are.
const root = ".."

// What is committed is what is rendered, with nothing left over from earlier; `make generate`
// writes it.
func TestCommitted(t *testing.T) {
	files := rendering(t, "")
	if *update {
		if err := files.Write(root); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files.Names() {
		b, err := os.ReadFile(filepath.Join(root, name))
		switch {
		case err != nil:
			t.Errorf("%s is rendered and not there; run make generate", name)
		case string(b) != string(files[name]):
			t.Errorf("%s is not what is rendered: line %s; run make generate", name, firstDifference(string(b), string(files[name])))
		}
	}
	for _, pattern := range []string{"alerts/global/*", "alerts/shard/*", "dashboards/*.json"} {
		there, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range there {
			if name := path.Join(path.Dir(pattern), filepath.Base(at)); files[name] == nil {
				t.Errorf("%s is there and not rendered; run make generate", name)
			}
		}
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range x {
		if i >= len(y) || x[i] != y[i] {
			return fmt.Sprintf("%d: %q", i+1, x[i])
		}
	}
	return fmt.Sprintf("%d: the end", len(x))
}

// values are the configurations that everything must render with.
func values(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v: there should be four at least", files, err)
	}
	return append(files, "")
}

func alertNames(t *testing.T, files Files) []string {
	t.Helper()
	names := map[string]bool{}
	for _, r := range rulesOf(t, files) {
		if r.Alert != "" {
			names[r.Alert] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func rulesOf(t *testing.T, files Files) []rulefmt.Rule {
	t.Helper()
	var out []rulefmt.Rule
	for _, name := range files.Names() {
		if !strings.HasPrefix(name, "alerts/") {
			continue
		}
		var g rulefmt.RuleGroups
		if err := yaml.Unmarshal(files[name], &g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, g := range g.Groups {
			out = append(out, g.Rules...)
		}
	}
	return out
}

// Every configuration renders, to rules that the real promtool takes; rendered twice, to the same
// bytes. None loses or gains an alert but those that read Xids.
func TestConfigurations(t *testing.T) {
	want := slices.DeleteFunc(alertNames(t, rendering(t, "")), func(s string) bool { return strings.HasPrefix(s, "GPUXid") })
	for _, config := range values(t) {
		t.Run(config, func(t *testing.T) {
			files := rendering(t, config)
			if config == "" || filepath.Ext(config) == ".jsonnet" { // it takes seconds; the others go the same road
				again, err := Render(Options{Config: config})
				if err != nil {
					t.Fatal(err)
				}
				if !maps.EqualFunc(files, again, func(a, b []byte) bool { return string(a) == string(b) }) {
					t.Error("rendered twice, it differs")
				}
			}
			got := slices.DeleteFunc(alertNames(t, files), func(s string) bool { return strings.HasPrefix(s, "GPUXid") })
			if !slices.Equal(got, want) {
				t.Errorf("alerts\n%v\nwant those of the defaults\n%v", got, want)
			}
			dir := t.TempDir()
			if err := files.Write(dir); err != nil {
				t.Fatal(err)
			}
			args := []string{"check", "rules"}
			for _, name := range files.Names() {
				if strings.HasPrefix(name, "alerts/") {
					args = append(args, filepath.Join(dir, name))
				}
			}
			realpromtest.Promtool(t, args...)
		})
	}
}

// With other label names none of ours is left in an expression or an annotation.
func TestOtherLabels(t *testing.T) {
	files := rendering(t, "testdata/values/labels.yaml")
	p := parser.NewParser(parser.Options{})
	for _, r := range rulesOf(t, files) {
		name := r.Alert + r.Record
		e, err := p.ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		used := labelsIn(e)
		if used["cluster"] {
			t.Errorf("%s names the label cluster; _config.clusterLabel has its name:\n%s", name, r.Expr)
		}
		for k, v := range r.Annotations {
			if strings.Contains(v, "$labels.cluster") {
				t.Errorf("%s: annotation %s names the label cluster: %s", name, k, v)
			}
		}
	}
}

// TestOtherSeverities: where the severities are called otherwise no rule asks for alerts by their
// old names.
func TestOtherSeverities(t *testing.T) {
	at := filepath.Join(t.TempDir(), "values.json")
	if err := os.WriteFile(at, []byte(`{"severities": {"auto": "bot", "info": "note", "warning": "ticket", "critical": "page"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Render(Options{Config: at})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rulesOf(t, files) {
		if s := r.Labels["severity"]; r.Alert != "" && !slices.Contains([]string{"bot", "note", "ticket", "page"}, s) {
			t.Errorf("%s is of severity %q", r.Alert, s)
		}
		if old := regexp.MustCompile(`severity=~?"[^"]*(auto|info|warning|critical)`).FindString(r.Expr); old != "" {
			t.Errorf("%s%s asks for %s", r.Alert, r.Record, old)
		}
	}
}

// labelsIn are the labels that an expression groups, matches or joins by.
func labelsIn(e parser.Expr) map[string]bool {
	out := map[string]bool{}
	add := func(names ...string) {
		for _, n := range names {
			out[n] = true
		}
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				add(m.Name)
			}
		case *parser.AggregateExpr:
			add(n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				add(n.VectorMatching.MatchingLabels...)
				add(n.VectorMatching.Include...)
			}
		}
		return nil
	})
	return out
}

// The time scale divides every duration, and nothing else changes.
func TestTimeScale(t *testing.T) {
	at := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(at, []byte("timeScale: 30\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	scaled, err := Render(Options{Config: at})
	if err != nil {
		t.Fatal(err)
	}
	plain := rendering(t, "")
	a, b := rulesOf(t, plain), rulesOf(t, scaled)
	if len(a) != len(b) {
		t.Fatalf("%d rules, and %d with a time scale", len(a), len(b))
	}
	p := parser.NewParser(parser.Options{})
	// ranges are an expression's durations in milliseconds: ranges, steps and offsets.
	ranges := func(text string) (out []int64) {
		e, err := p.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			switch n := n.(type) {
			case *parser.MatrixSelector:
				out = append(out, n.Range.Milliseconds())
			case *parser.SubqueryExpr:
				out = append(out, n.Range.Milliseconds(), n.Step.Milliseconds(), n.OriginalOffset.Milliseconds())
			case *parser.VectorSelector:
				out = append(out, n.OriginalOffset.Milliseconds())
			}
			return nil
		})
		return out
	}
	same := func(name, what string, plain, scaled int64) {
		if what == aRange && (scaled == min(plain, 30_000) || unscaled[name] != "") {
			return // a range over recorded series, which arrive seconds late whatever the scale is: see t.recorded
		}
		if d := scaled*30 - plain; d < -30 || d > 30 {
			t.Errorf("%s: %s is %d ms, and %d ms at scale 30", name, what, plain, scaled)
		}
	}
	for i := range a {
		name := a[i].Alert + a[i].Record
		x, y := ranges(a[i].Expr), ranges(b[i].Expr)
		if len(x) != len(y) {
			t.Errorf("%s is another expression at scale 30", name)
			continue
		}
		for j := range x {
			same(name, aRange, x[j], y[j])
		}
		same(name, "for", ms(a[i].For), ms(b[i].For))
		same(name, "keep_firing_for", ms(a[i].KeepFiringFor), ms(b[i].KeepFiringFor))
	}
}

const aRange = "a range or offset"

// unscaled are rules with a range that no scale divides, with the reason.
var unscaled = map[string]string{
	"GPUXidFatal": "dcgm-exporter counts Xids over five minutes of its own",
}

func ms(d model.Duration) int64 { return int64(d) / 1e6 }

// Objects hold the same groups as files do.
func TestObjects(t *testing.T) {
	files := rendering(t, "")
	objects, err := Render(Options{Format: FormatK8s})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range files.Names() {
		rest, ok := strings.CutPrefix(name, "alerts/")
		if !ok {
			continue
		}
		scope, file, _ := strings.Cut(rest, "/")
		b, ok := objects["prometheusrules/"+scope+"-"+file]
		if !ok {
			t.Errorf("%s has no object", name)
			continue
		}
		var o struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct {
				Name   string
				Labels map[string]string
			}
			Spec any
		}
		var spec any
		if err := yaml.Unmarshal(b, &o); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(files[name], &spec); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(o.Spec) != fmt.Sprint(spec) {
			t.Errorf("%s: the object's groups are not the file's", name)
		}
		if name == "alerts/shard/spillway.yaml" {
			scope = "spillway"
		}
		if o.APIVersion != "monitoring.coreos.com/v1" || o.Kind != "PrometheusRule" || o.Metadata.Labels[scopeLabel] != scope ||
			names[o.Metadata.Name] {
			t.Errorf("%s: %s %s %+v", name, o.APIVersion, o.Kind, o.Metadata)
		}
		names[o.Metadata.Name] = true
	}
	if len(names) == 0 {
		t.Error("there are no objects")
	}
}

// Every rule file reads as a person would write it: the header first, expressions as blocks.
func TestReadable(t *testing.T) {
	files := rendering(t, "")
	for _, name := range files.Names() {
		if !strings.HasPrefix(name, "alerts/") {
			continue
		}
		text := string(files[name])
		if !strings.HasPrefix(text, header) {
			t.Errorf("%s does not begin with the header", name)
		}
		for i, line := range strings.Split(text, "\n") {
			if l := strings.TrimSpace(line); strings.HasPrefix(l, "expr:") && l != "expr: |-" {
				t.Errorf("%s:%d: the expression is no block: %s", name, i+1, l)
			}
		}
	}
}
