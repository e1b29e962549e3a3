package uses

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/util/strutil"
)

// placeholder is what a template puts in that only it knows.
const placeholder = "${template}"

// templateQueries are the queries that a template asks: the argument of its function query. A text
// that is put together (print, printf) has any value in the place of what is no text itself. Where
// query's argument is a variable, every text of the template could be it.
func templateQueries(text string) []string {
	var direct, others []string
	indirect := false
	for rest := text; ; {
		start := strings.Index(rest, "{{")
		if start < 0 {
			break
		}
		action := rest[start+2:]
		end := actionEnd(action)
		if rest = ""; end < len(action) {
			rest = action[end+2:]
		}
		all := tokens(action[:end])
		if tooDear(action[:end]) != "" {
			all = slices.DeleteFunc(all, prints) // its texts count one by one
		}
		asked := queried(all)
		switch texts := textsOf(all); {
		case asked && len(texts) == 0:
			indirect = true
		case asked:
			direct = append(direct, texts...)
		default:
			others = append(others, texts...)
		}
	}
	if indirect {
		direct = append(direct, others...)
	}
	var out []string
	for _, query := range direct {
		if query = strings.TrimSpace(query); strings.ContainsFunc(query,
			func(r rune) bool { return r == '_' || r == '{' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }) {
			out = append(out, query)
		}
	}
	return out
}

// textsOf are the texts in an action of a template: those that stand in it, and those that it puts
// together.
func textsOf(all []token) []string {
	var out []string
	for i := 0; i < len(all); i++ {
		switch t := all[i]; {
		case t.kind == 's':
			if value, err := strutil.Unquote(t.text); err == nil {
				out = append(out, formatted(value, nil))
			}
		case prints(t):
			text, more, read := printed(all[i:], i > 0 && all[i-1].kind == '|')
			// a message may have what a query answers in it
			if message := queried(all[i:i+read]) && !queried(all[:i]) && !queried(all[i+read:]); text != "" && !message {
				out = append(out, text)
			}
			out = append(out, more...)
			i += read - 1
		}
	}
	return out
}

// queried tells whether the function query stands among the tokens.
func queried(all []token) bool {
	return slices.ContainsFunc(all, func(t token) bool { return t.kind == 'w' && t.text == "query" })
}

// prints tells whether a word is a function that puts a text together.
func prints(t token) bool {
	return t.kind == 'w' && (t.text == "print" || t.text == "printf" || t.text == "println")
}

// printed is what a call of such a function, with which the tokens begin, puts together, "" where
// no text stands in it; more are queries among its arguments. It ends at a parenthesis or a pipe,
// and is as many tokens as read says. What is piped into it is its last argument.
func printed(all []token, piped bool) (text string, more []string, read int) {
	var parts []string
	known := false // a text stands in it
	i := 1
	for i < len(all) && all[i].kind != ')' && all[i].kind != '|' {
		part := placeholder
		switch t := all[i]; t.kind {
		case 's':
			if value, err := strutil.Unquote(t.text); err == nil {
				if part, known = value, true; isQuery(value) {
					more = append(more, value)
				}
			}
		case '(':
			inner := all[i+1 : closing(all, i)]
			i += len(inner) + 1
			if len(inner) == 0 || !prints(inner[0]) {
				more = append(more, textsOf(inner)...)
				break
			}
			text, others, read := printed(inner, false)
			more = append(more, others...)
			switch {
			case read < len(inner) && queried(inner[read:]): // piped into query
				if text != "" {
					more = append(more, text)
				}
				more = append(more, textsOf(inner[read:])...)
			case text != "" && read == len(inner):
				part, known = text, true
			}
		}
		for i++; i < len(all) && all[i].offset == all[i-1].offset+len(all[i-1].text) && strings.IndexByte(")|(s", all[i].kind) < 0; {
			i++ // $labels.job is one argument
		}
		parts = append(parts, part)
	}
	i = min(i, len(all)) // not all parentheses close
	if piped {
		parts = append(parts, placeholder)
	}
	switch {
	case !known || all[0].text == "printf" && parts[0] == placeholder:
		return "", more, i
	case all[0].text == "printf":
		return formatted(parts[0], parts[1:]), more, i
	case all[0].text == "println":
		return strings.Join(parts, " "), more, i
	}
	return strings.Join(parts, ""), more, i
}

// closing is where the parenthesis closes that is opened at a token.
func closing(all []token, open int) int {
	depth := 0
	for i := open; i < len(all); i++ {
		switch all[i].kind {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(all)
}

// formatted is a format of printf with its arguments in the place of its verbs.
func formatted(format string, arguments []string) string {
	all := arguments
	return verbs.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		if m := verbs.FindStringSubmatch(verb); m[1] != "" { // %[2]s takes this one, and the next verb that behind it
			n, err := strconv.Atoi(m[1])
			if arguments = nil; err == nil && n > 0 && n <= len(all) {
				arguments = all[n-1:]
			}
		}
		argument := placeholder
		if len(arguments) > 0 {
			argument, arguments = arguments[0], arguments[1:]
		}
		switch verb[len(verb)-1] {
		case 's', 'v':
			return argument
		case 'q':
			return strconv.Quote(argument)
		}
		return "1"
	})
}

// verbs are those of printf, where they are not the operator of PromQL.
var verbs = regexp.MustCompile(`%[-+#0-9.]*(?:\[(\d+)\])?[svqdfgeExXt]|%%`)

// actionEnd is where a template's action ends; braces in its texts do not end it.
func actionEnd(action string) int {
	for i := 0; i < len(action); i++ {
		switch c := action[i]; c {
		case '"', '`':
			for i++; i < len(action) && action[i] != c; i++ {
				if action[i] == '\\' && c == '"' {
					i++
				}
			}
		case '}':
			if strings.HasPrefix(action[i:], "}}") {
				return i
			}
		}
	}
	return len(action)
}
