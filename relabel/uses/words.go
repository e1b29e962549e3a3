package uses

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// maxAffixes bounds the parts of names that are needs of their own; the others are one.
const maxAffixes = 500

// escapes finds the escapes of addresses and, of those in strings, the ones for white space.
var escapes = regexp.MustCompile(`%[0-9a-fA-F]{2}|\\[nrt]`)

// allWords are the needs of a script whose queries cannot be read. textual reads it as a query,
// where an apostrophe begins a string and a # a comment: here each word of it could be the name of
// a metric, in whatever quotes, comments and escapes it stands, or a part of one that the script
// puts together.
func allWords(text string) []Need {
	w := vocabulary{needs: textual(text, nil), seen: map[string]bool{"": true}}
	for _, n := range w.needs {
		w.seen[n.key()] = true
		if name, exact := n.Name(); exact && len(n.Matchers) == 1 {
			w.seen[name] = true
		}
	}
	plain := escapes.ReplaceAllStringFunc(text, func(escape string) string {
		if char, err := url.PathUnescape(escape); err == nil && escape[0] == '%' {
			return char
		}
		return " "
	})
	plain = strings.ToValidUTF8(plain, " ") // a format may look like an escape
	for _, form := range []string{text, plain} {
		w.read(form)
		for _, m := range namePattern.FindAllStringSubmatch(form, -1) {
			pattern := escaped.ReplaceAllString(filledIn.ReplaceAllString(m[1], ".*"), "(?:.?)")
			if m[2] == "" { // it goes on
				pattern = torn(pattern)
			}
			if pattern != m[1] && !nameChar.MatchString(pattern) {
				continue // what is put in stands elsewhere in the script
			}
			w.match(pattern)
		}
	}
	w.selectors(plain)
	if len(w.more) > 0 {
		w.add(labels.MatchRegexp, strings.Join(w.more, "|"))
	}
	return w.needs
}

// torn is a pattern that a program puts together, of which this is the beginning: as far as it is a
// text where the rest, such as a list in brackets, is not here.
func torn(pattern string) string {
	if _, err := regexp.Compile(pattern + ".*"); err == nil {
		return pattern + ".*"
	}
	text, _, _ := strings.Cut(strings.TrimLeft(pattern, "^("), "(")
	if i := strings.IndexAny(text, `[]{}|*+?.\^$)`); i >= 0 {
		text = text[:i]
	}
	return text + ".*"
}

// nameChar is what a name has, and no pattern of any name.
var nameChar = regexp.MustCompile(`[a-zA-Z0-9:]`)

// namePattern finds regular expressions of metrics' names, in whatever quotes, with the escapes of
// as many strings as they stand in; filledIn finds what a program or a shell puts into them.
var (
	namePattern = regexp.MustCompile("__name__\\s*=~\\s*\\\\*[\"'`]+((?:[^\"'`\\\\]|\\\\+[^\"'`\\\\])+)(\\\\*[\"'`]\\s*[,}])?")
	escaped     = regexp.MustCompile(`\[[^\]\\]*\\[^\]]*\]|\\+.`)
	filledIn    = regexp.MustCompile(`\$?\{\{?[^{}\d,][^{}]*\}\}?|\$?\{\d?\}|#\{[^{}]*\}|\$[a-zA-Z_]\w*|%(?:\(\w+\))?[sdv]`)
)

// selectors adds the selectors without a name in a text, in whatever quotes, as nameless does
// outside of them. One behind a name, or what is put in for one, belongs to it.
func (w *vocabulary) selectors(text string) {
	text = strings.NewReplacer(`\"`, `"`, `\'`, `'`).Replace(text)
	for _, at := range bracesOf.FindAllStringSubmatchIndex(text, -1) {
		if before := text[max(at[0]-1, 0):at[0]]; before != "" && (wordByte(before[0]) || before == "}") {
			continue
		}
		all := []token{{text: "{", kind: '{'}, {text: "}", kind: '}', offset: at[3] - at[2] + 1}}
		need, selective, _ := nameless("{"+text[at[2]:at[3]]+"}", all, nil)
		if key := need.key(); selective && !w.seen[key] {
			w.seen[key] = true
			w.needs = append(w.needs, need)
		}
	}
}

// bracesOf finds what stands in braces and could be matchers; a program may write them twice.
var bracesOf = regexp.MustCompile(`\{+([^{}\n]{0,200}=[^{}\n]{0,800})\}`)

// vocabulary are the needs of the words of a text.
type vocabulary struct {
	needs []Need
	seen  map[string]bool
	parts int
	more  []string // patterns beyond maxAffixes
}

func (w *vocabulary) add(kind labels.MatchType, value string) {
	matcher, err := labels.NewMatcher(kind, model.MetricNameLabel, value)
	if err != nil {
		matcher = labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+")
	}
	w.needs = append(w.needs, Need{Matchers: []*labels.Matcher{matcher}, Labels: All})
}

// match adds names by a regular expression.
func (w *vocabulary) match(pattern string) {
	key := "~" + pattern
	if w.seen[key] {
		return
	}
	w.seen[key] = true
	if w.parts++; w.parts > maxAffixes {
		w.more = append(w.more, "(?:"+pattern+")")
		return
	}
	w.add(labels.MatchRegexp, pattern)
}

// read adds the words of a text.
func (w *vocabulary) read(text string) {
	for i := 0; i < len(text); {
		if !wordByte(text[i]) {
			i++
			continue
		}
		start := i
		for i < len(text) && wordByte(text[i]) {
			i++
		}
		word := text[start:i]
		for _, name := range append(strings.Split(word, ":"), word) {
			if !w.seen[name] {
				w.seen[name] = true
				w.add(labels.MatchEqual, name)
			}
			if name != word && len(name) > 2 {
				w.part(name, false, false)
			}
		}
		before, after := text[max(start-maxHole, 0):start], text[i:min(i+maxHole, len(text))]
		if strings.HasSuffix(word, ":") && (after == "" || strings.IndexByte(" \t\r\n=/-", after[0]) >= 0) {
			word = strings.TrimRight(word, ":") // a key
		}
		filled := before != "" && strings.IndexByte("}*+", before[len(before)-1]) >= 0 && holeBefore.MatchString(before)
		if word != "" && strings.IndexByte("sdv", word[0]) >= 0 && formatBefore.MatchString(before) { // %s_total
			word, filled = word[1:], true
		}
		w.part(word, filled, after != "" && strings.IndexByte("{$#%.", after[0]) >= 0 && holeBehind.MatchString(after))
	}
}

// maxHole is how long what is put in beside a word may be.
const maxHole = 100

// formatBefore and holeBefore match what is put in before a word, and holeBehind what is put in
// behind it. Matchers of a selector are no hole.
var (
	formatBefore = regexp.MustCompile(`%(?:\(\w+\))?$`)
	holeBefore   = regexp.MustCompile(`(?:[$#]?\{[^{}=~\n]*\}\}?|\.[*+])$`)
	holeBehind   = regexp.MustCompile(`^(?:[$#]?\{\{?[^{}=~\n]*\}|\$\w|%(?:\(\w+\))?[sdv]|\.[*+])`)
	duration     = regexp.MustCompile(`^\d*(?:ms|[smhdwy])$`)
)

// part adds the names of which a word is a part: it ends or begins with what joins the parts of
// names, or something is put in before or behind it. Units of time are no parts.
func (w *vocabulary) part(word string, before, behind bool) {
	plain := strings.Trim(word, "_:")
	if plain == "" || strings.HasPrefix(word, "__") && strings.HasSuffix(word, "__") {
		return
	}
	if len(plain) < 2 || duration.MatchString(word) {
		before, behind = false, false
	}
	before = before || strings.HasPrefix(word, "_") || strings.HasPrefix(word, ":")
	behind = behind || strings.HasSuffix(word, "_") || strings.HasSuffix(word, ":")
	if !before && !behind {
		return
	}
	pattern := regexp.QuoteMeta(word)
	if before {
		pattern = ".*" + pattern
	}
	if behind {
		pattern += ".*"
	}
	w.match(pattern)
}
