package uses

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Dashboards adds the queries of the dashboards in a file, or in all .json, .yaml and .yml files
// below a folder: Grafana's schemas of all times (rows, panels, v2), as exported, as its API
// answers, as Kubernetes objects (Dashboard, GrafanaDashboard, ConfigMap), and library panels. JSON
// without anything that could be a query is passed over with a warning.
func Dashboards(set *Set, path string) error {
	list, err := set.files(path, ".json", ".yaml", ".yml")
	if err != nil {
		return fmt.Errorf("dashboards: %w", cmp.Or(set.unrendered(path), err))
	}
	b := board{set: set, elements: map[string][]*element{}}
	set.boards = &b
	defer func() { set.boards = nil }()
	before := len(set.Uses)
	var errs []error
	for _, file := range list {
		text, err := readFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, b.file(file, text))
	}
	errs = append(errs, b.finish())
	passedOver(set, "dashboards", b.others)
	set.unread(path, list)
	err = errors.Join(errs...)
	if b.found == 0 { // then its tests and vendored files are not what is wrong with the folder
		err = cmp.Or(set.unrendered(path), err)
	} else {
		set.besideUnrendered(path)
	}
	if err != nil {
		return fmt.Errorf("dashboards: %w", err)
	}
	if b.found == 0 {
		set.nothingFound(path, "dashboards", before)
	}
	return nil
}

func (b *board) file(file string, text []byte) error {
	docs, err := parse(file, text)
	if err != nil {
		// a file with comments, of another program
		if isJSON := extension(file) == ".json"; isJSON && !queries(text) || !isJSON && b.set.asksNothing(text) {
			b.other(file)
			return nil
		}
		return unreadable(file, text, err)
	}
	return objects(docs, func(n *node) error { return b.document(file, n) })
}

// queries tells whether a text names anything that makes a dashboard.
func queries(text []byte) bool {
	keys := []string{`"panels"`, `"rows"`, `"targets"`, `"expr"`, `"templating"`, `"elements"`}
	return slices.ContainsFunc(keys, func(key string) bool { return bytes.Contains(text, []byte(key)) })
}

// board reads dashboards one after another. Library panels stay until all dashboards are read: they
// use the variables of those that show them.
type board struct {
	set      *Set
	found    int
	elements map[string][]*element // by uid: those that differ, of exports of several times or servers
	pending  []showing
	others   []string // files without a dashboard
	guest    bool     // they stand in a folder of something else: those that were read already are left out
}

// element is a library panel.
type element struct {
	file, name string
	model      *node
	form       string // equal for equal models
	asks       string // its queries
	shown      bool
}

// showing is a library panel on a dashboard.
type showing struct {
	uid, name   string
	file, title string
	line        int
	scope       *scope
}

func (b *board) other(file string) {
	if !b.guest {
		b.others = append(b.others, file)
	}
}

// document reads whatever may hold a dashboard.
func (b *board) document(file string, n *node) error {
	switch {
	case n == nil || n.scalar == nil && !n.object() && n.items == nil:
		return nil
	case n.items != nil:
		var errs []error
		for _, item := range n.items {
			errs = append(errs, b.document(file, item))
		}
		return errors.Join(errs...)
	case n.text("kind") == "ConfigMap" || n.text("kind") == "Secret":
		if err := b.configMap(file, n); err != nil {
			return err
		}
		_, err := other(b.set, file, n) // what else is in it
		return err
	case n.text("kind") == "GrafanaDashboard":
		return b.operator(file, n)
	case n.text("kind") == "GrafanaLibraryPanel":
		return b.operator(file, n)
	case foreign(n, "Dashboard", "LibraryPanel"):
		_, err := other(b.set, file, n)
		return err
	case n.text("kind") == "LibraryPanel" && n.get("spec").object(): // the Kubernetes form
		b.element(file, n.text("metadata", "name"), n.text("spec", "title"), n.get("spec"))
		return nil
	case n.get("dashboard").object(): // as the API answers
		return b.document(file, n.get("dashboard"))
	case n.get("result").object() && n.get("result", "elements") != nil:
		for _, e := range n.list("result", "elements") {
			b.element(file, e.text("uid"), e.text("name"), e.get("model"))
		}
		return nil
	case n.get("result").object():
		return b.document(file, n.get("result"))
	case n.get("model").object() && n.get("panels") == nil:
		b.element(file, n.text("uid"), n.text("name"), n.get("model"))
		return nil
	case isPerses(n):
		if b.found++; !b.set.once(Dashboard, file, n) {
			return nil
		}
		return asks(b.set, file, n)
	case n.get("spec").object() && (n.get("spec", "elements").object() || n.text("kind") == "Dashboard" && isSpec(n.get("spec"))):
		title := n.text("spec", "title")
		if title == "" {
			title = n.text("metadata", "name")
		}
		return b.dashboard(file, title, n.get("spec"))
	case n.get("panels") != nil || n.get("rows") != nil || n.get("elements").object() || n.get("templating").object():
		return b.dashboard(file, n.text("title"), n)
	case n.text("kind") == "Dashboard" && n.text("apiVersion") != "", n.text("kind") != "" && hasRules(n.get("groups")):
		// of another shape than its kind says
	case hasRules(n.get("groups")), hasRules(n.get("spec", "groups")):
		_, err := document(b.set, file, n)
		return err
	case isTest(n):
		return nil
	case !isSources(n) && n.any(func(n *node) bool {
		return n.get("expr") != nil || slices.ContainsFunc(n.list("targets"), (*node).object)
	}):
		return inFile(file, n.line, errors.New("there are queries in this document, but it is no dashboard that is known; rules belong behind --rules"))
	}
	asked, err := asksAnything(b.set, file, n)
	if !asked {
		b.other(file)
	}
	return err
}

func (b *board) element(file, uid, name string, model *node) {
	if uid == "" {
		uid = "\x00" + file + name
	}
	b.found++
	form := model.asks()
	if !slices.ContainsFunc(b.elements[uid], func(e *element) bool { return e.form == form }) {
		b.elements[uid] = append(b.elements[uid], &element{file: file, name: name, model: model, form: form})
	}
}

// configMap reads the JSON in a ConfigMap's values.
func (b *board) configMap(file string, n *node) error {
	var errs []error
	for _, field := range []string{"data", "stringData", "binaryData"} {
		for _, key := range n.get(field).names() {
			value := n.get(field, key)
			text := []byte(value.text())
			if field == "binaryData" || field == "data" && n.text("kind") == "Secret" {
				text, _ = unpack(value.text())
				value = &node{line: value.line, scalar: string(text)}
			}
			if text = bytes.TrimSpace(text); len(text) == 0 || text[0] != '{' && text[0] != '[' {
				continue // no JSON: what else it may be is looked at later
			}
			errs = append(errs, b.embedded(file, key, text, value))
		}
	}
	return errors.Join(errs...)
}

// embedded reads a document inside of another.
func (b *board) embedded(file, key string, text []byte, at *node) error {
	if !queries(text) {
		return nil
	}
	doc, err := parseJSON(text, at.first())
	if err != nil {
		return inFile(file, at.line, fmt.Errorf("%s: %w", key, err))
	}
	if !at.literal {
		flatten(doc, at.line)
	}
	return b.document(file, doc)
}

// isSpec tells whether a spec is a dashboard of Grafana. Other objects of that kind have it in a
// text.
func isSpec(spec *node) bool {
	return slices.ContainsFunc([]string{"panels", "rows", "elements", "templating", "variables", "annotations", "schemaVersion"},
		func(key string) bool { return spec.get(key) != nil })
}

// flatten puts all values on one line: the text does not stand in the file as it is.
func flatten(n *node, line int) {
	n.line = line
	for _, key := range n.keys {
		flatten(n.fields[key], line)
	}
	for _, item := range n.items {
		flatten(item, line)
	}
}

// operator reads the objects of Grafana's operator.
func (b *board) operator(file string, n *node) error {
	spec := n.get("spec")
	switch {
	case spec.text("json") != "":
		return b.embedded(file, "spec.json", []byte(spec.text("json")), spec.get("json"))
	case spec.text("gzipJson") != "":
		text, err := unpack(spec.text("gzipJson"))
		if err != nil {
			return inFile(file, spec.get("gzipJson").line, fmt.Errorf("spec.gzipJson: %w", err))
		}
		return b.embedded(file, "spec.gzipJson", text, &node{line: spec.get("gzipJson").line})
	}
	return inFile(file, n.line, fmt.Errorf("the dashboard of %s %s is not in this file (it is fetched or computed from its spec): export it from Grafana, or read Grafana's API",
		n.text("kind"), n.text("metadata", "name")))
}

// unpack decodes base64, and gzip inside of it.
func unpack(text string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		return raw, nil
	}
	return unzip(raw, maxFile)
}

// dashboard reads one dashboard.
func (b *board) dashboard(file, title string, n *node) error {
	b.found++
	if fresh := b.set.once(Dashboard, file, n); b.guest && !fresh {
		return nil
	}
	if title == "" {
		title = filepath.Base(file)
	}
	s := readVariables(n)
	s.uid = plain(n.text("uid"))
	for uid, e := range embeddedElements(n) {
		b.element(file, uid, e.text("name"), e.get("model"))
		b.found--
	}
	w := walker{set: b.set, file: file, kind: Dashboard, title: "dashboard " + title, scope: s, datasources: datasources(n)}
	w.variables(n)
	w.walk(n, "", "")
	b.pending = append(b.pending, w.library...)
	return nil
}

// embeddedElements are the library panels that an export brings with it, by uid.
func embeddedElements(n *node) map[string]*node {
	out := map[string]*node{}
	if list := n.get("__elements"); list != nil {
		for _, key := range list.keys {
			if e := list.fields[key]; e.get("model").object() {
				out[key] = e
			}
		}
		for _, e := range list.items {
			if e.get("model").object() {
				out[e.text("uid")] = e
			}
		}
	}
	return out
}

// finish reads the library panels, with the variables of each dashboard that shows them, and alone
// where none does.
func (b *board) finish() error {
	var errs []error
	for _, p := range b.pending {
		if len(b.elements[p.uid]) == 0 {
			errs = append(errs, inFile(p.file, p.line, fmt.Errorf("%s shows the library panel %q (uid %s), which is in none of the files: add its file, or read Grafana's API",
				p.title, p.name, p.uid)))
		}
		for _, e := range b.elements[p.uid] {
			e.shown, e.asks = true, ""
			w := walker{set: b.set, file: e.file, kind: Dashboard, title: p.title, scope: p.scope}
			before := len(b.set.Uses)
			w.walk(e.model, "library panel "+e.name, "")
			for _, u := range b.set.Uses[before:] {
				e.asks += u.Query + "\x00"
			}
		}
	}
	for _, uid := range sortedKeys(b.elements) {
		for _, e := range b.elements[uid] {
			if !e.shown {
				w := walker{set: b.set, file: e.file, kind: Dashboard, title: "library panel " + e.name, scope: &scope{}}
				w.walk(e.model, "", "")
			}
		}
		b.differs(uid, b.elements[uid])
	}
	return errors.Join(errs...)
}

// differs tells of a library panel that is there in several forms: which of them Grafana has, the
// files do not say.
func (b *board) differs(uid string, forms []*element) {
	if !slices.ContainsFunc(forms, func(e *element) bool { return e.asks != forms[0].asks }) {
		return // they look different, and ask the same
	}
	var files []string
	for _, e := range forms {
		files = append(files, e.file)
	}
	b.set.Warnings = append(b.set.Warnings, fmt.Sprintf("the library panel %q (uid %s) differs between %s: each form counts for every dashboard that shows it; all but one are outdated, or of another Grafana, and may keep what nobody uses",
		forms[0].name, uid, strings.Join(files, ", ")))
}
