// Package clip shortens texts for messages, logs and files. It never divides a rune of valid UTF-8.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Text is s, or its first bytes, at most so many, with … behind where something is missing.
func Text(s string, most int) string {
	if p := Prefix(s, most); len(p) < len(s) {
		return p + "…"
	}
	return s
}

// Prefix is s, or its first bytes, at most so many, without a mark. Of what is not UTF-8 it may be
// fewer than there would be room for.
func Prefix(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:max(most, 0)]
}

// Said is what a server said, as a message may have it: valid UTF-8, at most 1 KiB of it.
func Said(s string) string {
	return Text(strings.ToValidUTF8(s, "\uFFFD"), 1024)
}
