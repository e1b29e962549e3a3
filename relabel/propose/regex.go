package propose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/relabel"
)

// MaxRegexBytes and MaxAlternatives bound one regular expression that Regex makes: beyond them
// nobody reads it, and each sample of a scrape pays for it.
const (
	MaxRegexBytes   = 1024
	MaxAlternatives = 100
)

// Regex writes regular expressions that match values and nothing else, as Prometheus reads them:
// anchored at both ends, with `.` matching a newline. What values have in common is written once:
// `apiserver_(audit|storage)_total`. Characters that mean something to a regular expression are
// quoted, those that cannot be printed are written as \x{…}, so that the text survives YAML and a
// reader. There are several expressions where one would pass MaxRegexBytes or MaxAlternatives; one
// single long value may pass MaxRegexBytes. Values may come unsorted and twice; the result depends
// on the set only.
//
// Values that are no UTF-8 are left out, since no expression can name them; Prometheus stores none.
func Regex(values []string) []string {
	var regexes []string
	for _, chunk := range chunks(values, MaxRegexBytes, MaxAlternatives) {
		regexes = append(regexes, factor(chunk))
	}
	return regexes
}

// Exact says whether regex, as Prometheus reads it, matches all of want and of universe nothing
// that is not in want. The error names the first value, in their order, that shows otherwise.
func Exact(regex string, want, universe []string) error {
	compiled, err := relabel.NewRegexp(regex)
	if err != nil {
		return fmt.Errorf("regular expression %q: %w", regex, err)
	}
	planned := make(map[string]bool, len(want))
	for _, value := range want {
		planned[value] = true
		if !compiled.MatchString(value) {
			return fmt.Errorf("regular expression %q misses %q, which it was made for", regex, value)
		}
	}
	for _, value := range universe {
		if !planned[value] && compiled.MatchString(value) {
			return fmt.Errorf("regular expression %q matches %q too, for which it was not made", regex, value)
		}
	}
	return nil
}

// chunks cuts the sorted, distinct and valid of values into runs whose expressions keep the bounds.
func chunks(values []string, maxBytes, maxAlternatives int) [][]string {
	sorted := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !utf8.ValidString(v) })
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	var out [][]string
	for len(sorted) > 0 {
		n := min(len(sorted), maxAlternatives)
		// The length falls with the number of values nearly always, so the first that fits is found
		// by halving; one value is taken whatever its length.
		if len(factor(sorted[:n])) > maxBytes {
			low := 1 // fits, or has to
			for low+1 < n {
				middle := (low + n) / 2
				if len(factor(sorted[:middle])) <= maxBytes {
					low = middle
				} else {
					n = middle
				}
			}
			n = low
		}
		out = append(out, sorted[:n])
		sorted = sorted[n:]
	}
	return out
}

// factor writes one expression for sorted, distinct values. It cuts at the ends of words only, so
// that people can still read and search for names.
func factor(values []string) string {
	switch len(values) {
	case 0:
		// Matches nothing: an expression for no values must not be the empty one, which matches
		// every series without the label.
		return `[^\x00-\x{10FFFF}]`
	case 1:
		return Quote(values[0])
	}
	prefix := commonPrefix(values)
	rest := make([]string, len(values))
	for i, value := range values {
		rest[i] = value[len(prefix):]
	}
	suffix := commonSuffix(rest)
	if prefix != "" || suffix != "" {
		for i := range rest {
			rest[i] = strings.TrimSuffix(rest[i], suffix)
		}
		return Quote(prefix) + "(" + alternatives(rest) + ")" + Quote(suffix)
	}
	return alternatives(rest)
}

// alternatives joins groups of values that begin with the same word. Not all of them do, since what
// all have in common was cut off before, so this ends.
func alternatives(values []string) string {
	slices.Sort(values)
	var parts []string
	for i := 0; i < len(values); {
		head := firstWord(values[i])
		j := i + 1
		for head != "" && j < len(values) && firstWord(values[j]) == head {
			j++
		}
		if j-i == 1 {
			parts = append(parts, Quote(values[i]))
		} else {
			parts = append(parts, factor(values[i:j]))
		}
		i = j
	}
	return strings.Join(parts, "|")
}

// commonPrefix is what all values begin with, up to the end of a word.
func commonPrefix(values []string) string {
	prefix := values[0]
	for _, value := range values[1:] {
		n := 0
		for n < len(prefix) && n < len(value) && prefix[n] == value[n] {
			n++
		}
		prefix = prefix[:n]
	}
	return prefix[:strings.LastIndexFunc(prefix, boundary)+1]
}

// commonSuffix is what all values end with, from the beginning of a word.
func commonSuffix(values []string) string {
	suffix := values[0]
	for _, value := range values[1:] {
		n := 0
		for n < len(suffix) && n < len(value) && suffix[len(suffix)-1-n] == value[len(value)-1-n] {
			n++
		}
		suffix = suffix[len(suffix)-n:]
	}
	i := strings.IndexFunc(suffix, boundary)
	if i < 0 {
		return ""
	}
	return suffix[i:]
}

// firstWord is a value's beginning up to and including the first boundary; empty where there is
// none.
func firstWord(value string) string { return value[:strings.IndexFunc(value, boundary)+1] }

// boundary is where words end: only characters of one byte, so that cutting behind them never cuts
// a rune.
func boundary(r rune) bool {
	switch r {
	case '_', ':', '/', '-', '.':
		return true
	}
	return false
}

// Quote writes a literal. QuoteMeta leaves control characters as they are, which are legal in an
// expression and a nuisance in every file format around it.
func Quote(literal string) string {
	if !strings.ContainsFunc(literal, unprintable) {
		return regexp.QuoteMeta(literal)
	}
	var b strings.Builder
	for _, r := range literal {
		if unprintable(r) {
			fmt.Fprintf(&b, `\x{%x}`, r)
		} else {
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
