package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const schemaFile = "../../docs/spillway.schema.json"

// compiled is the schema as a validator that others use has it.
var compiled = sync.OnceValue(func() *jsonschema.Schema { return compile(Schema()) })

func compile(text []byte) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("spillway.schema.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("spillway.schema.json")
}

// TestSchemaIsOne holds the schema against the schema of schemas.
func TestSchemaIsOne(t *testing.T) {
	c := jsonschema.NewCompiler()
	meta := c.MustCompile("https://json-schema.org/draft/2020-12/schema")
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	if err := meta.Validate(doc); err != nil {
		t.Error(err)
	}
	doc.(map[string]any)["required"] = "groups"
	if meta.Validate(doc) == nil {
		t.Error("the schema of schemas takes what is none")
	}
	if again := Schema(); !bytes.Equal(again, Schema()) {
		t.Error("it changes from call to call")
	}
}

// TestDocsSchema holds the committed copy, which editors read, against the structs. With -update it
// writes it.
func TestDocsSchema(t *testing.T) { golden(t, schemaFile, string(Schema())) }

// TestSchemaSaysWhatAKeyMeans: each key has its meaning and each default is in it; editors show
// them.
func TestSchemaSaysWhatAKeyMeans(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	at := func(path string) map[string]any {
		s := doc
		for part := range strings.SplitSeq(path, ".") {
			switch name, list := strings.CutSuffix(part, "[]"); {
			case name == "*":
				s = doc["$defs"].(map[string]any)["endpoint"].(map[string]any)
			case list:
				s = s["properties"].(map[string]any)[name].(map[string]any)["items"].(map[string]any)
			default:
				s = s["properties"].(map[string]any)[name].(map[string]any)
			}
		}
		return s
	}
	for _, path := range keyPaths() {
		text, _ := at(path)["description"].(string)
		if text == "" || strings.Contains(text, "](") {
			t.Errorf("%s is described as %q", path, text)
		}
	}
	for path, want := range map[string]any{
		"limits.timeout": "25s", "limits.max_series": 50000.0, "limits.unselective": "refuse", "memory.budget": "512MiB",
		"strict_parameters": false, "groups[].shards[].replicas[].type": "prometheus",
		"groups[].name": nil, "limits.endpoints.*.timeout": nil,
	} {
		if got := at(path)["default"]; got != want {
			t.Errorf("the default of %s is %v, want %v", path, got, want)
		}
	}
	text, want := at("groups[].shards[].replicas[].type")["description"], "; see docs/thanos.md."
	if !strings.HasSuffix(fmt.Sprint(text), want) {
		t.Errorf("%q does not end with %q", text, want)
	}
}

// readings are the words of a tree as the two kinds of YAML readers have them: those of YAML 1.2
// (editors), for which 40_000 is text, and those of 1.1, for which it is a number.
var readings = map[string]func(*yaml.Node) any{"1.2": core, "1.1": func(n *yaml.Node) any {
	var v any
	if err := n.Decode(&v); err != nil {
		return n.Value
	}
	switch x := v.(type) {
	case time.Time:
		return n.Value
	case float64:
		return finite(x)
	}
	return v
}}

var (
	coreInt   = regexp.MustCompile(`^[-+]?[0-9]+$`)
	coreFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	coreInf   = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// core is a word as YAML 1.2 has it.
func core(n *yaml.Node) any {
	s := n.Value
	switch {
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return s
	case s == "" || s == "~" || s == "null" || s == "Null" || s == "NULL":
		return nil
	case slices.Contains([]string{"true", "True", "TRUE", "false", "False", "FALSE"}, s):
		return s[0] == 't' || s[0] == 'T'
	case coreInt.MatchString(s):
		i, _ := new(big.Int).SetString(s, 10)
		return json.Number(i.String())
	case coreFloat.MatchString(s):
		f, _ := strconv.ParseFloat(s, 64) // what is too large becomes infinite
		return finite(f)
	case coreInf.MatchString(s):
		return math.MaxFloat64
	}
	return s
}

// finite is a number that JSON has.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return math.MaxFloat64
	}
	return f
}

// document is the tree as a validator of JSON takes it.
func document(n *yaml.Node, word func(*yaml.Node) any) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = document(n.Content[i+1], word)
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			list = append(list, document(c, word))
		}
		return list
	default:
		return word(n)
	}
}

// refuses is what the schema has against a file that is YAML as the decoder wants it; the second
// value is false where the file is no such YAML.
func refuses(data []byte) (string, bool) {
	root, problems := readTree(data)
	if root == nil || len(problems) > 0 {
		return "", false
	}
	var sb strings.Builder
	for name, word := range readings {
		if err := compiled().Validate(document(root, word)); err != nil {
			fmt.Fprintf(&sb, "YAML %s: %v\n", name, err)
		}
	}
	return sb.String(), true
}

// TestSchemaTakesExamples: the files that people start from, and the pages' own.
func TestSchemaTakesExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	texts := map[string]string{"secretive": secretive, "spelled": spelled}
	for _, file := range append(files, "../../deploy/ruler/spillway.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(data)
	}
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		texts[docsFile+" "+strconv.Itoa(i)] = b[1]
	}
	for name, text := range texts {
		if _, err := parseAt([]byte(text), ".", testNow); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if why, ok := refuses([]byte(text)); why != "" || !ok {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// spelled has what the decoder takes and what one would not write: words of other types, sections
// without lines, old spellings.
const spelled = `
groups:
  - name: 5
    labels: {zone: 1, on: true, half: .5, big: 99999999999999999999999, endless: .inf}
    replica_labels: []
    from: 2026-10-01T2:00:00,5+02:00
    hashmod: {labels: [5], modulus: "+0_1"}
    heartbeat: up
    shards:
      - hash: "0"
        replicas:
          - {url: HTTP://h, headers: {X-A: 1, X-B: ""}, http_client: {enable_http2: on, follow_redirects: no, proxy_url: , basic_auth: {username: 1, password: 2}, tls_config: {min_version: TLS12}}}
          - {url: http://h:1, type: "prometheus", headers: , http_client: }
limits: {timeout: 0d1h, max_series: "40_000", max_samples: 40_000, max_response_bytes: 1.5, max_range: 1y2w3d4h5m6s7ms, max_query_bytes: .5KB, endpoints: {series: , labels: {}}}
memory:
drop_rules: {plan: 5}
strict_parameters: "true"
`

// TestSchemaRefuses: of the files that the decoder refuses, those that are wrong in their shape are
// refused by the schema, too; for the others stands here why they are not.
func TestSchemaRefuses(t *testing.T) {
	const (
		words   = "a word is checked by a program: a pattern for it would be none that one could read"
		others  = "it depends on what stands elsewhere in the file"
		clients = "prometheus/common has rules of its own"
	)
	reasons := map[string]string{
		"huge bytes": words, "far year": words, "no such day": words, "match-all heartbeat": words, "long heartbeat": words,
		"names no pattern": words, "names everything": words,
		"le": words, "shard_by the name": words, "shard_by le": words, "shard_by what is not stored": words, "the address": words,
		"query in URL": words, "fragment": words, "no host": words, "port": words, "dots": words,
		"line break in a header": words, "bad header name": words, "hop by hop": words, "http_client header": clients,
		"inverted span": others, "equal span": others, "authorization twice": others, "header twice": others,
		"shard after its group": others, "shard before its group": others,
		"shard_by a label of the group": others, "shard_by a replica label": others, "shard_by twice": others,
		"a label of the group": others, "no hash": others, "hash without hashmod": others,
		"hash too large": others, "the same hash": others, "the same hash for a while": others, "the same hash some day": others,
		"names twice": others, "two types": others,
		"a shard's names no pattern": words, "a shard's names everything": words, "a shard's names twice": others,
		"a metric alone on two shards": others, "a metric alone on two shards for a while": others,
		"metrics of servers that are found": others,
		"metrics of another host":           others, "metrics of another scheme": others, "metrics with a query": others,
		"metrics above its url": others,
		"jwt without keys":      others, "jwt with keys twice": others, "jwt client of a file": others, "jwt of nobody": others,
		"jwt_values without jwt": others, "jwt_values of two": others, "jwt over plain http": words, "jwt with credentials": words,
		"jwt follows redirects": clients,
		"deny nothing":          others, "deny twice": others, "deny by too many regexes": others,
		"deny by a broken regex": words, "deny by a broken selector": words, "deny until never": words,
		"deny an endpoint that is none": words, "deny a tenant where there is none": others,
	}
	seen := 0
	for _, tc := range slices.Concat(problemRows(), hashmodRows()) {
		why, ok := refuses([]byte(tc.text))
		if !ok {
			continue
		}
		seen++
		if reason := reasons[tc.name]; reason == "" && why == "" {
			t.Errorf("%s: the schema takes\n%s", tc.name, tc.text)
		} else if reason != "" && why != "" {
			t.Errorf("%s is refused now:\n%s", tc.name, why)
		}
		delete(reasons, tc.name)
	}
	for name := range reasons {
		t.Errorf("there is no file %q", name)
	}
	if seen < 50 {
		t.Errorf("%d files only", seen)
	}
	for text, taken := range map[string]bool{
		"drop_rules: {plan: }":                                           false,
		"drop_rules: {plan: []}":                                         false,
		"drop_rules: {plan: {a: b}}":                                     false,
		"drop_rules: {plan: ''}":                                         false,
		"drop_rules: plan.json":                                          false,
		"drop_rules: {plans: plan.json}":                                 false,
		"usage_log: {}":                                                  false,
		"usage_log: {max_files: 3}":                                      false,
		"usage_log: {path: ''}":                                          false,
		"usage_log: {path: a, max_files: 1001}":                          false,
		"usage_log: {path: a, max_files: 1000}":                          true,
		"lanes: []":                                                      false,
		"lanes: [{name: a, share: 1.5}]":                                 false,
		"lanes: [{name: a, share: half}]":                                false,
		"lanes: [{name: a, share: 0.5, match: {source: no}}]":            false,
		"lanes: [{name: a, share: 0.5, match: {source: api}}]":           true,
		"lanes: [{name: a, share: \".5\", match: {source: api}}]":        true,
		"lanes: [{name: a, share: 0.9, match: {source: api}, lend: 0}]":  true,
		"lanes: [{name: a, share: 1, match: {source: api}, lend: '1'}]":  true,
		"lanes: [{name: a, share: 1, match: {source: api}, lend: 1.1}]":  false,
		"lanes: [{name: a, share: 1, match: {source: api}, lend: -0.1}]": false,
		"limits: {unselective: maybe}":                                   false,
		"limits: {endpoints: {series: {unselective: maybe}}}":            false,
		"limits: {endpoints: {series: {read_slots: 1}}}":                 false,
		"limits: {max_series: 9007199254740993}":                         false,
		"limits: {max_series: 9007199254740992}":                         true,
		"strict_parameters: 1":                                           false,
		"strict_parameters: yes":                                         false,
		"memory: {budget: 64 megs}":                                      false,
	} {
		_, err := parseAt([]byte(minimal+text), ".", testNow)
		if why, _ := refuses([]byte(minimal + text)); (err == nil) != taken || (why == "") != taken {
			t.Errorf("%q: decoder %v, schema %s", text, err, why)
		}
	}
}

// TestSchemaBrokenFile: of the file with everything wrong, the schema finds what it can.
func TestSchemaBrokenFile(t *testing.T) {
	data, err := os.ReadFile("testdata/broken.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = parseAt(data, ".", testNow)
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	var wrong *jsonschema.ValidationError
	if !errors.As(compiled().Validate(document(root.Content[0], core)), &wrong) {
		t.Fatal("it is taken")
	}
	found := map[string]bool{}
	var leaves func(e *jsonschema.ValidationError)
	leaves = func(e *jsonschema.ValidationError) {
		found["/"+strings.Join(e.InstanceLocation, "/")] = true
		for _, c := range e.Causes {
			leaves(c)
		}
	}
	leaves(wrong)
	for _, at := range []string{
		"/", "/groups/0/from", "/groups/0/shards/0/replicas/2/url", "/groups/0/shards/0/replicas/5/type", "/groups/0/shards/0/replicas/6",
		"/groups/0/shards/1/replicas",
		"/groups/0/shards/2/replicas/0/http_client/basic_auth", "/groups/1/shards_from/type", "/groups/1/shards_from/relabel_configs/0/action", "/groups/2/name", "/groups/3/shards", "/limits", "/limits/timeout", "/limits/max_series", "/limits/max_samples",
		"/limits/max_response_bytes", "/limits/unselective", "/limits/endpoints", "/limits/endpoints/series", "/memory/budget",
		"/usage_log", "/usage_log/max_files", "/drop_rules/plan/1",
		"/strict_parameters", "/partial_response", "/groups/0/labels/empty",
	} {
		if !found[at] {
			t.Errorf("nothing is found at %s", at)
		}
	}
	if t.Failed() {
		t.Logf("found %v", reflect.ValueOf(found).MapKeys())
	}
}
