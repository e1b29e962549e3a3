package server

import (
	"maps"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

func newExactSeen(selected []raw.Selected, calls []exactCall) exactSeen {
	s := exactSeen{calls: calls, base: map[string][]exactCall{}}
	for _, sel := range selected { // of which parcels are one
		i := slices.IndexFunc(s.selected, func(o raw.Selected) bool {
			return o.From == sel.From && o.Until == sel.Until && matchersText(o.Matchers) == matchersText(sel.Matchers)
		})
		if i < 0 {
			s.selected = append(s.selected, sel)
			continue
		}
		both := maps.Clone(sel.Series)
		maps.Copy(both, s.selected[i].Series)
		s.selected[i].Series = both
	}
	for _, c := range calls {
		s.base[c.shard] = append(s.base[c.shard], c)
	}
	return s
}

// exactSeen is what the proxy told about one request.
type exactSeen struct {
	selected []raw.Selected
	calls    []exactCall
	base     map[string][]exactCall // by shard
	pieces   []exactSeen            // of its stretches, where it was answered in several
	grid     merge.Grid             // of a stretch
	parcels  bool                   // the series were read and evaluated some targets at a time
}

// unread tells whether the series that collides, "labels on shard", was not looked at: everything
// was evaluated in Spillway, and it is in nothing that was selected. info() does not read its
// second argument where no series of the first has identifying labels.
func (s *exactSeen) unread(collision string) bool {
	key, _, _ := strings.Cut(collision, " on ")
	return (s.mode() == "raw" || s.parcels) && !slices.ContainsFunc(s.selected, func(sel raw.Selected) bool {
		_, ok := sel.Series[key]
		return ok
	})
}

// mode is the road that the request as a whole took: the most that was left to the shards.
func (s *exactSeen) mode() string {
	modes := map[string]bool{}
	for _, c := range s.calls {
		modes[c.mode] = true
	}
	if len(s.pieces) > 0 {
		return "stretches"
	}
	for _, m := range []string{"push", "splice"} {
		if modes[m] && len(s.selected) > 0 {
			return m + "+raw"
		}
		if modes[m] {
			return m
		}
	}
	if s.parcels {
		return "parcels"
	}
	if len(s.selected) > 0 {
		return "raw"
	}
	if modes["pass"] {
		return "pass"
	}
	return "local"
}
