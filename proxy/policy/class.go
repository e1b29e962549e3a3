package policy

import (
	resyntax "regexp/syntax"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Class tells how much a selector narrows down what it selects. A greater class is held to stricter
// rules.
type Class uint8

// The classes.
const (
	// Named selectors name their metrics: an equality or a finite alternation on __name__.
	Named Class = iota
	// Other selectors name no metric but select something, such as {job="api"}. Metadata without
	// match[] belongs here too.
	Other
	// Unselective selectors select nothing in particular: they have only negations, empty values,
	// .* and .+, such as {le!=""}.
	Unselective
)

// String is the class's name in logs and in tests.
func (c Class) String() string {
	switch c {
	case Named:
		return "named"
	case Other:
		return "other"
	default:
		return "unselective"
	}
}

// classOf judges a selector after matchers on group and replica labels are taken out. One that is
// emptied by that is asked as no match[] at labels and label_values, which costs a shard next to
// nothing, and as {__name__!=""} elsewhere.
func classOf(matchers []*labels.Matcher, group func(string) bool, id endpoint.ID) Class {
	for _, m := range matchers { // first, since to judge a regular expression is dear and a name often stands behind it
		if m.Name == model.MetricNameLabel && !group(m.Name) && finite(m) {
			return Named
		}
	}
	class, left := Unselective, 0
	for _, m := range matchers {
		if group(m.Name) {
			continue
		}
		left++
		if !vague(m) {
			class = Other
		}
	}
	if left == 0 && len(matchers) > 0 && id.Decode() == endpoint.DecodeStrings {
		return Other
	}
	return class
}

// finite tells whether the matcher is an equality with, or an alternation of, values that are
// written out.
func finite(m *labels.Matcher) bool {
	switch m.Type {
	case labels.MatchEqual:
		return m.Value != ""
	case labels.MatchRegexp:
		for _, v := range m.SetMatches() {
			if v != "" {
				return true
			}
		}
		return m.Value != "" && strings.Trim(m.Value, "|") != "" && literalAlternation(m.Value)
	}
	return false
}

// literalAlternation tells whether the regular expression is literals joined by |. Prometheus
// matches those with a map and never compiles them.
func literalAlternation(re string) bool { return !strings.ContainsAny(re, `\.+*?()[]{}^$`) }

// vague tells whether the matcher, positive as it may look, keeps nearly everything: a negation, an
// empty value, or a regular expression that any text or any text that is not empty matches.
func vague(m *labels.Matcher) bool {
	switch m.Type {
	case labels.MatchEqual:
		return m.Value == ""
	case labels.MatchRegexp:
		if m.Matches("") {
			return true // like an empty value: every series that lacks the label is selected
		}
		if m.Prefix() != "" || literalAlternation(m.Value) {
			return false // and is not read once more, which costs as much as a part of compiling it
		}
		re, err := resyntax.Parse(m.Value, resyntax.Perl|resyntax.DotNL)
		return err == nil && vagueRegexp(re)
	}
	return true
}

// broadClass is the number of characters from which on a character class is taken for "any
// character". \d has ten.
const broadClass = 16

// vagueRegexp tells whether the expression demands no particular text. The depth of re is bounded
// by the parser that made it.
func vagueRegexp(re *resyntax.Regexp) bool {
	switch re.Op {
	case resyntax.OpLiteral, resyntax.OpNoMatch:
		return false
	case resyntax.OpCharClass:
		n := 0
		for i := 0; i+1 < len(re.Rune); i += 2 {
			n += int(re.Rune[i+1]-re.Rune[i]) + 1
		}
		return n > broadClass
	case resyntax.OpStar, resyntax.OpQuest:
		return true
	case resyntax.OpRepeat:
		return re.Min == 0 || vagueRegexp(re.Sub[0])
	case resyntax.OpPlus, resyntax.OpCapture:
		return vagueRegexp(re.Sub[0])
	case resyntax.OpConcat:
		for _, sub := range re.Sub {
			if !vagueRegexp(sub) {
				return false
			}
		}
		return true
	case resyntax.OpAlternate:
		for _, sub := range re.Sub {
			if vagueRegexp(sub) {
				return true
			}
		}
		return false
	}
	return true // any character, the empty text, the ends of the text
}
