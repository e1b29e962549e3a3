package mix

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

//go:embed mix.yaml
var builtin []byte

// Kinds of queries, and who can hold what they select.
const (
	Instant = "instant"
	Range   = "range"
	One     = "one" // of the shards: every selector names one node
	All     = "all"
)

// The dashboard's variables: each stands in a query for a name.
const nodeVariable, namespaceVariable = "{{node}}", "{{namespace}}"

// Mix is what dashboards ask.
type Mix struct {
	// Range and Step are those of range queries.
	Range, Step time.Duration
	Queries     []Query
	// Bulk is the range query that returns a great many series.
	Bulk string
}

// Query is one panel.
type Query struct {
	// Name is a short word for tables. Kind is Instant or Range; Shards is One or All.
	Name, Kind, Shards string
	// Query is PromQL with the dashboard's variables.
	Query string
}

// Builtin is the committed mix.
func Builtin() Mix {
	m, err := ParseMix(builtin)
	if err != nil {
		panic(fmt.Sprintf("the built-in mix: %v", err)) // a test parses it
	}
	return m
}

// ParseMix reads a mix from YAML and reports everything that is wrong with it, each with its path.
func ParseMix(text []byte) (Mix, error) {
	var m Mix
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		return m, fmt.Errorf("read the mix: %w", err)
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if m.Step < time.Second || m.Range < m.Step {
		bad("step: %s must be at least 1s, and range, %s, at least one step", m.Step, m.Range)
	}
	if m.Range > time.Hour {
		bad("range: %s is more than 1h, which is what the data holds", m.Range)
	}
	if len(m.Queries) == 0 {
		bad("queries: there must be one at least")
	}
	seen := map[string]bool{}
	for i, q := range m.Queries {
		at := fmt.Sprintf("queries[%d]", i)
		if q.Name == "" || seen[q.Name] {
			bad("%s.name: %q is empty or there already", at, q.Name)
		}
		seen[q.Name] = true
		if q.Kind != Instant && q.Kind != Range {
			bad("%s.kind: %q is neither %s nor %s", at, q.Kind, Instant, Range)
		}
		one, err := namesOneNode(q.Query)
		switch {
		case err != nil:
			bad("%s.query: %w", at, err)
		case q.Shards != One && q.Shards != All:
			bad("%s.shards: %q is neither %s nor %s", at, q.Shards, One, All)
		case one != (q.Shards == One):
			bad("%s.shards: %s is wrong: it is %s exactly where every selector has node=%q", at, q.Shards, One, nodeVariable)
		}
	}
	if _, err := namesOneNode(m.Bulk); err != nil {
		bad("bulk: %w", err)
	}
	return m, errors.Join(errs...)
}

// namesOneNode says whether every selector of a query is for the node of the variable.
func namesOneNode(query string) (bool, error) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return false, err
	}
	all, any := true, false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		sel, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		named := false
		for _, m := range sel.LabelMatchers {
			named = named || m.Type == labels.MatchEqual && m.Name == "node" && m.Value == nodeVariable
		}
		any, all = true, all && named
		return nil
	})
	return any && all, nil
}

// path is the path and parameters that ask q for the time until end, with these values of the
// variables.
func (m *Mix) path(q Query, end time.Time, node, namespace string) string {
	v := url.Values{"query": {strings.NewReplacer(nodeVariable, node, namespaceVariable, namespace).Replace(q.Query)}}
	if q.Kind == Instant {
		v.Set("time", seconds(end))
		return "/api/v1/query?" + v.Encode()
	}
	return m.rangePath(v, end)
}

// bulkPath asks for the great many series.
func (m *Mix) bulkPath(end time.Time) string {
	return m.rangePath(url.Values{"query": {m.Bulk}}, end)
}

func (m *Mix) rangePath(v url.Values, end time.Time) string {
	v.Set("start", seconds(end.Add(-m.Range)))
	v.Set("end", seconds(end))
	v.Set("step", strconv.FormatFloat(m.Step.Seconds(), 'f', -1, 64))
	return "/api/v1/query_range?" + v.Encode()
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
