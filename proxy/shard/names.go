package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Names are the metric names that a group's series may have: those that one of the patterns
// matches. A group without labels of its own, such as that of what a ruler has recorded, would
// otherwise take part in every query.
type Names struct {
	patterns []*labels.FastRegexMatcher
	key      string
}

// Has tells whether a series of the group may have the name.
func (n *Names) Has(name string) bool {
	return slices.ContainsFunc(n.patterns, func(p *labels.FastRegexMatcher) bool { return p.MatchString(name) })
}

// namesOf are the group's, from anchored patterns that have been checked; nil where it has none.
func namesOf(patterns []string) (*Names, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	n := &Names{key: strings.Join(patterns, "\n")}
	for i, text := range patterns {
		p, err := labels.NewFastRegexMatcher(text)
		if err != nil {
			return nil, fmt.Errorf("names[%d]: %w", i, err)
		}
		n.patterns = append(n.patterns, p)
	}
	return n, nil
}

// excludes tells whether no series that matches ms can be in the group, by its names: one of the
// matchers gives the names that it selects one by one, and the group has none of them. A matcher
// that matches the empty string decides nothing.
func (g *Group) excludes(ms []*labels.Matcher) bool {
	if g.Names == nil {
		return false
	}
	for _, m := range ms {
		if m.Name != model.MetricNameLabel || m.Matches("") {
			continue
		}
		values := finite(m)
		if len(values) > 0 && len(values) <= maxPruneValues && !slices.ContainsFunc(values, g.Names.Has) {
			return g.NamesTrusted()
		}
	}
	return false
}

// NamesTrusted tells whether requests of the group are pruned by its names: on every shard a
// replica has been seen to keep to them, and none that may be asked has not. A replica that cannot
// be asked now counts as when it was asked last. Always false without names.
func (g *Group) NamesTrusted() bool { return g.Names != nil && g.trusted((*Replica).Names) }

// Names is what is known of the replica's keeping to its group's names, and why where it is not
// trusted. Empty without names.
func (r *Replica) Names() (state RuleState, why string) {
	n := r.Shard.Group.Names
	if n == nil {
		return "", ""
	}
	return r.known(&r.up.health.names, n.key, model.MetricNameLabel)
}

// checkNames looks whether the group's patterns have each metric name that the server has in its
// shard's time.
func (r *Replica) checkNames(ctx context.Context, last fact) fact {
	n := r.Shard.Group.Names
	if n == nil {
		return fact{}
	}
	return r.checkValues(ctx, last, n.key, model.MetricNameLabel, func(v string) string {
		if !n.Has(v) {
			return fmt.Sprintf("it holds the metric %s, which no pattern of names matches", cleaned(v))
		}
		return ""
	})
}
