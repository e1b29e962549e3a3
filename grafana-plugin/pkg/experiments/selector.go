package experiments

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

// Selector is the text of a selector of metric with matchers: `metric{a="b",c=~"d|e"}`. An empty
// metric is left out.
func Selector(metric string, matchers ...string) string {
	var list []string
	for _, m := range matchers {
		if m != "" {
			list = append(list, m)
		}
	}
	if len(list) == 0 && metric != "" {
		return metric
	}
	return metric + "{" + strings.Join(list, ",") + "}"
}

// OneOf is a matcher of a label with exactly these values, "" for none of them: everything matches
// then. Equal values count once; the order does not matter.
func OneOf(label string, values ...string) string {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	switch len(values) {
	case 0:
		return ""
	case 1:
		return labels.MustNewMatcher(labels.MatchEqual, label, values[0]).String()
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return labels.MustNewMatcher(labels.MatchRegexp, label, strings.Join(quoted, "|")).String()
}

// not is a matcher of a label with any value but this one, also none.
func not(label, value string) string {
	return labels.MustNewMatcher(labels.MatchNotEqual, label, value).String()
}

// Chosen are the matchers of what the query chooses, for the recorded experiment: series. A team
// that tables show as unassigned is none.
func Chosen(q model.Query) []string {
	var out []string
	if slices.Contains(q.Teams, unassigned) {
		q.Teams = append(slices.Clone(q.Teams), "")
	}
	for _, m := range []string{
		OneOf("cluster", q.Clusters...), OneOf("namespace", q.Namespaces...), OneOf("team", q.Teams...),
		OneOf("experiment", q.Experiments...),
	} {
		if m != "" {
			out = append(out, m)
		}
	}
	return out
}

// compiledBytes is how many bytes of names the proxy compiles of what the query chooses: those of
// lists in which one must be escaped. One name alone is compared and not compiled.
func compiledBytes(q model.Query) int {
	n := 0
	for _, list := range [][]string{q.Clusters, q.Namespaces, q.Teams, q.Experiments} {
		if len(list) < 2 || !slices.ContainsFunc(list, mustEscape) {
			continue
		}
		for _, name := range list {
			n += len(name) + 1
		}
	}
	return n
}
