package uses

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// maxEnds is how many ends of a query in a text are tried.
const maxEnds = 64

// callOf finds calls of Prometheus' API, of its federation and of promtool.
var callOf = regexp.MustCompile(`/api/v1/query|/federate\b|\bpromtool\s+query\b`)

// parameterOf finds the queries and selectors among the parameters of calls.
var parameterOf = regexp.MustCompile(`\b(?:query=|match(?:\[\]|%5[bB]%5[dD])=)`)

// caller finds what makes calls in scripts: texts for people name addresses too.
var caller = regexp.MustCompile(`\b(?:curl|wget|promtool|http|https|fetch|axios|urlopen|requests?\.\w+|http\.\w+)\s|[("'](?:query|match\[\])["']`)

// calls are the queries in the calls of Prometheus' API that a text makes: one address, or a script
// with any number of them. all is false where a call asks something that is not in the text as a
// query, such as the variable of a shell.
func calls(text string) (queries []string, all bool) {
	made := len(callOf.FindAllString(text, -1))
	starts := parameterOf.FindAllStringIndex(text, -1)
	if made == 0 || len(starts) == 0 && !caller.MatchString(text) {
		return nil, true
	}
	address := !strings.ContainsAny(strings.TrimSpace(text), " \t\n")
	for _, start := range starts {
		value := text[start[1]:]
		query := parameter(value)
		if query == "" && address { // whatever it is
			query, _, _ = strings.Cut(value, "&")
			query = decoded(query)
		}
		if _, variable := wholeTemplate(templated(query)); query != "" && !variable {
			queries = append(queries, query)
		}
	}
	return queries, len(queries) >= max(made, len(starts))
}

// parameter is the longest query that a text begins with; "" if there is none.
func parameter(text string) string {
	var ends []int
	for i := 0; i < min(len(text), maxText) && len(ends) < maxEnds; i++ {
		if strings.IndexByte(" \t\n'\"`&\\)", text[i]) >= 0 {
			ends = append(ends, i)
		}
	}
	if len(ends) < maxEnds {
		ends = append(ends, len(text))
	}
	for _, end := range slices.Backward(ends) {
		query := text[:end]
		for _, form := range []string{decoded(query), strings.ReplaceAll(query, `\"`, `"`), query} {
			if form = strings.TrimSpace(form); form != "" && len(parsed(templated(form))) > 0 {
				return form
			}
		}
	}
	return ""
}

// decoded is the text without the escapes of addresses.
func decoded(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}
