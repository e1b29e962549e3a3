package uses

import (
	"fmt"
	"strings"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// promql reads everything that some Prometheus reads, with all of its feature flags.
var promql = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

// Needs are what a query selects, in the order in which it stands there. It never fails: what
// PromQL does not parse is read as MetricsQL, whose needs take all labels; of what that does not
// parse either, every metric is needed whose name stands in it, and the warning says so. Variables
// of Grafana ($name, ${name:format}, [[name]]) may have any value.
func Needs(query string) (needs []Need, warning string) {
	return (*scope)(nil).needs(query)
}

// parsedQuery is what Needs answered.
type parsedQuery struct {
	needs   []Need
	warning string
}

// maxParsed bounds what a set remembers of what it was asked.
const maxParsed = 10_000

// needs is Needs, remembered. The caller must not change the needs.
func (s *Set) needs(query string) ([]Need, string) {
	if have, ok := s.parsed[query]; ok {
		return have.needs, have.warning
	}
	needs, warning := Needs(query)
	if s.parsed == nil || len(s.parsed) >= maxParsed {
		s.parsed = map[string]parsedQuery{}
	}
	s.parsed[query] = parsedQuery{needs, warning}
	return needs, warning
}

// read returns the needs of a text whose variables are replaced by marks.
func read(text string, m marks) (needs []Need, warning string) {
	if strings.TrimSpace(text) == "" {
		return nil, ""
	}
	if dear := tooDear(text); dear != "" {
		return textual(text, m), fmt.Sprintf("the query has %s and was not parsed; every metric named in it is kept", dear)
	}
	expr, err := promql.ParseExpr(text)
	if err != nil && m.in(text) { // a variable in brackets of a regular expression spoils it
		if loose, more := m.loosen(text); loose != text {
			if e, looseErr := promql.ParseExpr(loose); looseErr == nil {
				return analyse(e, more), ""
			}
			text, m = loose, more
		}
	}
	for _, attempt := range m.asNumbers(text) {
		if err == nil {
			break
		}
		if e, numberErr := promql.ParseExpr(attempt); numberErr == nil {
			expr, err = e, nil
		}
	}
	if err == nil {
		return analyse(expr, m), ""
	}
	if tooWide(text) {
		return textual(text, m), "the query has WITH templates that may grow without bound and was not parsed; every metric named in it is kept"
	}
	if vm, vmErr := metricsql.Parse(text); vmErr == nil {
		return selectors(vm, m), ""
	}
	return textual(text, m), fmt.Sprintf("the query does not parse (%v); every metric named in it is kept", err)
}

// selectors are the needs of a MetricsQL expression: all labels of all that it selects. Its
// functions are many, and their treatment of labels differs from Prometheus'.
func selectors(e metricsql.Expr, m marks) []Need {
	var needs []Need
	metricsql.VisitAll(e, func(e metricsql.Expr) {
		me, ok := e.(*metricsql.MetricExpr)
		if !ok {
			return
		}
		if len(me.LabelFilterss) == 0 { // {} selects everything
			needs = append(needs, Need{Labels: All})
		}
		for _, group := range me.LabelFilterss {
			need := Need{Labels: All}
			for _, f := range group {
				if matcher := filter(f); matcher != nil && !m.in(f.Label) {
					need.Matchers = append(need.Matchers, m.matcher(matcher))
				}
			}
			needs = append(needs, need)
		}
	})
	return needs
}

// filter is the matcher that means the same; nil where there is none, which selects more.
func filter(f metricsql.LabelFilter) *labels.Matcher {
	if f.Label == "__graphite__" || strings.HasPrefix(f.Label, "__vm_") {
		return nil // its own language
	}
	kind := labels.MatchEqual
	switch {
	case f.IsNegative && f.IsRegexp:
		kind = labels.MatchNotRegexp
	case f.IsNegative:
		kind = labels.MatchNotEqual
	case f.IsRegexp:
		kind = labels.MatchRegexp
	}
	name := f.Label
	if name == "" {
		name = model.MetricNameLabel
	}
	matcher, err := labels.NewMatcher(kind, name, f.Value)
	if err != nil {
		return nil
	}
	return matcher
}
