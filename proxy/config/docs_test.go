package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// kindOf is the word of the reference for the type of a key.
func kindOf(t reflect.Type, unit string) string {
	switch {
	case t == bytesType || unit == "bytes":
		return "bytes"
	case t == durationType:
		return "duration"
	case t == momentType:
		return "time"
	case t == hashType:
		return "number"
	case t == httpClientType:
		return "mapping"
	case t == pathsType:
		return "path or list"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "list"
	default:
		return "mapping"
	}
}

// referenceTable is the table of all keys with their types and defaults, taken from the structs.
func referenceTable() string {
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	var walk func(v reflect.Value, path string, defaults bool)
	walk = func(v reflect.Value, path string, defaults bool) {
		for _, f := range fieldsOf(v.Type()) {
			fv, p := v.FieldByIndex(f.index), join(path, f.key)
			if strings.Contains(path, "[]") || strings.Contains(path, "*") {
				p = path + "." + f.key
			}
			def := ""
			if defaults && (isScalarType(fv.Type()) && !fv.IsZero() || fv.Kind() == reflect.Bool) {
				def = "`" + node(fv, f.unit).Value + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p, kindOf(fv.Type(), f.unit), def, meaning()[p])
			if isScalarType(fv.Type()) || fv.Type() == httpClientType {
				continue
			}
			switch fv.Kind() {
			case reflect.Struct:
				walk(fv, p, defaults)
			case reflect.Slice:
				if e := fv.Type().Elem(); e.Kind() == reflect.Struct {
					elem := reflect.New(e)
					if r, ok := elem.Interface().(interface{ setDefaults() }); ok {
						r.setDefaults()
					}
					walk(elem.Elem(), p+"[]", true)
				}
			case reflect.Map:
				if e := fv.Type().Elem(); e.Kind() == reflect.Struct {
					walk(reflect.New(e).Elem(), p+".*", false)
				}
			}
		}
	}
	walk(reflect.ValueOf(Default()).Elem(), "", true)
	return b.String()
}

// endpointTable is what LimitsFor returns for each endpoint where the file says nothing.
func endpointTable() string {
	cfg := Default()
	var b strings.Builder
	b.WriteString("| endpoint | timeout | max_series | max_samples | max_response_bytes |\n|---|---|---|---|---|\n")
	for _, id := range endpointIDs {
		l := cfg.LimitsFor(id)
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %s |\n", id, Duration(l.Timeout), l.MaxSeries, l.MaxSamples, Bytes(l.MaxResponseBytes))
	}
	return b.String()
}

// unservedTable is what is refused by name.
func unservedTable() string {
	var b strings.Builder
	b.WriteString("| key | what to do meanwhile |\n|---|---|\n")
	b.WriteString("| `groups[].shards[].replicas[].type` `victoriametrics` | " + noVictoriaMetrics + " |\n")
	return b.String()
}

const docsFile = "../../docs/configuration.md"

// TestDocs compares the tables of docs/configuration.md with the structs: every key and default
// there is one here, and the reverse. With -update it writes them.
func TestDocs(t *testing.T) {
	paths := keyPaths()
	for _, p := range paths {
		if meaning()[p] == "" {
			t.Errorf("%s has no meaning in the reference", p)
		}
	}
	for p := range meaning() {
		if !slices.Contains(paths, p) {
			t.Errorf("%s has a meaning and is no key", p)
		}
	}
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	got := string(page)
	for name, table := range map[string]string{"keys": referenceTable(), "endpoints": endpointTable(), "unserved": unservedTable()} {
		between := regexp.MustCompile(`(?s)(<!-- ` + name + `: written by go test ./proxy/config -run Docs -update -->\n\n).*?(\n<!-- end -->)`)
		if !between.MatchString(got) {
			t.Errorf("%s has no place for the table of %s", docsFile, name)
			continue
		}
		want := between.ReplaceAllStringFunc(got, func(s string) string {
			m := between.FindStringSubmatch(s)
			return m[1] + table + m[2]
		})
		if want != got && !*update {
			t.Errorf("the table of %s in %s differs from the structs; run go test ./proxy/config -run Docs -update and review", name, docsFile)
		}
		got = want
	}
	if *update && got != string(page) {
		if err := os.WriteFile(docsFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDocsFileLoads takes the whole file that the page shows, so that it stays one that works, and
// holds it against the defaults that it claims to show.
func TestDocsFileLoads(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no example")
	}
	for _, b := range blocks {
		if _, err := parseAt([]byte(b[1]), ".", testNow); err != nil {
			t.Errorf("%v\nin\n%s", err, b[1])
		}
	}
}

// TestExamples loads one file for each topology, and holds the list in the page against the folder.
func TestExamples(t *testing.T) {
	shape := map[string][3]int{ // groups, shards, replicas
		"single-server.yaml":  {1, 1, 1},
		"ha-pair.yaml":        {1, 1, 2},
		"shards.yaml":         {1, 4, 4},
		"two-clusters.yaml":   {2, 4, 8},
		"history.yaml":        {3, 5, 6},
		"regions.yaml":        {2, 2, 3},
		"hashmod.yaml":        {1, 4, 4},
		"thanos-history.yaml": {2, 2, 3},
		"discovered.yaml":     {1, 0, 0},
		"kubernetes.yaml":     {1, 0, 0},
	}
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) != len(shape) {
		t.Fatalf("%d files, want %d: %v", len(files), len(shape), err)
	}
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		cfg, err := Load(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if len(cfg.Notes) > 0 {
			t.Errorf("%s: %v", file, cfg.Notes)
		}
		got := [3]int{len(cfg.Groups)}
		for _, g := range cfg.Groups {
			got[1] += len(g.Shards)
			for _, s := range g.Shards {
				got[2] += len(s.Replicas)
			}
		}
		if want := shape[filepath.Base(file)]; got != want {
			t.Errorf("%s has %v groups, shards and replicas, want %v", file, got, want)
		}
		if !strings.Contains(string(page), "examples/"+filepath.Base(file)) {
			t.Errorf("%s does not name %s", docsFile, file)
		}
	}
}

// TestEveryEndpointHasLimits keeps the list of endpoints that can be overridden equal to the
// constants of package endpoint.
func TestEveryEndpointHasLimits(t *testing.T) {
	src, err := os.ReadFile("../endpoint/table.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t[A-Z]\w* +ID = "(\w+)"`).FindAllStringSubmatch(string(src), -1)
	if len(declared) != len(endpointIDs) {
		t.Errorf("%d endpoints are declared and %d can be limited", len(declared), len(endpointIDs))
	}
	for _, m := range declared {
		if !slices.ContainsFunc(endpointIDs, func(id endpoint.ID) bool { return string(id) == m[1] }) {
			t.Errorf("limits cannot be written for %s", m[1])
		}
	}
}

// TestInstallPage: the refusal that install.md shows is what is said of such a file.
func TestInstallPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse([]byte("groups:\n  - name: main\n    labels: {cluster: main}\n    replica_labels: [prometheus_replica]\n    heartbeat: up\n"+
		"    shards:\n      - replicas:\n          - ulr: http://127.0.0.1:9190\n"), ".")
	if err == nil {
		t.Fatal("a key that there is not is taken")
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	if !strings.Contains(string(text), "\n    "+first+"\n") {
		t.Errorf("docs/install.md does not show %q", first)
	}
}
