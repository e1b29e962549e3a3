package uses

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Rules adds the alerting and recording rules of a file, or of all .yaml, .yml, .json and .rules
// files below a folder: rule files as Prometheus, Thanos and Mimir read them, PrometheusRule and
// VMRule objects, ConfigMaps that hold rule files, and Grafana's own alert rules as it exports
// them. A document may be one of several of its file. What else asks Prometheus beside them
// (dashboards, autoscalers, analyses of rollouts, SLOs) is read for what it is. Documents that ask
// nothing are passed over, those that are no objects of Kubernetes with a warning; one with an expr
// that is no rule file is an error, and so are sources of rules that nobody has rendered, where
// there is nothing else.
func Rules(set *Set, path string) error {
	list, err := set.files(path, ruleFiles...)
	if err != nil {
		return fmt.Errorf("rules: %w", cmp.Or(set.unrendered(path), err))
	}
	var errs []error
	found, before := 0, len(set.Uses)
	var others []string
	for _, file := range list {
		text, err := readFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		number, other, err := ruleFile(set, file, text)
		if found += number; other {
			others = append(others, file)
		}
		errs = append(errs, err)
	}
	passedOver(set, "rules", others)
	set.unread(path, list)
	err = errors.Join(errs...)
	if found == 0 { // then its tests and vendored files are not what is wrong with the folder
		err = cmp.Or(set.unrendered(path), err)
	} else {
		set.besideUnrendered(path)
	}
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if found == 0 {
		set.nothingFound(path, "rules", before)
	}
	return nil
}

// ruleFiles are the extensions of files that are read for rules.
var ruleFiles = []string{".yaml", ".yml", ".json", ".rules"}

// ruleLine finds what every rule has.
var ruleLine = regexp.MustCompile(`(?m)^\s*(- )?expr:\s`)

// ruleFile adds the rules of one file, and says how many there were and whether a document of it
// has nothing to do with rules.
func ruleFile(set *Set, file string, text []byte) (found int, other bool, err error) {
	docs, err := parse(file, text)
	if err != nil {
		// other programs have rules too
		if set.asksNothing(text) || extension(file) == ".rules" && !ruleLine.Match(text) {
			return 0, true, nil
		}
		return 0, false, unreadable(file, text, err)
	}
	err = objects(docs, func(n *node) error {
		number, err := ruleObject(set, file, n)
		found += number
		if errors.Is(err, errNone) {
			other = true
			return nil
		}
		return err
	})
	return found, other, err
}

// errNone says that a document has nothing to do with rules.
var errNone = errors.New("nothing of this kind is in it")

// passedOver warns of files that were read for nothing: someone may have given the wrong folder.
func passedOver(set *Set, what string, files []string) {
	files = slices.Compact(files)
	switch n := len(files); {
	case n == 0:
	case n <= 3:
		set.Warnings = append(set.Warnings, fmt.Sprintf("there are no %s in %s; passed over", what, strings.Join(files, ", ")))
	default:
		set.Warnings = append(set.Warnings, fmt.Sprintf("there are no %s in %s and %d other files; passed over", what, strings.Join(files[:2], ", "), n-2))
	}
}

// ruleObject adds the rules of one document and says how many there were.
func ruleObject(set *Set, file string, n *node) (int, error) {
	if n == nil || n.scalar == nil && !n.object() && n.items == nil {
		return 0, nil // an empty document
	}
	switch {
	case foreign(n, ruleKinds...):
		return other(set, file, n)
	case isPerses(n):
		return 0, elsewhere(set, file, n)
	case !set.once(Rule, file, n):
		return 1, nil // another flag has named its folder
	case n.get("spec").object() && n.get("groups") == nil && (n.text("kind") != "" || len(n.keys) == 1 || n.get("spec", "groups") != nil):
		n = n.get("spec")
	}
	found, a := 0, asker{set: set, file: file, title: title(n), kind: n.text("kind")}
	for _, key := range n.names() { // Mimir's files: a namespace, or a list of groups for each
		value := n.fields[key]
		if key != "groups" && !isGroups(value) {
			continue
		}
		if err := mustList(file, n, key); err != nil {
			return found, err
		}
		number, err := groupList(set, file, value.items)
		if found += number; err != nil {
			return found, err
		}
		a.read = append(a.read, value)
	}
	if len(a.read) == 0 && isGroup(n) { // one group by itself
		number, err := groupList(set, file, []*node{n})
		if err != nil {
			return number, err
		}
		found, a.read = number, []*node{n.get("rules")}
	}
	if len(a.read) == 0 {
		return noGroups(set, file, n)
	}
	a.walk(n, "", nil) // what else is in it: what cannot be read there takes no rules away
	for _, err := range a.errs {
		if err != nil {
			set.Warnings = append(set.Warnings, err.Error()+"; what is used in it counts as unused")
		}
	}
	return found, nil
}

// isGroup tells whether the document is a group of rules: other programs have rules too, such as
// the exporter of JMX.
func isGroup(n *node) bool {
	rules := n.get("rules")
	return rules != nil && !rules.object() && (len(rules.items) == 0 || slices.ContainsFunc(rules.items, func(r *node) bool {
		return r.get("expr") != nil || r.get("alert") != nil || r.get("record") != nil || r.get("data") != nil
	}))
}

// isGroups tells whether it is a list of groups of rules, some of which may have none.
func isGroups(n *node) bool {
	return n != nil && len(n.items) > 0 && (n.items[0].get("rules") != nil || hasRules(n))
}

func hasExpr(n *node) bool { return n.get("expr") != nil }

// noGroups reads a document that has no rules for what else it may be.
func noGroups(set *Set, file string, n *node) (int, error) {
	switch {
	case isTest(n):
		return 0, errNone
	case isDashboard(n):
		return document(set, file, n)
	case !isSources(n) && n.any(hasExpr):
		return 0, inFile(file, n.line, errors.New("an expr is in this document, but no groups of rules: is it a rule file? Values of a chart are rendered first (helm template CHART -f FILE), and what comes out is given"))
	}
	if asked, err := asksAnything(set, file, n); err != nil || asked {
		return 0, err
	}
	return 0, errNone
}

func (n *node) names() []string {
	if n == nil {
		return nil
	}
	return n.keys
}

// mustList is an error where there is something else under the key: read as nothing, it would drop
// what the rules use.
func mustList(file string, n *node, key string) error {
	if one := n.get(key); one != nil && (one.scalar != nil || one.object()) {
		return inFile(file, one.line, fmt.Errorf("%s must be a list", key))
	}
	return nil
}

func groupList(set *Set, file string, list []*node) (int, error) {
	found := 0
	for _, group := range list {
		if err := mustList(file, group, "rules"); err != nil {
			return found, err
		}
		if group.get("rules") == nil && group.any(func(n *node) bool {
			return n.get("expr") != nil || n.get("query") != nil || n.text("heartbeat") != ""
		}) {
			if err := asks(set, file, group); err != nil { // rules of another form, such as those of a catalogue; groups of Spillway's own
				return found, err
			}
		}
		for _, r := range group.list("rules") {
			found++
			if err := rule(set, file, group.text("name"), r); err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

// ofGroup names a group for people.
func ofGroup(name string) string {
	if name == "" {
		return "a group without a name"
	}
	return "group " + name
}

// rule adds one rule, and the queries in an alert's texts.
func rule(set *Set, file, group string, r *node) error {
	if r.get("data") != nil && r.get("expr") == nil { // Grafana's own: queries by refId
		title := r.text("title")
		if title == "" {
			title = r.text("uid")
		}
		w := walker{set: set, file: file, kind: Rule, alerts: true, title: "alert " + title, scope: &scope{}}
		w.walk(r, "", "")
		return nil
	}
	record, alert, expr := r.text("record"), r.text("alert"), r.get("expr")
	switch {
	case expr == nil:
		return inFile(file, r.line, fmt.Errorf("a rule of %s has no expr", ofGroup(group)))
	case record == "" && alert == "":
		return inFile(file, r.line, fmt.Errorf("a rule of %s is neither a record nor an alert", ofGroup(group)))
	}
	u := &Use{
		Kind: Rule, File: file, Line: expr.first(), Query: strings.TrimSpace(expr.word()), Records: record, Alerts: alert != "",
		Where: "rule " + record,
	}
	if alert != "" {
		u.Where = "alert " + alert
	}
	if isLogQL(u.Query) {
		set.otherLanguage(file, u.Where)
		return nil
	}
	if record != "" {
		u.RuleLabels = map[string]string{}
		for _, key := range r.get("labels").names() {
			u.RuleLabels[key] = r.get("labels", key).text()
		}
	}
	set.Add(u)
	for _, field := range []string{"labels", "annotations"} {
		for _, key := range r.get(field).names() {
			text := r.get(field, key)
			where := u.Where + ", " + strings.TrimSuffix(field, "s") + " " + key
			for _, query := range templateQueries(text.text()) {
				set.Add(&Use{Kind: Rule, File: file, Line: text.first(), Query: query, Alerts: alert != "", Where: where})
			}
			links(set, file, where, text)
		}
	}
	return nil
}

// links adds what the addresses in an alert's text ask, which whoever is called opens. One whose
// query only the alert makes asks what is not known here, which no error is for.
func links(set *Set, file, where string, n *node) {
	a := asker{set: set, file: file, title: where, as: Rule}
	if asked, all := calls(n.text()); len(asked) > 0 || !all {
		asked = slices.DeleteFunc(asked, func(query string) bool {
			_, whole := wholeTemplate(templated(query))
			return whole
		})
		a.called(n, where, n.text(), asked, all)
	}
	set.handings(n.text(), nil)
	for _, query := range linked(n.text()) {
		a.add(n, where, query)
	}
}
