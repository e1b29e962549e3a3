package uses

import (
	"regexp"
	"slices"
	"strings"
)

// The arguments of commands: a flag with a query, in the same text or in the next one of a list.
var (
	flagOf    = regexp.MustCompile(`(?:^|[\s"'\x60])--?(?:[\w.-]*(?:[qQ]uery|[pP]rom[qQ][lL]|[eE]xpr)|(?:[\w.-]*[.-])?match(?:\[\])?)(?:=|\s+)`)
	flagAlone = regexp.MustCompile(`^--?(?:[\w.-]*(?:[qQ]uery|[pP]rom[qQ][lL]|[eE]xpr)|(?:[\w.-]*[.-])?match(?:\[\])?)$`)
	podFills  = regexp.MustCompile(`\$\((\w+)\)`) // what Kubernetes fills in
	anyFlag   = regexp.MustCompile(`^--?[\w.-]+=`)
)

// maxFlags bounds the flags of a text that are read.
const maxFlags = 1000

// flagged are the queries that flags in a text give: those for queries what names a metric, any
// other what can be nothing but a query.
func flagged(text string) []string {
	var out []string
	text = podFills.ReplaceAllString(text, "$${$1}")
	add := func(query string) {
		if !slices.Contains(out, query) {
			out = append(out, query)
		}
	}
	if at := anyFlag.FindStringIndex(text); at != nil && isQuery(templated(text[at[1]:])) {
		add(text[at[1]:])
	}
	for _, at := range flagOf.FindAllStringIndex(text, maxFlags) {
		value := text[at[1]:]
		switch {
		case value == "":
			continue
		case strings.IndexByte("\"'`", value[0]) >= 0:
			value, _, _ = strings.Cut(value[1:], value[:1])
		case at[0] > 0 || strings.Contains(value, " -"):
			value, _, _ = strings.Cut(value, " ")
			value, _, _ = strings.Cut(value, "\n")
			value = strings.TrimRight(value, ";&|,\"'`")
		}
		if isFlagged(value) {
			add(value)
		}
	}
	return out
}

// isFlagged tells whether the value of a flag for queries is one: it names a metric, or is a
// selector without a name.
func isFlagged(value string) bool {
	query := templated(strings.TrimSpace(value))
	if namesMetric(query, true) {
		return true
	}
	needs := []Need{}
	if strings.HasPrefix(query, "{") {
		needs, _ = Needs(query)
	}
	_, err := promql.ParseMetricSelector(query)
	return err == nil && len(needs) == 1 && needs[0].selective()
}

// listed adds the queries among a list of arguments that stand behind their flags.
func (a *asker) listed(n *node, key string, path []string) {
	for i, item := range n.items {
		if i == 0 || a.others > 0 || a.queryKey(key) || !flagAlone.MatchString(strings.TrimSpace(n.items[i-1].text())) {
			continue
		}
		if text := strings.TrimSpace(item.text()); text != "" && !isQuery(templated(text)) && isFlagged(text) {
			a.add(item, a.title+", "+strings.ReplaceAll(strings.Join(path, "."), ".[", "["), text)
		}
	}
}
