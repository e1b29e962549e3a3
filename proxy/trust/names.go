package trust

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Names are the metric names that a group's series may have, or that a shard has alone (Homes):
// those that one of the patterns matches. A group without labels of its own, such as that of what a
// ruler has recorded, would otherwise take part in every query.
type Names struct {
	patterns []*labels.FastRegexMatcher
	promise  string
}

// NewNames are those of anchored patterns; nil where there is none. The error is about one that is
// not a regular expression.
func NewNames(patterns []string) (*Names, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	n := &Names{promise: Digest(strings.Join(patterns, "\n"))}
	for i, text := range patterns {
		p, err := labels.NewFastRegexMatcher(text)
		if err != nil {
			return nil, fmt.Errorf("names[%d]: %w", i, err)
		}
		n.patterns = append(n.patterns, p)
	}
	return n, nil
}

// Has tells whether a series of the group may have the name.
func (n *Names) Has(name string) bool {
	return slices.ContainsFunc(n.patterns, func(p *labels.FastRegexMatcher) bool { return p.MatchString(name) })
}

// pattern is the first one that matches the name; empty where none does.
func (n *Names) pattern(name string) string {
	for _, p := range n.patterns {
		if p.MatchString(name) {
			return p.GetRegexString()
		}
	}
	return ""
}

// Exclude tells whether no series that matches ms can be in the group: one of the matchers gives
// the names that it selects one by one, and the group has none of them. A matcher that matches the
// empty string decides nothing.
func (n *Names) Exclude(ms []*labels.Matcher) bool {
	return slices.ContainsFunc(ms, func(m *labels.Matcher) bool {
		if m.Name != model.MetricNameLabel || m.Matches("") {
			return false
		}
		values := finite(m)
		return len(values) > 0 && len(values) <= maxPruneValues && !slices.ContainsFunc(values, n.Has)
	})
}

// Promise is what a server of the group has to keep; see Fact.
func (n *Names) Promise() string { return n.promise }

// Wrong says why a metric name breaks it; empty where not.
func (n *Names) Wrong(name string) string {
	if n.Has(name) {
		return ""
	}
	return fmt.Sprintf("it holds the metric %s, which no pattern of names matches", clip.Said(name))
}
