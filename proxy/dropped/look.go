package dropped

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/clip"
)

// MaxMessages is how many warnings and infos one request gets at most, together. Where there are
// more, the last one says so.
const MaxMessages = 5

// maxTries bounds the comparisons that one request makes.
const maxTries = 50_000

// Asked is what a request looks at.
type Asked struct {
	// Expr is the parsed query; nil where there is none.
	Expr parser.Expr
	// Selectors are those of the query, or of match[].
	Selectors [][]*labels.Matcher
	// Until is the newest instant that the i-th of Selectors reads, in milliseconds since 1970. Nil
	// is now.
	Until func(i int) int64
}

// Found is what a request would need and cannot have.
type Found struct {
	// Warnings and Infos belong in its answer: at most MaxMessages together.
	Warnings, Infos []string
	// Rules are the IDs of the rules that took it away, sorted, at most MaxMessages of them.
	Rules []string
}

// loss is one metric that is not there, or not whole.
type loss struct {
	metric string
	kind   string
	label  string
	part   bool // others of the series selected are still there
	some   bool // only where the rules of some of the plans are in force
}

// losses are all of a request, with the rules that each is by, the oldest first.
type losses struct {
	rules map[loss][]*rule
	gone  map[loss]map[string]bool // the values that are asked for and gone
	tries int
}

// Look says what of a request was dropped. It changes nothing.
func (s *Set) Look(a Asked) Found {
	if s == nil {
		return Found{}
	}
	var l losses
	for i, ms := range a.Selectors {
		until := int64(1<<63 - 1)
		if a.Until != nil {
			until = a.Until(i)
		}
		for name := range s.named(ms, &l) {
			s.metric(name, ms, until, &l)
		}
	}
	if a.Expr != nil && len(s.labels) > 0 {
		newest := int64(1<<63 - 1)
		if a.Until != nil {
			newest = -1 << 63
			for i := range a.Selectors {
				newest = max(newest, a.Until(i))
			}
		}
		s.grouped(a.Expr, newest, &l)
	}
	if len(l.rules) == 0 {
		return Found{}
	}
	return l.found()
}

// try counts one comparison and tells whether there may be another.
func (l *losses) try() bool {
	l.tries++
	return l.tries <= maxTries
}

func (l *losses) add(at loss, r *rule, values ...string) {
	if l.rules == nil {
		l.rules, l.gone = map[loss][]*rule{}, map[loss]map[string]bool{}
	}
	if !slices.Contains(l.rules[at], r) {
		l.rules[at] = append(l.rules[at], r)
	}
	if len(values) > 0 && l.gone[at] == nil {
		l.gone[at] = map[string]bool{}
	}
	for _, v := range values {
		l.gone[at][v] = true
	}
}

// named yields the names of metrics that some rule touches and that the selector names: by
// equality, by a list, or by an expression that they match.
func (s *Set) named(ms []*labels.Matcher, l *losses) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var by *labels.Matcher
		var list []string
		for _, m := range ms {
			if m.Name != model.MetricNameLabel || m.Type != labels.MatchEqual && m.Type != labels.MatchRegexp {
				continue
			}
			switch set, ok := finite(m); {
			case ok && (list == nil || len(set) < len(list)):
				by, list = m, set
			case by == nil:
				by = m
			}
		}
		if by == nil {
			return
		}
		if list == nil {
			prefix := by.Prefix()
			list = s.names[sort.SearchStrings(s.names, prefix):]
			if end := slices.IndexFunc(list, func(name string) bool { return !strings.HasPrefix(name, prefix) }); end >= 0 {
				list = list[:end]
			}
		}
		for _, name := range list {
			if !l.try() {
				return
			}
			if len(s.rules[name]) > 0 && accepts(ms, model.MetricNameLabel, name) && !yield(name) {
				return
			}
		}
	}
}

// accepts tells whether all matchers on the label let the value through. Where there are none, they
// do.
func accepts(ms []*labels.Matcher, label, value string) bool {
	for _, m := range ms {
		if m.Name == label && !matches(m, value) {
			return false
		}
	}
	return true
}

// metric notes what of one metric a selector cannot have.
func (s *Set) metric(name string, ms []*labels.Matcher, until int64, l *losses) {
	for _, r := range s.rules[name] {
		if until < r.since.UnixMilli() || !accepts(ms, model.JobLabel, r.Job) {
			continue
		}
		switch r.Kind {
		case kindNames:
			if at := (loss{metric: name, kind: r.Kind}); s.missed(name, ms, &at) {
				l.add(at, r)
			}
		case kindLabel:
			if on(ms, r.Label) {
				some := s.elsewhereWhole(name, r, nil, l)
				l.add(loss{metric: name, kind: r.Kind, label: r.Label, part: some, some: some}, r)
			}
		default:
			if r.Kind == kindBuckets && r.Risk == "high" && !on(ms, r.Label) {
				continue // a quantile, for which the buckets that are left were found to be enough
			}
			var gone []string
			for _, v := range r.Values {
				if !l.try() {
					return
				}
				if accepts(ms, r.Label, v) {
					gone = append(gone, v)
				}
			}
			if len(gone) > 0 {
				some := s.elsewhereWhole(name, r, gone, l)
				part := some || !only(ms, r.Label, r.Values)
				l.add(loss{metric: name, kind: r.Kind, label: r.Label, part: part, some: some}, r, gone...)
			}
		}
	}
}

// missed tells whether a selector of a metric can be said to need what a job no longer has of it.
// Where no job keeps the metric, it does. Where another does, the selector may be one that was
// always about that other job and says so by a label that this package does not know of: then
// nothing is said. Where only some of the plans drop the metric, and others of them are of servers
// that may have it, no more than a part may be missing.
func (s *Set) missed(name string, ms []*labels.Matcher, at *loss) bool {
	at.some = s.some[name]
	at.part = at.some
	if !s.elsewhere[name] {
		return true
	}
	var jobs []string
	for _, r := range s.rules[name] {
		if r.Kind == kindNames {
			jobs = append(jobs, r.Job)
		}
	}
	if only(ms, model.JobLabel, jobs) {
		return true
	}
	at.part = true
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name != model.MetricNameLabel && m.Name != model.JobLabel })
}

// on tells whether a selector has a matcher on the label that refuses anything.
func on(ms []*labels.Matcher, label string) bool {
	return slices.ContainsFunc(ms, func(m *labels.Matcher) bool {
		return m.Name == label && !(m.Type == labels.MatchRegexp && (m.Value == ".*" || m.Value == "")) &&
			!(m.Type == labels.MatchNotRegexp && m.Value == "")
	})
}

// only tells whether a selector can find nothing but these values of a label: it lists what it
// wants, and all of that is gone.
func only(ms []*labels.Matcher, label string, gone []string) bool {
	for _, m := range ms {
		if m.Name != label {
			continue
		}
		list, ok := finite(m)
		if !ok {
			continue
		}
		wanted := func(v string) bool { return accepts(ms, label, v) }
		isGone := func(v string) bool {
			return slices.Contains(gone, v) || label == labels.BucketLabel && slices.Contains(gone, v+".0")
		}
		if !slices.ContainsFunc(list, func(v string) bool { return wanted(v) && !isGone(v) }) {
			return true
		}
	}
	return false
}

// grouped notes labels that are gone and by which an aggregation divides a metric directly, with
// nothing between that could bring the label back.
func (s *Set) grouped(e parser.Expr, until int64, l *losses) {
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		sel, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		by := groupedBy(path)
		if !slices.ContainsFunc(by, func(label string) bool { return s.labels[label] }) {
			return nil
		}
		for name := range s.named(sel.LabelMatchers, l) {
			for _, r := range s.rules[name] {
				if r.Kind == kindLabel && slices.Contains(by, r.Label) && until >= r.since.UnixMilli() &&
					accepts(sel.LabelMatchers, model.JobLabel, r.Job) {
					some := s.elsewhereWhole(name, r, nil, l)
					l.add(loss{metric: name, kind: r.Kind, label: r.Label, part: some, some: some}, r)
				}
			}
		}
		return nil
	})
}

// groupedBy are the labels of the aggregation by (…) that stands directly above a selector.
func groupedBy(path []parser.Node) []string {
	for _, above := range slices.Backward(path) {
		switch n := above.(type) {
		case *parser.AggregateExpr:
			if n.Without {
				return nil
			}
			return n.Grouping
		case *parser.Call:
			if strings.HasPrefix(n.Func.Name, "label_") || strings.HasPrefix(n.Func.Name, "absent") || n.Func.Name == "info" {
				return nil
			}
		case *parser.BinaryExpr:
			return nil // the other side may bring the label
		}
	}
	return nil
}

// found writes the messages.
func (l *losses) found() Found {
	all := slices.SortedFunc(maps.Keys(l.rules), func(a, b loss) int {
		part := func(x loss) int {
			if x.part {
				return 1
			}
			return 0
		}
		return cmp.Or(part(a)-part(b), strings.Compare(a.metric, b.metric), strings.Compare(a.kind, b.kind),
			strings.Compare(a.label, b.label))
	})
	var f Found
	for i, at := range all {
		if i == MaxMessages {
			break
		}
		f.Rules = append(f.Rules, l.rules[at][0].ID)
		text := l.text(at)
		if more := len(all) - MaxMessages; i == MaxMessages-1 && more > 0 {
			text += fmt.Sprintf("; and so are %d more that this request names", more)
		}
		if at.part {
			f.Infos = append(f.Infos, text)
		} else {
			f.Warnings = append(f.Warnings, text)
		}
	}
	slices.Sort(f.Rules)
	f.Rules = slices.Compact(f.Rules)
	return f
}

// text is the message about one loss.
func (l *losses) text(at loss) string {
	rules := l.rules[at]
	r := rules[0]
	var b strings.Builder
	switch at.kind {
	case kindNames:
		fmt.Fprintf(&b, "metric %s ", clip.Text(at.metric, 128))
		if at.part {
			fmt.Fprintf(&b, "of job %s ", clip.Text(r.Job, 128))
		}
		b.WriteString("is dropped")
	case kindLabel:
		fmt.Fprintf(&b, "label %s of metric %s is dropped", clip.Text(at.label, 64), clip.Text(at.metric, 128))
	default:
		values := slices.Sorted(maps.Keys(l.gone[at]))
		const most = 3
		texts := make([]string, min(len(values), most))
		for i := range texts {
			texts[i] = fmt.Sprintf("%q", clip.Text(values[i], 40))
		}
		what := "series"
		if at.kind == kindBuckets {
			what = "buckets"
		}
		fmt.Fprintf(&b, "%s of metric %s with %s = %s", what, clip.Text(at.metric, 128), clip.Text(at.label, 64), strings.Join(texts, ", "))
		if more := len(values) - most; more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
		b.WriteString(" are dropped")
	}
	fmt.Fprintf(&b, " since %s by rule %s", r.since.Format(time.DateOnly), clip.Text(r.ID, 128))
	if more := len(rules) - 1; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if r.owner != "" {
		fmt.Fprintf(&b, " (owner %s)", clip.Text(r.owner, 100))
	}
	b.WriteString(": ")
	switch {
	case at.some:
		b.WriteString("answers go without it where that plan's rules are in force; ")
	case at.part:
		b.WriteString("this answer goes without it; ")
	}
	b.WriteString("to have it back, name it in keep.yaml and make the rules again with spillway relabel plan")
	return b.String()
}
