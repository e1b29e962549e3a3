package config

import "fmt"

// Bounds beyond which a regex is hard to read in a review.
const (
	MaxRegexBytes        = 1024
	MaxRegexAlternatives = 100
)

// LongRegex says why a regex is too long to be read, or nothing.
func LongRegex(regex string) string {
	if len(regex) > MaxRegexBytes {
		return fmt.Sprintf("the regex has %d bytes, more than %d: nobody reads that in a review; split the rule", len(regex), MaxRegexBytes)
	}
	if n := alternatives(regex); n > MaxRegexAlternatives {
		return fmt.Sprintf("the regex has %d alternatives, more than %d: nobody reads that in a review; split the rule", n, MaxRegexAlternatives)
	}
	return ""
}

// alternatives counts what a reader sees: the bars, but for those that are escaped or stand in a
// class.
func alternatives(regex string) int {
	n, class := 1, false
	for i := 0; i < len(regex); i++ {
		switch c := regex[i]; {
		case c == '\\':
			i++
		case c == '[' && !class:
			class = true
			if i+1 < len(regex) && regex[i+1] == '^' {
				i++
			}
			if i+1 < len(regex) && regex[i+1] == ']' { // the first ] of a class is one of its characters
				i++
			}
		case c == ']':
			class = false
		case c == '|' && !class:
			n++
		}
	}
	return n
}
