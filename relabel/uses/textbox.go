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

// noteSaved notes which metrics a need names as it was saved, where only a text box lets it be
// about others: without the box, no need of the query has such a name.
func noteSaved(need *Need, saved []Need) {
	if len(saved) == 0 || need.names() != nil {
		return
	}
	own := need.namedBy()
	var names []string
	for i := range saved {
		if slices.Equal(saved[i].namedBy(), own) {
			return
		}
		for _, name := range saved[i].names() {
			if need.named(name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	need.Saved = names
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
