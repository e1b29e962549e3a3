package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	commonconfig "github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/nearest"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

var (
	httpClientType = reflect.TypeFor[commonconfig.HTTPClientConfig]()
	momentType     = reflect.TypeFor[Moment]()
	hashType       = reflect.TypeFor[Hash]()
	bytesType      = reflect.TypeFor[Bytes]()
	lendType       = reflect.TypeFor[Lend]()
	durationType   = reflect.TypeFor[time.Duration]()
	endpointType   = reflect.TypeFor[endpoint.ID]()
	pathsType      = reflect.TypeFor[Paths]()
	secretType     = reflect.TypeFor[Secret]()
)

// isScalarType tells whether a value of the type is one word in the file.
func isScalarType(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return t == momentType || t == hashType
	case reflect.Map, reflect.Slice:
		return false
	default:
		return true
	}
}

var yamlLine = regexp.MustCompile(`(?:^yaml: )?line (\d+): (.*)`)

// readTree parses the bytes as one YAML document and refuses what YAML allows and this file does
// not: a second document, anchors, aliases, tags, keys that stand twice. The root is nil where
// there is nothing to go on with.
func readTree(data []byte) (*yaml.Node, Problems) {
	if len(data) > MaxFileBytes {
		return nil, Problems{{Message: fmt.Sprintf("the file is larger than %s, which no configuration needs; split the groups over several proxies", Bytes(MaxFileBytes))}}
	}
	if !utf8.Valid(data) {
		line := 1
		for len(data) > 0 {
			r, size := utf8.DecodeRune(data)
			if r == utf8.RuneError && size == 1 {
				break
			}
			if r == '\n' {
				line++
			}
			data = data[size:]
		}
		return nil, Problems{{Line: line, Message: "the file is not UTF-8 text"}}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF), err == nil && (len(doc.Content) == 0 || doc.Content[0].Tag == "!!null"):
		return nil, Problems{{Line: 1, Message: "the file is empty; it needs at least groups"}}
	case err != nil:
		p := yamlProblem("", err)
		p.Line = brokenLine(data, p.Line)
		return nil, Problems{tabProblem(data, p)}
	}
	root := doc.Content[0]
	var problems Problems
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		problems = append(problems, Problem{Line: max(second.Line, 1), Message: "a second document begins here; the file must be one document, so remove the line ---"})
	} else if !errors.Is(err, io.EOF) {
		problems = append(problems, yamlProblem("", err))
	}
	if root.Kind != yaml.MappingNode {
		return nil, append(problems, Problem{
			Line:    root.Line,
			Message: "the file must be a mapping with the keys " + strings.Join(keysOf(reflect.TypeFor[Config]()), ", "),
		})
	}
	s := &scanner{problems: problems}
	s.scan(root, "")
	return root, s.problems
}

// yamlProblem takes the line out of an error of the YAML library.
func yamlProblem(path string, err error) Problem {
	msg := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: ")
	p := Problem{Path: path, Message: "not valid YAML: " + msg}
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		p.Line, _ = strconv.Atoi(m[1]) // digits by the expression; an overflow leaves no line
		p.Message = "not valid YAML: " + m[2]
	}
	return p
}

// brokenLine is the line that cannot be read after all those before it, or with which a quotation
// or a bracket begins that nothing ends: the YAML library often names where the mapping around it
// began, or a line too few. A file of more lines than are tried keeps the library's.
func brokenLine(data []byte, named int) int {
	const tried = 2000
	lines := bytes.SplitAfter(data, []byte("\n"))
	if len(lines) > tried {
		return named
	}
	for end := len(data); len(lines) > 0; lines = lines[:len(lines)-1] {
		end -= len(lines[len(lines)-1])
		var doc yaml.Node
		if err := yaml.NewDecoder(bytes.NewReader(data[:end])).Decode(&doc); err == nil || errors.Is(err, io.EOF) {
			return len(lines)
		}
	}
	return named
}

// tabProblem says it where a tab in the indentation is what is wrong: the YAML library has no word
// for that.
func tabProblem(data []byte, p Problem) Problem {
	for i, line := range strings.Split(string(data), "\n") {
		if indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; strings.Contains(indent, "\t") && strings.TrimSpace(line) != "" &&
			(p.Line == 0 || i+1 >= p.Line-1) {
			return Problem{Path: p.Path, Line: i + 1, Message: "not valid YAML: a tab stands before the text of this line; YAML is indented with spaces, so write spaces in its place"}
		}
	}
	return p
}

// scanner looks for what is wrong anywhere in a YAML tree, whatever the keys mean.
type scanner struct{ problems Problems }

func (s *scanner) add(path string, line int, format string, args ...any) {
	s.problems = append(s.problems, Problem{Path: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (s *scanner) scan(n *yaml.Node, path string) {
	if len(s.problems) > 2*maxProblems {
		return
	}
	switch {
	case n.Kind == yaml.AliasNode:
		s.add(path, n.Line, "aliases (*%s) are not read here; write the value out", clip.Text(n.Value, 40))
		return
	case n.Anchor != "":
		s.add(path, n.Line, "anchors (&%s) are not read here; remove it", clip.Text(n.Anchor, 40))
	case n.Style&yaml.TaggedStyle != 0:
		s.add(path, n.Line, "tags (%s) are not read here; remove it", clip.Text(n.Tag, 40))
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if why := unfilled(path, n.Value); why != "" {
			s.add(path, n.Line, "%s", why)
		}
	case yaml.MappingNode:
		seen := make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if k.Kind != yaml.ScalarNode {
				s.add(path, k.Line, "a key must be one word, not a list or a mapping")
				continue
			}
			p := join(path, k.Value)
			if first, twice := seen[k.Value]; twice {
				s.add(p, k.Line, "the key stands twice (first on line %d); keep one", first)
			} else {
				seen[k.Value] = k.Line
			}
			s.scan(v, p)
		}
	case yaml.SequenceNode:
		for i, v := range n.Content {
			s.scan(v, path+"["+strconv.Itoa(i)+"]")
		}
	}
}

var plainKey = regexp.MustCompile(`^[A-Za-z_*][A-Za-z0-9_-]*$`)

// join is the path of a key below another.
func join(path, key string) string {
	switch {
	case !plainKey.MatchString(key) || len(key) > 128:
		return path + "[" + strconv.Quote(clip.Text(key, 64)) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range fieldsOf(t) {
		keys = append(keys, f.key)
	}
	return keys
}

// decoder fills structs from a YAML tree and remembers the line of each path.
type decoder struct {
	lines    map[string]int
	problems Problems
	blank    map[string]bool // sections without a value
	broken   []brokenClient
	over     int             // problems that were counted and not collected
	wrong    map[string]bool // paths that have a problem
}

// brokenClient is what could be read of an http_client that is refused as a whole.
type brokenClient struct {
	path   string
	client *commonconfig.HTTPClientConfig
}

func newDecoder(problems Problems) *decoder {
	d := &decoder{lines: map[string]int{}, problems: problems, blank: map[string]bool{}, wrong: map[string]bool{}}
	for _, p := range problems {
		d.wrong[p.Path] = true
	}
	return d
}

func (d *decoder) add(path string, line int, format string, args ...any) {
	d.wrong[path] = true
	if len(d.problems) >= maxCollected {
		d.over++
		return
	}
	d.problems = append(d.problems, Problem{Path: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

// line is the line of the path, or of the nearest thing above it that stands in the file.
func (d *decoder) line(path string) int {
	for {
		if l, ok := d.lines[path]; ok {
			return l
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return d.lines[""]
		}
		path = path[:i]
	}
}

// has tells whether the path stands in the file.
func (d *decoder) has(path string) bool {
	_, ok := d.lines[path]
	return ok
}

func (d *decoder) config(root *yaml.Node, cfg *Config) {
	d.value(root, reflect.ValueOf(cfg).Elem(), "", "")
}

// value decodes a node into v. Aliases were refused by the scanner and are passed over.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path, unit string) {
	if n.Kind == yaml.AliasNode {
		d.lines[path] = n.Line
		return
	}
	d.lines[path] = n.Line
	t := v.Type()
	null := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	switch {
	case t == httpClientType:
		if !null && d.want(n, yaml.MappingNode, path, "a mapping") {
			d.httpClient(n, v.Addr().Interface().(*commonconfig.HTTPClientConfig), path)
		}
	case isScalarType(t):
		if null {
			d.add(path, n.Line, "the key has no value; write one, or remove the key")
		} else if d.want(n, yaml.ScalarNode, path, "one value") {
			d.scalar(n, v, path, unit)
		}
	case null: // a section whose lines are all commented out
		d.blank[path] = true
	case t.Kind() == reflect.Struct:
		if d.want(n, yaml.MappingNode, path, "a mapping with the keys "+strings.Join(keysOf(t), ", ")) {
			d.mapping(n, v, path)
		}
	case t == pathsType && n.Kind == yaml.ScalarNode: // one needs no list
		v.Set(reflect.MakeSlice(t, 1, 1))
		d.scalar(n, v.Index(0), path, unit)
	case t.Kind() == reflect.Slice:
		if d.want(n, yaml.SequenceNode, path, "a list") {
			d.list(n, v, path)
		}
	case t.Kind() == reflect.Map:
		if d.want(n, yaml.MappingNode, path, "a mapping") {
			d.entries(n, v, path)
		}
	}
}

func (d *decoder) want(n *yaml.Node, kind yaml.Kind, path, what string) bool {
	if n.Kind != kind {
		is := map[yaml.Kind]string{
			yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: strconv.Quote(clip.Text(n.Value, 40)),
		}[n.Kind]
		if n.Kind == yaml.ScalarNode && (strings.Contains(path, ".headers") || strings.Contains(path, ".http_client")) {
			is = "one value" // perhaps a secret, which a message must not repeat
		}
		d.add(path, n.Line, "must be %s, and is %s", what, is)
	}
	return n.Kind == kind
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	done := make(map[string]bool, len(fields))
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || done[k.Value] {
			continue // the scanner has named it
		}
		done[k.Value] = true
		p := join(path, k.Value)
		if f := byKey(fields, k.Value); f != nil {
			d.value(val, v.FieldByIndex(f.index), p, f.unit)
			continue
		}
		d.lines[p] = k.Line
		d.unknown(p, k, keysOf(v.Type()))
	}
}

// unknown reports a key that is none. What it may have been meant to be is looked for only while
// that is still printed.
func (d *decoder) unknown(path string, key *yaml.Node, siblings []string) {
	hint := "the keys here are " + strings.Join(siblings, ", ")
	if len(d.problems) < maxProblems {
		hint = suggest(key.Value, path, siblings)
	}
	d.add(path, key.Line, "unknown key; %s", hint)
}

func byKey(fields []field, key string) *field {
	for i := range fields {
		if fields[i].key == key {
			return &fields[i]
		}
	}
	return nil
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		elem := v.Index(i)
		if r, ok := elem.Addr().Interface().(interface{ setDefaults() }); ok {
			r.setDefaults()
		}
		p := path + "[" + strconv.Itoa(i) + "]"
		if item.Tag == "!!null" && item.Kind == yaml.ScalarNode && elem.Kind() == reflect.Struct {
			d.lines[p] = item.Line
			d.add(p, item.Line, "the list item is empty; fill it, or remove it")
			continue
		}
		d.value(item, elem, p, "")
	}
}

func (d *decoder) entries(n *yaml.Node, v reflect.Value, path string) {
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.Content)/2))
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			continue
		}
		p := join(path, k.Value)
		key := reflect.ValueOf(k.Value).Convert(t.Key())
		if v.MapIndex(key).IsValid() {
			continue
		}
		elem := reflect.New(t.Elem()).Elem()
		d.value(val, elem, p, "")
		if t.Key() == endpointType && !knownEndpoint(endpoint.ID(k.Value)) {
			d.add(p, k.Line, "unknown endpoint; %s", suggestEndpoint(k.Value))
			continue
		}
		v.SetMapIndex(key, elem)
	}
}

// scalar decodes one word. Every number of the file but a shard's hash is a limit, so 0 and less
// are refused here, for all.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path, unit string) {
	if err := setScalar(n.Value, v, unit); err != nil {
		d.add(path, n.Line, "%q: %s", clip.Text(n.Value, 40), err)
	}
}

var errZero = errors.New("every limit is finite and above zero, and 0 does not mean unlimited; remove the key for its default, or write what is meant")

// plainFloat is a number without an exponent: what else ParseFloat takes is no part of anything.
var plainFloat = regexp.MustCompile(`^-?[0-9]*\.?[0-9]+$`)

func setScalar(s string, v reflect.Value, unit string) error {
	t := v.Type()
	switch {
	case t == momentType:
		m, err := ParseMoment(s)
		if err == nil {
			v.Set(reflect.ValueOf(m))
		}
		return err
	case t == hashType:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return errors.New("not the number of a shard; write 0, 1, 2 and so on, below the modulus")
		}
		v.Set(reflect.ValueOf(Hash{N: n, Set: true}))
		return nil
	case t == durationType:
		if strings.HasPrefix(s, "-") {
			return errZero
		}
		dur, err := parseDuration(s)
		if err == nil && dur <= 0 {
			err = errZero
		}
		v.SetInt(int64(dur))
		return err
	case t == bytesType || unit == "bytes":
		if strings.HasPrefix(s, "-") {
			return errZero
		}
		b, err := ParseBytes(s)
		if err == nil && b <= 0 {
			err = errZero
		}
		v.SetInt(int64(b))
		return err
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
		if err != nil || i > 1<<53 {
			return errors.New("not a whole number that can be used; write it like 50000")
		}
		if i <= 0 && unit == "modulus" {
			return errors.New("the modulus is at least 1")
		}
		if i <= 0 {
			return errZero
		}
		v.SetInt(i)
		return nil
	case t.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !plainFloat.MatchString(s) {
			return errors.New("not a part of the whole; write it like 0.25")
		}
		if t == lendType {
			if f < 0 || f > 1 {
				return errors.New("the part that is lent is 0 to 1")
			}
			v.SetFloat(f)
			return nil
		}
		if f <= 0 || f > 1 {
			return errors.New("the part is above 0 and at most 1")
		}
		v.SetFloat(f)
		return nil
	case t.Kind() == reflect.Bool:
		if s != "true" && s != "false" {
			return errors.New("write true or false")
		}
		v.SetBool(s == "true")
		return nil
	default:
		v.SetString(s)
		return nil
	}
}

func knownEndpoint(id endpoint.ID) bool {
	for _, known := range endpointIDs {
		if id == known {
			return true
		}
	}
	return false
}

func suggestEndpoint(s string) string {
	names := make([]string, len(endpointIDs))
	for i, id := range endpointIDs {
		names[i] = string(id)
	}
	best := nearest.Of(strings.ReplaceAll(s, "/", "_"), names, 3)
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "the endpoints are " + strings.Join(names, ", ")
}
