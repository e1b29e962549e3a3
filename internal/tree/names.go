package tree

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// shorter is a regular expression that matches the same texts as re, as a whole, and costs less to
// compile. Long lists of names, which is what Grafana writes for a variable of many values, are
// sorted, and what names have in common is written once: (a1\.b\.c|a2\.b\.c) becomes
// a(?:1|2)\.b\.c. Names without a sign of regular expressions, in parentheses or not, become the
// bare list, which Prometheus puts into a map. Anything else is as it is.
func shorter(re string) string {
	if len(re) < longText || !utf8.ValidString(re) {
		return re
	}
	inside := re
	if strings.HasPrefix(re, "(") && strings.HasSuffix(re, ")") {
		inside = strings.TrimPrefix(re[1:len(re)-1], "?:")
	}
	names, signs := namesOf(inside)
	switch {
	case len(names) < 2:
		return re
	case signs:
		if list := listOf(names); len(list) < len(re)/2 { // else little is won
			return list
		}
		return re
	case slices.Contains(names, ""):
		return re // the bare list may be read otherwise
	}
	return inside
}

// namesOf are the names of a list, and whether any has signs of regular expressions, which are
// escaped then; none where it is no list of names.
func namesOf(re string) (names []string, signs bool) {
	names = make([]string, 0, 1+strings.Count(re, "|"))
	var own []byte // of this name, from its first sign on
	from := 0
	end := func(i int) {
		names = append(names, string(own)+re[from:i])
		own, from = own[:0], i+1
	}
	for i := 0; i < len(re); i++ {
		switch c := re[i]; c {
		case '|':
			end(i)
		case '\\':
			if i+1 == len(re) || re[i+1] >= utf8.RuneSelf || isAlnum(re[i+1]) {
				return nil, false
			}
			own, signs = append(own, re[from:i]...), true
			i++
			from = i
		case '.', '+', '*', '?', '(', ')', '[', ']', '{', '}', '^', '$':
			return nil, false
		}
	}
	end(len(re))
	return names, signs
}

func isAlnum(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' }

// listOf is an expression that matches these names.
func listOf(names []string) string {
	end := names[0]
	for _, name := range names {
		for !strings.HasSuffix(name, end) {
			_, w := utf8.DecodeRuneInString(end)
			end = end[w:]
		}
	}
	// Of a list that begins with nothing Prometheus knows no names, and looks at all values.
	if end != "" && slices.Contains(names, end) && slices.ContainsFunc(names, func(name string) bool { return name != end }) {
		_, w := utf8.DecodeRuneInString(end)
		end = end[w:]
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, end)
	}
	slices.Sort(names)
	var b strings.Builder
	writeList(&b, slices.Compact(names), 0)
	b.WriteString(regexp.QuoteMeta(end))
	return b.String()
}

// maxLevels is how deep groups of names are written in one another: those that people give nest ten
// deep, and Prometheus looks through all that is inside at each level.
const maxLevels = 16

// writeList writes names, which are sorted and differ.
func writeList(b *strings.Builder, names []string, level int) {
	first, last := names[0], names[len(names)-1]
	n := 0
	for n < len(first) && first[n] == last[n] { // last is longer, or differs before first ends
		n++
	}
	for n < len(first) && n < len(last) && !(utf8.RuneStart(first[n]) && utf8.RuneStart(last[n])) {
		n--
	}
	b.WriteString(regexp.QuoteMeta(first[:n]))
	if len(names) == 1 {
		return
	}
	b.WriteString("(?:")
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte('|')
		}
		j := i + 1
		if rest := names[i][n:]; rest != "" && level < maxLevels {
			_, w := utf8.DecodeRuneInString(rest)
			for j < len(names) && strings.HasPrefix(names[j][n:], rest[:w]) {
				j++
			}
		}
		group := make([]string, j-i)
		for k := range group {
			group[k] = names[i+k][n:]
		}
		writeList(b, group, level+1)
		i = j
	}
	b.WriteString(")")
}
