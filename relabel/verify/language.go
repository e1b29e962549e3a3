package verify

import (
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// language is what the author of an expression named.
type language struct {
	// words are the strings that it names; a repetition without bound stands there as one
	// placeholder or one repetition.
	words []string
	// open says that it matches more than words: a repetition without bound, a large class of
	// characters, letters of either case.
	open bool
	// dots says that a . stands for itself in words and for any character in the expression.
	dots bool
}

// readLanguage lists what an expression names; ok is false where that is more than maxLanguage
// words.
func readLanguage(pattern string) (l language, ok bool) {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return language{}, false
	}
	l.words, ok = l.walk(re)
	if !ok {
		return language{}, false
	}
	slices.Sort(l.words)
	l.words = slices.Compact(l.words)
	return l, true
}

// languages remembers what expressions name: a matcher is looked at for every job.
type languages struct {
	read     map[string]*language
	forms    map[string]*form    // by matchers
	patterns map[string]*pattern // by expression
}

// of is nil where an expression names too much.
func (p languages) of(pattern string) *language {
	if l, ok := p.read[pattern]; ok {
		return l
	}
	l, ok := readLanguage(pattern)
	if !ok {
		p.read[pattern] = nil
		return nil
	}
	p.read[pattern] = &l
	return &l
}

// exact says that words are all that it matches.
func (l *language) exact() bool { return !l.open && !l.dots }

func (l *language) walk(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpNoMatch:
		return nil, true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			l.open = true
		}
		return []string{string(re.Rune)}, true
	case syntax.OpCharClass:
		return l.class(re.Rune), true
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		l.dots = true
		return []string{"."}, true
	case syntax.OpCapture:
		return l.walk(re.Sub[0])
	case syntax.OpQuest:
		words, ok := l.walk(re.Sub[0])
		return append([]string{""}, words...), ok
	case syntax.OpStar, syntax.OpPlus:
		l.open = true
		if isAny(re.Sub[0]) {
			return []string{placeholder}, true
		}
		words, ok := l.walk(re.Sub[0])
		if re.Op == syntax.OpStar {
			words = append([]string{""}, words...)
		}
		return words, ok
	case syntax.OpRepeat:
		return l.repeat(re)
	case syntax.OpConcat:
		words := []string{""}
		for _, sub := range re.Sub {
			next, ok := l.walk(sub)
			if !ok || len(words)*len(next) > maxLanguage {
				return nil, false
			}
			words = product(words, next)
		}
		return words, true
	case syntax.OpAlternate:
		var words []string
		for _, sub := range re.Sub {
			next, ok := l.walk(sub)
			if words = append(words, next...); !ok || len(words) > maxLanguage {
				return nil, false
			}
		}
		return words, true
	}
	return []string{""}, true // empty, and the assertions on where it is
}

func (l *language) repeat(re *syntax.Regexp) ([]string, bool) {
	if isAny(re.Sub[0]) {
		l.open = true
		return []string{strings.Repeat(placeholder, max(1, min(re.Min, 64)))}, true
	}
	once, ok := l.walk(re.Sub[0])
	if !ok {
		return nil, false
	}
	most := re.Max
	if most < 0 {
		l.open, most = true, max(re.Min, 1)
	}
	words, all := []string{""}, []string{}
	for n := 0; n <= most; n++ {
		if n >= re.Min {
			all = append(all, words...)
		}
		if len(words)*len(once) > maxLanguage || len(all) > maxLanguage {
			return nil, false
		}
		words = product(words, once)
	}
	return all, true
}

// class lists a small class; of a large one, the first character.
func (l *language) class(ranges []rune) []string {
	const most = 64
	var words []string
	for i := 0; i+1 < len(ranges); i += 2 {
		for c := ranges[i]; c <= ranges[i+1]; c++ {
			if len(words) == most {
				l.open = true
				return words[:1]
			}
			words = append(words, string(c))
		}
	}
	return words
}

func isAny(re *syntax.Regexp) bool {
	return re.Op == syntax.OpAnyChar || re.Op == syntax.OpAnyCharNotNL
}

func product(a, b []string) []string {
	out := make([]string, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, x+y)
		}
	}
	return out
}

// shortest is a string that the expression matches, as a rule; "" where it is none.
func shortest(pattern string) string {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return ""
	}
	var b strings.Builder
	var walk func(*syntax.Regexp)
	walk = func(re *syntax.Regexp) {
		switch re.Op {
		case syntax.OpLiteral:
			b.WriteString(string(re.Rune))
		case syntax.OpCharClass:
			if len(re.Rune) > 1 {
				b.WriteRune(max(re.Rune[0], min('a', re.Rune[1])))
			}
		case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
			b.WriteString(placeholder)
		case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
			walk(re.Sub[0])
		case syntax.OpRepeat:
			for range re.Min {
				walk(re.Sub[0])
			}
		case syntax.OpConcat:
			for _, sub := range re.Sub {
				walk(sub)
			}
		}
	}
	walk(re)
	return b.String()
}

// stored is a value of le or quantile as Prometheus 3 stores it.
func stored(value string) string {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return value
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if strings.ContainsAny(text, ".eIN") { // a fraction, an exponent, Inf, NaN
		return text
	}
	return text + ".0"
}

// spellings are the forms in which a value may be stored: the one of Prometheus 3, then the one
// without .0.
func spellings(value string) []string {
	three := stored(value)
	out := []string{three}
	if short, ok := strings.CutSuffix(three, ".0"); ok {
		out = append(out, short)
	}
	if !slices.Contains(out, value) {
		out = append(out, value)
	}
	return out
}

// isNumeric says whether Prometheus 3 rewrites the values of a label.
func isNumeric(label string) bool { return label == "le" || label == "quantile" }
