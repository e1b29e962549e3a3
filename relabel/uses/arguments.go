package uses

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// The arguments of commands: a flag with a query, in the same text or in the next one of a list.
var (
	flagOf    = regexp.MustCompile(`(?:^|[\s"'\x60])--?` + flagName + `(?:=|\s+)`)
	flagAlone = regexp.MustCompile(`^--?` + flagName + `$`)
	// metricFlag is a flag whose values may be words of other programs.
	metricFlag = regexp.MustCompile(`-(?:metric(?:-?name)?|selector)\W*$`)
	podFills   = regexp.MustCompile(`\$\((\w+)\)`) // what Kubernetes fills in
	anyFlag    = regexp.MustCompile(`^--?[\w.-]+=`)
)

// flagName are the names of flags for queries, and for metrics; the last two are of VPA's
// recommender.
const flagName = `(?:[\w.-]*(?:[qQ]uery|[pP]rom[qQ][lL]|[eE]xpr)|(?:[\w.-]*[.-])?match(?:\[\])?|metric(?:-?name)?|` +
	`selector|metric-for-pod-labels|history-(?:cpu|memory)-metric)`

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
	if at := assignment.FindStringSubmatchIndex(text); at != nil {
		if value := text[at[1]:]; isQuery(templated(value)) || isSetting(text[at[2]:at[3]]) && isFlagged(value) {
			add(value)
		}
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
		if isFlagged(value) && (!metricFlag.MatchString(text[at[0]:at[1]]) || strings.ContainsAny(value, "_:")) {
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
	needs, warning := Needs(query)
	if _, err := promql.ParseMetricSelector(query); err == nil && strings.HasPrefix(query, "{") {
		return len(needs) == 1 && needs[0].selective()
	}
	return warning == "" && strings.Contains(query, "(") && slices.ContainsFunc(needs, func(n Need) bool { // MetricsQL
		_, exact := n.Name()
		return exact
	})
}

// listed adds the queries among a list of arguments that stand behind their flags.
func (a *asker) listed(n *node, key string, path []string) {
	for i, item := range n.items {
		if i > 0 && item.text() == "prometheus" && strings.TrimLeft(n.items[i-1].text(), "-") == "storage" {
			a.recommended(item, a.title)
		}
		if i == 0 || a.others > 0 || a.queryKey(key) || !flagAlone.MatchString(strings.TrimSpace(n.items[i-1].text())) {
			continue
		}
		if text := strings.TrimSpace(item.text()); text != "" && !isQuery(templated(text)) && isFlagged(text) &&
			(strings.ContainsAny(text, "_:") || !metricFlag.MatchString(n.items[i-1].text())) {
			a.add(item, a.title+", "+strings.ReplaceAll(strings.Join(path, "."), ".[", "["), text)
		}
	}
}

// The variables of containers that are for queries: in a list, or as one text. Those for the name
// of a metric have one, or several of them, which are no words.
var (
	assignment = regexp.MustCompile(`^([A-Za-z_]\w*)=`)
	settingOf  = regexp.MustCompile(`(?i)(?:query|queries|promql|expr|prom\w*_query_\w+)$`)
	namesOf    = regexp.MustCompile(`(?:^|_)METRICS?(?:_?NAMES?)?$`)
)

// isSetting tells whether a variable of a container may have a query.
func isSetting(name string) bool {
	return model.LegacyValidation.IsValidMetricName(name) && (settingOf.MatchString(name) || namesOf.MatchString(name))
}

// setting adds the value of a variable of a container, where it is a query, or names metrics.
func (a *asker) setting(n *node, key, where, text string) bool {
	switch key = strings.TrimSuffix(key, "="); {
	case a.others > 0 || !isSetting(key):
		return false
	case settingOf.MatchString(key) && isFlagged(text):
		a.add(n, where, text)
		return true
	}
	names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	if !namesOf.MatchString(key) || len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return !strings.ContainsAny(name, "_:") || !model.LegacyValidation.IsValidMetricName(name)
	}) {
		return false
	}
	for _, name := range names {
		a.add(n, where, name)
	}
	return true
}
