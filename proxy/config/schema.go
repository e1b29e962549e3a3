package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/internal/nearest"
)

// field is one key of a mapping in the file.
type field struct {
	key   string
	index []int
	unit  string
	def   string            // of the tag default, spelled as in the file
	rules map[string]string // of the tag is
}

// is tells whether the field's tag has the rule. The tag is holds what the JSON schema says of a
// key besides its type: required; filled, which is not empty where it stands; given, which has a
// value there, and may be an empty list; max, of a number or of how many items; one, the words of
// which it is one; pattern.
func (f field) is(rule string) bool {
	_, ok := f.rules[rule]
	return ok
}

func rulesOf(tag string) map[string]string {
	rules := map[string]string{}
	for _, rule := range strings.Fields(tag) {
		name, value, _ := strings.Cut(rule, "=")
		rules[name] = value
	}
	return rules
}

// fieldsOf are the keys of a struct, in the order of its fields; inlined structs are opened.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for f := range t.Fields() {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case key == "-" || !f.IsExported():
		case strings.Contains(options, "inline"):
			if f.Type.Kind() != reflect.Struct {
				continue
			}
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append(slices.Clone(f.Index), inner.index...)
				out = append(out, inner)
			}
		default:
			out = append(out, field{
				key: key, index: f.Index, unit: f.Tag.Get("unit"), def: f.Tag.Get("default"),
				rules: rulesOf(f.Tag.Get("is")),
			})
		}
	}
	return out
}

// schemaPath turns groups[0].shards[1] into groups[].shards[].
func schemaPath(path string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(path, '[')
		if open < 0 {
			return b.String() + path
		}
		b.WriteString(path[:open] + "[]")
		rest := path[open:]
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return b.String()
		}
		path = rest[end+1:]
	}
}

// keyPaths are all keys of the file by their schema path, those of http_client left out.
func keyPaths() []string {
	var out []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for _, f := range fieldsOf(t) {
			p := join(path, f.key)
			out = append(out, p)
			ft := t.FieldByIndex(f.index).Type
			if isScalarType(ft) || ft == httpClientType {
				continue
			}
			switch ft.Kind() {
			case reflect.Struct:
				walk(ft, p)
			case reflect.Slice:
				if ft.Elem().Kind() == reflect.Struct {
					walk(ft.Elem(), p+"[]")
				}
			case reflect.Map:
				if ft.Elem().Kind() == reflect.Struct {
					walk(ft.Elem(), p+".*")
				}
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return out
}

// suggest is what an unknown key was perhaps meant to be: a sibling that is spelled nearly so, or
// begins so, or a key of that name elsewhere; empty where there is none.
func suggest(key, path string, siblings []string) string {
	best := nearest.Of(key, siblings, max(1, min(3, len(key)/3)))
	if i := slices.IndexFunc(siblings, func(s string) bool { return len(key) > 2 && strings.HasPrefix(s, key) }); best == "" && i >= 0 {
		best = siblings[i]
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	for _, p := range keyPaths() {
		if strings.HasSuffix(p, "."+key) && p != schemaPath(path) {
			return "did you mean " + p + "?"
		}
	}
	return "the keys here are " + strings.Join(siblings, ", ")
}
