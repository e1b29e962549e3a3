package uses

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/usage"
)

// External are the labels that Prometheus servers commonly add when they send series elsewhere, and
// that no stored series has: a matcher on them never excludes a series.
var External = []string{"cluster", "prometheus", "prometheus_replica", "replica", "region", "tenant"}

// Set is every use that was found. Its zero value is an empty one. It is not safe for use by
// several goroutines.
type Set struct {
	Uses []*Use
	// Warnings are what people should know and what is no error: a variable that nothing resolves,
	// a keep that has expired, a log that is younger than the window.
	Warnings []string
	// Unrendered are the folders with sources of jsonnet, or templates of dashboards and rules,
	// beside what was read, with the reason why these were not.
	Unrendered []string
	// From and To are the times of the first and the last line of a usage log that counted; zero
	// where no log was read.
	From, To time.Time
	// Logs is how many usage logs were read, and Covers how far back they reach without a long time
	// in which lines are missing, at most their window; 0 where no log has a line that counts.
	Logs   int
	Covers time.Duration
	// Coverage is how much of the window the logs have lines of; its zero value where there is
	// none.
	Coverage Coverage
	// Lost are the requests of that time that the logs lack.
	Lost Losses
	// Refused are the sources of rules and panels that did not show them, with their errors.
	Refused []string
	// Empty are the sources that were named and of which no use came, as they were named.
	Empty []string
	// IgnoreListings, set before anything is read, makes uses that only list keep nothing of what
	// they select without a metric's name. It is for people to say, since such a list may lose
	// values; IgnoredListings tells which they were.
	IgnoreListings bool
	// Nameless is what the logs say of callers without a name.
	Nameless Nameless

	documents map[string]bool // those that were read, by file and content
	made      []madeElsewhere // see Unmade
	excludes  []*exclusion
	leftOut   map[string]int // files below the paths that are left out
	ignored   []*Use         // listings that are left out
	boards    *board         // while files are read of which all dashboards are promised
	inside    int            // how many documents the one that is read stands in
	written   written        // by the usage logs

	templates []*template // whose queries others fill in
	givings   []giving    // what is given for them
	toFill    []unfilled
	given     map[string][]*handing // what links give to variables of dashboards, by name
	handed    []handed              // uses that may have these
	moved     bool                  // objects may be in another namespace than they say

	sloth, pyrra bool // whether objectives of theirs were read
	adapter      bool // whether a rule of prometheus-adapter's configuration was

	matchers map[matcherKey]*labels.Matcher // equal matchers once: a log repeats them a thousand times, and a compiled expression is large
	parsed   map[string]parsedQuery         // a dashboard repeats a query for each of its panels
}

type matcherKey struct {
	kind        labels.MatchType
	name, value string
}

// Add adds a use. Where it has no needs, they are read from its query; a warning about that goes
// into its Reason and into the set's warnings. The set keeps u.
func (s *Set) Add(u *Use) {
	if u.Needs == nil && u.Query != "" {
		needs, warning := s.needs(u.Query)
		u.Needs = slices.Clone(needs)
		if warning != "" {
			if u.Reason == "" {
				u.Reason = warning
			}
			s.warn(u, warning)
		}
	}
	s.settle(u)
	s.Uses = append(s.Uses, u)
}

// settle holds what a use needs as the set does, and tells of what is kept for it without a name.
func (s *Set) settle(u *Use) {
	s.ignoreListing(u)
	for i := range u.Needs {
		for j, m := range u.Needs[i].Matchers {
			u.Needs[i].Matchers[j] = s.intern(m)
		}
	}
	if u.Kind != Logged && u.Kind != Kept {
		s.warnOfEverything(u)
	}
}

// Copy is a set with the same uses, to which others can be added.
func (s *Set) Copy() *Set {
	c := *s
	c.Uses, c.Warnings, c.Refused = slices.Clone(s.Uses), slices.Clone(s.Warnings), slices.Clone(s.Refused)
	return &c
}

// maxTold bounds how many selectors without a name are told of one use, one by one.
const maxTold = 20

// warnOfEverything tells of the use's selectors without a name, where its reason does not.
func (s *Set) warnOfEverything(u *Use) {
	told := 0
	for i := range u.Needs {
		n := &u.Needs[i]
		if !n.everything() || strings.Contains(u.Reason, "every metric that it could name") {
			continue
		}
		if told++; told <= maxTold {
			s.warn(u, "it selects "+n.Selector()+", which names no metric; all series that it selects are kept")
		}
	}
	if told > maxTold {
		s.warn(u, number(int64(told-maxTold), "more selector", "more selectors")+" of it without a metric's name; all series that they select are kept")
	}
}

// Everything are the uses, but for what keep.yaml asks for, with a selector that names no metric:
// they keep all that it matches.
func (s *Set) Everything() []*Use {
	var out []*Use
	for _, u := range s.Uses {
		if u.Kind != Kept && slices.ContainsFunc(u.Needs, func(n Need) bool { return n.everything() }) {
			out = append(out, u)
		}
	}
	return out
}

// OnlyLogged says whether nothing but usage logs tells what is looked at, and what keep.yaml asks
// for.
func (s *Set) OnlyLogged() bool {
	return !slices.ContainsFunc(s.Uses, func(u *Use) bool { return u.Kind != Logged && u.Kind != Kept && !u.Guessed })
}

// AdapterGiven says whether rules of prometheus-adapter were read: what they discover is among the
// uses.
func (s *Set) AdapterGiven() bool { return s.adapter }

// Keeps says whether keep.yaml names a metric, whether it is stored or not.
func (s *Set) Keeps(metric string) bool {
	return slices.ContainsFunc(s.Uses, func(u *Use) bool {
		return u.Kind == Kept && slices.ContainsFunc(u.Needs, func(n Need) bool { return n.Names(metric) })
	})
}

// intern is the one matcher of the set that equals m.
func (s *Set) intern(m *labels.Matcher) *labels.Matcher {
	key := matcherKey{m.Type, m.Name, m.Value}
	if have, ok := s.matchers[key]; ok {
		return have
	}
	if s.matchers == nil {
		s.matchers = map[matcherKey]*labels.Matcher{}
	}
	s.matchers[key] = m
	return m
}

// warn adds a warning about a use, once.
func (s *Set) warn(u *Use, warning string) {
	text := u.Place() + ": " + warning
	if !slices.Contains(s.Warnings, text) {
		s.Warnings = append(s.Warnings, text)
	}
}

// Recorded are the names of the series that recording rules make. Relabelling never sees them.
func (s *Set) Recorded() map[string]bool {
	out := map[string]bool{}
	for _, u := range s.Uses {
		if u.Records != "" {
			out[u.Records] = true
		}
	}
	return out
}

// Entry is one need and all who have it.
type Entry struct {
	Need
	// Uses are in the order in which they were added, each once.
	Uses []*Use
	// Whole says that the need is about all series of metrics of which a usage log has some values
	// alone, and nothing that was written down: who asked for gpu="3" may ask for another one next
	// time. What was asked for is an entry of its own.
	Whole bool
}

// Known says whether any stored series of the metric has the label. A matcher on a label that none
// has is about a label that is added elsewhere (external labels) or comes with a trouble: it
// excludes nothing.
type Known func(metric, label string) bool

// Index finds the needs of a metric. It is not safe for use by several goroutines: it remembers
// what it was asked.
type Index struct {
	uses     []*Use
	entries  []*Entry            // equal needs once, in the order of their first use
	exact    map[string][]*Entry // those that name one metric
	open     []*Entry            // the others
	external map[string]bool
	known    Known
	byName   map[string]*named
}

// named is what is known of one metric's name.
type named struct {
	entries []*Entry
	blind   []*Entry // those of entries that have selected nothing yet
}

// Index makes an index of the set's needs as they are now. Labels in external never exclude a
// series, nor do those that known does not know of a metric; nil knows all.
func (s *Set) Index(external []string, known Known) *Index {
	if known == nil {
		known = func(string, string) bool { return true }
	}
	x := &Index{uses: s.Uses, exact: map[string][]*Entry{}, external: map[string]bool{}, known: known, byName: map[string]*named{}}
	for _, label := range external {
		x.external[label] = true
	}
	written := authoredBy(s.Uses, x.external)
	seen := map[string]*Entry{}
	for _, u := range s.Uses {
		for i := range u.Needs {
			x.add(seen, u, u.Needs[i], false)
			if !u.Picked {
				continue
			}
			if all, ok := written.whole(&u.Needs[i]); ok {
				x.add(seen, u, all, true)
			}
		}
	}
	return x
}

// add notes who has a need.
func (x *Index) add(seen map[string]*Entry, u *Use, n Need, whole bool) {
	key := n.key()
	if whole {
		key += "*"
	}
	e := seen[key]
	if e == nil {
		e = &Entry{Need: n, Whole: whole}
		seen[key] = e
		x.entries = append(x.entries, e)
		if name, ok := e.Name(); ok {
			x.exact[name] = append(x.exact[name], e)
		} else {
			x.open = append(x.open, e)
		}
	}
	if len(e.Uses) == 0 || e.Uses[len(e.Uses)-1] != u {
		e.Uses = append(e.Uses, u)
	}
}

// Entries are all needs, each once, in the order of their first use.
func (x *Index) Entries() []*Entry { return x.entries }

// For are the needs that could select series of this name, in no matter which job. The slice
// belongs to the index.
func (x *Index) For(name string) []*Entry { return x.named(name).entries }

func (x *Index) named(name string) *named {
	n := x.byName[name]
	if n != nil {
		return n
	}
	n = &named{}
	for _, e := range x.exact[name] {
		if e.named(name) { // {__name__="a",__name__!="a"} names a and selects nothing
			n.entries = append(n.entries, e)
		}
	}
	for _, e := range x.open {
		if e.named(name) {
			n.entries = append(n.entries, e)
		}
	}
	n.blind = slices.Clone(n.entries)
	x.byName[name] = n
	return n
}

// Selects tells whether the need selects a series with these labels, __name__ among them. A matcher
// on an external label excludes nothing, nor does one on a label that no stored series of the
// metric has, if the need names metrics: of one that does not, {app="x"}, metrics that lack the
// label are not meant. Values of le and quantile count in both spellings, 30 and 30.0: what a query
// finds depends on the server's version.
func (x *Index) Selects(e *Entry, ls labels.Labels) bool {
	for _, m := range e.Matchers {
		if x.external[m.Name] {
			continue
		}
		value := ls.Get(m.Name)
		if m.Matches(value) {
			continue
		}
		if value == "" && m.Name != model.MetricNameLabel && !e.everything() && !x.known(ls.Get(model.MetricNameLabel), m.Name) {
			continue
		}
		if other := otherSpelling(m.Name, value); other != "" && m.Matches(other) {
			continue
		}
		return false
	}
	return true
}

// otherSpelling is 30 for 30.0 and 30.0 for 30, of labels whose values Prometheus 3 writes as
// numbers; "" where there is none.
func otherSpelling(label, value string) string {
	if label != labels.BucketLabel && label != model.QuantileLabel || value == "" {
		return ""
	}
	if short, ok := strings.CutSuffix(value, ".0"); ok {
		return short
	}
	if _, err := strconv.ParseInt(value, 10, 64); err == nil {
		return value + ".0"
	}
	return ""
}

// Observe shows the index a stored series. What it remembers is which needs select something at
// all; see Blind.
func (x *Index) Observe(ls labels.Labels) {
	n := x.named(ls.Get(model.MetricNameLabel))
	if len(n.blind) == 0 {
		return
	}
	n.blind = slices.DeleteFunc(n.blind, func(e *Entry) bool { return x.Selects(e, ls) })
}

// Blind are the needs of For(name) that selected none of the series of this name that were
// observed: they wait for a trouble, or for a job of another name.
func (x *Index) Blind(name string) []*Entry { return slices.Clone(x.named(name).blind) }

// key tells needs apart; the order of matchers does not.
func (n *Need) key() string {
	texts := make([]string, len(n.Matchers))
	for i, m := range n.Matchers {
		texts[i] = m.String()
	}
	slices.Sort(texts)
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(t)
		b.WriteByte(0)
	}
	b.WriteByte(1)
	if n.Labels.Except {
		b.WriteByte('-')
	}
	for _, name := range n.Labels.Names {
		b.WriteString(name)
		b.WriteByte(0)
	}
	b.WriteByte(1)
	if n.Quantile {
		b.WriteByte('q')
	}
	if n.Absent {
		b.WriteByte('a')
	}
	for _, name := range n.Saved {
		b.WriteByte('s')
		b.WriteString(name)
		b.WriteByte(0)
	}
	return b.String()
}

// Name is the metric's name, where the need selects series of one name only.
func (n *Need) Name() (string, bool) {
	for _, m := range n.Matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && m.Value != "" {
			return m.Value, true
		}
	}
	return "", false
}

// named tells whether the matchers on the name let this one through.
func (n *Need) named(name string) bool {
	for _, m := range n.Matchers {
		if m.Name == model.MetricNameLabel && !m.Matches(name) {
			return false
		}
	}
	return true
}

// Names tells whether the need is about metrics by name, this one among them.
func (n *Need) Names(metric string) bool { return !n.everything() && n.named(metric) }

// Reads tells whether the label can change the answer: it is one of Labels, or a matcher is on it.
func (n *Need) Reads(label string) bool {
	if n.Labels.Has(label) {
		return true
	}
	return slices.ContainsFunc(n.Matchers, func(m *labels.Matcher) bool { return m.Name == label })
}

// Selector is the need as PromQL writes it, for messages.
func (n *Need) Selector() string { return usage.SelectorText(n.Matchers) }
