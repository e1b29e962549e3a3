package usage

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

const (
	// maxNamesBytes bounds the names of a line, and as much again the matchers on names: as long as
	// a query may be by default, so that hardly any honest one has more.
	maxNamesBytes = 64 << 10
	// maxListBytes bounds each of a line's other lists.
	maxListBytes = 16 << 10
)

// What Facts.Cut can have.
const (
	// CutMetrics says that names are missing: of Metrics, or in a matcher on __name__.
	CutMetrics = "metrics"
	// CutMatchers says that matchers are missing, but none on __name__.
	CutMatchers = "matchers"
	// CutRepeat says that all lists are left out, since an earlier line of the same hour has them.
	CutRepeat   = "repeat"
	cutGrouping = "grouping"
	cutLE       = "le"
)

// facts collects sets while an expression is walked.
type facts struct {
	metrics, names, matchers, grouping, le map[string]struct{} // names are the matchers on __name__

	nameless, all bool // a selector has no matcher on __name__; or none at all
}

func newFacts() *facts {
	return &facts{
		metrics: map[string]struct{}{}, names: map[string]struct{}{}, matchers: map[string]struct{}{},
		grouping: map[string]struct{}{}, le: map[string]struct{}{},
	}
}

func (f *facts) done(query string) Facts {
	out := Facts{Query: cut(query), Nameless: f.nameless, Cut: []string{}}
	list := func(name string, set map[string]struct{}, most int) []string {
		values, whole := bounded(set, most)
		if !whole && !slices.Contains(out.Cut, name) {
			out.Cut = append(out.Cut, name)
		}
		return values
	}
	out.Metrics = list(CutMetrics, f.metrics, maxNamesBytes)
	names := list(CutMetrics, f.names, maxNamesBytes)
	out.Matchers = append(names, list(CutMatchers, f.matchers, maxListBytes)...)
	if f.all && !slices.Contains(out.Cut, CutMatchers) { // no list of matchers can say so
		out.Cut = append(out.Cut, CutMatchers)
	}
	out.Grouping = list(cutGrouping, f.grouping, maxListBytes)
	out.LE = list(cutLE, f.le, maxListBytes)
	slices.Sort(out.Matchers)
	slices.Sort(out.Cut)
	return out
}

// bounded are the values, sorted, of which those that no longer fit are left out, and whether all
// are there. A caller chooses how long they are, and so how soon the log is full.
func bounded(set map[string]struct{}, most int) (values []string, whole bool) {
	values, whole = []string{}, true
	for _, v := range slices.Sorted(maps.Keys(set)) {
		if len(v) > most {
			whole = false
			continue
		}
		most -= len(v)
		values = append(values, v)
	}
	return values, whole
}

func add(set map[string]struct{}, values ...string) {
	for _, v := range values {
		set[v] = struct{}{}
	}
}

// Describe returns what the expression looks at. Its cost is linear in the expression: parse and
// bound it first.
func Describe(expr parser.Expr) Facts {
	f := newFacts()
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			f.selector(n.LabelMatchers)
		case *parser.AggregateExpr:
			add(f.grouping, n.Grouping...)
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil {
				add(f.grouping, m.MatchingLabels...)
				add(f.grouping, m.Include...)
			}
		case *parser.Call:
			f.call(n)
		}
		return nil
	})
	return f.done(tree.String(expr))
}

// DescribeSelectors is Describe for the selectors of match[] and of remote read. The text of
// several is separated by commas, in the order given.
func DescribeSelectors(selectors [][]*labels.Matcher) Facts {
	f := newFacts()
	texts := make([]string, len(selectors))
	for i, matchers := range selectors {
		f.selector(matchers)
		texts[i] = SelectorText(matchers)
	}
	return f.done(strings.Join(texts, ","))
}

// DescribeText is for what could not be parsed: the text as it came, and no facts.
func DescribeText(query string) Facts { return newFacts().done(strings.ToValidUTF8(query, "\uFFFD")) }

// SelectorText is the selector as PromQL prints it, matchers in order.
func SelectorText(matchers []*labels.Matcher) string {
	s := parser.VectorSelector{LabelMatchers: matchers}
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && plainName(m.Value) {
			s.Name = m.Value
			break
		}
	}
	if text := s.String(); text != "" {
		return text
	}
	return "{}"
}

// plainName tells whether a metric's name can stand before the braces.
func plainName(name string) bool {
	for i, c := range name {
		if c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' {
			continue
		}
		return false
	}
	return name != ""
}

func (f *facts) selector(matchers []*labels.Matcher) {
	onName := func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel }
	f.nameless = f.nameless || !slices.ContainsFunc(matchers, onName)
	f.all = f.all || len(matchers) == 0
	for _, m := range matchers {
		values := finite(m)
		switch {
		case onName(m) && len(values) > 0:
			add(f.metrics, values...)
			continue
		case onName(m):
			add(f.names, m.String())
			continue
		case m.Name == labels.BucketLabel:
			add(f.le, values...)
		}
		add(f.matchers, m.String())
	}
}

// finite are the values that a matcher lets through, where it names them one by one; none of them
// is empty.
func finite(m *labels.Matcher) []string {
	switch m.Type {
	case labels.MatchEqual:
		if m.Value != "" {
			return []string{m.Value}
		}
	case labels.MatchRegexp:
		values := m.SetMatches()
		if len(values) > 0 && !slices.Contains(values, "") && !m.Matches("") {
			return values
		}
	}
	return nil
}

// call adds the labels that a function reads by name, and the metric that info reads unasked.
func (f *facts) call(c *parser.Call) {
	text := func(i int) {
		if i < len(c.Args) {
			if s, ok := tree.Bare(c.Args[i]).(*parser.StringLiteral); ok {
				add(f.grouping, s.Val)
			}
		}
	}
	switch c.Func.Name {
	case "label_replace": // (v, dst, replacement, src, regex)
		text(3)
	case "label_join": // (v, dst, separator, src...)
		for i := 3; i < len(c.Args); i++ {
			text(i)
		}
	case "sort_by_label", "sort_by_label_desc": // (v, label...)
		for i := 1; i < len(c.Args); i++ {
			text(i)
		}
	case "histogram_quantile", "histogram_fraction", "histogram_quantiles":
		add(f.grouping, labels.BucketLabel) // of classic histograms every bucket is read
	case "info": // (v, selector): joined by instance and job; target_info unless the selector names another metric
		add(f.grouping, "instance", "job")
		if len(c.Args) > 1 {
			if s, ok := tree.Bare(c.Args[1]).(*parser.VectorSelector); ok {
				if slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel }) {
					return
				}
			}
		}
		add(f.metrics, "target_info")
	}
}
