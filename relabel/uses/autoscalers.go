package uses

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Autoscalers adds what scales by metrics, from a file or from all .yaml, .yml and .json files
// below a folder: HorizontalPodAutoscalers (metrics of pods, objects and outside, under the names
// that prometheus-adapter gives them), KEDA's ScaledObjects and ScaledJobs with triggers of type
// prometheus, and prometheus-adapter's configuration, alone or in a ConfigMap. What else asks
// Prometheus beside them is read for what it is.
func Autoscalers(set *Set, path string) error {
	list, err := set.files(path, ".yaml", ".yml", ".json")
	if err != nil {
		return fmt.Errorf("autoscalers: %w", cmp.Or(set.unrendered(path), err))
	}
	before := len(set.Uses)
	var errs []error
	for _, file := range list {
		text, err := readFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, scalerFile(set, file, text))
	}
	set.unread(path, list)
	err = errors.Join(errs...)
	if len(set.Uses) == before { // then its tests and vendored files are not what is wrong with the folder
		err = cmp.Or(set.unrendered(path), err)
	} else {
		set.besideUnrendered(path)
	}
	if err != nil {
		return fmt.Errorf("autoscalers: %w", err)
	}
	if !set.scales(list) {
		set.nothingFound(path, "", before)
	}
	return nil
}

// scales tells whether anything in one of the files scales by metrics, whichever flag read it.
func (s *Set) scales(files []string) bool {
	list := map[string]bool{}
	for _, file := range files {
		list[absolute(file)] = true
	}
	return slices.ContainsFunc(s.Uses, func(u *Use) bool { return u.Kind == Autoscaler && list[absolute(u.File)] })
}

// scalerFile adds what one file scales by.
func scalerFile(set *Set, file string, text []byte) error {
	docs, err := parse(file, text)
	if err != nil {
		if set.asksNothing(text) {
			return nil
		}
		return unreadable(file, text, err)
	}
	return objects(docs, func(n *node) error {
		if n == nil {
			return nil
		}
		if !n.object() {
			return patches(set, file, n)
		}
		_, err := document(set, file, n)
		return err
	})
}

// scaler reads what scales: objects of Kubernetes, and the rules of prometheus-adapter.
type scaler struct {
	set  *Set
	file string
}

// object reads an object of one of scalerKinds, and what else it asks, such as in its annotations.
func (s *scaler) object(n *node) error {
	if !s.set.once(Autoscaler, s.file, n) {
		return nil // another flag has named its folder
	}
	a := asker{set: s.set, file: s.file, title: title(n), kind: n.text("kind"), as: Autoscaler}
	var err error
	if n.text("kind") == "HorizontalPodAutoscaler" {
		a.title = "autoscaler" + strings.TrimPrefix(a.title, "HorizontalPodAutoscaler")
	} else {
		err = s.keda(n, a.title)
		a.read = []*node{n.get("spec", "triggers"), n.get("spec", "advanced")} // the latter counts with the names of triggers
	}
	a.walk(n, "", nil)
	return errors.Join(append(a.errs, err)...)
}

// metric adds a metric of an HPA. Under prometheus-adapter its name is often made from another: the
// names that its usual rules make it of are kept too.
func (s *scaler) metric(m *node, where string) {
	for _, kind := range []string{"pods", "object", "external"} {
		at := m.get(kind, "metric")
		name := first(at.text("name"), m.text(kind, "metricName"))
		if name == "" || kedaMetric.MatchString(name) {
			continue
		}
		if at == nil {
			at = m.get(kind)
		}
		s.add(&Use{Line: at.line, Where: where + ", metric " + name, Scales: Scaling{name, kind}, Needs: []Need{adapted(name)}})
	}
}

// adapted are the metrics of which prometheus-adapter may make a name.
func adapted(name string) Need {
	base := regexp.QuoteMeta(strings.TrimSuffix(strings.TrimSuffix(name, "_per_second"), "_per_minute"))
	const ends = "(_total|_seconds_total|_seconds)?"
	pattern := base + ends
	if !strings.HasPrefix(name, "container_") { // the chart's own rules cut that off
		pattern += "|container_" + base + ends
	}
	if full := regexp.QuoteMeta(name); full != base {
		pattern += "|" + full
	}
	return Need{Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, pattern)}, Labels: All}
}

// resourceOf finds the addresses of metrics in Kubernetes' own API, which prometheus-adapter
// serves. The metric is the last part of its path.
var resourceOf = regexp.MustCompile(`apis/(?:custom|external)\.metrics\.k8s\.io/v\w+/namespaces?/[^\s"'\x60?]*/([^\s"'\x60?/;|&)]+)`)

// resourceMetrics adds the metrics that a text asks Kubernetes for. One whose name the text does
// not have, as a shell's variable, may be any that is named in it.
func (a *asker) resourceMetrics(n *node, where, text string) {
	for _, at := range resourceOf.FindAllStringSubmatch(text, maxCalls) {
		u := &Use{Kind: cmp.Or(a.as, Object), File: a.file, Line: n.first(), Where: where + ", metric " + at[1]}
		switch {
		case model.LegacyValidation.IsValidMetricName(at[1]):
			u.Needs = []Need{adapted(at[1])}
		case !strings.ContainsAny(at[1], "${%"): // of KEDA, or of another system
			continue
		default:
			u.Where, u.Needs = where, allWords(text)
			u.Reason = "the metric that this text asks Kubernetes' API for cannot be read in it; every metric named in it is kept"
			a.set.warn(u, u.Reason)
		}
		a.set.Add(u)
	}
}

// kedaMetric is what KEDA calls the metrics of its own HPAs; their queries are in its objects.
var kedaMetric = regexp.MustCompile(`^s\d+-`)

func (s *scaler) add(u *Use) {
	u.Kind, u.File = Autoscaler, s.file
	s.set.Add(u)
}

func (s *scaler) keda(n *node, where string) error {
	for i, t := range n.list("spec", "triggers") {
		kind := t.text("type")
		if kind != "predictkube" && !strings.Contains(kind, "prometheus") && !strings.Contains(kind, "victoria") {
			s.trigger(t, fmt.Sprintf("%s, trigger %d", where, i+1))
			continue
		}
		query := t.get("metadata", "query")
		if query.text() == "" {
			return inFile(s.file, t.line, fmt.Errorf("%s: the trigger %d of type %s has no query", where, i+1, kind))
		}
		s.add(&Use{Line: query.first(), Where: fmt.Sprintf("%s, trigger %d", where, i+1), Query: strings.TrimSpace(query.text())})
	}
	return nil
}

// trigger adds what a trigger of another type asks all the same: in an address of Prometheus' API
// (metrics-api), or in PromQL.
func (s *scaler) trigger(t *node, where string) {
	for _, key := range t.get("metadata").names() {
		value := t.get("metadata", key)
		a := asker{set: s.set, file: s.file, title: where, as: Autoscaler, others: 1}
		text := strings.TrimSpace(value.text())
		switch {
		case text == "":
		case a.queryKey(key) && !foreignLanguage(t.text("type")) && isFlagged(text): // another program's trigger
			a.add(value, where, text)
		default:
			a.text(value, key, []string{key}, text)
		}
	}
}

// adapterKeys are the queries of prometheus-adapter's configuration, which have holes of their own.
var adapterKeys = []string{"seriesQuery", "metricsQuery", "containerQuery", "nodeQuery"}

// adapter reads a rule of prometheus-adapter's configuration, or one of its resources (cpu,
// memory), and tells whether n is one.
func (s *scaler) adapter(n *node, key string) (bool, error) {
	if n.text("seriesQuery") != "" {
		return true, s.adapterRule(n)
	}
	if key == "rules" && isAdapterRules(n) {
		s.set.Warnings = append(s.set.Warnings, inFile(s.file, n.line, errors.New("prometheus-adapter has its default rules there, which offer every metric to autoscalers; of these, the ones that autoscalers ask for are kept, if their objects are given (--autoscalers)")).Error())
	}
	mine := false
	for _, field := range []string{"containerQuery", "nodeQuery"} {
		if q := n.get(field); q.text() != "" {
			mine = true
			s.add(&Use{
				Line: q.first(), Where: "prometheus-adapter, " + key + ", " + field, Query: filled(q.text(), "<<.Series>>"),
				Needs: adapterNeeds(q.text(), nil),
			})
		}
	}
	return mine, nil
}

// isAdapterRules tells whether these are the rules among the values of prometheus-adapter's chart,
// with the default ones, which they have unless they say otherwise.
func isAdapterRules(n *node) bool {
	if n.get("default") != nil {
		return n.truth("default")
	}
	return n.object() && (len(n.list("custom")) > 0 || n.get("custom") != nil && n.get("external") != nil)
}

// adapterRule adds what a rule discovers, and what it then asks of it.
func (s *scaler) adapterRule(r *node) error {
	s.set.adapter = true
	series := r.get("seriesQuery")
	m, err := promql.ParseMetricSelector(strings.TrimSpace(series.text()))
	if err != nil {
		return inFile(s.file, series.line, fmt.Errorf("seriesQuery is no selector: %w", err))
	}
	for _, f := range r.list("seriesFilters") { // is: and isNot: narrow the names
		if is := f.text("is"); is != "" {
			if matcher, err := labels.NewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".*(?:"+is+").*"); err == nil {
				m = append(m, matcher)
			}
		}
		if not := f.text("isNot"); not != "" {
			if matcher, err := labels.NewMatcher(labels.MatchNotRegexp, model.MetricNameLabel, ".*(?:"+not+").*"); err == nil {
				m = append(m, matcher)
			}
		}
	}
	discovered := Need{Matchers: m, Labels: All}
	u := &Use{
		Line: series.first(), Where: "prometheus-adapter, series " + discovered.Selector(), Query: oneSelector(discovered.Selector()),
		Needs: []Need{discovered},
	}
	s.add(u)
	if _, exact := discovered.Name(); !exact {
		s.set.warn(u, "the adapter offers every metric that this selects, and all of them are kept; name those that autoscalers ask for")
	}
	if q := r.get("metricsQuery"); q.text() != "" {
		name, _ := discovered.Name()
		s.add(&Use{
			Line: q.first(), Where: "prometheus-adapter, query of " + discovered.Selector(), Query: filled(q.text(), name),
			Needs: adapterNeeds(q.text(), m),
		})
	}
	return nil
}

// adapterVerb is a hole in the adapter's queries.
var adapterVerb = regexp.MustCompile(`<<-?\s*([^<>]*?)\s*-?>>`)

// filled is the query with its holes filled as far as they can be, or "" if that is none.
func filled(query, series string) string {
	text := adapterVerb.ReplaceAllStringFunc(query, func(verb string) string {
		switch {
		case strings.Contains(verb, ".Series"):
			return series
		case strings.Contains(verb, ".LabelMatchers"):
			return ""
		}
		return "pod"
	})
	return oneSelector(strings.TrimSpace(text))
}

// adapterNeeds are the needs of a query with holes: the series are those that were discovered,
// matchers can be any, and so can the labels of a group.
func adapterNeeds(query string, discovered []*labels.Matcher) []Need {
	text := adapterVerb.ReplaceAllStringFunc(query, func(verb string) string {
		switch {
		case strings.Contains(verb, ".Series"):
			return "$series"
		case strings.Contains(verb, ".LabelMatchers"):
			return "$matchers"
		case strings.Contains(verb, ".GroupBy"):
			return "$group"
		}
		return "$value"
	})
	names := &variable{name: "series", any: true}
	for _, m := range discovered {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			names.values, names.any = []string{m.Value}, false
		}
	}
	needs, _ := (&scope{variables: map[string]*variable{"series": names}}).needs(text)
	out := []Need{}
	for _, n := range needs {
		if _, exact := n.Name(); !exact { // what was discovered, then, with what the query itself says
			n.Matchers = append(n.Matchers, discovered...)
		}
		out = append(out, n)
	}
	return out
}
