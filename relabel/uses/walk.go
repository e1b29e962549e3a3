package uses

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// walker goes through a dashboard of whatever schema and adds what asks Prometheus: wherever an
// expr stands, it is taken for a query, unless its data source is known for something else.
type walker struct {
	set         *Set
	file        string
	kind        Kind
	alerts      bool
	title       string // dashboard Fleet
	scope       *scope
	datasources map[string]string // type by name or uid or variable, as far as the dashboard says
	library     []showing
	graph       bool // a service graph was met
}

// walk reads a value. panel is the name of what it belongs to, source the type of its data source
// as far as is known.
func (w *walker) walk(n *node, panel, source string) {
	if n == nil {
		return
	}
	for _, item := range n.items {
		w.walk(item, panel, source)
	}
	if !n.object() {
		w.text(n, panel)
		return
	}
	if s := w.source(n); s != "" {
		source = s
	}
	panel = w.panel(n, panel)
	if lib := n.get("libraryPanel"); lib.object() && n.get("targets") == nil && lib.text("uid") != "" &&
		lib.get("model", "targets") == nil { // old exports have the model in them
		w.library = append(w.library, showing{
			uid: lib.text("uid"), name: lib.text("name"), file: w.file, title: w.title, line: lib.line,
			scope: w.scope,
		})
	}
	if n.text("queryType") == "serviceMap" {
		w.serviceGraph(n, panel)
	}
	if path := n.get("urlPath"); callOf.MatchString(path.text()) {
		w.parameters(n, panel)
	}
	for _, key := range n.keys {
		value := n.fields[key]
		switch key {
		case "templating", "variables", "__elements", "__inputs", "__requires": // read apart, or no queries
			if n.get("panels") != nil || n.get("rows") != nil || n.get("elements") != nil || n.get("schemaVersion") != nil {
				continue
			}
		case "expr":
			if text := value.text(); text != "" && w.asks(source, panel, text) {
				w.add(value, panel, text)
				continue
			}
		case "url":
			w.link(value, panel)
			w.called(n, panel)
			continue
		case "queries": // a text in exploration links
		}
		w.walk(value, panel, source)
	}
}

// panel is the name of a panel, annotation or link, in which n stands.
func (w *walker) panel(n *node, outer string) string {
	title := n.text("title")
	switch {
	case n.get("targets") != nil || n.get("gridPos") != nil || n.get("span") != nil: // a panel of the old schemas
		if title == "" {
			title = "without a title"
			if id := n.word("id"); id != "" {
				title = id
			}
		}
		return "panel " + title
	case n.text("kind") == "Panel" && n.get("spec").object():
		return "panel " + n.text("spec", "title")
	case n.text("kind") == "AnnotationQuery":
		return "annotation " + n.text("spec", "name")
	case n.get("enable") != nil && n.get("iconColor") != nil:
		return "annotation " + n.text("name")
	}
	return outer
}

// source is the type of the data source that n names; "" if it names none, "?" if its type is not
// known, and "?" with the name of one whose name sounds like another language.
func (w *walker) source(n *node) string {
	if group := n.text("group"); group != "" && n.text("kind") == "DataQuery" {
		return group
	}
	switch kind := n.text("kind"); kind { // v2: the kind of a query is the type of its data source
	case "", "DataQuery", "AnnotationQuery", "QueryVariable", "PanelQuery":
	default:
		if n.get("spec", "expr") != nil {
			return kind
		}
	}
	ds := n.get("datasource")
	if ds == nil {
		return ""
	}
	name := ds.text()
	if ds.object() {
		if t := ds.text("type"); t != "" && !strings.Contains(t, "$") {
			if m := reference.FindStringSubmatch(ds.text("uid")); m != nil && !prometheus(t) {
				if chosen := w.datasources[m[1]+m[2]+m[5]]; chosen != "" && prometheus(chosen) {
					return chosen // the type is of before the variable was
				}
			}
			return t
		}
		if name = ds.text("uid"); name == "" {
			name = ds.text("name")
		}
	}
	if name == "" {
		return "?"
	}
	if m := reference.FindStringSubmatch(name); m != nil {
		name = m[1] + m[2] + m[5]
	}
	if t := w.datasources[name]; t != "" {
		return t
	}
	if lower := strings.ToLower(name); !prometheus(lower) && (strings.Contains(lower, "loki") || strings.Contains(lower, "tempo") ||
		strings.Contains(lower, "elastic")) {
		return "?" + name
	}
	return "?"
}

// asks tells whether a query goes to Prometheus. The name of a data source is no type: where only
// the name tells of another language, what names all of its metrics is PromQL or MetricsQL, and the
// rest is passed over with a warning. So is such PromQL where the type tells of another system.
func (w *walker) asks(source, where, query string) bool {
	named, typed := strings.CutPrefix(source, "?")
	if typed = !typed; (typed || named == "") && prometheus(source) {
		return true
	}
	needs, _ := w.scope.needs(query)
	promQL := len(needs) > 0 && !isLogQL(query) && !slices.ContainsFunc(needs, func(n Need) bool {
		return !slices.ContainsFunc(n.Matchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel })
	})
	if where = w.title + ", " + where; strings.HasSuffix(where, ", ") {
		where = w.title
	}
	switch {
	case typed && promQL:
		w.set.passedBy(w.file, source, where)
	case !typed && !promQL:
		w.set.otherLanguage(w.file, where+", of the data source "+named)
	}
	return promQL && !typed
}

// passedBy warns, once for each file and type, of PromQL for a data source that is no Prometheus by
// its type: the type may be of before somebody chose another source.
func (s *Set) passedBy(file, source, where string) {
	before := file + ": the data source is of the type " + source + ", which is no Prometheus, and what its queries name counts as unused, though it is PromQL: "
	if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, before) }) {
		s.Warnings = append(s.Warnings, before+where)
	}
}

// notPrometheus are the types of data sources that have an expr, or a query, of a language of their
// own.
var notPrometheus = []string{
	"loki", "elasticsearch", "opensearch", "tempo", "jaeger", "zipkin", "mysql", "postgres", "mssql", "influxdb", "graphite", "opentsdb",
	"cloudwatch", "stackdriver", "azure-monitor",
	"pyroscope", "phlare", "parca", "testdata", "grafana-testdata-datasource", "__expr__", "dashboard", "clickhouse", "bigquery", "athena",
	"timestream", "snowflake", "infinity", "github", "sqlite",
	"alertmanager", "zabbix", "splunk", "datadog", "newrelic", "redshift", "mongodb", "victorialogs", "victoriametrics-logs",
	"googlesheets", "csv", "json",
}

// prometheus tells whether a data source of this type could be asked PromQL: all could that are not
// known for something else.
func prometheus(source string) bool {
	s := strings.ToLower(source)
	if s == "" || s == "?" || strings.Contains(s, "prometheus") || strings.Contains(s, "mimir") || strings.Contains(s, "thanos") {
		return true
	}
	return !slices.ContainsFunc(notPrometheus, func(known string) bool {
		// the parts of an id are the organisation, which says nothing, the name, and what it is
		return s == known || strings.HasPrefix(s, "grafana-"+known) || strings.HasPrefix(s, known+"-") || len(known) > 5 &&
			(strings.HasPrefix(s, known) || strings.HasSuffix(s, "-"+known) || strings.Contains(s, "-"+known+"-datasource"))
	})
}

// datasources are the types of the data sources that a dashboard names by variable or by input.
func datasources(n *node) map[string]string {
	out := map[string]string{"-- Grafana --": "testdata", "-- Dashboard --": "dashboard", "__expr__": "__expr__", "grafana": "testdata"}
	for _, input := range n.list("__inputs") {
		if id := input.text("pluginId"); id != "" && input.text("type") == "datasource" {
			out[input.text("name")] = id
		}
	}
	for _, v := range n.list("templating", "list") {
		if v.text("type") == "datasource" {
			out[v.text("name")] = v.text("query")
		}
	}
	for _, v := range sectioned(n) {
		if name, id := v.text("spec", "name"), v.text("spec", "pluginId"); v.text("kind") == "DatasourceVariable" {
			if have, twice := out[name]; twice && have != id {
				id = "" // in one section the one, in another the other
			}
			out[name] = id
		}
	}
	return out
}

// add adds one query.
func (w *walker) add(at *node, panel, query string) {
	where := w.title
	if panel != "" {
		where += ", " + panel
	}
	w.set.addScoped(&Use{Kind: w.kind, File: w.file, Line: at.first(), Where: where, Query: strings.TrimSpace(query), Alerts: w.alerts},
		w.scope)
}

// addScoped adds a use whose query has variables of this scope.
func (s *Set) addScoped(u *Use, in *scope) {
	if in == nil || !strings.ContainsAny(u.Query, "$[") && !in.adhoc {
		s.Add(u)
		return
	}
	needs, warning := in.needs(u.Query)
	if u.Needs = needs; needs == nil {
		u.Needs = []Need{}
	}
	if warning != "" {
		u.Reason = warning
		s.warn(u, warning)
	}
	s.Add(u)
	query := u.Query
	s.mayBeHanded(u, in, query, func(in *scope) ([]Need, string) { return in.needs(query) })
}

// called reads what an address asks of Prometheus' API, with the parameters that stand beside it:
// data sources for any address can ask it too.
func (w *walker) called(n *node, panel string) {
	at := n.get("url")
	if !callOf.MatchString(at.text()) {
		return
	}
	asked, all := calls(at.text())
	if !all { // a variable of the dashboard, then
		_, parameters, _ := strings.Cut(at.text(), "?")
		for _, pair := range strings.Split(parameters, "&") {
			if key, value, _ := strings.Cut(pair, "="); parameterOf.MatchString(key+"=") && value != "" {
				value = decoded(value)
				if open := quoteMark.FindString(value); open != "" {
					value = strings.TrimSuffix(strings.TrimPrefix(value, open), open)
				}
				if !slices.Contains(asked, value) {
					asked = append(asked, value)
				}
			}
		}
	}
	for _, query := range asked {
		w.add(at, panel, query)
	}
	w.parameters(n, panel)
	for _, options := range []string{"url_options", "urlOptions"} {
		for _, list := range []string{"params", "body_form", "bodyForm"} {
			for _, p := range n.list(options, list) {
				if value := p.get("value"); parameterOf.MatchString(p.text("key")+"=") && value.text() != "" {
					w.add(value, panel, value.text())
				}
			}
		}
	}
}

// link reads the queries in an address: those of Grafana's Explore, and of Prometheus' own page.
func (w *walker) link(at *node, panel string) {
	text := at.text()
	w.set.handings(text, w.scope)
	if !strings.Contains(text, "expr") {
		for _, query := range linked(text) {
			w.add(at, panel, query)
		}
		w.walk(at, panel, "")
		return
	}
	_, parameters, found := strings.Cut(text, "?")
	if !found {
		return
	}
	if panel == "" {
		panel = "link"
	} else {
		panel += ", link"
	}
	for _, pair := range strings.Split(parameters, "&") {
		key, value, _ := strings.Cut(pair, "=")
		// A variable in braces is written as it is, and percent signs that are none are left.
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		if strings.HasSuffix(key, "expr") {
			w.add(at, panel, value)
			continue
		}
		if !strings.Contains(value, `"expr"`) {
			continue
		}
		if !json.Valid([]byte(value)) {
			u := &Use{Kind: w.kind, File: w.file, Line: at.line, Where: w.title + ", " + panel, Needs: textual(value, nil)}
			u.Reason = "the query in this address cannot be read; every metric named in it is kept"
			w.set.warn(u, u.Reason)
			w.set.Add(u)
			continue
		}
		if doc, err := parseJSON([]byte(value), 1); err == nil {
			flatten(doc, at.line)
			w.walk(doc, panel, "")
		}
	}
}
