package uses

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// Queries in files that nothing parses, by the word before them.

var (
	// behindWord finds the words that queries stand behind in manifests, Terraform and Bicep, with
	// the sign between: query: of KEDA and of analyses, expression = of Azure's groups of rules.
	behindWord = regexp.MustCompile(`(?i)\b\w*(?:expr|expression|query|promql)["']?[ \t]*([:=])[ \t]*`)
	// heredoc begins a text of several lines in HCL.
	heredoc = regexp.MustCompile(`^<<[-~]?["']?(\w+)["']?[ \t]*\r?\n`)
	// blockScalar begins a text of several lines in YAML.
	blockScalar = regexp.MustCompile(`^(?:[|>][-+0-9]*)?[ \t]*(?:#[^\n]*)?\r?\n`)
	// putIn finds what templates put in, beside the actions that templated knows; statements
	// finds what they only decide by.
	putIn      = regexp.MustCompile(`\$\{[^}\n]*\}|<%=[^\n]*?%>`)
	statements = regexp.MustCompile(`\{%[^\n]*?%\}|%\{[^}\n]*\}`)
	// ofPrometheus finds what a file is for, where a query is one name.
	ofPrometheus = regexp.MustCompile(`(?i)prometheus|promql`)
)

// asksBehind tells whether a query stands behind one of the words in a text.
func asksBehind(text []byte) bool {
	prometheus := ofPrometheus.Match(text)
	is := func(query string) bool {
		query = strings.TrimSpace(putIn.ReplaceAllLiteralString(statements.ReplaceAllString(templated(query), ""), "${x}"))
		if ofVariable.MatchString(query) && len(parsed(query)) > 0 {
			return true
		}
		return isQuery(query) && !onlySets(query) && !condition.MatchString(query) || prometheus && nameAlone.MatchString(query)
	}
	return slices.ContainsFunc(behindWord.FindAllSubmatchIndex(text, maxFlags), func(at []int) bool {
		line := text[bytes.LastIndexByte(text[:at[0]], '\n')+1 : at[0]]
		return slices.ContainsFunc(behind(text[at[1]:min(len(text), at[1]+maxText)], len(line)-len(bytes.TrimLeft(line, " \t-")),
			text[at[2]] == ':'), is)
	})
}

// nameAlone is a query that is the name of a metric, and more than a word.
var nameAlone = regexp.MustCompile(`^[a-zA-Z][\w:]*_[\w:]*\w$`)

// ofVariable finds a metric whose name a template puts in, by what only a selector has.
var ofVariable = regexp.MustCompile(`\$\{\w+\}\w*[\[{]`)

// setWords finds the words that searches for logs have in common with sets of series.
var setWords = regexp.MustCompile(`(?i)\s(?:and|or|unless)\s`)

// condition is a value that a template puts in, or another language's variable, beside a number.
var condition = regexp.MustCompile(`^\$\{?\w+\}?\s*(?:[<>]=?|[=!]=)\s*-?[\d.]+$`)

// onlySets tells whether nothing but such a word speaks for PromQL: level:error AND service:api.
func onlySets(query string) bool {
	return setWords.MatchString(query) && !strings.ContainsAny(query, "({[<>=+*")
}

// behind are the texts that may be meant by what a value begins with: what a heredoc or quotes
// have, or, where the language may be YAML, the lines that are indented more than its key.
func behind(value []byte, indent int, yaml bool) []string {
	text := string(value)
	if m := heredoc.FindStringSubmatch(text); m != nil {
		body := untilLine(text[len(m[0]):], func(line string) bool { return strings.TrimSpace(line) == m[1] })
		return []string{body}
	}
	for _, quote := range []string{"'''", `"""`, `"`, "'", "`"} {
		if rest, ok := strings.CutPrefix(text, quote); ok {
			return []string{untilQuote(rest, quote)}
		}
	}
	if !yaml {
		return nil
	}
	first, rest, _ := strings.Cut(text, "\n")
	more := untilLine(rest, func(line string) bool {
		trimmed := strings.TrimLeft(line, " \t")
		return strings.TrimSpace(line) != "" && len(line)-len(trimmed) <= indent
	})
	if blockScalar.MatchString(text) {
		return []string{more}
	}
	first = strings.TrimRight(first, " \t\r")
	all := []string{first, first + "\n" + more}
	for range 4 { // {metadata: {query: x}}
		if first != "" && strings.ContainsAny(first[len(first)-1:], "},]") {
			first = strings.TrimRight(first[:len(first)-1], " \t")
			all = append(all, first)
		}
	}
	return all
}

// untilLine is a text before the first line that ends it.
func untilLine(text string, ends func(line string) bool) string {
	at := 0
	for line := range strings.Lines(text) {
		if ends(line) {
			break
		}
		at += len(line)
	}
	return text[:at]
}

// untilQuote is what stands before the quote that ends a text, without the backslashes.
func untilQuote(text, quote string) string {
	if len(quote) > 1 || quote == "`" {
		before, _, _ := strings.Cut(text, quote)
		return before
	}
	var b strings.Builder
	for i := 0; i < len(text) && text[i] != quote[0]; i++ {
		if text[i] == '\\' && i+1 < len(text) && strings.IndexByte(`\"'n`, text[i+1]) >= 0 {
			i++
			if text[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
