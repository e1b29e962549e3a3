package uses

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// over matches what stands behind the end of a parameter.
var over = regexp.MustCompile("^(?:$|[\n'\"`&\\\\)]|[ \t]+(?:$|[-|;<>&\\\\#\n)]|https?:))")

// parameter is the query that a text begins with, in quotes of its own or the longest there is; ""
// if there is none. It stands in this quote, 0 for none. sure is false where it may go on.
func parameter(text string, quote byte) (query string, sure bool) {
	if open := quoteMark.FindString(text); open != "" {
		return quotedParameter(text, open, quote)
	}
	var ends []int
	for i := 0; i < min(len(text), maxParameter) && len(ends) < maxEnds; i++ {
		if strings.IndexByte(" \t\n'\"`&\\)", text[i]) >= 0 {
			ends = append(ends, i)
		}
	}
	if len(ends) < maxEnds && len(text) <= maxParameter {
		ends = append(ends, len(text))
	}
	for _, end := range slices.Backward(ends) {
		if query = selecting(text[:end]); query == "" {
			continue
		}
		if !over.MatchString(text[end:]) { // it goes on, in a way that is not understood
			return "", false
		}
		return query, ended(text[end:], quote)
	}
	return "", false
}

// ended tells whether a query is over where this follows it. In a quote only that quote ends it,
// and the & of an address; elsewhere a shell's options, pipes and the like may be operators.
func ended(rest string, quote byte) bool {
	if quote == 0 {
		behind := quoteMark.ReplaceAllString(rest, "")
		return unquotedEnd.MatchString(rest) && !nextOperand.MatchString(rest) || behind != rest && concluded(behind)
	}
	behind, found := strings.CutPrefix(strings.TrimPrefix(rest, "\\"), string(quote))
	return strings.HasPrefix(rest, "&") || found && concluded(behind)
}

// unquotedEnd matches the end of a query that is in no quote, and nextOperand one that goes on in
// the next line. quoteMark is a quote at the beginning, which a string may escape.
var (
	unquotedEnd = regexp.MustCompile(`^(?:$|[&)]|[ \t]+(?:$|#|\)|https?:)|[ \t]*\\?\n\s*(?:$|[^-+*/%^=!<>\s]|--?[A-Za-z]))`)
	nextOperand = regexp.MustCompile(`^\s*(?:and|or|unless)\b`)
	quoteMark   = regexp.MustCompile("^\\\\?[\"'`]")
)

// selecting is the query that a text is, with a selector, without the escapes of addresses and
// strings; "" if it is none.
func selecting(text string) string {
	before := ""
	for _, form := range []string{decoded(text), strings.ReplaceAll(text, `\"`, `"`), text} {
		if form = strings.TrimSpace(form); form == before {
			continue
		}
		before = form
		if slices.ContainsFunc(parsed(templated(form)), func(expr parser.Expr) bool {
			return selects(expr, func(*parser.VectorSelector) bool { return true })
		}) {
			return form
		}
	}
	return ""
}

// quotedParameter is the query in the quotes with which a text begins: without them it is a query,
// with them a string. Where the quote is that in which the parameter stands, it ends there, and a
// program or a shell puts more behind it.
func quotedParameter(text, open string, quote byte) (query string, sure bool) {
	text = text[len(open):]
	end := -1
	for i := 0; i < min(len(text), maxParameter) && end < 0; i++ {
		switch {
		case strings.HasPrefix(text[i:], open):
			end = i
		case text[i] == '\\' && open != "`":
			i++
		}
	}
	if end <= 0 || strings.ContainsAny(text[:1]+text[end-1:end], "+ \t\n") { // what a program puts together
		return "", false
	}
	return selecting(text[:end]), quote != open[0] && concluded(text[end+len(open):])
}

// closed matches what stands behind the quote at the end of a query, perhaps in one more quote,
// where nothing is put together with it.
var closed = regexp.MustCompile("^(?:\\\\?[\"'`])?(?:$|[,;)\\]}&|]" +
	"|[ \t]+(?:$|[,;)\\]}&|#<>]|--?[A-Za-z]|[\"']?(?:\\$|https?:))" +
	"|[ \t]*\\\\?\n\\s*(?:$|[^-+.%*/\"'`\\s]|--?[A-Za-z]|[\"'](?:\\$|https?:)))")

// continued matches the next line of an expression of a program: conditions, operators that are
// words, and strings with a prefix, which belong to the string before them.
var continued = regexp.MustCompile("^[^\n]*\n\\s*(?:(?:if|else|and|or|unless|in|not|is)\\b|\\?|[a-zA-Z]{1,2}[\"'])")

// concluded tells whether a query is over where this follows the quote at its end.
func concluded(behind string) bool {
	return closed.MatchString(behind) && !continued.MatchString(behind)
}

// quoting follows the quotes of a text, which hold to the end of a word for shells and programs
// alike: what stands before a parameter is one word with it.
type quoting struct {
	read int
	open byte
}

// at is the quote in which a place of the text stands, 0 for none. Places are asked for in order.
func (q *quoting) at(text string, place int) byte {
	for ; q.read < place; q.read++ {
		switch c := text[q.read]; {
		case c == ' ' || c == '\t' || c == '\n':
			q.open = 0
		case strings.IndexByte("\"'`", c) < 0:
		case q.open == c:
			q.open = 0
		case q.open == 0:
			q.open = c
		}
	}
	return q.open
}

// decoded is the text without the escapes of addresses.
func decoded(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}
