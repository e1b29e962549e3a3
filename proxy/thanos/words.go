package thanos

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// StoreTrouble tells errors of reading the stores from those of the query: it sends both as 422.
func StoreTrouble(text string) bool {
	return slices.ContainsFunc(storeTrouble, func(s string) bool { return strings.Contains(text, s) })
}

var storeTrouble = []string{
	"proxy Series()", "proxy LabelNames()", "proxy LabelValues()", "expanding series:", "rpc error:", "failed to wait for turn",
	"context deadline exceeded", "context canceled",
}

// SpokenOf are the stores that an error speaks of, with the error.
func SpokenOf(text string, stores []string) map[string]string {
	out := map[string]string{}
	for _, name := range stores {
		for rest := text; ; {
			_, after, found := strings.Cut(rest, name)
			if !found {
				break
			}
			if after == "" || !strings.ContainsRune("0123456789", rune(after[0])) { // else it is a longer port
				out[name] = text
				break
			}
			rest = after
		}
	}
	return out
}

// warnedOf is a warning of a store that failed, where Warns holds. It does not name the store, but
// the connection, so that they can be counted.
var warnedOf = regexp.MustCompile(`^(?:fetching|receiving) [a-z ]+ from [a-z ]+ client (&\{0x[0-9a-f]+\}): `)

// Warned is how many stores the warnings are of; false where one is of something else, such as a
// store's own stores.
func Warned(warnings []string) (stores int, known bool) {
	failing := map[string]bool{}
	for _, w := range warnings {
		m := warnedOf.FindStringSubmatch(w)
		if m == nil {
			return 0, false
		}
		failing[m[1]] = true
	}
	return len(failing), true
}

// Empty tells whether what an answer begins with is a success without any data.
func Empty(head []byte) bool {
	return slices.ContainsFunc(emptyData, func(s string) bool { return bytes.Contains(head, []byte(s)) })
}

var emptyData = []string{`"result":[]`, `"data":[]`, `"data":null`, `"data":{}`}
