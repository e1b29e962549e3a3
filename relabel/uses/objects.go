package uses

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// asks adds the queries of a document that is no rules, dashboard or autoscaler: of Argo's
// AnalysisTemplate, Flagger's MetricTemplate and Canary, Sloth's, Pyrra's and OpenSLO's objectives,
// Keptn's metrics, and of kinds that nobody here has heard of. Under a key that is for queries
// every text is one; elsewhere each text that parses as PromQL, names a metric and is more than a
// word.
//
// Templates in it ({{args.service-name}}, {{.window}}) may have any value. A query that is nothing
// but a template, and one that only a program makes, is an error that names it: what it asks would
// be dropped.
func asks(set *Set, file string, n *node) error {
	if isTest(n) || strings.HasPrefix(n.text("kind"), "Datadog") {
		return nil
	}
	a := asker{set: set, file: file, title: title(n), kind: n.text("kind"), namespace: n.text("metadata", "namespace")}
	a.canary(n)
	a.defaults(n)
	a.fillsIn(n)
	a.sources = n.list("datasources")
	a.walk(n, "", nil)
	a.slos(n)
	return errors.Join(a.errs...)
}

// title names a document for people: `AnalysisTemplate shop/success-rate`.
func title(n *node) string {
	name := first(n.text("metadata", "name"), n.text("metadata", "generateName"), n.text("service"), n.text("name"))
	if namespace := n.text("metadata", "namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(cmp.Or(n.text("kind"), "document") + " " + name)
}

// asker goes through one document.
type asker struct {
	set         *Set
	file, title string
	kind        string
	namespace   string
	of          *template        // what it is, if it is one
	spec        *node            // of the template
	as          Kind             // what its uses are; Object where it says nothing
	arguments   map[string]*node // texts that the document gives for its own templates
	sources     []*node          // the data sources of Grafana that it provisions
	read        []*node          // values that were read by themselves
	queried     map[string]bool  // the programs with queries of their own that were met in it
	others      int              // how many of the values around this one are of other systems, whose queries are none
	errs        []error
}

// languages are keys and providers under which a query is none of Prometheus.
var languages = []string{
	"datadog", "newrelic", "wavefront", "cloudwatch", "graphite", "influxdb", "skywalking", "stackdriver", "dynatrace", "splunk", "instana",
	"azuremonitor", "lightstep", "elasticsearch", "bigquery",
	"dql", "signalfx", "keptn", "mysql", "postgresql", "mssql", "mongodb", "loki",
}

// joined leaves out what parts the words of a key.
var joined = strings.NewReplacer("-", "", "_", "", " ", "")

func foreignLanguage(name string) bool {
	if name == "" {
		return false
	}
	name = strings.ToLower(joined.Replace(name))
	return slices.Contains(languages, name)
}

// walk reads a value under its path.
func (a *asker) walk(n *node, key string, path []string) {
	switch {
	case n == nil || slices.Contains(a.read, n) || computed(n):
	case n.object():
		if a.object(n, path) {
			return
		}
		if otherSource(n, key) {
			a.set.otherLanguage(a.file, a.place(path))
			return
		}
		if foreignLanguage(n.text("provider", "type")) || foreignLanguage(n.text("metricSource", "type")) || a.correlates(n) ||
			foreignLanguage(n.text("source")) || foreignLanguage(n.text("type")) && n.get("query") != nil ||
			foreignLanguage(key) && len(path) > 1 && slices.Contains([]string{"provider", "providers"}, path[len(path)-2]) {
			a.others++
			defer func() { a.others-- }()
		}
		if kind := n.text("kind"); key == "plugin" && kind != "" && n.get("spec").object() && !strings.HasPrefix(kind, "Prometheus") {
			a.others++ // a plugin of Perses, for another system
			defer func() { a.others-- }()
		}
		groups := a.groups(n)
		a.elsewhere(n, key, path)
		a.perses(n)
		a.remoteWrites(n)
		a.programs(n, key)
		a.gives(n, key)
		s := scaler{set: a.set, file: a.file}
		s.metric(n, a.title)
		adapter, err := s.adapter(n, key)
		a.errs = append(a.errs, err)
		for _, k := range n.keys {
			if k == "groups" && groups || adapter && slices.Contains(adapterKeys, k) {
				continue // read
			}
			if k == "kubectl.kubernetes.io/last-applied-configuration" {
				continue // the document once more
			}
			a.walk(n.fields[k], a.keyOf(n, k, key, path), append(path, k))
		}
	case n.items != nil:
		a.listed(n, key, path)
		for i, item := range n.items {
			a.walk(item, key, append(path[:len(path):len(path)], fmt.Sprintf("[%d]", i)))
		}
	default:
		if text := strings.TrimSpace(n.text()); text != "" && !a.documents(n, key, path, text) {
			a.text(n, key, path, text)
		}
	}
}

// computed tells whether n is a step of an alert rule of Grafana's that its server works out from
// others: $A is no metric there.
func computed(n *node) bool {
	return n.text("datasourceUid") == "__expr__" || n.text("datasource", "type") == "__expr__" || n.text("datasource", "uid") == "__expr__"
}

// otherSource tells whether n is a query of a data source that is no Prometheus by its type, which
// may be of before somebody chose another source, so that PromQL with a metric's name is none; or
// what leads from traces to one: Grafana's links to logs and profiles have a query in its language.
func otherSource(n *node, key string) bool {
	if n.text("query") == "" && n.text("expr") == "" {
		return false
	}
	return strings.HasPrefix(key, "tracesToLogs") || key == "tracesToProfiles" ||
		!prometheus(n.text("datasource", "type")) && !namesMetric(n.text("query"), true) && !namesMetric(n.text("expr"), true)
}

// place is a value of the document, for people.
func (a *asker) place(path []string) string {
	if len(path) == 0 {
		return a.title
	}
	return a.title + ", " + strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
}

// correlates tells whether n leads from one data source to another that is no Prometheus, which the
// document names too.
func (a *asker) correlates(n *node) bool {
	to := n.text("targetUID")
	return to != "" && slices.ContainsFunc(a.sources, func(s *node) bool {
		return (s.text("uid") == to || s.text("name") == to) && !prometheus(s.text("type"))
	})
}

// object reads an object of Kubernetes that stands in another one, as the extra objects of a chart
// do, for what it is, and what else is in it. What only names an object, as a scaleTargetRef does,
// has nothing in it; what has not the fields of its kind, as what a policy makes, is read as any
// other value.
func (a *asker) object(n *node, path []string) bool {
	kind := n.text("kind")
	if len(path) == 0 || n.text("apiVersion") == "" || kind == "" ||
		!slices.ContainsFunc(n.keys, func(k string) bool { return n.fields[k].object() || n.fields[k].items != nil }) {
		return false
	}
	var own []string // the fields that are read for the kind
	switch {
	case kind == "ConfigMap" || kind == "Secret":
		own = []string{"data", "stringData", "binaryData"}
	case slices.Contains(ruleKinds, kind), slices.Contains(scalerKinds, kind), slices.Contains(dashboardKinds, kind):
		own = []string{"spec"}
	}
	if own != nil && !isDashboard(n) && !slices.ContainsFunc(own, func(k string) bool {
		return holdsTexts(n.get(k)) || k == "spec" && n.get(k).object()
	}) {
		return false
	}
	_, err := other(a.set, a.file, n)
	a.errs = append(a.errs, err)
	if own == nil || isLoki(n) || isDashboard(n) || slices.Contains(scalerKinds, kind) || slices.Contains(dashboardKinds, kind) {
		return true // it is read whole
	}
	for _, k := range n.keys {
		if !slices.Contains(own, k) {
			a.walk(n.fields[k], k, append(path[:len(path):len(path)], k))
		}
	}
	return true
}

// holdsTexts tells whether one of the values of n is a text.
func holdsTexts(n *node) bool {
	return slices.ContainsFunc(n.names(), func(k string) bool { return n.text(k) != "" })
}

// isPerses tells whether it is a dashboard of Perses, whose panels have names. Grafana's have the
// same kind, and a list of panels.
func isPerses(n *node) bool {
	return n.text("kind") == "Dashboard" && n.get("spec", "panels").object()
}

// perses reads the selectors of a plugin of Perses, which are its variables' matchers.
func (a *asker) perses(n *node) {
	if strings.HasPrefix(n.text("kind"), "Prometheus") {
		for _, m := range n.list("spec", "matchers") {
			a.add(m, a.title+", matchers", m.text())
		}
	}
}

// add adds a query, or a selector, which is one too.
func (a *asker) add(at *node, where, query string) {
	u := &Use{Kind: cmp.Or(a.as, Object), File: a.file, Line: at.first(), Where: where, Query: templated(strings.TrimSpace(query))}
	a.set.addScoped(u, &scope{})
	a.toFill(u)
}

// hasRules tells whether a list has a group of rules, as a value of a chart may.
func hasRules(list *node) bool {
	return list != nil && slices.ContainsFunc(list.items, func(g *node) bool { return len(g.list("rules")) > 0 && isGroup(g) })
}

// groups reads the groups of rules of an object.
func (a *asker) groups(n *node) bool {
	list := n.get("groups")
	if !hasRules(list) || slices.Contains(a.read, list) {
		return false
	}
	_, err := groupList(a.set, a.file, list.items)
	a.errs = append(a.errs, err)
	return true
}

// elsewhere tells of a dashboard that a chart's values name by its number or address: it is in none
// of the files.
func (a *asker) elsewhere(n *node, key string, path []string) {
	from := ""
	switch {
	case n.get("gnetId") != nil && n.get("gnetId").word() != "":
		from = "number " + n.get("gnetId").word() + " of grafana.com"
	case len(path) > 2 && path[len(path)-3] == "dashboards" && strings.Contains(n.text("url"), "://") && n.get("json") == nil:
		from = "at the address that is given there"
	case len(path) > 2 && path[len(path)-3] == "dashboards" && n.text("file") != "" && n.get("json") == nil:
		a.set.Warnings = append(a.set.Warnings, inFile(a.file, n.line, fmt.Errorf("%s: the dashboard %s is not in this file but in the chart's %s: give that file too", a.title, key, n.text("file"))).Error())
		return
	default:
		return
	}
	err := inFile(a.file, n.line, fmt.Errorf("%s: the dashboard %s is not in this file but %s: export it from Grafana, or read Grafana's API (--grafana), and leave this file out", a.title, key, from))
	if a.set.boards != nil {
		a.errs = append(a.errs, err)
	} else {
		a.set.Warnings = append(a.set.Warnings, err.Error())
	}
}

// documents reads the documents that stand in a text, as in the values of charts. One that looks
// like rules or a dashboard and cannot be read is an error: what it asks would be dropped.
func (a *asker) documents(n *node, key string, path []string, text string) bool {
	if a.queryKey(key) || !strings.Contains(text, "\n") && text[0] != '{' && text[0] != '[' && !strings.HasPrefix(text, "- ") {
		return false
	}
	_, read, program, err := inside(a.set, a.file, n)
	a.errs = append(a.errs, err)
	if !read && looksAsking.MatchString(text) {
		a.errs = append(a.errs, unreadable(a.file, []byte(text), inFile(a.file, n.first(), fmt.Errorf("%s, %s: rules or a dashboard seem to stand in this text, and it is no document that can be read; take the file out, and list its queries in a file for --queries", a.title, strings.Join(path, ".")))))
		return true
	}
	return read && !program && !isQuery(templated(text))
}

// looksAsking finds what rules, dashboards and the rules of prometheus-adapter have.
var looksAsking = regexp.MustCompile(`(?m)^\s*(- )?\s*(expr|promql|seriesQuery|containerQuery|nodeQuery):\s|"expr"\s*:\s*"|"targets"\s*:\s*\[\s*\{`)

// queryKey tells whether the values of a key are queries.
func (a *asker) queryKey(key string) bool {
	lower := plainKey(key)
	switch lower {
	case "expr", "promql", "query", "match[]":
		return true
	case "metricforpodlabels", "historycpumetric", "historymemorymetric": // of VPA's recommender
		return true
	case "metric":
		return a.kind == "ServiceLevelObjective" // Pyrra's selectors
	}
	return strings.HasSuffix(lower, "query") && lower != "seriesquery"
}

// maybeKey tells whether the values of a key are queries where they parse and name a metric: others
// have expressions and lists of queries too, in languages of their own.
func maybeKey(key string) bool {
	lower := plainKey(key)
	return strings.HasSuffix(lower, "expression") || strings.HasSuffix(lower, "queries") || annotated(key)
}

// annotated tells whether a key is an annotation of kube-metrics-adapter, whose last part is the
// name of a query: metric-config.external.prometheus-query.prometheus/eps.
func annotated(key string) bool {
	return strings.HasPrefix(key, "metric-config.") && strings.Contains(key, "query.prometheus/")
}

// nameKeys are keys for the name of a metric, in Kiali's dashboards and Grafana's objectives among
// others.
var nameKeys = []string{"metricname", "discoveron", "prometheusmetric", "successmetric", "totalmetric"}

func plainKey(key string) string {
	return strings.ToLower(joined.Replace(key))
}

// keyOf is the key that says what a value of n is: below `queries: {a: …}` it is the outer one,
// unless a is for queries itself, and the expression of a rule is its expr, as Azure's are. What a
// patch puts somewhere has the key of its place, and the value of a variable of a container its
// name.
func (a *asker) keyOf(n *node, k, outer string, path []string) string {
	switch {
	case k == "expression" && (n.get("alert") != nil || n.get("record") != nil):
		return "expr"
	case k == "match" && n.get("outputs") != nil && n.get("interval") != nil: // stream aggregation of vmagent
		return "match[]"
	case k == "value" && n.text("op") != "" && n.text("path") != "": // a patch
		return n.text("path")[strings.LastIndexByte(n.text("path"), '/')+1:]
	case k == "value" && isSetting(n.text("name")):
		name := n.text("name")
		if _, whole := wholeTemplate(templated(n.text(k))); whole || !strings.Contains(strings.ToLower(name), "prom") {
			return name + "=" // other programs have queries too: where it is one of Prometheus
		}
		return name
	case strings.HasSuffix(plainKey(outer), "queries") && len(path) > 0 && path[len(path)-1] == outer && n.text(k) != "" && !a.queryKey(k):
		return outer
	}
	return k
}

// text reads one text.
func (a *asker) text(n *node, key string, path []string, text string) {
	where := a.place(path)
	if asked, all := calls(text); (len(asked) > 0 || !all) && !(a.others > 0 && isArgumentAlone(text)) {
		a.called(n, where, text, asked, all)
		a.lines(n, where, text)
		return
	}
	a.spans(n, key, text)
	query := templated(text)
	inline, marked := strings.CutPrefix(text, "PromQL:") // of Kayenta
	switch {
	case marked:
		a.add(n, where, inline)
	case key == "heartbeat" && a.others == 0 && namesMetric(query, true): // Spillway's own
		a.add(n, where, text)
	case a.queryKey(key) && a.others == 0:
		if a.template(n, where, text) {
			return
		}
		a.add(n, where, text)
	case slices.Contains(nameKeys, plainKey(key)) && model.LegacyValidation.IsValidMetricName(text): // of a histogram, too
		a.add(n, where, `{__name__=~"`+text+`(_bucket|_count|_sum)?"}`)
	case a.setting(n, key, where, text):
	case isQuery(query), maybeKey(key) && a.others == 0 && namesMetric(query, annotated(key) || strings.HasPrefix(path[len(path)-1], "[")):
		a.add(n, where, text)
	default:
		a.lines(n, where, text)
	}
}

// lines reads the queries among the lines of a text, and those in the actions of templates of
// alerts.
func (a *asker) lines(n *node, where, text string) {
	if strings.Contains(text, "{{") {
		for _, q := range templateQueries(text) {
			a.add(n, where, q)
		}
	}
	if a.others == 0 {
		for _, q := range append(linked(text), flagged(text)...) {
			a.add(n, where, q)
		}
		if recommender.MatchString(text) {
			a.recommended(n, where)
		}
	}
	a.set.handings(text, nil)
	a.resourceMetrics(n, where, text)
	if !strings.Contains(text, "\n") {
		return
	}
	for _, line := range strings.Split(text, "\n") {
		if isQueryLine(templated(strings.TrimSpace(line))) {
			a.add(n, where, line)
		}
	}
}

// template reads a query that is nothing but a template, and says whether it is one: it is what the
// document gives for it, and an error where it gives nothing.
func (a *asker) template(n *node, where, query string) bool {
	name, whole := wholeTemplate(templated(query))
	if !whole {
		return false
	}
	if !a.given(n, where, name) {
		a.errs = append(a.errs, inFile(a.file, n.line, fmt.Errorf("%s: the whole query is the template %s, which is filled in elsewhere: give it a value in this document, or take the file out and list its queries in a file for --queries",
			where, query)))
	}
	return true
}

// given adds what the document gives for the argument of a template, if it gives something.
func (a *asker) given(n *node, where, name string) bool {
	given := a.arguments[name]
	if given == nil || strings.TrimSpace(given.text()) == "" {
		return false
	}
	a.add(n, where, given.text())
	return true
}

// called adds what the calls of the API in a text ask. Where that is not all in it as a query, each
// word of it could be a metric. So it is where a query of a script is nothing but a template; an
// address with one asks nothing else, and is refused.
func (a *asker) called(n *node, where, text string, asked []string, all bool) {
	address := !isArgumentAlone(text) && !strings.ContainsAny(templated(text), " \t\n")
	for _, query := range asked {
		name, whole := wholeTemplate(templated(query))
		switch {
		case a.others > 0 || !whole:
			a.add(n, where, query)
		case address:
			a.template(n, where, query)
		case !a.given(n, where, name):
			all = false
		}
	}
	if !all {
		u := &Use{Kind: cmp.Or(a.as, Object), File: a.file, Line: n.first(), Where: where, Needs: allWords(text)}
		u.Reason = "what this text asks Prometheus' API cannot be read in it; every metric named in it is kept"
		a.set.warn(u, u.Reason)
		a.set.Add(u)
	}
}

// defaults notes what the document itself gives for the arguments of its templates, as Argo's do.
func (a *asker) defaults(n *node) {
	a.arguments = map[string]*node{}
	for _, arg := range n.list("spec", "args") {
		if value := arg.get("value"); value.text() != "" {
			a.arguments[variableOf("args."+arg.text("name"))] = value
		}
	}
}

// hole is a template's action: {{args.service-name}}, {{ namespace }}, {{- .Values.x -}}.
var hole = regexp.MustCompile(`(?s)\$?\{\{-?\s*(.*?)\s*-?\}\}`)

// templated writes holes as variables, whose values nobody knows.
func templated(text string) string {
	return hole.ReplaceAllStringFunc(text, func(action string) string {
		return "${" + variableOf(hole.FindStringSubmatch(action)[1]) + "}"
	})
}

// variableOf is a name for what an action puts in. Those that differ only in signs have one, and
// all of them have any value.
func variableOf(action string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r < 0x80 && wordByte(byte(r)) && r != ':' {
			return r
		}
		return '_'
	}, action), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' || strings.HasPrefix(name, "__") {
		name = "x" + name
	}
	return name
}

// wholeTemplate tells whether a query is nothing but one variable, and which.
func wholeTemplate(query string) (string, bool) {
	m := reference.FindStringSubmatch(query)
	if m == nil || m[0] != query {
		return "", false
	}
	return m[1] + m[2] + m[5], true
}

// unmarked is what a name has beside its variables, and what joins them.
func unmarked(name string) string {
	if !mark.MatchString(name) {
		return name
	}
	return strings.Trim(mark.ReplaceAllString(name, ""), "_:")
}

// slos refuses service levels whose queries a plugin makes, unless the rules that came of them were
// read: Sloth puts the names of service and SLO on all that it records.
func (a *asker) slos(n *node) {
	a.set.pyrra = a.set.pyrra || strings.HasPrefix(n.text("apiVersion"), "pyrra.dev/")
	spec := n
	if n.text("kind") == "PrometheusServiceLevel" {
		spec = n.get("spec")
	} else if !strings.HasPrefix(n.text("version"), "prometheus/") {
		return
	}
	for _, slo := range spec.list("slos") {
		a.set.sloth = true
		if plugin := slo.get("sli", "plugin"); plugin != nil {
			a.set.made = append(a.set.made, madeElsewhere{
				service: spec.text("service"), slo: slo.text("name"),
				err: inFile(a.file, plugin.line, fmt.Errorf("%s: the queries of SLO %s are made by the plugin %s and are in none of the files: read the rules that `sloth generate` makes of it too",
					a.title, slo.text("name"), plugin.text("id"))),
			})
		}
	}
}

// madeElsewhere is a service level whose queries are in the rules that were made of it.
type madeElsewhere struct {
	service, slo string
	err          error
}

// Unmade are the errors about service levels whose rules were not read. It is asked when all is
// read: the rules may stand in another folder. Nor are names known before that other documents fill
// in, which it does, and the links of other dashboards.
func (s *Set) Unmade() error {
	s.fill()
	s.hand()
	var errs []error
	for _, m := range s.made {
		if !slices.ContainsFunc(s.Uses, func(u *Use) bool {
			return u.RuleLabels["sloth_service"] == m.service && u.RuleLabels["sloth_slo"] == m.slo
		}) {
			errs = append(errs, m.err)
		}
	}
	return errors.Join(errs...)
}
