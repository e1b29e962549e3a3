package cost

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What YAML takes without a word is not always what was meant: a price that is empty is one of 0,
// and {H100: 2,10} has an empty one. What it does refuse it explains with types of this program.

// maxMerged is how many maps may be merged into one another by << keys.
const maxMerged = 8

// strict finds what a directory's text has that cannot be meant, each with its line and its path.
func strict(text []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return err
	}
	s := &strictness{}
	s.look(doc.Content[0], reflect.TypeFor[Directory](), "", maxMerged)
	return errors.Join(s.errs...)
}

type strictness struct{ errs []error }

func (s *strictness) bad(n *yaml.Node, path, format string, args ...any) {
	if path != "" {
		path += ": "
	}
	s.errs = append(s.errs, fmt.Errorf("line %d: %s%s", n.Line, path, fmt.Sprintf(format, args...)))
}

const aNumber = "a number such as 2.10, with a point and not a comma"

// look compares a value at a path with what is to become of it.
func (s *strictness) look(n *yaml.Node, t reflect.Type, path string, merged int) {
	at := n // an alias is where it is written
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	optional := ""
	if t.Kind() == reflect.Pointer {
		t, optional = t.Elem(), ", or leave the key out"
	}
	null, budget := n.Kind == yaml.ScalarNode && n.Tag == "!!null", t == reflect.TypeFor[Budget]()
	const aBudget = "write {amount: 1000, per: " + PerMonth + "}"
	switch {
	case null && t.Kind() == reflect.Float64:
		s.bad(at, path, "is empty: write %s%s", aNumber, optional)
	case null && budget:
		s.bad(at, path, "is empty: %s%s", aBudget, optional)
	case null:
	case t.Kind() == reflect.Float64:
		if n.Kind != yaml.ScalarNode || n.Decode(new(float64)) != nil {
			s.bad(at, path, "%q is no number: write one such as 2.10, with a point and not a comma", n.Value)
		}
	case t.Kind() == reflect.String:
		if n.Kind != yaml.ScalarNode {
			s.bad(at, path, "is no text")
		}
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			s.bad(at, path, "is no list: begin each of its entries with -, or write [a, b]")
			return
		}
		for i, of := range n.Content {
			s.look(of, t.Elem(), fmt.Sprintf("%s[%d]", path, i), merged)
		}
	case n.Kind == yaml.MappingNode:
		s.keys(n, t, path, merged)
		if budget && !hasKey(n, "amount") {
			s.bad(at, path, "has no amount: %s", aBudget)
		}
	case budget:
		s.bad(at, path, "%s", aBudget)
	case t.Kind() == reflect.Map:
		s.bad(at, path, "write keys and values, such as {\"*H100*\": 2.10}")
	default:
		s.bad(at, path, "write its keys: %s", keysOf(t))
	}
}

// keys looks at the keys of a mapping, which becomes a map or a struct.
func (s *strictness) keys(n *yaml.Node, t reflect.Type, path string, merged int) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Tag == "!!merge":
			for _, from := range mergedFrom(value) {
				if merged > 0 {
					s.keys(from, t, path, merged-1)
				}
			}
		case t.Kind() == reflect.Map:
			s.look(value, t.Elem(), fmt.Sprintf("%s[%s]", path, key.Value), merged)
		default:
			field, ok := fieldOf(t, key.Value)
			if !ok {
				of := ""
				if path != "" {
					of = " of " + path
				}
				s.bad(key, "", "%s is no key%s: there are %s", key.Value, of, keysOf(t))
				continue
			}
			s.look(value, field.Type, strings.TrimPrefix(path+"."+key.Value, "."), merged)
		}
	}
}

// mergedFrom are the mappings that a << key merges.
func mergedFrom(n *yaml.Node) (out []*yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		out = append(out, n)
	case yaml.SequenceNode:
		for _, of := range n.Content {
			if of.Kind == yaml.AliasNode {
				of = of.Alias
			}
			if of.Kind == yaml.MappingNode {
				out = append(out, of)
			}
		}
	}
	return out
}

// hasKey reports whether a mapping has a key of its own, or one that is merged into it.
func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Value == key || k.Tag == "!!merge" {
			return true
		}
	}
	return false
}

// fieldOf is the field of a struct that a key of the file fills.
func fieldOf(t reflect.Type, key string) (field reflect.StructField, ok bool) {
	for f := range t.Fields() {
		if tag := f.Tag.Get("yaml"); tag == key && tag != "-" {
			return f, true
		}
	}
	return field, false
}

// keysOf are the keys that a struct has in the file.
func keysOf(t reflect.Type) string {
	var keys []string
	for f := range t.Fields() {
		if tag := f.Tag.Get("yaml"); tag != "-" {
			keys = append(keys, tag)
		}
	}
	return strings.Join(keys, ", ")
}
