package uses

import (
	"slices"
	"strings"
)

// filling is what documents give for a template of others: an argument of Argo's analyses, or a
// variable of Flagger's metrics. unknown says that one gives something else than a text.
type filling struct {
	values  []string
	unknown bool
}

// gives notes what an object gives for the templates of others, as a Rollout does for its analyses
// and a template for its own arguments.
func (a *asker) gives(n *node) {
	for _, arg := range n.list("args") {
		if arg.object() && arg.text("name") != "" && (arg.get("value") != nil || arg.get("valueFrom") != nil) {
			a.set.give("args."+arg.text("name"), arg.get("value"))
		}
	}
	for _, name := range n.get("templateVariables").names() {
		a.set.give("variables."+name, n.get("templateVariables", name))
	}
}

func (s *Set) give(name string, value *node) {
	if s.given == nil {
		s.given = map[string]*filling{}
	}
	key := variableOf(name)
	if s.given[key] == nil {
		s.given[key] = &filling{}
	}
	f := s.given[key]
	switch text := strings.TrimSpace(value.word()); {
	case text == "" || strings.ContainsAny(text, "{$"):
		f.unknown = true
	case !slices.Contains(f.values, text):
		f.values = append(f.values, text)
	}
}

// fill narrows uses with a template for the name of a metric to the names that the documents give
// for it, where all that is given is known. It is asked when all is read.
func (s *Set) fill() {
	for _, u := range s.toFill {
		sc := &scope{variables: map[string]*variable{}}
		var with []string
		for _, name := range referenced(u.Query) {
			if f := s.given[name]; f != nil && !f.unknown {
				slices.Sort(f.values)
				sc.variables[name] = &variable{name: name, values: f.values}
				with = append(with, f.values...)
			}
		}
		needs, _ := sc.needs(u.Query)
		if len(with) == 0 || len(needs) == 0 || slices.ContainsFunc(needs, func(n Need) bool { return n.everything() }) {
			continue
		}
		before := u.Place() + ": "
		s.Warnings = slices.DeleteFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, before) })
		u.Needs = needs
		u.Reason = "its metric is filled in by other documents; kept is what those that were read give: " + strings.Join(with, ", ")
		s.warn(u, u.Reason)
	}
	s.toFill = nil
}
