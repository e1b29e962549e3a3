package uses

import (
	"regexp"
	"slices"
	"strings"
)

// Addresses of pages that ask: Prometheus', Thanos' and VictoriaMetrics' own, Explore of Grafana,
// and its pages of one metric.
var (
	graphOf   = regexp.MustCompile(`\bg\d+\.expr=`)
	exploreOf = regexp.MustCompile(`"expr"\s*:\s*"((?:[^"\\]|\\.)+)"`)
	drilledOf = regexp.MustCompile(`(?:explore/metrics/|metricsdrilldown-app)[^\s"'<>]*?[?&]metric=([\w:]+)`)
	addressIn = regexp.MustCompile("^[^\\s\"'`<>]+")
)

// linked are the queries in the addresses of such pages that stand in a text.
func linked(text string) []string {
	var out []string
	add := func(query string) {
		if _, whole := wholeTemplate(templated(query)); query != "" && !whole && !slices.Contains(out, query) {
			out = append(out, query)
		}
	}
	text = hole.ReplaceAllStringFunc(text, templated) // an action may have spaces
	for _, at := range graphOf.FindAllStringIndex(text, maxCalls) {
		value := text[at[1]:]
		query, _ := parameter(value, 0)
		if query == "" {
			value = addressIn.FindString(value)
			if query, _ = parameter(value, 0); query == "" { // names in it count, then
				query, _, _ = strings.Cut(value, "&")
				query = decoded(query)
			}
		}
		add(query)
	}
	for _, at := range drilledOf.FindAllStringSubmatch(text, maxCalls) {
		add(at[1])
	}
	if !strings.Contains(text, "explore") {
		return out
	}
	plain := strings.NewReplacer(`\\"`, `"`, `\"`, `"`)
	for _, form := range []string{text, decoded(text), escapes.ReplaceAllStringFunc(text, unescaped)} {
		for _, at := range exploreOf.FindAllStringSubmatch(strings.ReplaceAll(form, `\"expr\":\"`, `"expr":"`), maxCalls) {
			add(plain.Replace(at[1]))
		}
	}
	return out
}

// unescaped is what an escape of an address stands for.
func unescaped(escape string) string {
	if char := decoded(escape); escape[0] == '%' {
		return char
	}
	return escape
}
