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
	found := 0
	for _, file := range list {
		text, err := readFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		number, err := scalerFile(set, file, text)
		found += number
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	if len(set.Uses) == before { // then its tests and vendored files are not what is wrong with the folder
		err = cmp.Or(set.unrendered(path), err)
	}
	if err != nil {
		return fmt.Errorf("autoscalers: %w", err)
	}
	if found == 0 {
		set.nothingFound(path, "", before)
	}
	return nil
}

// scalerFile adds what one file scales by, and says how much that is.
func scalerFile(set *Set, file string, text []byte) (int, error) {
	docs, err := parse(file, text)
	if err != nil {
		if asksNothing(text) {
			return 0, nil
		}
		return 0, unreadable(file, text, err)
	}
	s := scaler{set: set, file: file}
	err = objects(docs, s.document)
	return s.found, err
}

type scaler struct {
	set   *Set
	file  string
	found int
}

func (s *scaler) document(n *node) error {
	if !n.object() {
		return nil
	}
	mine := slices.Contains(scalerKinds, n.text("kind")) || n.text("kind") == "ConfigMap" || n.text("kind") == "" && isAdapter(n)
	if !mine {
		_, err := document(s.set, s.file, n)
		return err
	}
	if n.text("kind") != "ConfigMap" && !s.set.once(Autoscaler, s.file, n) {
		s.found++ // another flag has named its folder
		return nil
	}
	name := n.text("metadata", "name")
	if namespace := n.text("metadata", "namespace"); namespace != "" {
		name = namespace + "/" + name
	}
	switch n.text("kind") {
	case "HorizontalPodAutoscaler":
		for _, m := range n.list("spec", "metrics") {
			s.metric(m, "autoscaler "+name)
		}
		return nil
	case "ScaledObject", "ScaledJob":
		return s.keda(n, n.text("kind")+" "+name)
	case "ConfigMap":
		for _, key := range n.get("data").names() {
			value := n.get("data", key)
			if !strings.Contains(value.text(), "seriesQuery") && !strings.Contains(value.text(), "containerQuery") {
				continue
			}
			docs, err := parseYAML([]byte(value.text()), value.first())
			if err != nil {
				return inFile(s.file, value.line, fmt.Errorf("%s: %w", key, err))
			}
			for _, d := range docs {
				if !value.literal {
					flatten(d, value.line)
				}
				if s.found++; !s.set.once(Autoscaler, s.file, d) {
					continue
				}
				if err := s.adapter(d); err != nil {
					return err
				}
			}
		}
		_, err := other(s.set, s.file, n) // what else is in it
		return err
	}
	return s.adapter(n)
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
		base := regexp.QuoteMeta(strings.TrimSuffix(strings.TrimSuffix(name, "_per_second"), "_per_minute"))
		pattern := base + "(_total|_seconds_total|_seconds)?"
		if full := regexp.QuoteMeta(name); full != base {
			pattern += "|" + full
		}
		need := Need{Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, pattern)}, Labels: All}
		s.add(&Use{Line: at.line, Where: where + ", metric " + name, Needs: []Need{need}})
	}
}

// kedaMetric is what KEDA calls the metrics of its own HPAs; their queries are in its objects.
var kedaMetric = regexp.MustCompile(`^s\d+-`)

func (s *scaler) add(u *Use) {
	u.Kind, u.File = Autoscaler, s.file
	s.found++
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
		query, asked := inAddress(value.text())
		if !asked {
			query = value.text()
		}
		if query = templated(strings.TrimSpace(query)); asked || isQuery(query) {
			u := &Use{Kind: Autoscaler, File: s.file, Line: value.first(), Where: where + ", " + key, Query: query}
			s.found++
			s.set.addScoped(u, &scope{})
		}
	}
}

// adapter reads prometheus-adapter's configuration.
func (s *scaler) adapter(n *node) error {
	// the latter two in the values of its chart
	for _, path := range [][]string{{"rules"}, {"externalRules"}, {"rules", "custom"}, {"rules", "external"}} {
		for _, r := range n.list(path...) {
			if r.text("seriesQuery") == "" {
				continue
			}
			if err := s.adapterRule(r); err != nil {
				return err
			}
		}
	}
	for _, resource := range []string{"cpu", "memory"} {
		for _, field := range []string{"containerQuery", "nodeQuery"} {
			if q := n.get("resourceRules", resource, field); q.text() != "" {
				s.add(&Use{
					Line: q.first(), Where: "prometheus-adapter, " + resource + ", " + field, Query: filled(q.text(), "<<.Series>>"),
					Needs: adapterNeeds(q.text(), nil),
				})
			}
		}
	}
	return nil
}

// adapterRule adds what a rule discovers, and what it then asks of it.
func (s *scaler) adapterRule(r *node) error {
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
