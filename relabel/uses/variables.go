package uses

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// readVariables reads the variables of a dashboard of any schema.
func readVariables(n *node) *scope {
	s := &scope{variables: map[string]*variable{}}
	for _, v := range declared(n) {
		switch v.kind {
		case "adhoc", "groupby":
			s.adhoc = true
		}
		if r := v.read(); v.name != "" {
			s.variables[v.name] = r.or(s.variables[v.name])
		}
	}
	return s
}

// or is what a variable can be where another one has its name: sections of a dashboard may.
func (v *variable) or(other *variable) *variable {
	if other == nil {
		return v
	}
	out := *v
	out.values, out.texts = slices.Clone(v.values), maps.Clone(v.texts)
	for _, value := range other.values {
		out.add(value, other.text(value))
	}
	out.any = v.any || other.any || len(v.values) == 0 || len(other.values) == 0
	if out.pattern != other.pattern {
		out.pattern = ""
	}
	out.literal = v.literal && other.literal
	out.regexes, out.typed, out.open = v.regexes && other.regexes, v.typed || other.typed, v.open || other.open
	return &out
}

// declaration is a variable as a dashboard declares it.
type declaration struct {
	name, kind string // kind is query, custom, constant, textbox, interval, datasource, adhoc, groupby
	at         *node
}

func declared(n *node) []declaration {
	var out []declaration
	for _, v := range n.list("templating", "list") {
		out = append(out, declaration{v.text("name"), v.text("type"), v})
	}
	for _, v := range sectioned(n) {
		kind := strings.ToLower(strings.TrimSuffix(v.text("kind"), "Variable"))
		if kind == "text" {
			kind = "textbox"
		}
		out = append(out, declaration{v.text("spec", "name"), kind, v.get("spec")})
	}
	return out
}

// sectioned are the variables of a dashboard of the new schema, and those of its rows and tabs,
// which stand in its layout.
func sectioned(n *node) []*node {
	out := slices.Clone(n.list("variables"))
	n.get("layout").any(func(section *node) bool {
		for _, v := range section.list("variables") {
			if strings.HasSuffix(v.text("kind"), "Variable") {
				out = append(out, v)
			}
		}
		return false
	})
	return out
}

// read is what the variable can be.
func (d declaration) read() *variable {
	v := &variable{name: d.name, regexes: d.at.truth("multi") || d.at.truth("includeAll")}
	switch d.kind {
	case "custom":
		v.custom(d.at)
		v.open = d.at.get("allowCustomValue") == nil || d.at.truth("allowCustomValue")
		v.fields = customFields(d.at)
	case "constant":
		v.values = []string{d.at.word("query")}
	case "switch":
		v.values = []string{d.at.word("enabledValue"), d.at.word("disabledValue")}
	case "interval":
		// Between brackets its values do not count, see span; elsewhere it may be any, as auto is.
		v.custom(d.at)
		v.open, v.span = true, true
		if len(v.values) == 0 {
			v.values = []string{"5m"}
		}
	case "textbox":
		v.values, v.typed = []string{first(d.at.word("query"), currentText(d.at))}, true
	case "query":
		v.any, v.literal, v.pattern = true, true, metricPattern(d.query())
		if d.at.text("regex") != "" {
			v.pattern = "" // it cuts pieces out of the values
		}
		for _, o := range d.at.list("staticOptions") {
			if value := first(o.word("value"), o.word("text")); value != "" {
				v.add(value, first(o.word("text"), value))
			}
		}
	default:
		v.any = true
	}
	all := d.at.text("allValue")
	among := v.any && v.pattern == "" && (all == ".*" || all == ".+") // any value, which is there already
	if all != "" && d.at.truth("includeAll") && !slices.Contains(v.values, all) && !among {
		v.add(all, "All")
	}
	return v
}

// add adds a value, and what people see in its place, which is ${name:text}; "" is not known.
func (v *variable) add(value, text string) {
	if !slices.Contains(v.values, value) {
		v.values = append(v.values, value)
	}
	if known, twice := v.texts[value]; twice && known != text {
		text, v.pattern = "", "" // which of them is shown is not known
	}
	if v.texts == nil {
		v.texts = map[string]string{}
	}
	v.texts[value] = text
}

// text is what people see in the place of a value, "" where it is not known.
func (v *variable) text(value string) string {
	if text, known := v.texts[value]; known {
		return text
	}
	return value
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// currentText is the value that was chosen when the dashboard was saved.
func currentText(at *node) string {
	if t := at.word("current", "value"); t != "" {
		return t
	}
	return at.word("current", "text")
}

// custom adds the values of a custom variable: of its list, where a comma may be escaped and a
// value may follow its name, of its options, and those that it was saved with.
func (v *variable) custom(at *node) {
	add := func(value, text string) {
		if value != "$__all" {
			v.add(value, text)
		}
	}
	query := at.word("query")
	if strings.HasPrefix(strings.TrimSpace(query), "[") && json.Valid([]byte(query)) {
		if list, err := parseJSON([]byte(query), 1); err == nil {
			for _, item := range list.items {
				value := first(item.word("value"), item.word())
				add(value, first(item.word("text"), value))
			}
			query = ""
		}
	}
	if query != "" {
		for _, part := range splitCommas(query) {
			text, value, named := strings.Cut(part, " : ")
			if !named {
				value = text
			}
			add(strings.TrimSpace(value), strings.TrimSpace(text))
		}
	}
	for _, o := range at.list("options") {
		add(o.word("value"), first(o.word("text"), o.word("value")))
	}
	values, texts := at.get("current", "value").words(), at.get("current", "text").words()
	for i, value := range values {
		if value == "" || slices.Contains(v.values, value) {
			continue
		}
		text := "" // the texts of several may be one
		if len(texts) == len(values) {
			text = texts[i]
		}
		add(value, text)
	}
}

// words are the texts of a list, or the one that it is.
func (n *node) words() []string {
	out := []string{n.word()}
	if n != nil && n.items != nil {
		out = out[:0]
		for _, item := range n.items {
			out = append(out, item.word())
		}
	}
	return out
}

// customFields are the fields of the values of a custom variable whose list is JSON, by value and
// by path: ${name.path} is one.
func customFields(at *node) map[string]map[string]string {
	query := at.word("query")
	if !strings.HasPrefix(strings.TrimSpace(query), "[") || !json.Valid([]byte(query)) {
		return nil
	}
	list, err := parseJSON([]byte(query), 1)
	if err != nil {
		return nil
	}
	out := map[string]map[string]string{}
	for _, item := range list.items {
		fields := map[string]string{}
		item.fieldsBelow("", fields)
		out[item.word("value")] = fields
	}
	return out
}

// fieldsBelow adds the texts and numbers below an object, by their path.
func (n *node) fieldsBelow(path string, out map[string]string) {
	for _, key := range n.keys {
		if field := n.fields[key]; field.object() {
			field.fieldsBelow(path+key+".", out)
		} else {
			out[path+key] = field.word()
		}
	}
}

// splitCommas splits at commas without a backslash in front.
func splitCommas(s string) []string {
	parts := strings.Split(strings.ReplaceAll(s, `\,`, "\x00"), ",")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], "\x00", ",")
	}
	return parts
}

// query is the text of a query variable.
func (d declaration) query() string {
	q := d.at.get("query")
	for _, path := range [][]string{{}, {"query"}, {"expr"}, {"spec", "query"}, {"spec", "__legacyStringValue"}, {"spec", "expr"}} {
		if t := q.text(path...); t != "" {
			return t
		}
	}
	if label := first(q.text("label"), q.text("spec", "label")); label != "" { // without the text that Grafana makes of these
		if metric := first(q.text("metric"), q.text("spec", "metric")); metric != "" {
			return fmt.Sprintf("label_values(%s, %s)", metric, label)
		}
		return fmt.Sprintf("label_values(%s)", label)
	}
	return d.at.text("definition")
}

func (d declaration) line() int {
	if q := d.at.get("query"); q != nil {
		for _, path := range [][]string{{"query"}, {"spec", "query"}, {"spec", "__legacyStringValue"}, {"spec", "expr"}} {
			if t := q.get(path...); t != nil {
				return t.line
			}
		}
		return q.line
	}
	return d.at.line
}

// The functions of Grafana's Prometheus data source for variables.
var (
	labelValues = regexp.MustCompile(`(?s)^\s*label_values\((?:(.+),)?\s*([^,]+?)\s*\)\s*$`)
	labelNames  = regexp.MustCompile(`(?s)^\s*label_names\((.*)\)\s*$`)
	metricNames = regexp.MustCompile(`(?s)^\s*metrics\((.*)\)\s*$`)
	queryResult = regexp.MustCompile(`(?s)^\s*query_result\((.+)\)\s*$`)
)

// metricPattern is the regular expression of the values of a variable that lists names of metrics;
// "" if it lists something else, or cannot be known.
func metricPattern(query string) string {
	if m := metricNames.FindStringSubmatch(query); m != nil && len(referenced(m[1])) == 0 {
		pattern := ".*(?:" + strings.TrimSpace(m[1]) + ").*"
		if _, err := labels.NewMatcher(labels.MatchRegexp, model.MetricNameLabel, pattern); err == nil {
			return pattern
		}
	}
	if m := labelValues.FindStringSubmatch(query); m != nil && m[2] == model.MetricNameLabel && m[1] != "" {
		needs, _ := Needs(m[1])
		if len(needs) != 1 {
			return ""
		}
		for _, matcher := range needs[0].Matchers {
			switch {
			case matcher.Name != model.MetricNameLabel:
			case matcher.Type == labels.MatchEqual:
				return regexp.QuoteMeta(matcher.Value)
			case matcher.Type == labels.MatchRegexp:
				return matcher.Value
			}
		}
	}
	return ""
}

// variables adds what the variables of a dashboard ask.
func (w *walker) variables(n *node) {
	for _, d := range declared(n) {
		if d.kind == "query" {
			w.variable(d)
		}
	}
}

func (w *walker) variable(d declaration) {
	source := w.source(d.at)
	if kind := d.at.text("query", "kind"); kind != "" && kind != "DataQuery" {
		source = kind
	}
	if group := d.at.text("query", "group"); group != "" {
		source = group
	}
	query := strings.TrimSpace(d.query())
	needs, promQL, warning := w.scope.asked(query)
	if promQL == "" && len(needs) > 0 && strings.HasPrefix(source, "?") {
		source = "?" // metrics(…) is a function of Prometheus' data source alone
	}
	if query == "" || !w.asks(source, "variable $"+d.name, promQL) {
		return
	}
	u := &Use{
		Kind: w.kind, File: w.file, Line: d.line(), Where: w.title + ", variable $" + d.name, Query: query, Needs: []Need{},
		Lists: labelValues.MatchString(query) || labelNames.MatchString(query),
	}
	if needs != nil {
		u.Needs = needs
	}
	u.Query = promQL
	if warning != "" {
		u.Reason = warning
		w.set.warn(u, warning)
	}
	w.set.Add(u)
	w.set.mayBeHanded(u, w.scope, query, func(in *scope) ([]Need, string) {
		needs, _, warning := in.asked(query)
		return needs, warning
	})
}

// asked are the needs of a variable's query, and the PromQL in it, "" where it has none.
func (s *scope) asked(query string) (needs []Need, promQL, warning string) {
	if m := queryResult.FindStringSubmatch(query); m != nil {
		needs, warning = s.needs(m[1])
		return needs, strings.TrimSpace(m[1]), warning
	}
	if m := labelNames.FindStringSubmatch(query); m != nil {
		switch argument := strings.TrimSpace(m[1]); {
		case argument == "":
			return nil, "", "" // names of labels belong to no metric
		case strings.Contains(argument, "{"):
			needs, warning = s.needs(argument)
			return needs, argument, warning
		}
		needs, warning = matching("label_names", m[1], "the names of labels of all metrics", All)
		return needs, "", warning
	}
	if m := metricNames.FindStringSubmatch(query); m != nil {
		needs, warning = matching("metrics", m[1], "the names of all metrics", Labels{})
		return needs, "", warning
	}
	m := labelValues.FindStringSubmatch(query)
	if m == nil { // PromQL by itself; Grafana takes the series' texts for values
		needs, warning = s.needs(query)
		return needs, query, warning
	}
	if m[1] == "" {
		return nil, "", fmt.Sprintf("it lists the values of %s of all metrics; a value that only dropped series have is listed no more", m[2])
	}
	needs, warning = s.needs(m[1])
	for i := range needs { // of its series, only this label is looked at
		if _, exact := needs[i].Name(); exact && len(referenced(m[2])) == 0 && !s.adhoc && needs[i].Labels.Except &&
			len(needs[i].Labels.Names) == 0 {
			needs[i].Labels = some(m[2])
		}
	}
	return needs, strings.TrimSpace(m[1]), warning
}

// matching are the needs of a function of Grafana that takes a regular expression of a part of the
// names of metrics, as metrics and label_names do.
func matching(function, argument, all string, of Labels) (needs []Need, warning string) {
	pattern := ".*"
	if len(referenced(argument)) == 0 {
		pattern = ".*(?:" + strings.TrimSpace(argument) + ").*"
	}
	matcher, err := labels.NewMatcher(labels.MatchRegexp, model.MetricNameLabel, pattern)
	if err != nil {
		return nil, fmt.Sprintf("%s(%s) is no regular expression and lists nothing: %v", function, argument, err)
	}
	need := Need{Matchers: []*labels.Matcher{matcher}, Labels: of}
	if need.everything() {
		return nil, "it lists " + all + "; a metric that is dropped is listed no more"
	}
	return []Need{need}, ""
}
