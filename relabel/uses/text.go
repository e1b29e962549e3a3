package uses

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/strutil"
)

// The bounds on a text that is parsed. Prometheus' parser is quadratic in long chains of operators,
// and both parsers call themselves for what nests.
const (
	maxText      = 64 << 10
	maxOperators = 2000
	maxDepth     = 200
	// maxGrowth bounds how often a WITH template of MetricsQL may be written out.
	maxGrowth = 20_000
)

// token is a word, a quoted string or a single character.
type token struct {
	text   string // of a string: as it stands, with quotes
	kind   byte   // 'w' word, 's' string, otherwise the character
	offset int
}

func wordByte(c byte) bool {
	return c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// tokens splits a text whatever it is: no text is an error. Comments and spaces are left out.
func tokens(text string) []token {
	var out []token
	for i := 0; i < len(text); {
		start := i
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
			continue
		case c == '#':
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(text)
			}
			continue
		case c == '"' || c == '\'' || c == '`':
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' && c != '`' {
					i++
				}
			}
			i = min(i+1, len(text))
			out = append(out, token{text[start:i], 's', start})
		case wordByte(c):
			for i < len(text) && wordByte(text[i]) {
				i++
			}
			out = append(out, token{text[start:i], 'w', start})
		default:
			i++
			out = append(out, token{text[start:i], c, start})
		}
	}
	return out
}

// tooDear says what makes a text too large for a parser; empty where nothing does.
func tooDear(text string) string {
	if len(text) > maxText {
		return fmt.Sprintf("%d bytes, more than %d,", len(text), maxText)
	}
	if len(text) < maxDepth {
		return ""
	}
	operators, depth := 0, 0
	for _, t := range tokens(text) {
		switch t.kind {
		case '(', '[', '{':
			if depth++; depth > maxDepth {
				return fmt.Sprintf("more than %d parentheses in each other", maxDepth)
			}
		case ')', ']', '}':
			depth--
		case 'w':
			switch strings.ToLower(t.text) {
			case "and", "or", "unless", "atan2", "offset", "on", "ignoring":
				operators++
			}
		case '+', '-', '*', '/', '%', '^', '=', '!', '<', '>', '@':
			operators++
		}
		if operators > maxOperators {
			return fmt.Sprintf("more than %d operators", maxOperators)
		}
	}
	return ""
}

// tooWide tells whether WITH templates could grow beyond maxGrowth: the product of how often each
// of their names is mentioned bounds it from above.
func tooWide(text string) bool {
	all := tokens(text)
	count := map[string]int{}
	with := false
	for _, t := range all {
		if t.kind == 'w' {
			count[t.text]++
			with = with || strings.EqualFold(t.text, "with")
		}
	}
	if !with {
		return false
	}
	product, defined := 1, map[string]bool{}
	define := func(name string) bool {
		if !defined[name] {
			defined[name] = true
			product *= max(1, count[name]-1)
		}
		return product > maxGrowth
	}
	for i := 1; i < len(all); i++ {
		if all[i].kind != '=' {
			continue
		}
		j := i - 1
		if all[j].kind == ')' { // f(a, b) = …
			for j > 0 && all[j].kind != '(' {
				if all[j].kind == 'w' && define(all[j].text) {
					return true
				}
				j--
			}
			j--
		}
		if j >= 0 && all[j].kind == 'w' && define(all[j].text) {
			return true
		}
	}
	return false
}

// textual are the needs of a text that nothing parses: each word and each string could be the name
// of a metric.
func textual(text string, m marks) []Need {
	needs, _ := textualSteps(text, m)
	return needs
}

// textualSteps is textual; steps is how many tokens were looked at for the ends of selectors.
func textualSteps(text string, m marks) (needs []Need, steps int) {
	seen := map[string]bool{}
	add := func(matcher *labels.Matcher) {
		if key := matcher.String(); !seen[key] {
			seen[key] = true
			needs = append(needs, Need{Matchers: []*labels.Matcher{matcher}, Labels: All})
		}
	}
	name := func(s string) {
		if s != "" {
			add(m.matcher(labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, s)))
		}
	}
	all := tokens(text)
	for i, t := range all {
		switch t.kind {
		case '{':
			if i > 0 && (all[i-1].kind == 'w' && !keyword(all[i-1].text) || all[i-1].kind == 's') {
				continue
			}
			need, ok, looked := nameless(text, all[i:], m)
			steps += looked
			if key := need.key(); ok && !seen[key] { // without a name: all that it selects
				seen[key] = true
				needs = append(needs, need)
			}
		case 'w':
			call := i+1 < len(all) && all[i+1].kind == '('
			if call && (t.text == "info" || m.whole(t.text)) {
				name("target_info") // which info reads unasked
			}
			if m.whole(t.text) && (call || i > 0 && all[i-1].kind == '[' || len(all) == 1) {
				continue // a function's name, a range, or the whole of an expression: it names nothing
			}
			name(t.text)
		case 's':
			value, err := strutil.Unquote(t.text)
			if err != nil {
				value = strings.Trim(t.text, "\"'`")
			}
			if i > 2 && all[i-1].kind == '~' && all[i-2].kind == '=' && all[i-3].text == model.MetricNameLabel {
				if matcher, err := labels.NewMatcher(labels.MatchRegexp, model.MetricNameLabel, value); err == nil {
					add(m.matcher(matcher))
					continue
				}
			}
			if i > 2 && all[i-2].kind == '!' && all[i-3].text == model.MetricNameLabel {
				add(labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+")) // everything but something
				continue
			}
			if m.whole(value) {
				continue // the value of a label
			}
			name(value)
			for _, word := range tokens(value) {
				if word.kind == 'w' && word.text != value && !m.in(word.text) {
					name(word.text)
				}
			}
		}
	}
	return needs, steps
}

// keyword tells whether a word before a brace is no metric's name.
func keyword(word string) bool {
	return slices.Contains([]string{"and", "or", "unless", "bool", "atan2"}, strings.ToLower(word))
}

// nameless is the need of the selector that the tokens begin with, if it is one. Prometheus takes
// none whose matchers all match the empty value: {} is an object of a program, or a place of xargs.
// looked is how many tokens were looked at for its end.
func nameless(text string, all []token, m marks) (need Need, ok bool, looked int) {
	for _, t := range all {
		looked++
		if t.offset-all[0].offset > maxParameter {
			break
		}
		if t.kind != '}' {
			continue
		}
		matchers, err := promql.ParseMetricSelector(text[all[0].offset : t.offset+1])
		if err != nil {
			break
		}
		need.Labels = All
		for _, matcher := range matchers {
			ok = ok || matcher.Name == model.MetricNameLabel || !matcher.Matches("")
			if !m.in(matcher.Name) {
				need.Matchers = append(need.Matchers, m.matcher(matcher))
			}
		}
		return need, ok, looked
	}
	return Need{}, false, looked
}

// marks stand for the variables of a text that have no value: by number, the regular expression of
// the values that they may have; "" where these may be expressions themselves.
type marks []string

const (
	markStart = "spillwayAny"
	markEnd   = "x"
)

var mark = regexp.MustCompile(markStart + `(\d+)` + markEnd)

// in tells whether a variable stands in the text.
func (m marks) in(text string) bool {
	return len(m) > 0 && strings.Contains(text, markStart) && mark.MatchString(text)
}

// whole tells whether the text is nothing but a variable.
func (m marks) whole(text string) bool { return m.in(text) && mark.FindString(text) == text }

// pattern is a regular expression of what the text may become; outside is what is done to the text
// around the variables.
func (m marks) pattern(text string, outside func(string) string) string {
	var b strings.Builder
	last := 0
	for _, at := range mark.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(outside(text[last:at[0]]))
		values := ".*"
		if i := m.number(text[at[2]:at[3]]); i >= 0 && m[i] != "" {
			values = m[i]
		}
		b.WriteString("(?:" + values + ")")
		last = at[1]
	}
	b.WriteString(outside(text[last:]))
	return b.String()
}

// number is a mark's place, -1 if the text only looks like one.
func (m marks) number(digits string) int {
	if i, err := strconv.Atoi(digits); err == nil && i < len(m) {
		return i
	}
	return -1
}

// raw tells whether a variable in the text may be an expression.
func (m marks) raw(text string) bool {
	return slices.ContainsFunc(mark.FindAllStringSubmatch(text, -1), func(at []string) bool {
		i := m.number(at[1])
		return i < 0 || m[i] == ""
	})
}

// matcher is the matcher with variables in it that excludes no more than it would with any value of
// them.
func (m marks) matcher(matcher *labels.Matcher) *labels.Matcher {
	if !m.in(matcher.Value) {
		return matcher
	}
	text := ".*"
	switch matcher.Type {
	case labels.MatchEqual:
		text = m.pattern(matcher.Value, regexp.QuoteMeta)
	case labels.MatchRegexp:
		// there, a value may change the meaning of what stands around it
		if !strings.ContainsAny(matcher.Value, `[\{`) && !m.raw(matcher.Value) {
			text = m.pattern(matcher.Value, func(s string) string { return s })
		}
	}
	if text == "(?:.*)" {
		text = ".*"
	}
	out, err := labels.NewMatcher(labels.MatchRegexp, matcher.Name, text)
	if err != nil {
		return labels.MustNewMatcher(labels.MatchRegexp, matcher.Name, ".*")
	}
	return out
}

// loosen puts any value in the place of regular expressions with variables in them.
func (m marks) loosen(text string) (string, marks) {
	more := append(slices.Clip(m), ".*")
	var b strings.Builder
	last := 0
	all := tokens(text)
	for i, t := range all {
		if t.kind == 's' && i > 0 && all[i-1].kind == '~' && m.in(t.text) {
			b.WriteString(text[last:t.offset] + strconv.Quote(markStart+strconv.Itoa(len(m))+markEnd))
			last = t.offset + len(t.text)
		}
	}
	return b.String() + text[last:], more
}

// asNumbers are the text with variables outside of strings taken for numbers: all of them, then one
// by one.
func (m marks) asNumbers(text string) []string {
	if !m.in(text) {
		return nil
	}
	var at []token
	for _, t := range tokens(text) {
		if t.kind == 'w' && m.whole(t.text) {
			at = append(at, t)
		}
	}
	if len(at) == 0 {
		return nil
	}
	replace := func(chosen ...token) string {
		var b strings.Builder
		last := 0
		for _, t := range chosen {
			b.WriteString(text[last:t.offset] + "1")
			last = t.offset + len(t.text)
		}
		return b.String() + text[last:]
	}
	var out []string
	if len(at) > 1 && len(at) <= 8 {
		for _, t := range at {
			out = append(out, replace(t))
		}
	}
	return append(out, replace(at...))
}
