package uses

import (
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// authored are the needs of uses that somebody wrote down, each once, by the names that they are
// about, with the labels of their matchers among those that they read: a value that one of these
// asks for is not one that somebody picked.
type authored struct {
	exact    map[string][]*Need
	open     []*Need
	external map[string]bool
	byName   map[string][]*Need // the open ones, too, of names that were asked for
}

func authoredBy(all []*Use, external map[string]bool) *authored {
	a := &authored{exact: map[string][]*Need{}, external: external, byName: map[string][]*Need{}}
	seen := map[string]bool{}
	for _, u := range all {
		if u.Picked || u.Guessed {
			continue
		}
		for i := range u.Needs {
			n := &u.Needs[i]
			bare := Need{Matchers: n.Matchers, Labels: n.Labels.Or(some(matched(n.Matchers)...)), Quantile: n.Quantile}
			key := bare.key()
			if seen[key] {
				continue
			}
			seen[key] = true
			if name, ok := bare.Name(); ok {
				a.exact[name] = append(a.exact[name], &bare)
			} else {
				a.open = append(a.open, &bare)
			}
		}
	}
	return a
}

// whole is the need without the values of which nobody knows whether they are all that is asked
// for: its metrics with any job and any label. It is false where the need has none such, where it
// names no metric, and where something that was written down asks for all that it does, such as the
// panel that it is from: then that one says what is asked for.
func (a *authored) whole(n *Need) (Need, bool) {
	if n.everything() {
		return Need{}, false
	}
	all := Need{Labels: n.Labels, Quantile: n.Quantile, Absent: n.Absent, Saved: n.Saved}
	var picked []string
	for _, m := range n.Matchers {
		if isName(m) {
			all.Matchers = append(all.Matchers, m)
		} else {
			picked = append(picked, m.Name)
		}
	}
	if len(picked) == 0 || slices.ContainsFunc(a.of(n), func(w *Need) bool { return a.covers(w, n) }) {
		return Need{}, false
	}
	all.Labels = all.Labels.Or(some(picked...)) // a matcher reads its label
	return all, true
}

// of are the needs that may be about all that n is about.
func (a *authored) of(n *Need) []*Need {
	name, ok := n.Name()
	if !ok {
		return a.open
	}
	have, ok := a.byName[name]
	if !ok {
		have = slices.Clone(a.exact[name])
		for _, w := range a.open {
			if w.named(name) {
				have = append(have, w)
			}
		}
		a.byName[name] = have
	}
	return have
}

// covers says whether a need surely selects all series that n selects, and asks as much of them:
// it reads the labels that n reads, and its buckets go elsewhere than into quantiles where those of
// n do. The label job stays anyway.
func (a *authored) covers(w, n *Need) bool {
	if w.Quantile && !n.Quantile ||
		slices.ContainsFunc(w.Matchers, func(m *labels.Matcher) bool { return !a.external[m.Name] && !implied(m, n.Matchers) }) {
		return false
	}
	read := slices.DeleteFunc(matched(n.Matchers), func(label string) bool { return label == model.JobLabel || a.external[label] })
	return w.Labels.Or(n.Labels).Or(some(read...)).equal(w.Labels)
}

// matched are the labels of matchers, but for the name.
func matched(by []*labels.Matcher) []string {
	var out []string
	for _, m := range by {
		if !isName(m) {
			out = append(out, m.Name)
		}
	}
	return out
}

// implied says whether matchers let nothing through that m does not.
func implied(m *labels.Matcher, by []*labels.Matcher) bool {
	if m.Type == labels.MatchRegexp && m.Value == ".*" {
		return true
	}
	return slices.ContainsFunc(by, func(b *labels.Matcher) bool {
		if b.Name != m.Name {
			return false
		}
		switch b.Type {
		case labels.MatchEqual:
			return m.Matches(b.Value)
		case labels.MatchRegexp:
			values := b.SetMatches()
			if len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return !m.Matches(v) }) {
				return true
			}
		}
		return b.Type == m.Type && b.Value == m.Value
	})
}
