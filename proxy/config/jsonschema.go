package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	commonconfig "github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"
)

// meaning is the text of the reference for each key, by its schema path. Each struct of the file
// has the texts of its own keys.
var meaning = sync.OnceValue(func() map[string]string {
	texts := map[string]string{}
	collect(reflect.TypeFor[Config](), "", texts)
	for _, f := range fieldsOf(reflect.TypeFor[Limits]()) { // an override says what it says of all endpoints
		if p := "limits.endpoints.*." + f.key; texts[p] == "" {
			texts[p] = "As `limits." + f.key + "`."
		}
	}
	return texts
})

// collect adds the texts of a struct that stands at the prefix, and those of the structs in it.
func collect(t reflect.Type, prefix string, texts map[string]string) {
	if m, ok := reflect.Zero(t).Interface().(interface{ meaning() map[string]string }); ok {
		for key, text := range m.meaning() {
			texts[prefix+key] = text
		}
	}
	for f := range t.Fields() {
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch ft := f.Type; {
		case key == "-" || ft == httpClientType || isScalarType(ft):
		case strings.Contains(options, "inline"):
			collect(ft, prefix, texts)
		case ft.Kind() == reflect.Struct:
			collect(ft, prefix+key+".", texts)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			collect(ft.Elem(), prefix+key+"[].", texts)
		}
	}
}

// shape is a JSON schema, as far as ours needs the language.
type shape struct {
	Schema               string            `json:"$schema,omitempty"`
	Title                string            `json:"title,omitempty"`
	Ref                  string            `json:"$ref,omitempty"`
	Description          string            `json:"description,omitempty"`
	Type                 []string          `json:"type,omitempty"`
	Enum                 []any             `json:"enum,omitempty"`
	AllOf                []*shape          `json:"allOf,omitempty"`
	Pattern              string            `json:"pattern,omitempty"`
	MinLength            int               `json:"minLength,omitempty"`
	Minimum              *int64            `json:"minimum,omitempty"`
	Maximum              *int64            `json:"maximum,omitempty"`
	MinItems             int               `json:"minItems,omitempty"`
	MaxItems             int               `json:"maxItems,omitempty"`
	Items                *shape            `json:"items,omitempty"`
	Properties           map[string]*shape `json:"properties,omitempty"`
	Required             []string          `json:"required,omitempty"`
	AdditionalProperties any               `json:"additionalProperties,omitempty"` // a *shape, or false
	Default              any               `json:"default,omitempty"`
	WriteOnly            bool              `json:"writeOnly,omitempty"`
	Defs                 map[string]*shape `json:"$defs,omitempty"`
}

const (
	// spans is how model.ParseDuration spells a duration; that one digit is not 0 is said beside
	// it.
	spans = `([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?`
	// instant is RFC 3339, as wide as Go's reader takes it.
	instant = `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{1,2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})`
)

// words are the types of single values, with all the spellings that the decoder takes: it reads the
// words of the file and not what YAML makes of them, so that "true" in quotes is true, and a name
// may be a number.
func words() map[string]*shape {
	somewhere := []*shape{{Pattern: "[1-9]"}}
	return map[string]*shape{
		"text":   {Type: []string{"string", "number", "boolean"}},
		"secret": {Type: []string{"string", "number", "boolean"}, WriteOnly: true},
		"switch": {Enum: []any{true, false, "true", "false"}},
		"number": {
			Type: []string{"integer", "string"}, Minimum: ptr(1), Maximum: ptr(1 << 53), Pattern: `^\+?[0-9_]+$`,
			AllOf: somewhere,
		},
		"part":     {Type: []string{"number", "string"}, Minimum: ptr(0), Maximum: ptr(1), Pattern: `^[0-9]*\.?[0-9]+$`, AllOf: somewhere},
		"lend":     {Type: []string{"number", "string"}, Minimum: ptr(0), Maximum: ptr(1), Pattern: `^[0-9]*\.?[0-9]+$`},
		"hash":     {Type: []string{"integer", "string"}, Minimum: ptr(0), Maximum: ptr(MaxModulus - 1), Pattern: `^[0-9]+$`},
		"bytes":    {Type: []string{"number", "string"}, Minimum: ptr(1), Pattern: `^[0-9]*\.?[0-9]*([KMGTPE]i?B|B)?$`, AllOf: somewhere},
		"duration": {Type: []string{"string"}, Pattern: "^" + spans + "$", AllOf: somewhere},
		"time":     {Type: []string{"string"}, Pattern: "^(-" + spans + "|" + instant + ")$", AllOf: somewhere},
	}
}

func ptr(n int64) *int64 { return &n }

// Schema is the JSON schema (draft 2020-12) of the configuration file, for editors and for whoever
// writes such files with a program: keys, types, defaults and meanings, made from the structs. It
// takes every file that Load takes. It does not refuse all that Load refuses: that two servers are
// one, or that times overlap, does not show in the shape.
func Schema() []byte {
	d := words()
	d["endpoint"] = mapping(reflect.ValueOf(Limits{}), "limits.endpoints.*", false)
	d["endpoint"].Type = []string{"object", "null"}
	s := mapping(reflect.ValueOf(Default()).Elem(), "", true)
	s.Schema, s.Title, s.Defs = "https://json-schema.org/draft/2020-12/schema", "The configuration of Spillway", d
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		panic(err) // a tree of plain values always encodes
	}
	return out.Bytes()
}

// mapping is the shape of a struct; path is where it stands. The values of v are the defaults,
// where they are ones.
func mapping(v reflect.Value, path string, defaults bool) *shape {
	s := &shape{Type: []string{"object"}, Properties: map[string]*shape{}, AdditionalProperties: false}
	for _, f := range fieldsOf(v.Type()) {
		p := f.key
		if path != "" {
			p = path + "." + f.key
		}
		s.Properties[f.key] = property(v.FieldByIndex(f.index), f, p, defaults)
		if f.is("required") {
			s.Required = append(s.Required, f.key)
		}
	}
	return s
}

// property is the shape of one key.
func property(v reflect.Value, f field, path string, defaults bool) *shape {
	s := single(v.Type(), f.unit)
	switch t := v.Type(); {
	case s != nil:
	case t == httpClientType:
		s = client(t)
	case t == pathsType: // one needs no list
		s = &shape{Type: []string{"string", "number", "boolean", "array"}, MinLength: 1, Items: &shape{Ref: "#/$defs/text", MinLength: 1}}
	case t.Kind() == reflect.Struct:
		s = mapping(v, path, defaults)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		elem := reflect.New(t.Elem())
		if r, ok := elem.Interface().(interface{ setDefaults() }); ok {
			r.setDefaults()
		}
		s = &shape{Type: []string{"array"}, Items: mapping(elem.Elem(), path+"[]", true)}
	case t.Kind() == reflect.Slice:
		s = &shape{Type: []string{"array"}, Items: &shape{Ref: "#/$defs/text", MinLength: 1}}
	case t.Key() == endpointType:
		s = &shape{Type: []string{"object"}, Properties: map[string]*shape{}, AdditionalProperties: false}
		for _, id := range endpointIDs {
			s.Properties[string(id)] = &shape{Ref: "#/$defs/endpoint"}
		}
	case t.Elem() == secretType:
		s = &shape{Type: []string{"object"}, AdditionalProperties: single(secretType, "")}
	default:
		s = &shape{Type: []string{"object"}, AdditionalProperties: &shape{Ref: "#/$defs/text", MinLength: 1}}
	}
	s.Description = plain(meaning()[path])
	if isScalarType(v.Type()) {
		if defaults && (!v.IsZero() || v.Kind() == reflect.Bool) {
			s.Default = value(node(v, f.unit))
		}
	} else if !f.is("required") && !f.is("filled") && !f.is("given") && !slices.Contains(s.Type, "null") {
		s.Type = append(s.Type, "null") // a section whose lines are all commented out
	}
	f.bound(s)
	return s
}

// value is a word as JSON has it.
func value(n *yaml.Node) any {
	if n.Tag == "!!int" || n.Tag == "!!bool" {
		return json.RawMessage(n.Value)
	}
	return n.Value
}

// bound adds to the shape what the tag of the field says.
func (f field) bound(s *shape) {
	list := slices.Contains(s.Type, "array")
	if f.is("required") || f.is("filled") {
		if list {
			s.MinItems = 1
		} else if strings.HasSuffix(s.Ref, "/text") {
			s.MinLength = 1
		}
	}
	if n, err := strconv.Atoi(f.rules["max"]); err == nil {
		if list {
			s.MaxItems = n
		} else {
			s.Maximum = ptr(int64(n))
		}
	}
	s.Pattern = f.rules["pattern"]
	if one := f.rules["one"]; one != "" {
		s.Ref = ""
		for word := range strings.SplitSeq(one, "|") {
			s.Enum = append(s.Enum, word)
		}
	}
}

// single is the shape of one word; nil where the type is none.
func single(t reflect.Type, unit string) *shape {
	name := ""
	switch {
	case t == momentType:
		name = "time"
	case t == hashType:
		name = "hash"
	case t == durationType:
		name = "duration"
	case t == bytesType || unit == "bytes":
		name = "bytes"
	case t == secretType || t == reflect.TypeFor[commonconfig.Secret]():
		name = "secret"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		name = "number"
	case t == lendType:
		name = "lend"
	case t.Kind() == reflect.Float64:
		name = "part"
	case t.Kind() == reflect.Bool:
		name = "switch"
	case t.Kind() == reflect.String:
		name = "text"
	default:
		return nil
	}
	return &shape{Ref: "#/$defs/" + name}
}

// client is the shape of prometheus/common's settings, which its own decoder reads: a key without a
// value is as good as none there, and a switch has YAML's old words, too.
func client(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[commonconfig.URL]():
		return &shape{Type: []string{"string", "number", "boolean", "null"}}
	case t == reflect.TypeFor[commonconfig.TLSVersion]():
		s := &shape{Enum: []any{nil}}
		for _, name := range slices.Sorted(maps.Keys(commonconfig.TLSVersions)) {
			s.Enum = append(s.Enum, name)
		}
		return s
	case t == reflect.TypeFor[commonconfig.Headers]():
		return &shape{Type: []string{"object", "null"}, AdditionalProperties: client(reflect.TypeFor[commonconfig.Header]())}
	case t.Kind() == reflect.Struct:
		s := &shape{Type: []string{"object", "null"}, Properties: map[string]*shape{}, AdditionalProperties: false}
		for _, f := range fieldsOf(t) {
			if !strings.HasSuffix(f.key, "_ref") {
				s.Properties[f.key] = client(t.FieldByIndex(f.index).Type)
			}
		}
		return s
	case t.Kind() == reflect.Slice:
		return &shape{Type: []string{"array", "null"}, Items: client(t.Elem())}
	case t.Kind() == reflect.Map:
		return &shape{Type: []string{"object", "null"}, AdditionalProperties: client(t.Elem())}
	case t.Kind() == reflect.Bool:
		return &shape{Type: []string{"boolean", "string", "null"}, Pattern: "^(true|false|yes|no|on|off|y|n|True|False|Yes|No|On|Off|Y|N|TRUE|FALSE|YES|NO|ON|OFF)$"}
	case t.Kind() == reflect.Interface:
		return &shape{}
	case t == reflect.TypeFor[commonconfig.Secret]():
		return &shape{Type: []string{"string", "number", "boolean", "null"}, WriteOnly: true}
	default:
		return &shape{Type: []string{"string", "number", "boolean", "null"}}
	}
}

var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)

// plain is a text of the reference without Markdown's links, which not every editor shows: one to
// another page becomes the page's path.
func plain(text string) string {
	return link.ReplaceAllStringFunc(text, func(s string) string {
		m := link.FindStringSubmatch(s)
		if strings.HasPrefix(m[2], "https://") {
			return m[1] + " (" + m[2] + ")"
		}
		page, _, _ := strings.Cut(m[2], "#")
		return "docs/" + page
	})
}
