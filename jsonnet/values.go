package mixin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-jsonnet"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/nearest"
)

// maxValuesBytes is the largest file of values that is read.
const maxValuesBytes = 1 << 20

// open are the objects of _config whose keys a user makes up. Everywhere else a key that the
// defaults lack is a mistake.
var open = map[string]bool{
	"prices.gpuHour":              true,
	"kubernetes.labels":           true,
	"kubernetes.grafanaInstances": true,
}

// choices are the values that mean something, where not every string does.
var choices = map[string][]string{
	"dcgm.violationUnit": {"ns", "us"},
	"dcgm.xidSource":     {"count", "gauge", "kernel"},
}

// function stands for a function among the defaults: a file of values cannot replace it.
const function = "\x00function"

// defaultsOf is _config as the mixin has it, hidden fields included.
func defaultsOf(vm *jsonnet.VM) (map[string]any, error) {
	text, err := vm.EvaluateAnonymousSnippet("the defaults", fmt.Sprintf(`
local shape(v) =
  if std.isObject(v) then { [k]: shape(v[k]) for k in std.objectFieldsAll(v) }
  else if std.isArray(v) then std.map(shape, v)
  else if std.isFunction(v) then '\u0000function'
  else v;
shape((import '%s%s')._config)
`, sourceDir, entry))
	if err != nil {
		return nil, fmt.Errorf("evaluate the defaults: %w", err)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, fmt.Errorf("_config is no object: %w", err)
	}
	return out, nil
}

// overrides reads the file of values and returns it as a jsonnet object that merges into _config,
// after a comparison with the defaults.
func overrides(file string, defaults map[string]any) (string, error) {
	root, lines, err := readValues(file)
	if err != nil {
		return "", err
	}
	c := &comparison{file: file, lines: lines}
	var b strings.Builder
	c.object(&b, root, defaults, "")
	return b.String(), errors.Join(c.errs...)
}

// readValues reads a file as a YAML tree, which JSON is a part of. lines is false where the tree's
// lines are not the file's.
func readValues(file string) (root *yaml.Node, lines bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, fmt.Errorf("%w; --config takes a file with values that stand in place of those of %sconfig.libsonnet", err, sourceDir)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxValuesBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, false, fmt.Errorf("read the values: %w", err)
	}
	if len(text) > maxValuesBytes {
		return nil, false, fmt.Errorf("%s is larger than %d bytes; it should hold only the values that differ from the defaults", file, maxValuesBytes)
	}
	lines = true
	switch ext := filepath.Ext(file); ext {
	case ".yaml", ".yml", ".json":
	case ".jsonnet", ".libsonnet":
		lines = false
		vm := jsonnet.MakeVM()
		vm.Importer(&jsonnet.FileImporter{})
		out, err := vm.EvaluateFile(file)
		if err != nil {
			return nil, false, fmt.Errorf("evaluate the values: %w", err)
		}
		text = []byte(out)
	default:
		return nil, false, fmt.Errorf("%s: the ending %q is not known; values are read from .json, .yaml, .yml, .jsonnet and .libsonnet files", file, ext)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, false, fmt.Errorf("%s: %w", file, err)
	}
	if doc.Kind == 0 {
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, lines, nil // an empty file changes nothing
	}
	root = doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, false, fmt.Errorf("%s: it must be an object whose keys are those of _config in %sconfig.libsonnet", file, sourceDir)
	}
	return root, lines, nil
}

// comparison writes values as jsonnet and collects what is wrong with them.
type comparison struct {
	file  string
	lines bool
	errs  []error
}

func (c *comparison) bad(at *yaml.Node, path, format string, args ...any) {
	where := c.file
	if c.lines {
		where = fmt.Sprintf("%s:%d", c.file, at.Line)
	}
	c.errs = append(c.errs, fmt.Errorf("%s: %s: %s", where, path, fmt.Sprintf(format, args...)))
}

func (c *comparison) object(b *strings.Builder, n *yaml.Node, defaults map[string]any, path string) {
	b.WriteString("{ ")
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		def, known := defaults[key.Value]
		switch {
		case key.Tag == "!!merge":
			c.bad(key, at, "YAML merge keys are not taken; write the values out")
			continue
		case seen[key.Value]:
			c.bad(key, at, "it is there twice; leave one of them out")
			continue
		case !known && !open[path]:
			c.bad(key, at, "there is no such value%s; %sconfig.libsonnet has them all", suggest(key.Value, slices.Sorted(maps.Keys(defaults))), sourceDir)
			continue
		}
		seen[key.Value] = true
		nested, isObject := def.(map[string]any)
		if known {
			if want, have := kindOf(def), kindOfNode(value); want != have && want != "null" {
				c.bad(value, at, "it must be a %s, it is a %s", want, have)
				continue
			}
			if of := choices[at]; of != nil && !slices.Contains(of, value.Value) {
				c.bad(value, at, "it must be one of %s, it is %q", strings.Join(of, ", "), value.Value)
				continue
			}
		}
		name, _ := json.Marshal(key.Value)
		b.Write(name)
		if isObject {
			b.WriteString("+: ")
			c.object(b, value, nested, at)
		} else {
			b.WriteString(": ")
			c.plain(b, value, at)
		}
		b.WriteString(", ")
	}
	b.WriteString("}")
}

// plain writes a value that replaces the default as a whole.
func (c *comparison) plain(b *strings.Builder, n *yaml.Node, path string) {
	var v any
	err := n.Decode(&v)
	var text []byte
	if err == nil {
		text, err = json.Marshal(v) // which refuses NaN, infinities and keys that are no strings
	}
	if err != nil {
		c.bad(n, path, "it cannot be written as JSON, which jsonnet's values are: %v", err)
		return
	}
	b.Write(text)
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func kindOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "list"
	case string:
		if v == function {
			return "function"
		}
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	}
	return "null"
}

func kindOfNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "object"
	case yaml.SequenceNode:
		return "list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "number"
	case "!!bool":
		return "boolean"
	case "!!null":
		return "null"
	}
	return "string"
}

// suggest is the known name nearest to a wrong one, as the end of a sentence, or nothing where none
// is near.
func suggest(name string, known []string) string {
	best := nearest.Of(name, known, max(2, len(name)/3))
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}
