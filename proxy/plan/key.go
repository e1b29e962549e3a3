package plan

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// key are the labels that tell a set of shards apart: two series that agree on all of them, none of
// them empty, are on one shard. Within a group that is what shard_by says, or hashmod once it was
// checked; groups are told apart by a label that all of them have, each with another value.
type key struct {
	known  bool
	stored []string // of shard_by: stored on series, and possibly missing there
	group  []string // of the groups: on every series
	// together: the series that lack a stored one are all on one shard, as if it were a value.
	together bool
	several  bool // of one group there are several shards
	units    bool // shards take type and unit for parts of a metric's name, so that series of one name may become equal when they lose it

	nodes *nodes // of the query
}

// names are all of them; not to be changed.
func (k key) names() []string {
	if len(k.group) == 0 {
		return k.stored
	}
	return slices.Concat(k.stored, k.group)
}

// kept tells whether a grouping or matching keeps all of them: list are the labels that it keeps
// (on, by) or drops.
func (k key) kept(list []string, keeps bool) bool {
	for _, name := range k.names() {
		if slices.Contains(list, name) != keeps {
			return false
		}
	}
	return true
}

// keyOf finds what tells the shards of the legs apart; not known where nothing does.
func keyOf(legs []Leg) key {
	k := key{known: true}
	var groups []*shard.Group
	var several []bool // of groups: more than one shard
	for _, l := range legs {
		if i := slices.Index(groups, l.Shard.Group); i >= 0 {
			several[i] = true
		} else {
			groups, several = append(groups, l.Shard.Group), append(several, false)
		}
	}
	for i, g := range groups {
		if !several[i] {
			continue
		}
		own := g.ShardKey()
		// most of what runs on shards drops a name, a type and a unit
		if len(own) == 0 || slices.ContainsFunc(own, schema.IsMetadataLabel) {
			return key{several: true}
		}
		k.several = true
		k.stored = append(k.stored, own...)
	}
	slices.Sort(k.stored)
	k.stored = slices.Compact(k.stored)
	if len(groups) < 2 {
		return k
	}
	found := false
	groups[0].Labels.Range(func(l labels.Label) {
		if found {
			return
		}
		seen := map[string]bool{}
		for _, g := range groups {
			v := g.Labels.Get(l.Name)
			if v == "" || seen[v] {
				return
			}
			seen[v] = true
		}
		found, k.group = true, []string{l.Name}
	})
	if !found {
		return key{several: k.several}
	}
	return k
}

// guard is a selector with a label that its series must have: before results of shards are put side
// by side that rests on shard_by, the shards are asked whether there is a series without it.
type guard struct {
	// Matchers are the selector's, and one for the missing label.
	matchers []*labels.Matcher
	selector *parser.VectorSelector
}

// guardOf lists what must be asked so that no result of e lacks a label of k; none where the
// selectors' own matchers say so.
func guardOf(e parser.Expr, k key) []guard {
	var out []guard
	if k.together {
		return nil
	}
	selectors(e, func(vs *parser.VectorSelector) {
		for _, name := range k.stored {
			if lacks(vs, name) {
				out = append(out, guard{append(slices.Clone(vs.LabelMatchers), labels.MustNewMatcher(labels.MatchEqual, name, "")), vs})
			}
		}
	})
	return out
}

// lacking tells whether guardOf has something to ask.
func lacking(e parser.Expr, k key) bool {
	found := false
	if k.together {
		return false
	}
	selectors(e, func(vs *parser.VectorSelector) {
		found = found || slices.ContainsFunc(k.stored, func(name string) bool { return lacks(vs, name) })
	})
	return found
}

// lacks tells whether the selector's matchers leave series without the label.
func lacks(vs *parser.VectorSelector, name string) bool {
	return !slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == name && !m.Matches("") })
}
