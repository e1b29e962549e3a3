package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"
)

// Replicas are servers of the default type that need no authentication.
func Replicas(urls ...string) []Replica {
	out := make([]Replica, len(urls))
	for i, u := range urls {
		out[i].setDefaults()
		out[i].URL = u
	}
	return out
}

// Of is the default configuration over these groups.
func Of(groups ...Group) *Config {
	c := Default()
	c.Groups = groups
	return c
}

// Write writes the configuration as a file with the same meaning: what differs from the defaults,
// with secrets in the clear. It is for programs that make files; for people to look at there is
// Redacted. Relative paths are written as they stand, so they start from the folder of the new
// file. Hash and Notes belong to the file that was read, and are not written. What Load would
// refuse is an error, and then nothing is written. Begin with Of or Default, and with Replicas for
// servers: the zero values of a Config are not its defaults.
func Write(w io.Writer, c *Config) error {
	text, err := encode(c, time.Now())
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// WriteFile is Write to a file, which is made or emptied, and which nobody else may read if it is
// new.
func WriteFile(path string, c *Config) error {
	text, err := encode(c, time.Now())
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

func encode(c *Config, now time.Time) ([]byte, error) {
	var w writer
	root := w.mapping(reflect.ValueOf(c).Elem(), reflect.ValueOf(Default()).Elem())
	if w.err != nil {
		return nil, w.err
	}
	for _, n := range root.Content {
		lay(n)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if _, err := parseAt(out.Bytes(), ".", now); err != nil {
		return nil, fmt.Errorf("a configuration that would be refused: %w", err)
	}
	return out.Bytes(), nil
}

// writer makes the tree of what differs from the defaults. It remembers the first value that has no
// spelling.
type writer struct{ err error }

func (w *writer) fail(format string, args ...any) *yaml.Node {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
	return nil
}

func (w *writer) mapping(v, base reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		if child := w.value(v.FieldByIndex(f.index), base.FieldByIndex(f.index), f.unit); child != nil {
			n.Content = append(n.Content, word(f.key, "!!str"), child)
		}
	}
	return n
}

// value is the tree of one value; nil where it is the default, or empty.
func (w *writer) value(v, base reflect.Value, unit string) *yaml.Node {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			return nil
		}
		return w.item(v, unit)
	case reflect.Pointer: // a section that stands there may mean something even where it is empty
		if v.IsNil() {
			return nil
		}
		return w.item(v, unit)
	}
	if reflect.DeepEqual(v.Interface(), base.Interface()) {
		return nil
	}
	if v.Kind() == reflect.Struct && !isScalarType(v.Type()) && v.Type() != clientURLType {
		if n := w.mapping(v, base); len(n.Content) > 0 {
			return n
		}
		return nil
	}
	return w.item(v, unit)
}

var clientURLType = reflect.TypeFor[commonconfig.URL]()

// item is the tree of a value that is written in any case.
func (w *writer) item(v reflect.Value, unit string) *yaml.Node {
	switch x := v.Interface().(type) {
	case Secret:
		return word(string(x), "!!str")
	case commonconfig.Secret:
		return word(string(x), "!!str")
	case commonconfig.URL:
		return word(x.String(), "!!str")
	case commonconfig.TLSVersion:
		return word(x.String(), "!!str")
	case *commonconfig.Headers: // an inlined map
		if len(x.Headers) == 0 {
			return &yaml.Node{Kind: yaml.MappingNode}
		}
		return w.item(reflect.ValueOf(x.Headers), "")
	case time.Duration:
		if x%time.Millisecond != 0 {
			return w.fail("the duration %s cannot be written: files have whole milliseconds", x)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return w.item(v.Elem(), "")
	case reflect.Struct:
		if isScalarType(v.Type()) {
			break
		}
		base := reflect.New(v.Type())
		if r, ok := base.Interface().(interface{ setDefaults() }); ok {
			r.setDefaults()
		}
		return w.mapping(v, base.Elem())
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, w.item(v.Index(i), ""))
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Content = append(n.Content, word(k.String(), "!!str"), w.item(v.MapIndex(k), ""))
		}
		return n
	case reflect.Interface: // a claim of OAuth2, whatever that is
		n := &yaml.Node{}
		if err := n.Encode(v.Interface()); err != nil {
			return w.fail("write the configuration: %w", err)
		}
		return n
	}
	return node(v, unit)
}

// lay puts what is short and flat on one line, as people write it: labels: {cluster: jaguar}.
func lay(n *yaml.Node) (depth, width int) {
	if n.Kind == yaml.ScalarNode {
		return 0, len(n.Value) + 4
	}
	for _, child := range n.Content {
		d, w := lay(child)
		depth, width = max(depth, d), width+w
	}
	if depth++; depth <= 2 && width <= 140 {
		n.Style |= yaml.FlowStyle
	}
	return depth, width
}
