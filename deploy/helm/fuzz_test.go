package helm

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/randseed"
)

var (
	fuzzFiles = flag.Int("fuzz.values", 1000, "how many files of random values are rendered")
	fuzzSeed  = flag.Uint64("seed", 0, "the seed of random tests; 0 is the environment's, or the clock's")
)

// compiled is the schema, compiled once: Helm does it anew for each file.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	c, err := ours()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Schema))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("file:///values.schema.json", doc); err != nil {
		return nil, err
	}
	return compiler.Compile("file:///values.schema.json")
})

// schemaError is what Helm would say of values that the schema refuses.
type schemaError struct{ error }

// renderFast is render with the schema compiled once.
func renderFast(values map[string]any) ([]object, error) {
	c, err := ours()
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "spillway", Namespace: "monitoring", IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValuesWithSchemaValidation(c, values, release, chartutil.DefaultCapabilities, true)
	if err != nil {
		return nil, err
	}
	s, err := compiled()
	if err != nil {
		return nil, err
	}
	merged, err := all.Table("Values")
	if err != nil {
		return nil, err
	}
	if err := s.Validate(merged.AsMap()); err != nil {
		return nil, schemaError{err}
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	return objectsOf(files)
}

// sentence is how the chart itself refuses.
var sentence = regexp.MustCompile(`error calling fail: (config|existingSecret|admin|web|autoscaling|resources|mixin|remediator)[ .]`)

// read gives values as Helm has them from a file.
func read(t *testing.T, values map[string]any) map[string]any {
	t.Helper()
	b, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ReadValues(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFuzzedValues: each file of random values becomes objects that decode strictly and keep what
// doc.go promises. Each is then spoiled in one place, which the schema names, unless what comes out
// is as good.
func TestFuzzedValues(t *testing.T) {
	seed := randseed.Of(t, *fuzzSeed)
	rendered, refused, harmless := 0, 0, 0
	m := newMaker(t)
	for i := range *fuzzFiles {
		m.Rand = rand.New(rand.NewPCG(seed, uint64(i)))
		values := m.values()
		if i%2 == 0 {
			all, err := renderFast(read(t, values))
			if err == nil {
				err = verify(all)
			}
			if err == nil && i%50 == 0 {
				err = programTakes(deployment(all).Spec.Template.Spec.Containers[0].Args)
			}
			if err != nil {
				b, _ := yaml.Marshal(values) // it was written before
				t.Fatalf("file %d: %v\n%s", i, err, b)
			}
			rendered++
			continue
		}
		path, key := m.spoil(values)
		if strings.HasPrefix(path, "/extraObjects/") { // they are what somebody wrote, and the API server's to judge
			continue
		}
		v := read(t, values)
		all, err := renderFast(v)
		switch _, of := err.(schemaError); {
		case of:
			if said := err.Error(); !strings.Contains(said, "'"+path) || !strings.Contains(said, step(key)) {
				t.Errorf("file %d: %s %s is refused by another name: %v", i, path, key, err)
			}
			if i%25 == 0 {
				if _, err := render(v); err == nil {
					t.Errorf("file %d: Helm itself takes %s", i, path)
				}
			}
			refused++
		case err != nil && !sentence.MatchString(err.Error()):
			b, _ := yaml.Marshal(values) // it was written before
			t.Fatalf("file %d, spoiled at %s %s: it is taken and does not render: %v\n%s", i, path, key, err, b)
		case err != nil:
			refused++
		default:
			if err := verify(all); err != nil && strings.HasPrefix(path, "/config/") && strings.Contains(err.Error(), key) {
				refused++ // by the program, which knows more than its schema says
				continue
			} else if err != nil {
				t.Errorf("file %d, spoiled at %s %s: %v", i, path, key, err)
			}
			harmless++
		}
	}
	t.Logf("%d files rendered, %d spoiled ones refused by name, %d taken", rendered, refused, harmless)
	if *fuzzFiles >= 100 && (refused < *fuzzFiles/4 || harmless > *fuzzFiles/4) {
		t.Errorf("%d refused, %d taken: the spoiled values are not what they should be", refused, harmless)
	}
}

// TestOffRefusesNothing: what a part holds that is off, of whatever type, changes nothing; a key
// that nobody knows is refused there too.
func TestOffRefusesNothing(t *testing.T) {
	minimal := ciFiles(t)["minimal"]
	c, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, part := range []string{
		"autoscaling", "ingress", "httpRoute", "serviceMonitor", "networkPolicy", "podDisruptionBudget", "mixin.rules", "mixin.dashboards",
		"remediator", "plugin.datasource",
	} {
		off := func(key string, value any) map[string]any {
			v := valuesOf(t, minimal)
			inner := map[string]any{"enabled": false}
			if key != "" {
				inner[key] = value
			}
			if top, sub, ok := strings.Cut(part, "."); ok {
				v[top] = map[string]any{sub: inner}
			} else {
				v[part] = inner
			}
			return v
		}
		want, err := renderFast(off("", nil))
		if err != nil {
			t.Fatal(err)
		}
		keys, err := chartutil.Values(c.Values).Table(part)
		if err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			for _, value := range []any{"text", 7, -1.5, true, []any{"a"}, map[string]any{"a": "b"}} {
				if key == "enabled" {
					continue
				}
				n++
				if got, err := renderFast(off(key, value)); err != nil || !bytes.Equal(join(got), join(want)) {
					t.Errorf("%s is off, and %s: %v is not taken as it were not there: %v", part, key, value, err)
				}
			}
		}
		if _, err := renderFast(off("enable", true)); err == nil || !strings.Contains(err.Error(), "'enable'") {
			t.Errorf("%s.enable is taken: %v", part, err)
		}
	}
	t.Logf("%d values of parts that are off", n)
}
