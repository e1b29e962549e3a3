package mixin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

var pluginBoards = sync.OnceValues(PluginDashboards)

func renderedForPlugin(t *testing.T) Files {
	t.Helper()
	files, err := pluginBoards()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// What is committed of the plugin's dashboards is what is rendered, with nothing beside it; -update
// writes it.
func TestPluginDashboardsAreCommitted(t *testing.T) {
	files := renderedForPlugin(t)
	if *update {
		if err := files.Write(root); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files.Names() {
		b, err := os.ReadFile(filepath.Join(root, name))
		switch {
		case err != nil:
			t.Errorf("%s is rendered and not there; run make generate", name)
		case !bytes.Equal(b, files[name]):
			t.Errorf("%s is not what is rendered: line %s; run make generate", name, firstDifference(string(b), string(files[name])))
		}
	}
	there, err := filepath.Glob(filepath.Join(root, PluginDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range there {
		if name := path.Join(PluginDir, filepath.Base(at)); files[name] == nil {
			t.Errorf("%s is there and not rendered", name)
		}
	}
	// Grafana imports those that plugin.json lists, and no others.
	b, err := os.ReadFile(filepath.Join(root, "grafana-plugin", "src", "plugin.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		ID       string
		Includes []struct{ Type, Name, Path string }
	}
	if err := json.Unmarshal(b, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.ID != pluginType {
		t.Errorf("the plugin is %s, the dashboards ask %s", manifest.ID, pluginType)
	}
	var listed []string
	for _, i := range manifest.Includes {
		if i.Type != "dashboard" {
			continue
		}
		name := path.Join(path.Dir(PluginDir), i.Path)
		listed = append(listed, name)
		if d, err := dashboards.Parse(files[name]); err != nil || d.Title != i.Name {
			t.Errorf("plugin.json calls %s %q; the file: %+v, %v", i.Path, i.Name, d, err)
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, files.Names()) {
		t.Errorf("plugin.json lists %v, and there are %v", listed, files.Names())
	}
}

const pluginType = "spillway-experiments-datasource"

// pluginBoard is what the checks read of a dashboard beside dashboards.Dashboard.
type pluginBoard struct {
	*dashboards.Dashboard
	raw struct {
		Panels     []pluginPanel
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
				Datasource dashboards.Datasource
			}
		}
		Annotations struct {
			List []struct {
				BuiltIn    int
				Name       string
				Datasource dashboards.Datasource
				Target     json.RawMessage
			}
		}
	}
}

type pluginPanel struct {
	Type, Title     string
	Datasource      dashboards.Datasource
	Targets         []json.RawMessage
	Transformations []struct {
		ID      string
		Options struct {
			ExcludeByName map[string]bool
		}
	}
}

func parsePluginBoard(b []byte) (*pluginBoard, error) {
	d, err := dashboards.Parse(b)
	if err != nil {
		return nil, err
	}
	out := &pluginBoard{Dashboard: d}
	return out, json.Unmarshal(b, &out.raw)
}

// columns are the fields of the plugin's tables. pkg/experiments tests that its answers have them.
func columns(t testing.TB) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "grafana-plugin", "pkg", "experiments", "testdata", "columns.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string][]string
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// problems are what is wrong with one of the plugin's dashboards. boards are all of them by uid.
func (d *pluginBoard) problems(boards map[string]*pluginBoard, columns map[string][]string) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !strings.HasPrefix(d.UID, "spillway-") || d.Title == "" || !slices.Contains(d.Tags, "experiments") {
		bad("identity: uid %q, title %q, tags %v", d.UID, d.Title, d.Tags)
	}

	// Variables: each is narrowed only by those before it.
	known := map[string]bool{}
	want := dashboards.Datasource{Type: pluginType, UID: "${source}"}
	for i, v := range d.raw.Templating.List {
		if i == 0 {
			var of string
			if err := json.Unmarshal(v.Query, &of); err != nil || v.Name != "source" || v.Type != "datasource" || of != pluginType {
				bad("variable %s: the first one chooses the data source", v.Name)
			}
		} else {
			q := struct {
				QueryType, RefID, Resource, Q, Team, Cluster, Namespace, Experiment string
				Limit, Days                                                         int
			}{}
			if err := strictly(v.Query, &q); err != nil || q.QueryType != "variable" || q.RefID != "variable" || v.Datasource != want {
				bad("variable %s: %+v of %+v, %v", v.Name, q, v.Datasource, err)
			}
			if !slices.Contains([]string{"experiments", "teams", "clusters", "namespaces", "nodes"}, q.Resource) {
				bad("variable %s: there is no resource %q", v.Name, q.Resource)
			}
			for _, ref := range dashboards.References(string(v.Query)) {
				if !known[ref] {
					bad("variable %s: $%s is none before it", v.Name, ref)
				}
			}
		}
		known[v.Name] = true
	}

	for i := range d.raw.Panels {
		p := &d.raw.Panels[i]
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource != want {
			bad("panel %q: %d queries of %+v", p.Title, len(p.Targets), p.Datasource)
		}
		kinds := map[string]bool{}
		for _, raw := range p.Targets {
			q, err := pluginQuery(raw, known, want)
			if err != nil {
				bad("panel %q: %v", p.Title, err)
			}
			if q.Type == model.GPUTimeSeries && slices.Contains(q.GroupBy, "node") && !slices.Contains(q.GroupBy, "cluster") {
				bad("panel %q: nodes of one name in several clusters are one line", p.Title)
			}
			kinds[tableOf(q)] = true
			if p.Type == "table" && columns[tableOf(q)] == nil {
				bad("panel %q: %s is no table", p.Title, tableOf(q))
			}
		}
		if p.Type == "table" {
			for kind := range kinds {
				d.checkColumns(p, columns[kind], bad)
			}
		}
	}
	for _, a := range d.raw.Annotations.List {
		if a.BuiltIn != 0 {
			continue
		}
		if a.Datasource != want {
			bad("annotation %q asks %+v", a.Name, a.Datasource)
		}
		if q, err := pluginQuery(a.Target, known, dashboards.Datasource{}); err != nil || q.Type != model.Events {
			bad("annotation %q: %s, %v", a.Name, q.Type, err)
		}
	}

	for i := range d.Panels {
		p := &d.Panels[i]
		if p.Type != "row" && (len(p.Description) < 20 || !strings.HasSuffix(p.Description, ".")) {
			bad("panel %q: the description is no sentence: %q", p.Title, p.Description)
		}
		for _, q := range d.Panels[:i] {
			if p.Grid.X < q.Grid.X+q.Grid.W && q.Grid.X < p.Grid.X+p.Grid.W && p.Grid.Y < q.Grid.Y+q.Grid.H &&
				q.Grid.Y < p.Grid.Y+p.Grid.H {
				bad("panels %q and %q overlap", p.Title, q.Title)
			}
		}
		if p.Grid.X+p.Grid.W > 24 {
			bad("panel %q is not within 24 columns", p.Title)
		}
		links, err := p.Links()
		if err != nil {
			bad("%v", err)
		}
		for _, l := range links {
			checkPluginLink(l.URL, boards, known, func(format string, args ...any) {
				bad("panel %q: link %q: "+format, append([]any{p.Title, l.Title}, args...)...)
			})
		}
	}
	return out
}

func strictly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// pluginQuery reads a query as the front end hands it over, with some names in place of variables.
// Its variables must be known.
func pluginQuery(raw []byte, known map[string]bool, want dashboards.Datasource) (model.Query, error) {
	var errs []error
	for _, ref := range dashboards.References(string(raw)) {
		if !known[ref] && !slices.Contains([]string{"__experiment", "__idle_below", "__interval", "__range", "source"}, ref) {
			errs = append(errs, fmt.Errorf("$%s is no variable", ref))
		}
	}
	var of struct {
		model.Query
		Datasource dashboards.Datasource
		RefID      string
	}
	if err := strictly(raw, &of); err != nil {
		return model.Query{}, err
	}
	if of.Datasource != want || of.RefID == "" {
		errs = append(errs, fmt.Errorf("query %q asks %+v", of.RefID, of.Datasource))
	}
	q, err := model.ParseQuery(of.RefID, "", twoChosen(raw))
	return q, errors.Join(append(errs, err)...)
}

// twoChosen is a query as the front end sends it, with two experiments chosen: a variable with
// several values stands for as many names.
func twoChosen(raw []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	two := bytes.ReplaceAll(b.Bytes(), []byte(`["$experiment"]`), []byte(`["a","b"]`))
	return oneName.ReplaceAll(two, []byte(`["x"]`))
}

// oneName is a list of names that has one variable.
var oneName = regexp.MustCompile(`\["\$\w+"\]`)

// tableOf names what columns.json lists: a query type, with its view where it has several.
func tableOf(q model.Query) string {
	if q.View == "" {
		return string(q.Type)
	}
	return string(q.Type) + " " + q.View
}

var rowField = regexp.MustCompile(`\$\{__data\.fields\.(\w+)`)

// checkColumns holds the columns that a table's panel names to those that there are, and links to
// those that are left.
func (d *pluginBoard) checkColumns(p *pluginPanel, there []string, bad func(string, ...any)) {
	gone := map[string]bool{}
	for _, t := range p.Transformations {
		for name := range t.Options.ExcludeByName {
			gone[name] = true
			if !slices.Contains(there, name) {
				bad("panel %q leaves out %q, which is no column: %v", p.Title, name, there)
			}
		}
	}
	for i := range d.Panels {
		if d.Panels[i].Title != p.Title || d.Panels[i].Type != "table" {
			continue
		}
		for _, o := range d.Panels[i].FieldConfig.Overrides {
			if name, ok := o.Matcher.Options.(string); o.Matcher.ID == "byName" && (!ok || !slices.Contains(there, name) || gone[name]) {
				bad("panel %q says how %q looks, which is no column of it: %v", p.Title, name, there)
			}
		}
		links, err := d.Panels[i].Links()
		if err != nil {
			bad("%v", err)
		}
		for _, l := range links {
			for _, m := range rowField.FindAllStringSubmatch(l.URL, -1) {
				if !slices.Contains(there, m[1]) || gone[m[1]] {
					bad("panel %q: link %q needs the column %q", p.Title, l.Title, m[1])
				}
			}
		}
	}
}

// Runs that are compared are of another time than the panel: a link to one has the run's.
func TestCompareLinksToTheRunsTime(t *testing.T) {
	text := string(renderedForPlugin(t)[PluginDir+"/compare.json"])
	const want = "var-experiment=${__data.fields.run:percentencode}&from=${__data.fields.from:percentencode}&to=${__data.fields.to:percentencode}"
	if !strings.Contains(text, want) || strings.Contains(text, "__url_time_range") {
		t.Errorf("no link to a run has %s, or one has the panel's time", want)
	}
}

// checkPluginLink wants a link to lead to one of the plugin's dashboards and to set variables that
// it has; its own variables must be known.
func checkPluginLink(to string, boards map[string]*pluginBoard, known map[string]bool, bad func(string, ...any)) {
	for _, ref := range dashboards.References(to) {
		if !known[ref] && !strings.HasPrefix(ref, "__") {
			bad("$%s is no variable", ref)
		}
	}
	at, query, _ := strings.Cut(to, "?")
	board := boards[strings.TrimPrefix(at, "/d/")]
	if board == nil {
		bad("%s is none of the plugin's dashboards", at)
		return
	}
	for _, part := range strings.Split(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if v, ok := strings.CutPrefix(name, "var-"); err != nil || ok && board.Variable(v) == nil {
			bad("%s has no variable %q", at, v)
		}
	}
	const ofRow = "from=${__data.fields.from:percentencode}&to=${__data.fields.to:percentencode}"
	timed := strings.Contains(query, "${__url_time_range}") || strings.Contains(query, ofRow)
	if !strings.Contains(query, "${source:queryparam}") || !timed {
		bad("it hands on neither the data source nor the time: %s", to)
	}
}

func pluginBoardsByUID(t *testing.T) map[string]*pluginBoard {
	t.Helper()
	boards := map[string]*pluginBoard{}
	files := renderedForPlugin(t)
	for _, name := range files.Names() {
		d, err := parsePluginBoard(files[name])
		if err != nil {
			t.Fatal(err)
		}
		boards[d.UID] = d
	}
	if len(boards) != 3 {
		t.Fatalf("%d dashboards", len(boards))
	}
	return boards
}

// Each of the plugin's dashboards is what Grafana's schema and the plugin's own parser accept, and
// what it names is there.
func TestPluginDashboards(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	files := renderedForPlugin(t)
	for _, name := range files.Names() {
		//lint:ignore SA1019 version 2 of the schema is nothing that Grafana 12.3 imports from plugins
		var d dashboard.Dashboard
		err := d.UnmarshalJSONStrict(files[name])
		var list cog.BuildErrors
		if errors.As(err, &list) && len(list) > 0 || err != nil && list == nil && err.Error() != "" {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	boards, c := pluginBoardsByUID(t), columns(t)
	for uid, d := range boards {
		for _, problem := range d.problems(boards, c) {
			t.Errorf("%s: %s", uid, problem)
		}
	}
}

// No two of all dashboards share a uid or a title.
func TestPluginDashboardsAreNoOthers(t *testing.T) {
	for uid, d := range pluginBoardsByUID(t) {
		for _, name := range dashboards.Names() {
			other, err := dashboards.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if other.UID == uid || other.Title == d.Title {
				t.Errorf("%s has the uid or the title of %s", uid, name)
			}
			// The list of dashboards hands variables on: one of both must not mean two things.
			if d.Variable("datasource") != nil {
				t.Errorf("%s: its data source would become the one of %s", uid, name)
			}
		}
	}
}

// Every query type has a panel somewhere, and so has each of its views, but for those that are
// numbers for alert rules: stats show the total of all, which is one frame.
func TestPluginDashboardsShowAll(t *testing.T) {
	shown := map[string]bool{}
	for _, d := range pluginBoardsByUID(t) {
		for _, p := range d.raw.Panels {
			for _, raw := range p.Targets {
				q, err := model.ParseQuery("A", "", twoChosen(raw))
				if err != nil {
					t.Fatal(err)
				}
				shown[tableOf(q)] = true
			}
		}
	}
	for _, typ := range model.QueryTypes {
		views := model.Views[typ]
		if len(views) == 0 {
			views = []string{""}
		}
		for _, view := range views {
			k := tableOf(model.Query{Type: typ, View: view})
			if forAlerts := k == "status now" || k == "gpu_health count"; !shown[k] && !forAlerts {
				t.Errorf("nothing shows %s", k)
			}
		}
	}
}

// The checks see what they are there for: each change of a sound dashboard is a problem of its
// kind.
func TestPluginChecksCanFail(t *testing.T) {
	sound := string(renderedForPlugin(t)[PluginDir+"/team.json"])
	boards, c := pluginBoardsByUID(t), columns(t)
	for _, change := range []struct{ old, new, want string }{
		{`"queryType": "pending"`, `"queryType": "pendign"`, `"pendign" is unknown`},
		{`"queryType": "pending"`, `"queryTipe": "pending"`, `unknown field "queryTipe"`},
		{`"queryType": "pending"`, `"queryType": "status"`, `status now is no table`},
		{`"resource": "clusters"`, `"resource": "cluster"`, `there is no resource "cluster"`},
		{`"$team"`, `"$teem"`, `$teem is no variable`},
		{`"uid": "${source}"`, `"uid": "${datasource}"`, `${datasource}`},
		{`"uid": true`, `"uuid": true`, `leaves out "uuid", which is no column`},
		{`"options": "waited"`, `"options": "waiting"`, `says how "waiting" looks`},
		{`/d/spillway-experiment?`, `/d/spillway-experiments?`, `/d/spillway-experiments is none of the plugin's dashboards`},
		{`var-experiment=`, `var-run=`, `has no variable "run"`},
		{`${__data.fields.experiment:`, `${__data.fields.run:`, `needs the column "run"`},
		{`${source:queryparam}`, `${cluster:queryparam}`, `hands on neither`},
		{`"queryType": "status"`, `"queryType": "gpu_timeseries", "groupBy": ["node"]`, `nodes of one name in several clusters`},
		{`"view": "total"`, `"view": "totals"`, `view: "totals"`},
		{`"queryType": "events"`, `"queryType": "pods"`, `annotation "Events"`},
		{`"x": 6,`, `"x": 5,`, `overlap`},
		{`"uid": "spillway-team"`, `"uid": "team"`, `identity`},
	} {
		text := strings.Replace(sound, change.old, change.new, 1)
		if strings.HasPrefix(change.old, `"uid": "${`) || change.old == `"$team"` || change.old == `${source:queryparam}` {
			text = strings.ReplaceAll(sound, change.old, change.new)
		}
		if text == sound {
			t.Errorf("%s is not in the dashboard", change.old)
			continue
		}
		d, err := parsePluginBoard([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(d.problems(boards, c), "\n"); !strings.Contains(got, change.want) {
			t.Errorf("%s -> %s:\ngot  %s\nwant %s", change.old, change.new, got, change.want)
		}
	}
}

// The library says what is wrong with a dashboard.
func TestPluginLibraryRefuses(t *testing.T) {
	for _, c := range []struct{ panel, want string }{
		{`e.stat('A', { targets: [] })`, `stat "A" has no description`},
		{`e.table('A', { description: 'x', empty: 'y', targets: [e.q('pods', {})], color: 'a' })`, `table "A" has no option color`},
		{`e.table('A', { description: 'x', empty: 'y', targets: [e.q('pods', {})], columns: [{ field: 'x', colour: 'a' }] })`, `an override has no "colour"`},
		{`e.table('A', { description: 'x', targets: [e.q('pods', {})] })`, `does not say in ` + "`empty`"},
		{`e.list('a', 'A', 'teams', [], { all: true })`, `variable a has no option all`},
		{`e.dashboard({ name: 'a', title: 'A', description: 'x', time: 'now-1h', refresh: '1m', variables: [], rows: [], uid: 'x' })`, `dashboard a has no option uid`},
		{`e.dashboard({ name: 'a', title: 'A', description: 'x', time: 'now-1h', refresh: '1m', variables: [], rows: [e.row('', [e.text('A', 'x'), e.text('A', 'x')])] })`, `two panels of one title`},
	} {
		_, err := newVM(embedded).EvaluateAnonymousSnippet("a dashboard", `local e = (import 'jsonnet/plugin/e.libsonnet')((import 'jsonnet/config.libsonnet')._config); `+c.panel)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n%v\nwant %s", c.panel, err, c.want)
		}
	}
}

// What names an experiment is the same in the rules and in the plugin's settings.
func TestExperimentLabelsAreThePlugins(t *testing.T) {
	text, err := newVM(embedded).EvaluateAnonymousSnippet("labels", "(import '"+sourceDir+entry+"')._config.experimentLabels")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, model.DefaultLabels) {
		t.Errorf("_config.experimentLabels are %v, the plugin's %v", got, model.DefaultLabels)
	}
}
