package uses

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What addresses of dashboards give to variables, in both forms, the uid in them, and what stands
// before an address.
var (
	handsTo       = regexp.MustCompile(`[?&](?:amp;)?var-([\w.-]+)=((?:\$\{[^}]*\}|[^&#\s"'<>()\\])+)`)
	handsOn       = regexp.MustCompile(`([?&](?:amp;)?)\$\{(\w+):queryparam\}`)
	uidIn         = regexp.MustCompile(`/d(?:-solo)?/([^/?#&]+)`)
	beforeAddress = " \t\r\n\"'`<>("
)

// maxAddress is how much of an address before a variable is looked at for its dashboard, and
// maxHanded how many values of a variable are told apart; beyond, it may be any.
const maxAddress, maxHanded = 4 << 10, 1000

// handing is what links give to the variables of one name.
type handing struct {
	uid string // of their dashboard, "" where it may be any
	// values are those that stand in the links. any says that others are not known, of which
	// pattern is a regular expression, empty for any text.
	values  []string
	any     bool
	pattern string
}

// handed is a use whose query has variables that links may give other values.
type handed struct {
	use   *Use
	in    *scope
	needs func(*scope) ([]Need, string)
}

// handings notes what the links in a text give to variables of dashboards. What they take from
// variables of the dashboard that they stand in is known as far as these are.
func (s *Set) handings(text string, in *scope) {
	if !strings.Contains(text, "var-") && !strings.Contains(text, ":queryparam") {
		return
	}
	text = handsOn.ReplaceAllString(templated(text), "${1}var-${2}=$${${2}}")
	for _, at := range handsTo.FindAllStringSubmatchIndex(text, -1) {
		name, value := text[at[2]:at[3]], decoded(text[at[4]:at[5]])
		if value == "$__all" || value == "All" {
			continue
		}
		h := s.handing(uidOf(text[max(0, at[0]-maxAddress):at[0]]), name)
		given := &handing{}
		if source, whole := wholeTemplate(value); whole && in.variable(source) != nil && !strings.Contains(value, ":text") {
			v := in.variable(source)
			given.values, given.any, given.pattern = v.values, v.any || len(v.values) == 0, v.pattern
		} else {
			texts, m, _ := in.expand(value)
			given.values = slices.DeleteFunc(texts, m.in)
			given.any = len(given.values) < len(texts)
		}
		if given.any && h.any && given.pattern != h.pattern {
			given.pattern = ""
		}
		if given.any {
			h.any, h.pattern = true, given.pattern
		}
		for _, value := range given.values {
			switch {
			case slices.Contains(h.values, value):
			case len(h.values) < maxHanded:
				h.values = append(h.values, value)
			default:
				h.any, h.pattern = true, ""
			}
		}
	}
}

// handing is what is given to a variable so far.
func (s *Set) handing(uid, name string) *handing {
	for _, h := range s.given[name] {
		if h.uid == uid {
			return h
		}
	}
	if s.given == nil {
		s.given = map[string][]*handing{}
	}
	h := &handing{uid: uid}
	s.given[name] = append(s.given[name], h)
	return h
}

// uidOf is the uid in the address that a text ends with, "" where none is known.
func uidOf(text string) string {
	all := uidIn.FindAllStringSubmatch(text[strings.LastIndexAny(text, beforeAddress)+1:], -1)
	if len(all) == 0 {
		return ""
	}
	return plain(all[len(all)-1][1])
}

// mayBeHanded notes a use whose query has variables that have not any value already.
func (s *Set) mayBeHanded(u *Use, in *scope, query string, needs func(*scope) ([]Need, string)) {
	if slices.ContainsFunc(referenced(query), func(name string) bool {
		v := in.variable(name)
		return v != nil && (!v.any || v.pattern != "")
	}) {
		s.handed = append(s.handed, handed{u, in, needs})
	}
}

// hand gives variables what links give them, whichever file these stand in. It is asked when all is
// read, and again when more is.
func (s *Set) hand() {
	scopes := map[*scope]*scope{}
	for _, h := range s.handed {
		in, known := scopes[h.in]
		if !known {
			in = s.withHandings(h.in)
			scopes[h.in] = in
		}
		if in == nil {
			continue
		}
		needs, warning := h.needs(in)
		if h.use.Needs = needs; needs == nil {
			h.use.Needs = []Need{}
		}
		if warning != "" && h.use.Reason != warning {
			h.use.Reason = warning
			s.warn(h.use, warning)
		}
		s.settle(h.use)
	}
}

// withHandings is the scope with what links give to its variables; nil where they give nothing new.
func (s *Set) withHandings(in *scope) *scope {
	var out *scope
	for name, v := range in.variables {
		with := v
		for _, h := range s.given[name] {
			if h.uid == "" || in.uid == "" || h.uid == in.uid {
				with = with.handed(h)
			}
		}
		if with == v {
			continue
		}
		if out == nil {
			out = &scope{variables: maps.Clone(in.variables), adhoc: in.adhoc, uid: in.uid}
		}
		out.variables[name] = with
	}
	return out
}

// handed is the variable with what links give it; the same one where that is nothing new.
func (v *variable) handed(h *handing) *variable {
	out := *v
	out.any = v.any || len(v.values) == 0 // it may be any already
	changed := false
	for _, value := range h.values {
		if slices.Contains(out.values, value) {
			continue
		}
		if !changed {
			out.values, out.texts = slices.Clone(v.values), maps.Clone(v.texts)
		}
		out.add(value, value)
		changed = true
	}
	switch {
	case !h.any || v.any && (v.pattern == "" || v.pattern == h.pattern):
	case !v.any:
		out.any, out.literal, out.pattern, changed = true, false, "", true
	default:
		out.pattern, changed = "", true
	}
	if !changed {
		return v
	}
	return &out
}
