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

// meaning is the text of the reference for each key. A key without one fails the test, and so does a text without a key.
var meaning = map[string]string{
	"groups":                                   "The series of one cluster, region or tenant each. At least one.",
	"groups[].name":                            "Unique; errors, logs and metrics call the group by it. Up to 63 letters, digits, `_`, `-`, `.`.",
	"groups[].labels":                          "Labels that are on every series of the group, whatever the servers say. Matchers on them choose groups and are never sent. May be empty. Two groups with the same labels must not overlap in time.",
	"groups[].replica_labels":                  "Labels by which replicas differ. They are never in an answer.",
	"groups[].from":                            "Where the group's samples begin, inclusive: a time, or a distance from now such as `-14d`.",
	"groups[].until":                           "Where they end, exclusive.",
	"groups[].heartbeat":                       "A selector, such as `up`, by which a replica is seen to be whole.",
	"groups[].shard_by":                        "Labels whose series stand together: those that have all of them, with equal values, are on one shard of the group at any one time. Joins and aggregations that keep these labels may then run on the shards. It is a promise about the servers; see [shards.md](shards.md#which-shard-holds-what).",
	"groups[].hashmod":                         "Which shard holds what, as Prometheus' relabel action `hashmod` computes it. With it every shard has a `hash`. A request for certain values of the label goes to their shards only, for as long as the servers are seen to keep the rule; see [shards.md](shards.md#which-shard-holds-what).",
	"groups[].names":                           "Regular expressions, anchored at both ends: every series of the group has a name that one of them matches. Requests for other metrics leave the group out, for as long as its servers are seen to keep to it. For groups that have no labels, such as that of what a ruler records; see [shards.md](shards.md#which-shard-holds-what).",
	"groups[].hashmod.labels":                  "The source label: exactly one, on the stored series.",
	"groups[].hashmod.modulus":                 "By how much the hash is divided, at most 65536.",
	"groups[].shards[].hash":                   "The shard's number under `hashmod`, from 0, below the modulus. Two shards have the same one only where their times do not overlap.",
	"groups[].shards":                          "Disjoint slices of the group's series. At least one.",
	"groups[].shards[].replicas":               "Servers that hold copies of the slice. At least one, all of one type.",
	"groups[].shards[].from":                   "Where the slice begins, inclusive, within the group's own span.",
	"groups[].shards[].until":                  "Where it ends, exclusive.",
	"groups[].shards[].replicas[].url":         "The server's address, http or https, up to but without `/api/v1`. No credentials, query string or fragment. One server stands in one place only.",
	"groups[].shards[].replicas[].type":        "What kind of server it is: `prometheus`, or `thanos` for a Thanos Query, which can answer what one shard answers alone or in part and no more; see [shards.md](shards.md#thanos-query).",
	"groups[].shards[].replicas[].headers":     "Headers for every request to the server. Printed as stars. Not those of the connection, nor those that Spillway writes itself.",
	"groups[].shards[].replicas[].http_client": "Authentication, TLS and proxy, as [Prometheus spells them](https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config). Paths are relative to the configuration file. `follow_redirects: true` and the keys `*_ref` are refused.",
	"limits":                                "The bounds of one request, each the ceiling for all endpoints.",
	"limits.timeout":                        "The deadline of the whole request. The default stays under Grafana's own 30 s, so that Spillway's sentence is seen. A client's `timeout=` can only lower it.",
	"limits.max_series":                     "How many series Spillway holds or returns for one request; of `labels` and `label_values`, how many names or values.",
	"limits.max_samples":                    "How many samples it holds or returns for one request.",
	"limits.max_response_bytes":             "How many bytes the shards may send for one request, and how many its answer may have.",
	"limits.max_range":                      "The longest time that a request may look at.",
	"limits.metadata_range":                 "How far back `series`, `labels` and `label_values` look where no metric is named. The default stays within Prometheus' head block, where such a request is cheap. Never above `max_range`.",
	"limits.max_query_bytes":                "The longest query text, and the longest selector.",
	"limits.unselective":                    "What becomes of selectors that name no metric and select nothing in particular, in `query`, `query_range`, `query_exemplars` and `federate`: `refuse`, or `allow` under the other limits.",
	"limits.read_slots":                     "How many remote reads one replica is asked at once, by all requests of this Spillway together; see [read_slots](bounds/read_slots.md). With several Spillways before the same servers, 8 divided by their number.",
	"limits.replica_calls":                  "How many calls of any kind it is asked at once, at least `read_slots`; see [replica_calls](bounds/replica_calls.md). With several Spillways, 24 divided by their number or more.",
	"limits.endpoints":                      "Overrides for one endpoint, by its name in the table below.",
	"limits.endpoints.*.timeout":            "As `limits.timeout`.",
	"limits.endpoints.*.max_series":         "As `limits.max_series`.",
	"limits.endpoints.*.max_samples":        "As `limits.max_samples`.",
	"limits.endpoints.*.max_response_bytes": "As `limits.max_response_bytes`.",
	"limits.endpoints.*.max_range":          "As `limits.max_range`.",
	"limits.endpoints.*.metadata_range":     "As `limits.metadata_range`.",
	"limits.endpoints.*.max_query_bytes":    "As `limits.max_query_bytes`.",
	"limits.endpoints.*.unselective":        "`refuse` for this endpoint where `limits.unselective` is `allow`.",
	"memory":                                "What all requests together may hold.",
	"memory.budget":                         "The most bytes that requests hold together; beyond it they are answered 429.",
	"usage_log":                             "One line for each request, see [usage-log.md](usage-log.md). Without it none is written.",
	"usage_log.path":                        "The file, mode 0600, relative to the configuration file. Needed where `usage_log` stands.",
	"usage_log.max_size":                    "The size at which a new file is begun, at least 1KiB.",
	"usage_log.max_files":                   "How many files are kept, the open one included, at most 1000.",
	"drop_rules":                            "What the servers' drop rules take away, so that a query for it is told; see [drop-rules-report.md](drop-rules-report.md#warnings-for-dropped-metrics).",
	"drop_rules.plan":                       "The plan that `spillway relabel plan` has written, relative to the configuration file; a list where several are in force, at most 100. It is read at the start and at every reload.",
	"strict_parameters":                     "Whether an unknown request parameter is answered with 400. Otherwise it is dropped and counted.",
	"partial_response":                      "What becomes of a request when a shard fails: `abort` answers with an error that names it, `warn` with what the others hold and a warning; remote read and federate, which have no place for one, stay at `abort`. `partial_response=` on a request goes before.",
}

// kinds are the words of the reference for a key's type.
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
	case reflect.Int, reflect.Int64:
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
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p, kindOf(fv.Type(), f.unit), def, meaning[p])
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
	keys := make([]string, 0, len(unserved))
	for key := range unserved {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var b strings.Builder
	b.WriteString("| key | what to do meanwhile |\n|---|---|\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "| `%s` | %s |\n", key, unserved[key])
	}
	b.WriteString("| `groups[].shards[].replicas[].type` `victoriametrics` | " + noVictoriaMetrics + " |\n")
	return b.String()
}

const docsFile = "../../docs/configuration.md"

// TestDocs compares the tables of docs/configuration.md with the structs: every key and default there is one here, and the reverse. With -update it writes them.
func TestDocs(t *testing.T) {
	paths := keyPaths()
	for _, p := range paths {
		if meaning[p] == "" {
			t.Errorf("%s has no meaning in the reference", p)
		}
	}
	for p := range meaning {
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

// TestDocsFileLoads takes the whole file that the page shows, so that it stays one that works, and holds it against the defaults that it claims to show.
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

// TestEveryEndpointHasLimits keeps the list of endpoints that can be overridden equal to the constants of package endpoint.
func TestEveryEndpointHasLimits(t *testing.T) {
	src, err := os.ReadFile("../endpoint/request.go")
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
