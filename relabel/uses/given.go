package uses

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// template is an object whose queries others fill in: an analysis of Argo's, or a metric of
// Flagger's.
type template struct {
	kind, namespace, name string
	values                map[string]string // what it gives for its own arguments; "" is not known
}

// giving is what one object gives for a template that it names. Without a name it is for any.
type giving struct {
	kind, namespace, name string
	values                map[string]string // by the names of variables; "" is not known
	more                  bool              // there may be others
}

// unfilled is a use with such a variable in the place of a metric's name.
type unfilled struct {
	use *Use
	of  *template
}

// templateKinds are the kinds with arguments that other documents give.
var templateKinds = []string{"AnalysisTemplate", "ClusterAnalysisTemplate", "AnalysisRun", "MetricTemplate"}

// fillsIn notes that the document is one.
func (a *asker) fillsIn(n *node) {
	name := n.text("metadata", "name")
	if !slices.Contains(templateKinds, a.kind) || n.get("spec") == nil || plain(name) == "" {
		return
	}
	a.spec = n.get("spec")
	a.of = &template{kind: a.kind, namespace: n.text("metadata", "namespace"), name: name, values: argumentsOf(a.spec)}
	a.set.templates = append(a.set.templates, a.of)
}

// plain is a text that stands for itself, and "" where something else fills it in.
func plain(text string) string {
	if text = strings.TrimSpace(text); strings.ContainsAny(text, "{$<%@") {
		return ""
	}
	return text
}

// argumentsOf are the values of a list of arguments; one without a name may be for any.
func argumentsOf(n *node) map[string]string {
	out := map[string]string{}
	if text := n.text("args"); text != "" && plain(text) == "" {
		out[""] = ""
	}
	for _, arg := range n.list("args") {
		if !arg.object() || arg.text("name") == "" || arg.get("value") == nil && arg.get("valueFrom") == nil {
			continue
		}
		key, value := variableOf("args."+arg.text("name")), plain(arg.get("value").word())
		if plain(arg.text("name")) == "" {
			key, value = "", ""
		}
		if was, twice := out[key]; twice && was != value {
			value = ""
		}
		out[key] = value
	}
	return out
}

// gives notes what an object gives for the templates that it names, as a Rollout does for its
// analyses and a Canary for its metrics. A template gives its own arguments to those that it names,
// and they come from elsewhere in turn. What Kustomize patches or names anew is not known.
func (a *asker) gives(n *node, key string) {
	if patched(n, "path") && (n.get("op") != nil || n.get("create") != nil || n.get("kind") != nil) ||
		patched(n, "fieldPath") || patched(n, "fieldPaths") {
		a.set.givings = append(a.set.givings, giving{more: true})
	}
	if n.word("namePrefix") != "" || n.word("nameSuffix") != "" {
		a.set.givings = append(a.set.givings, giving{more: true})
	}
	if n.word("targetNamespace") != "" || (key == "" || key == "kustomize") && n.word("namespace") != "" {
		a.set.moved = true
	}
	args := argumentsOf(n)
	named := a.named(n, key)
	for _, g := range named {
		g.values, g.more = args, a.of != nil
		a.set.givings = append(a.set.givings, g)
	}
	if len(named) == 0 && len(args) > 0 && (a.spec == nil || n != a.spec) {
		a.set.givings = append(a.set.givings, giving{values: args})
	}
	ref, variables := n.get("templateRef"), n.get("templateVariables")
	if ref == nil && variables == nil {
		return
	}
	g := giving{kind: "MetricTemplate", namespace: first(ref.text("namespace"), a.namespace), name: plain(ref.text("name"))}
	g.values, g.more = map[string]string{}, variables != nil && !variables.object()
	for _, name := range variables.names() {
		g.values[variableOf("variables."+name)] = plain(variables.get(name).word())
		g.more = g.more || plain(name) == ""
	}
	a.set.givings = append(a.set.givings, g)
}

// named are the analyses that an object names, whose arguments stand beside their names.
func (a *asker) named(n *node, key string) []giving {
	var out []giving
	add := func(n *node, name string) {
		g := giving{kind: "AnalysisTemplate", namespace: a.namespace, name: plain(n.text(name))}
		switch scope := first(n.word("clusterScope"), n.text("kind")); scope {
		case "", "false", "AnalysisTemplate":
		case "true", "ClusterAnalysisTemplate":
			g.kind = "ClusterAnalysisTemplate"
		default:
			g.name = ""
		}
		out = append(out, g)
	}
	if n.get("templateName") != nil && (key != "templates" || n.get("args") != nil) {
		add(n, "templateName")
	}
	for _, t := range n.list("templates") {
		if t.get("templateName") != nil {
			add(t, "templateName")
		}
	}
	for _, t := range n.list("analysisTemplates") { // of Kargo
		add(t, "name")
	}
	return out
}

// The fields that decide on what a template is filled in with, in the paths of patches. Containers
// have arguments too.
var (
	argumentPath  = regexp.MustCompile(`(?:^|[/.])(?:args|templates|templateName|templateRef|templateVariables|analysisTemplates)(?:[/.\[]|$)`)
	containerPath = regexp.MustCompile(`(?i)containers[/.\[]`)
)

// patches reads the patches among the items of a file.
func patches(set *Set, file string, n *node) error {
	var errs []error
	for _, item := range n.items {
		if item.get("op") != nil && item.get("path") != nil {
			_, err := document(set, file, item)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// patched tells whether a patch or a replacement of Kustomize changes what is given for a template.
func patched(n *node, key string) bool {
	at := n.get(key)
	return at.any(func(n *node) bool {
		return argumentPath.MatchString(n.text()) && !containerPath.MatchString(n.text())
	})
}

// isFor tells whether what is given is for the template, as far as is known.
func (s *Set) isFor(t *template, g giving) bool {
	return g.name == "" || g.kind == t.kind && g.name == t.name &&
		(t.kind == "ClusterAnalysisTemplate" || s.oneNamespace(g.namespace, t.namespace))
}

// oneNamespace tells whether two objects may stand in the same one.
func (s *Set) oneNamespace(a, b string) bool {
	return s.moved || plain(a) == "" || plain(b) == "" || a == b
}

// values are all that can stand for a variable of the template; none where that is not known.
func (s *Set) values(t *template, variable string) []string {
	for _, o := range s.templates {
		if o != t && o.kind == t.kind && o.name == t.name && s.oneNamespace(o.namespace, t.namespace) {
			return nil // which of them is named is not known
		}
	}
	var out []string
	if _, nameless := t.values[""]; nameless {
		return nil
	}
	own, filled := t.values[variable]
	if filled {
		out = append(out, own)
	}
	for _, g := range s.givings {
		if t.kind == "AnalysisRun" && g.name != "" || !s.isFor(t, g) {
			continue
		}
		value, has := g.values[variable]
		if _, nameless := g.values[""]; nameless || g.more || !has && !filled && g.name != "" {
			return nil
		}
		if has && g.name == "" {
			value = ""
		}
		if has {
			out = append(out, value)
		}
	}
	if slices.Contains(out, "") {
		return nil
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fillable finds the variables that other documents fill in.
var fillable = regexp.MustCompile(`\$\{(?:args|variables)_`)

// toFill notes a use of a template that names no metric before all is read.
func (a *asker) toFill(u *Use) {
	if a.of != nil && slices.ContainsFunc(u.Needs, func(n Need) bool { return n.everything() }) && fillable.MatchString(u.Query) {
		a.set.toFill = append(a.set.toFill, unfilled{u, a.of})
	}
}

// fill narrows uses with a template for the name of a metric to the names that the documents give
// for it, where all that is given is known. It is asked when all is read.
func (s *Set) fill() {
	for _, w := range s.toFill {
		u, sc := w.use, &scope{variables: map[string]*variable{}}
		var with []string
		for _, name := range referenced(u.Query) {
			if values := s.values(w.of, name); len(values) > 0 {
				sc.variables[name] = &variable{name: name, values: values}
				with = append(with, values...)
			}
		}
		needs, _ := sc.needs(u.Query)
		if len(with) == 0 || len(needs) == 0 || slices.ContainsFunc(needs, func(n Need) bool { return n.everything() }) {
			continue
		}
		before := u.Place() + ": "
		s.Warnings = slices.DeleteFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, before) })
		u.Needs = needs
		u.Reason = "its metric is filled in by other documents; kept is what those that were read give: " + strings.Join(with, ", ")
		s.warn(u, u.Reason)
	}
	s.toFill = nil
}
