package uses

import (
	"slices"

	"github.com/prometheus/common/model"
)

// saved are the needs of a query with the values that its text boxes were saved with; nil where it
// has none.
func (s *scope) saved(query string) []Need {
	if s == nil {
		return nil
	}
	as, typed := &scope{variables: map[string]*variable{}, adhoc: s.adhoc, uid: s.uid}, false
	for name, v := range s.variables {
		as.variables[name] = v
	}
	for _, name := range referenced(query) {
		if v := s.variable(name); v != nil && v.typed {
			fixed := *v
			fixed.typed, typed = false, true
			as.variables[name] = &fixed
		}
	}
	if !typed {
		return nil
	}
	needs, _ := as.needs(query)
	return needs
}

// noteSaved notes which metrics the needs of a query name as they were saved, where only a text box
// lets them be about others: without the box, no need of the query has such a name. Where another
// variable leaves a name open beside the box's value, nothing is noted: the box does not matter.
func noteSaved(needs, saved []Need) {
	if len(saved) == 0 {
		return
	}
	var own [][]string // of before, so that those of saved that are not among them have a box in them
	for i := range needs {
		own = append(own, needs[i].namedBy())
	}
	among := func(all [][]string, names []string) bool {
		return slices.ContainsFunc(all, func(other []string) bool { return slices.Equal(other, names) })
	}
	var fixed [][]string
	for i := range saved {
		by := saved[i].namedBy()
		if saved[i].names() == nil && !among(own, by) {
			return
		}
		fixed = append(fixed, by)
	}
	for i := range needs {
		need := &needs[i]
		if need.names() != nil || among(fixed, own[i]) {
			continue
		}
		for j := range saved {
			for _, name := range saved[j].names() {
				if need.named(name) && !slices.Contains(need.Saved, name) {
					need.Saved = append(need.Saved, name)
				}
			}
		}
	}
}

// namedBy are the matchers on the name, as texts.
func (n *Need) namedBy() []string {
	var out []string
	for _, m := range n.Matchers {
		if m.Name == model.MetricNameLabel {
			out = append(out, m.String())
		}
	}
	return out
}
