package uses

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Unrecorded is a name that is used, that looks like one a rule records, and that no known rule
// records: what its rule reads is not known.
type Unrecorded struct {
	Name string
	// By is the first use of it.
	By *Use
}

// namedUses is how many of them a sentence names.
const namedUses = 3

// MissingRules says, in a part of a sentence, which names have no known rule, and who uses them.
func MissingRules(all []Unrecorded) string {
	var names []string
	for _, u := range all[:min(len(all), namedUses)] {
		names = append(names, u.Name+", used in "+u.By.Place())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more (unrecorded)", more))
	}
	return fmt.Sprintf("no known rule records %d of the used names with a colon: %s", len(all), strings.Join(names, "; "))
}

// windows begins the names of what only nodes with Windows have. Everybody has the dashboards of
// these nodes, which come with the others, and hardly anybody the nodes.
const windows = "windows_"

// Scraped is what stored metrics tell of names with a colon. Its zero value is of a store that
// nobody looked at.
type Scraped struct {
	typed   map[string]bool
	windows bool
}

// Add adds a stored metric, with its type as far as that is known.
func (s *Scraped) Add(name string, kind model.MetricType) {
	s.windows = s.windows || strings.Contains(name, windows)
	if strings.Contains(name, ":") && kind != "" && kind != model.MetricTypeUnknown {
		if s.typed == nil {
			s.typed = map[string]bool{}
		}
		s.typed[strings.Clone(name)] = true
	}
}

// Has tells whether a name is no rule's. What has a type is of an exporter: no server knows a type
// of what a rule records. What would be of Windows is none where nothing of Windows is stored.
func (s *Scraped) Has(name string) bool {
	return s.typed[name] || !s.windows && strings.Contains(name, ":"+windows)
}

// noLevels are what stands before the colon in names of exporters' own metrics, and in what this
// tool's own rules record (emit --format=rules), which read no metric.
var noLevels = []string{"vllm", "sglang", "lmcache", "trtllm", "drop_rules"}

// Names that generators of rules record for the objectives that they are given.
var (
	slothRecords = regexp.MustCompile(`^slo:`)
	pyrraRecords = regexp.MustCompile(`:(?:increase|burnrate)\d+[a-z]+$`)
)

// Unrecorded are the used names of recorded series of which no rule is known, sorted. Names for
// which scraped tells that an exporter has them are none, nor are those that keep.yaml names, whose
// owner knows of them, and what Sloth and Pyrra make of objectives that were read.
func (s *Set) Unrecorded(scraped func(name string) bool) []Unrecorded {
	recorded, kept, found := s.Recorded(), []*Need{}, map[string]*Use{}
	for _, u := range s.Uses {
		for i := range u.Needs {
			if u.Kind == Kept {
				kept = append(kept, &u.Needs[i])
			}
		}
	}
	for _, u := range s.Uses {
		if u.Kind == Kept {
			continue
		}
		for i := range u.Needs {
			for _, name := range u.Needs[i].names() {
				if found[name] == nil && looksRecorded(name) && (strings.Contains(u.Query, name) || strings.Contains(u.Query, "$")) {
					found[name] = u
				}
			}
		}
	}
	var out []Unrecorded
	for _, name := range slices.Sorted(maps.Keys(found)) {
		known := recorded[name] || scraped(name) || s.generated(name) ||
			slices.ContainsFunc(kept, func(n *Need) bool { return !n.everything() && n.named(name) })
		if !known {
			out = append(out, Unrecorded{name, found[name]})
		}
	}
	return out
}

// generated tells whether a generator records the name for objectives that were read.
func (s *Set) generated(name string) bool {
	return s.sloth && slothRecords.MatchString(name) || s.pyrra && pyrraRecords.MatchString(name)
}

// names are the names that the need selects, where it lists them.
func (n *Need) names() []string {
	for _, m := range n.Matchers {
		if m.Name != model.MetricNameLabel {
			continue
		}
		switch m.Type {
		case labels.MatchEqual:
			return []string{m.Value}
		case labels.MatchRegexp:
			return m.SetMatches()
		}
	}
	return nil
}

// looksRecorded tells whether a name has the form of those that rules record, level:metric:how, and
// is no host with its port.
func looksRecorded(name string) bool {
	pieces := strings.Split(name, ":")
	return len(pieces) > 1 && (len(pieces) > 2 || strings.Contains(name, "_")) && !slices.Contains(noLevels, pieces[0]) &&
		!slices.ContainsFunc(pieces, func(p string) bool { return p != "" && strings.Trim(p, "0123456789") == "" })
}

// Guess adds, for a name that no known rule records, the metrics that it itself names: level:M:how
// is made of M, or of M_total, in all likelihood.
func (s *Set) Guess(u Unrecorded) {
	var pieces []string
	for _, p := range strings.Split(u.Name, ":") {
		if strings.Contains(p, "_") {
			pieces = append(pieces, regexp.QuoteMeta(p))
		}
	}
	if len(pieces) == 0 {
		return
	}
	pattern := "(" + strings.Join(pieces, "|") + ")(_seconds)?(_total|_bucket|_count|_sum)?"
	names := labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, pattern)
	s.Add(&Use{
		Kind: u.By.Kind, File: u.By.File, Line: u.By.Line, Owner: u.By.Owner, Last: u.By.Last,
		Where: u.By.Where + ", the unknown rule of " + u.Name, Guessed: true,
		Needs: []Need{{Matchers: []*labels.Matcher{names}, Labels: All}},
	})
}

// Served adds the rules that a server says it evaluates: the data of its /api/v1/rules. Those that
// were read elsewhere are left out. server names it.
func Served(set *Set, server string, data []byte) error {
	var answer struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Type, Name, Query   string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("%s: its rules cannot be read: %w", server, err)
	}
	defer set.hand() // links of its alerts
	recorded, given := set.Recorded(), map[string]bool{}
	for _, u := range set.Uses {
		if u.Kind == Rule {
			given[u.Where+"\x00"+plainQuery(u.Query)] = true
		}
	}
	text := func(s string) *node { return &node{scalar: s} }
	texts := func(m map[string]string) *node {
		n := &node{fields: map[string]*node{}}
		for _, key := range sortedKeys(m) {
			n.keys, n.fields[key] = append(n.keys, key), text(m[key])
		}
		return n
	}
	for _, g := range answer.Groups {
		for _, r := range g.Rules {
			what := "alert"
			if r.Type == "recording" {
				what = "record"
			}
			where := map[string]string{"alert": "alert ", "record": "rule "}[what] + r.Name
			if given[where+"\x00"+plainQuery(r.Query)] || r.Name == "" || r.Query == "" {
				continue
			}
			n := &node{keys: []string{what, "expr", "labels", "annotations"}, fields: map[string]*node{
				what: text(r.Name), "expr": text(r.Query), "labels": texts(r.Labels), "annotations": texts(r.Annotations),
			}}
			before := len(set.Uses)
			if err := rule(set, server, g.Name, n); err != nil {
				return err
			}
			for _, u := range set.Uses[before:] {
				if recorded[u.Records] { // a file has it otherwise: what both read is used, and the file's is replayed
					u.Records, u.RuleLabels = "", nil
				}
			}
		}
	}
	return nil
}

// plainQuery is a query in the form in which servers show it.
func plainQuery(query string) string {
	if len(query) > maxText || tooDear(query) != "" {
		return query
	}
	if expr, err := promql.ParseExpr(query); err == nil {
		return expr.String()
	}
	return query
}
