package dashboards

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// rule is one thing that every dashboard must keep to. TestRulesCanFail breaks each of them.
type rule struct {
	name  string
	check func(x *linter, d *Dashboard, bad reporter)
}

type reporter func(format string, args ...any)

// linter is what rules know beside the dashboard.
type linter struct {
	all   []*Dashboard
	facts *facts
}

var rules = []rule{
	{"identity", checkIdentity},
	{"described", checkDescribed},
	{"panel types", checkTypes},
	{"data source", checkDatasource},
	{"layout", checkLayout},
	{"variables", checkVariables},
	{"links", checkLinks},
	{"parses", checkParses},
	{"cluster", checkCluster},
	{"windows", checkWindows},
	{"metrics", checkMetrics},
	{"counters", checkCounters},
	{"guard", checkGuard},
	{"no invented zero", checkZero},
	{"palette", checkPalette},
}

func newLinter(t testing.TB) *linter {
	t.Helper()
	x := &linter{facts: readFacts(t)}
	for _, name := range Names() {
		x.all = append(x.all, load(t, name))
	}
	return x
}

// lint is what all rules say about d, each line beginning with the rule's name.
func (x *linter) lint(d *Dashboard) []string {
	var out []string
	for _, r := range rules {
		r.check(x, d, func(format string, args ...any) { out = append(out, r.name+": "+fmt.Sprintf(format, args...)) })
	}
	return out
}

func TestLint(t *testing.T) {
	x := newLinter(t)
	for _, d := range x.all {
		t.Run(d.Name, func(t *testing.T) {
			for _, problem := range x.lint(d) {
				t.Error(problem)
			}
		})
	}
}

const (
	prefix        = "spillway-"
	refresh       = "1m"
	schemaVersion = 39
)

func checkIdentity(x *linter, d *Dashboard, bad reporter) {
	if d.UID != prefix+d.Name || len(d.UID) > 40 {
		bad("uid %q is not %s%s of at most 40 characters", d.UID, prefix, d.Name)
	}
	for _, other := range x.all {
		if other.Name != d.Name && (other.UID == d.UID || other.Title == d.Title) {
			bad("%s has the same uid or title", other.Name)
		}
	}
	if d.Title == "" || !sentence.MatchString(d.Description) {
		bad("title %q, description %q", d.Title, d.Description)
	}
	if !slices.Contains(d.Tags, "spillway") || d.Refresh != refresh || d.SchemaVersion != schemaVersion {
		bad("tags %v, refresh %q, schema %d", d.Tags, d.Refresh, d.SchemaVersion)
	}
}

// sentence begins like one, ends like one, and says something.
var sentence = regexp.MustCompile(`(?s)^[A-Z0-9].{15,}[.?]$`)

func checkDescribed(_ *linter, d *Dashboard, bad reporter) {
	seen := map[string]bool{}
	for i := range d.Panels {
		p := &d.Panels[i]
		if p.Title == "" || seen[p.Title] && p.Type != "row" {
			bad("panel %d: title %q is empty or there twice", p.ID, p.Title)
		}
		seen[p.Title] = true
		if p.Type == "row" || p.Type == "text" {
			continue
		}
		if !sentence.MatchString(p.Description) {
			bad("panel %q: the description is no sentence: %q", p.Title, p.Description)
		}
		if p.FieldConfig.Defaults.Unit == "" {
			bad("panel %q has no unit", p.Title)
		}
		if len(p.Targets) == 0 {
			bad("panel %q asks nothing", p.Title)
		}
	}
}

// core are the panels that every Grafana from 11 on has built in.
var core = []string{"row", "timeseries", "stat", "table", "bargauge", "gauge", "heatmap", "state-timeline", "histogram", "text"}

func checkTypes(_ *linter, d *Dashboard, bad reporter) {
	for _, p := range d.Panels {
		if !slices.Contains(core, p.Type) {
			bad("panel %q: type %q", p.Title, p.Type)
		}
	}
}

func checkDatasource(_ *linter, d *Dashboard, bad reporter) {
	want := Datasource{"prometheus", "${datasource}"}
	for _, q := range d.Queries() {
		got := want
		switch {
		case q.Target != nil:
			got = q.Target.Datasource
		case q.Variable != nil:
			got = q.Variable.Datasource
		case q.Annotation != nil:
			got = q.Annotation.Datasource
		}
		if got != want {
			bad("%s asks %+v and not what the reader chose", q.Where, got)
		}
	}
	if v := d.Variable("datasource"); v == nil || v.Type != "datasource" || v.Query != "prometheus" {
		bad("there is no variable datasource")
	}
}

func checkLayout(_ *linter, d *Dashboard, bad reporter) {
	ids := map[int]bool{}
	var rest, shut []Panel // panels that are seen together: open ones, and those of one shut row
	together := func(list []Panel) {
		for i, p := range list {
			for _, q := range list[:i] {
				if p.Grid.X < q.Grid.X+q.Grid.W && q.Grid.X < p.Grid.X+p.Grid.W && p.Grid.Y < q.Grid.Y+q.Grid.H &&
					q.Grid.Y < p.Grid.Y+p.Grid.H {
					bad("panels %q and %q overlap: %+v, %+v", p.Title, q.Title, p.Grid, q.Grid)
				}
			}
		}
	}
	for i, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			bad("panel %q: id %d is 0 or there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Grid.X < 0 || p.Grid.W < 1 || p.Grid.H < 1 || p.Grid.X+p.Grid.W > 24 {
			bad("panel %q is not within 24 columns: %+v", p.Title, p.Grid)
		}
		if i > 0 && !p.Collapsed && p.Grid.Y < d.Panels[i-1].Grid.Y && !d.Panels[i-1].Collapsed {
			bad("panel %q stands above the one before it", p.Title)
		}
		if p.Collapsed {
			shut = append(shut, p)
			continue
		}
		together(shut)
		shut, rest = nil, append(rest, p)
	}
	together(shut)
	together(rest)
}

func checkVariables(_ *linter, d *Dashboard, bad reporter) {
	known := map[string]bool{}
	for _, v := range d.Variables {
		if known[v.Name] {
			bad("variable %s is there twice", v.Name)
		}
		if v.IncludeAll && v.AllValue == "" {
			bad("variable %s has All and no allValue: 7,500 names would stand in the query", v.Name)
		}
		if v.Type == "query" && (v.Selector() == "" || v.LabelName() == "") {
			bad("variable %s: %q is no label_values(selector, label)", v.Name, v.Query)
		}
		for _, name := range References(string(v.Query)) {
			if !known[name] {
				bad("variable %s asks for $%s, which comes later or not at all", v.Name, name)
			}
		}
		known[v.Name] = true
	}
	if !known["cluster"] {
		bad("there is no variable cluster")
	}
	for _, q := range d.Queries() {
		for _, name := range References(q.Expr) {
			if !known[name] && !strings.HasPrefix(name, "__") {
				bad("%s: there is no variable $%s", q.Where, name)
			}
		}
	}
}

var (
	address  = regexp.MustCompile(`^/d/([^?]+)(?:\?(.*))?$`)
	rowField = regexp.MustCompile(`\$\{__data\.fields\["([^"]+)"\]`)
)

func checkLinks(x *linter, d *Dashboard, bad reporter) {
	byUID := map[string]*Dashboard{}
	for _, other := range x.all {
		byUID[other.UID] = other
	}
	follow := func(where string, l Link, p *Panel) {
		m := address.FindStringSubmatch(l.URL)
		switch {
		case l.Title == "":
			bad("%s: a link has no title", where)
		case m == nil && !strings.HasPrefix(l.URL, "https://"):
			bad("%s: %q leads neither to a dashboard nor to an https address", where, l.URL)
		}
		if m == nil {
			return
		}
		to := byUID[m[1]]
		if to == nil {
			bad("%s: there is no dashboard %s", where, m[1])
			return
		}
		for _, arg := range strings.Split(m[2], "&") {
			name, _, _ := strings.Cut(arg, "=")
			if name, ok := strings.CutPrefix(name, "var-"); ok && to.Variable(name) == nil {
				bad("%s: dashboard %s has no variable %s", where, to.Name, name)
			}
			for _, name := range References(arg) {
				if !strings.HasPrefix(name, "__") && d.Variable(name) == nil {
					bad("%s: there is no variable %s to take along", where, name)
				}
			}
		}
		for _, m := range rowField.FindAllStringSubmatch(l.URL, -1) {
			if p == nil || !slices.Contains(p.fields(), m[1]) {
				bad("%s: the panel has no field %s", where, m[1])
			}
		}
	}
	for _, l := range d.Links {
		if l.Type == "link" {
			follow("the dashboard's links", l, nil)
		} else if len(l.Tags) == 0 || !l.KeepTime || !l.IncludeVars {
			bad("the list of dashboards forgets the time or the variables: %+v", l)
		}
	}
	if len(d.Links) == 0 {
		bad("nothing leads to the other dashboards")
	}
	for i := range d.Panels {
		p := &d.Panels[i]
		links, err := p.Links()
		if err != nil {
			bad("%v", err)
		}
		for _, l := range links {
			follow(fmt.Sprintf("panel %q", p.Title), l, p)
		}
	}
}

// fields are those that a table keeps; a panel of another kind has none by name.
func (p *Panel) fields() []string {
	var out []string
	for _, t := range p.Transformations {
		var o struct{ Include struct{ Names []string } }
		if t.ID == "filterFieldsByName" && json.Unmarshal(t.Options, &o) == nil {
			out = append(out, o.Include.Names...)
		}
	}
	return out
}

// These stand for variables where expressions are parsed; none of them is what somebody would
// write.
const (
	chosenCluster = "the-chosen-cluster"
	chosenOne     = "the-chosen-one"
	everything    = ".*"
	rateInterval  = 7*time.Minute + 13*time.Second
	wholeRange    = 61*time.Minute + 7*time.Second
)

func expression(d *Dashboard, q Query) (parser.Expr, error) {
	vars := Vars{
		Interval: rateInterval - 15*time.Second, From: time.Unix(0, 0), To: time.Unix(0, 0).Add(wholeRange),
		Values: map[string]Value{},
	}
	for _, v := range d.Variables {
		switch {
		case v.Name == "cluster":
			vars.Values[v.Name] = v.Choose(chosenCluster)
		case v.Type == "custom":
			first, _, _ := strings.Cut(string(v.Query), ",")
			vars.Values[v.Name] = Value{Chosen: []string{first}}
		case v.IncludeAll:
			vars.Values[v.Name] = Value{AllValue: everything}
		default:
			vars.Values[v.Name] = v.Choose(chosenOne)
		}
	}
	text, err := Substitute(q.Expr, vars)
	if err != nil {
		return nil, err
	}
	return parser.NewParser(parser.Options{}).ParseExpr(text)
}

func checkParses(_ *linter, d *Dashboard, bad reporter) {
	for _, q := range d.Queries() {
		if _, err := expression(d, q); err != nil {
			bad("%s: %v\n%s", q.Where, err, q.Expr)
		}
	}
}

// inspect calls f for each selector of each query, with the nodes around it.
func inspect(d *Dashboard, f func(q Query, sel *parser.VectorSelector, path []parser.Node)) {
	for _, q := range d.Queries() {
		e, err := expression(d, q)
		if err != nil {
			continue // checkParses has said so
		}
		parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
			if sel, ok := n.(*parser.VectorSelector); ok {
				f(q, sel, path)
			}
			return nil
		})
	}
}

func checkCluster(_ *linter, d *Dashboard, bad reporter) {
	inspect(d, func(q Query, sel *parser.VectorSelector, _ []parser.Node) {
		if q.Variable != nil && q.Variable.Name == "cluster" {
			return
		}
		if !slices.ContainsFunc(sel.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == "cluster" && m.Type == labels.MatchRegexp && m.Value == chosenCluster
		}) {
			bad(`%s: %s lacks cluster=~"$cluster"`, q.Where, sel.Name)
		}
	})
}
