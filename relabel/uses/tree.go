package uses

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// The bounds on a document.
const (
	maxFile  = plainfile.MaxFile
	maxNodes = 2 << 20
	maxNest  = 500
)

// node is a value of a JSON or YAML document that knows its line. A nil node is one that is not
// there.
type node struct {
	line int
	// literal says that a text begins on the line after and keeps its line breaks, as YAML's block
	// scalars do.
	literal bool
	scalar  any // string, bool, json.Number or nil, where it is neither of the following
	keys    []string
	fields  map[string]*node
	items   []*node
}

// get is the value at the path, nil if there is none.
func (n *node) get(path ...string) *node {
	for _, key := range path {
		if n == nil {
			return nil
		}
		n = n.fields[key]
	}
	return n
}

// text is the string at the path, "" if there is none.
func (n *node) text(path ...string) string {
	if n = n.get(path...); n != nil {
		s, _ := n.scalar.(string)
		return s
	}
	return ""
}

// truth is the boolean at the path.
func (n *node) truth(path ...string) bool {
	if n = n.get(path...); n != nil {
		b, _ := n.scalar.(bool)
		return b
	}
	return false
}

// list are the items of the list at the path.
func (n *node) list(path ...string) []*node {
	if n = n.get(path...); n != nil {
		return n.items
	}
	return nil
}

// object tells whether it has fields.
func (n *node) object() bool { return n != nil && n.fields != nil }

// any tells whether f is true of the node or of one below it.
func (n *node) any(f func(*node) bool) bool {
	if n == nil {
		return false
	}
	if f(n) {
		return true
	}
	for _, key := range n.keys {
		if n.fields[key].any(f) {
			return true
		}
	}
	for _, item := range n.items {
		if item.any(f) {
			return true
		}
	}
	return false
}

// inFile is an error about the line in a file.
func inFile(file string, line int, err error) error {
	if line > 0 {
		file += ":" + strconv.Itoa(line)
	}
	return fmt.Errorf("%s: %w", file, err)
}

// lines tells offsets apart by line. It must be asked in rising order.
type lines struct {
	text []byte
	at   int64
	line int
}

func (l *lines) of(offset int64) int {
	offset = min(offset, int64(len(l.text)))
	if offset > l.at {
		l.line += bytes.Count(l.text[l.at:offset], []byte{'\n'})
		l.at = offset
	}
	return l.line
}

// jsonReader reads a JSON document with the lines of its values.
type jsonReader struct {
	dec   *json.Decoder
	lines lines
	nodes int
}

// parseJSON reads one JSON document. first is the number of its first line.
func parseJSON(text []byte, first int) (*node, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	r := jsonReader{dec: json.NewDecoder(bytes.NewReader(text)), lines: lines{text: text, line: first}}
	r.dec.UseNumber()
	n, err := r.value(0)
	if err == nil {
		if _, more := r.dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the document")
		}
	}
	if err != nil {
		end := r.dec.InputOffset()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err, end = io.ErrUnexpectedEOF, int64(len(text))
		}
		return nil, &lineError{r.lines.of(end), err}
	}
	return n, nil
}

// lineError is an error at a line.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// at is the error with its file and line in front.
func at(file string, err error) error {
	var e *lineError
	if errors.As(err, &e) {
		return inFile(file, e.line, e.err)
	}
	return fmt.Errorf("%s: %w", file, err)
}

func (r *jsonReader) value(depth int) (*node, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	return r.from(token, depth)
}

func (r *jsonReader) from(token json.Token, depth int) (*node, error) {
	if r.nodes++; r.nodes > maxNodes {
		return nil, fmt.Errorf("it has more than %d values", maxNodes)
	}
	if depth > maxNest {
		return nil, fmt.Errorf("it nests more than %d deep", maxNest)
	}
	n := &node{line: r.lines.of(r.dec.InputOffset())}
	switch token {
	case json.Delim('{'):
		n.fields = map[string]*node{}
		for r.dec.More() {
			key, err := r.dec.Token()
			if err != nil {
				return nil, err
			}
			value, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.put(key.(string), value)
		}
		_, err := r.dec.Token()
		return n, err
	case json.Delim('['):
		n.items = []*node{}
		for r.dec.More() {
			item, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		_, err := r.dec.Token()
		return n, err
	}
	n.scalar = token
	return n, nil
}

func (n *node) put(key string, value *node) {
	if _, twice := n.fields[key]; !twice {
		n.keys = append(n.keys, key)
	}
	n.fields[key] = value
}

// parseYAML reads all documents of a YAML text. first is the number of its first line.
func parseYAML(text []byte, first int) ([]*node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var out []*node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		y := yamlReader{shift: first - 1}
		n, err := y.value(&doc, 0)
		if err != nil {
			return nil, err
		}
		if n != nil {
			out = append(out, n)
		}
	}
}

type yamlReader struct {
	shift int
	nodes int
}

func (r *yamlReader) value(y *yaml.Node, depth int) (*node, error) {
	if r.nodes++; r.nodes > maxNodes { // aliases of aliases count each time
		return nil, &lineError{y.Line + r.shift, fmt.Errorf("it has more than %d values", maxNodes)}
	}
	if depth > maxNest {
		return nil, &lineError{y.Line + r.shift, fmt.Errorf("it nests more than %d deep", maxNest)}
	}
	n := &node{line: y.Line + r.shift}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 0 {
			return nil, nil
		}
		return r.value(y.Content[0], depth+1)
	case yaml.AliasNode:
		return r.value(y.Alias, depth+1)
	case yaml.SequenceNode:
		n.items = []*node{}
		for _, c := range y.Content {
			item, err := r.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case yaml.MappingNode:
		n.fields = map[string]*node{}
		for i := 0; i+1 < len(y.Content); i += 2 {
			value, err := r.value(y.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			if y.Content[i].Value == "<<" && y.Content[i].Tag == "!!merge" {
				n.merge(value)
				continue
			}
			n.put(y.Content[i].Value, value)
		}
	case yaml.ScalarNode:
		n.literal = y.Style&yaml.LiteralStyle != 0
		switch y.Tag {
		case "!!null":
		case "!!bool":
			n.scalar = strings.EqualFold(y.Value, "true")
		case "!!int", "!!float":
			n.scalar = json.Number(y.Value)
		default:
			n.scalar = y.Value
		}
	}
	return n, nil
}

// merge takes over what it does not have, as YAML's << does.
func (n *node) merge(o *node) {
	for _, item := range o.items {
		n.merge(item)
	}
	for _, key := range o.keys {
		if _, have := n.fields[key]; !have {
			n.put(key, o.fields[key])
		}
	}
}

// word is the scalar as it stands: texts, and numbers where a text was meant.
func (n *node) word(path ...string) string {
	if n = n.get(path...); n == nil {
		return ""
	}
	switch v := n.scalar.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// first is the line where a text inside of this value begins.
func (n *node) first() int {
	if n.literal {
		return n.line + 1
	}
	return n.line
}
