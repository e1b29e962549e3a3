package uses

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Folders hold what their owners put there: a ScaledObject beside rules, a dashboard beside an SLO.
// So each document is read for what it is, whichever flag named its folder, and once only.

// once says whether the document is read as this for the first time. It is told apart by its file
// and content: documents of one line have no line of their own.
func (s *Set) once(as Kind, file string, n *node) bool {
	file = absolute(file)
	key := string(as) + "\x00" + file + "\x00" + n.sum()
	if s.documents[key] {
		return false
	}
	if s.documents == nil {
		s.documents = map[string]bool{}
	}
	s.documents[key] = true
	return true
}

// absolute is the path from the root, as far as that can be known.
func absolute(file string) string {
	if path, err := filepath.Abs(file); err == nil {
		return path
	}
	return file
}

// apart are keys of a panel that tell where it is, and not what it asks.
var apart = []string{"id", "gridPos", "meta", "version", "pluginVersion", "created", "updated"}

// sum is equal for equal documents.
func (n *node) sum() string {
	h := fnv.New128a()
	n.hash(h, nil)
	return string(h.Sum(nil))
}

// asks is equal for panels that ask the same of servers of one type.
func (n *node) asks() string {
	h := fnv.New128a()
	n.hash(h, apart)
	return string(h.Sum(nil))
}

// hash writes the document in one form, without some keys; a hash takes whatever it is given.
func (n *node) hash(w io.Writer, without []string) {
	if n == nil {
		return
	}
	switch {
	case n.object():
		fmt.Fprint(w, "{")
		for _, key := range n.keys {
			field := n.fields[key]
			if slices.Contains(without, key) {
				continue
			}
			if without != nil && key == "datasource" && field.object() {
				field = field.get("type")
			}
			fmt.Fprintf(w, "%q:", key)
			field.hash(w, without)
		}
	case n.items != nil:
		fmt.Fprintf(w, "[%d", len(n.items))
		for _, item := range n.items {
			item.hash(w, without)
		}
	default:
		fmt.Fprintf(w, "%T%q", n.scalar, n.word())
	}
}

// Kinds of Kubernetes objects by who reads them.
var (
	ruleKinds      = []string{"PrometheusRule", "VMRule", "AlertRuleGroup"}
	scalerKinds    = []string{"HorizontalPodAutoscaler", "ScaledObject", "ScaledJob"}
	dashboardKinds = []string{"Dashboard", "LibraryPanel", "GrafanaDashboard", "GrafanaLibraryPanel"}
)

// other adds what an object asks that is not of the kind of its folder, and says how many rules are
// in it.
func other(set *Set, file string, n *node) (rules int, err error) {
	switch kind := n.text("kind"); {
	case isLoki(n):
		set.otherLanguage(file, title(n))
		return 0, nil
	case slices.Contains(ruleKinds, kind):
		if rules, err = ruleObject(set, file, n); errors.Is(err, errNone) {
			err = nil
		}
		return rules, err
	case slices.Contains(scalerKinds, kind):
		return 0, (&scaler{set: set, file: file}).object(n)
	case slices.Contains(dashboardKinds, kind):
		return 0, elsewhere(set, file, n)
	case !set.once(Object, file, n):
		return 0, nil
	case kind == "ConfigMap" || kind == "Secret":
		return configMap(set, file, n)
	}
	return 0, asks(set, file, n)
}

// document reads what is inside of another document, or stands by itself, whatever it is.
func document(set *Set, file string, n *node) (rules int, err error) {
	switch {
	case n.text("apiVersion") != "" && n.text("kind") != "":
		return other(set, file, n)
	case hasRules(n.get("groups")), n.get("groups") != nil && n.any(hasExpr): // other programs have groups, too
		return ruleObject(set, file, n)
	case isDashboard(n), isPerses(n):
		return 0, elsewhere(set, file, n)
	case set.once(Object, file, n):
		return 0, asks(set, file, n)
	}
	return 0, nil
}

// asksAnything adds what a document asks, whose kind nothing tells, and says whether it asks
// anything; of one that was read before, that it does.
func asksAnything(set *Set, file string, n *node) (bool, error) {
	if !set.once(Object, file, n) {
		return true, nil
	}
	before := len(set.Uses) + len(set.made)
	err := asks(set, file, n)
	return len(set.Uses)+len(set.made) > before, err
}

// configMap reads each value of a ConfigMap or a Secret for what it is: another document, or a text
// that may be a query.
func configMap(set *Set, file string, n *node) (rules int, err error) {
	if isLoki(n) {
		set.otherLanguage(file, title(n))
		return 0, nil
	}
	var errs []error
	a := asker{set: set, file: file, title: title(n)}
	for _, field := range []string{"data", "stringData", "binaryData"} {
		coded := field == "binaryData" || field == "data" && n.text("kind") == "Secret"
		for _, key := range n.get(field).names() {
			value := n.get(field, key)
			if coded {
				text, err := unpack(value.text())
				if err != nil || !utf8.Valid(text) {
					errs = append(errs, a.packed(value, field, key, err))
					continue
				}
				value = &node{line: value.line, scalar: string(text)}
			}
			number, read, program, err := inside(set, file, value)
			rules += number
			errs = append(errs, err)
			if !read || program {
				a.walk(value, key, []string{field, key})
			}
		}
	}
	return rules, errors.Join(append(errs, a.errs...)...)
}

// packed is the error about a value that cannot be unpacked, where its key says that it is a
// document: what else is binary asks nothing. In a Secret it is a warning: what is there is often
// encrypted, or is filled in later.
func (a *asker) packed(value *node, field, key string, err error) error {
	name := strings.ToLower(key)
	plain := strings.TrimSuffix(name, ".gz")
	document := slices.Contains([]string{".json", ".yaml", ".yml", ".rules", ".promql"}, filepath.Ext(plain))
	if !document && (err == nil || plain == name || strings.HasSuffix(plain, ".tar")) {
		return nil
	}
	text := inFile(a.file, value.line, fmt.Errorf("%s, %s: it cannot be unpacked: %w", a.title, key, cmp.Or(err, errBinary)))
	if field == "data" {
		a.set.Warnings = append(a.set.Warnings, text.Error()+"; what is used in it counts as unused")
		return nil
	}
	return text
}

var errBinary = errors.New("it is no text")

// maxInside is how many documents stand in one another at most.
const maxInside = 16

// inside reads the documents that a text holds, each for what it is; read is false where it holds
// none, and program tells that it may be a program instead, which happens to be YAML.
func inside(set *Set, file string, at *node) (rules int, read, program bool, err error) {
	docs := embedded(at)
	if len(docs) == 0 {
		return 0, false, false, nil
	}
	if set.inside++; set.inside > maxInside {
		err = inFile(file, at.first(), errors.New("more than 16 documents stand in one another here: give the innermost ones as files of their own"))
	}
	for _, d := range docs {
		if err != nil {
			break
		}
		var number int
		if number, err = document(set, file, d); errors.Is(err, errNone) {
			err = nil
		}
		rules += number
	}
	set.inside--
	return rules, true, slices.ContainsFunc(docs, func(n *node) bool { return slices.ContainsFunc(n.names(), statement.MatchString) }), err
}

// statement matches the beginnings of statements of programs that end in a colon.
var statement = regexp.MustCompile(`^(?:(?:async\s+)?(?:for|if|while|with|def|class)\s+\S|(?:try|except)\b)`)

// isLoki tells whether an object is for Loki, whose language is another one.
func isLoki(n *node) bool {
	return strings.HasPrefix(n.text("apiVersion"), "loki.grafana.com/") || n.get("metadata", "labels", "loki_rule") != nil
}

// otherLanguage warns once for each file of queries that are none of Prometheus.
func (s *Set) otherLanguage(file, where string) {
	warning := file + ": what is in LogQL there, such as " + where + ", asks Loki and not Prometheus; passed over"
	if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, file+": what is in LogQL there") }) {
		s.Warnings = append(s.Warnings, warning)
	}
}

// isLogQL tells whether a text is LogQL: a | that is in no string is neither in PromQL nor in
// MetricsQL. Templates have one too: what they make of a text is not known.
func isLogQL(query string) bool {
	if strings.Contains(query, "{{") || strings.Contains(query, "{%") {
		return false
	}
	for i := 0; i < len(query); i++ {
		switch c := query[i]; c {
		case '|':
			return true
		case '"', '\'', '`':
			for i++; i < len(query) && query[i] != c; i++ {
				if query[i] == '\\' && c != '`' {
					i++
				}
			}
		case '#':
			for i < len(query) && query[i] != '\n' {
				i++
			}
		}
	}
	return false
}

// elsewhere adds a dashboard that stands in something else. One that is not in the file is an error
// where all dashboards are promised (--dashboards, --grafana), and a warning behind other flags.
func elsewhere(set *Set, file string, n *node) error {
	if b := set.boards; b != nil {
		defer func(was bool) { b.guest = was }(b.guest)
		b.guest = true
		return b.document(file, n)
	}
	b := board{set: set, elements: map[string][]*element{}, guest: true}
	if err := errors.Join(b.document(file, n), b.finish()); err != nil {
		set.Warnings = append(set.Warnings, err.Error())
	}
	return nil
}

// isDashboard tells whether the document is a dashboard as Grafana exports it.
func isDashboard(n *node) bool {
	if d := n.get("dashboard"); d.object() {
		n = d
	}
	return (n.get("panels") != nil || n.get("rows") != nil || n.get("elements").object()) &&
		(n.get("schemaVersion") != nil || n.get("templating").object() || n.text("title") != "")
}

// isSources tells whether it provisions data sources of Grafana, which ask by their correlations.
func isSources(n *node) bool {
	return slices.ContainsFunc(n.list("datasources"), func(s *node) bool { return s.text("type") != "" })
}

// isTest tells whether it is a test of promtool, whose expressions nobody asks of a server.
func isTest(n *node) bool {
	if n.get("tests") == nil {
		return false
	}
	return n.get("rule_files") != nil || n.get("tests").any(func(n *node) bool {
		return n.get("input_series") != nil || n.get("alert_rule_test") != nil || n.get("promql_expr_test") != nil
	})
}

// embedded are the documents that a text holds; none where it holds something else.
func embedded(at *node) []*node {
	text := []byte(at.text())
	var docs []*node
	if json.Valid(text) {
		n, err := parseJSON(text, at.first())
		if err != nil {
			return nil
		}
		docs = []*node{n}
	} else {
		var err error
		if docs, err = parseYAML(text, at.first()); err != nil {
			return nil
		}
	}
	var out []*node
	for _, n := range docs { // of a list, its items
		for _, item := range append([]*node{n}, n.items...) {
			if item.object() {
				out = append(out, item)
			}
		}
	}
	if !at.literal {
		for _, n := range out {
			flatten(n, at.line)
		}
	}
	return out
}
