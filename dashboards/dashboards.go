package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// FS holds each dashboard as NAME.json, as Grafana imports it.
func FS() fs.FS { return files }

// Names are the dashboards, sorted: the names of their files without .json.
func Names() []string {
	list, err := fs.Glob(files, "*.json")
	if err != nil {
		panic(err) // the pattern stands above
	}
	for i, name := range list {
		list[i] = strings.TrimSuffix(name, ".json")
	}
	return list
}

// Load reads the dashboard of that name.
func Load(name string) (*Dashboard, error) {
	b, err := fs.ReadFile(files, name+".json")
	if err != nil {
		return nil, fmt.Errorf("there is no dashboard %q; there are %s", name, strings.Join(Names(), ", "))
	}
	d, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", name, err)
	}
	d.Name = name
	return d, nil
}

// Dashboard is what queries, checks and pictures need of a dashboard.
type Dashboard struct {
	// Name is that of the file, without .json; Parse leaves it empty.
	Name string `json:"-"`
	// UID is in the dashboard's address.
	UID         string
	Title       string
	Description string
	Tags        []string
	Refresh     string
	// SchemaVersion is the version of Grafana's own form for dashboards.
	SchemaVersion int
	// Time is the range that the dashboard opens with.
	Time struct{ From, To string }
	// Panels are all panels in reading order, those in collapsed rows among them, and the lines of
	// rows.
	Panels      []Panel `json:"-"`
	Variables   []Variable
	Annotations []Annotation
	// Links are those at the top of the dashboard.
	Links []Link
}

// Datasource says whom a query asks.
type Datasource struct{ Type, UID string }

// Grid is a panel's place: 24 columns, rows of 30 pixels.
type Grid struct{ X, Y, W, H int }

// Panel is one panel.
type Panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	Datasource  Datasource
	Grid        Grid `json:"gridPos"`
	Targets     []Target
	FieldConfig FieldConfig
	// Row is the title of the row that the panel stands below, and Collapsed says whether one has
	// to open it first.
	Row       string `json:"-"`
	Collapsed bool   `json:"-"`
	// Inner are the panels of a collapsed row; they are among Dashboard.Panels too.
	Inner []Panel `json:"panels"`
	// Repeat is the variable whose values the panel is drawn for.
	Repeat string
	// Transformations are what Grafana does with the answers before it shows them.
	Transformations []struct {
		ID      string
		Options json.RawMessage
	}
}

// quietMark begins the sentence of a description that says why the panel may be empty.
const quietMark = " Empty while all is well: "

// Quiet is the reason why the panel is empty while all is well; "" if it must never be.
func (p *Panel) Quiet() string {
	_, reason, _ := strings.Cut(p.Description, quietMark)
	return strings.TrimSuffix(reason, ".")
}

// Target is one query of a panel.
type Target struct {
	RefID      string
	Expr       string
	Legend     string `json:"legendFormat"`
	Format     string
	Interval   string
	Instant    bool
	Range      bool
	Hide       bool
	Datasource Datasource
}

// FieldConfig says how values are shown.
type FieldConfig struct {
	Defaults  Field
	Overrides []struct {
		Matcher struct {
			ID      string
			Options any
		}
		Properties []struct {
			ID    string
			Value json.RawMessage
		}
	}
}

// Field is how the values of one field are shown.
type Field struct {
	Unit       string
	NoValue    string
	Links      []Link
	Mappings   []json.RawMessage
	Color      struct{ Mode, FixedColor string }
	Thresholds struct {
		Steps []struct {
			Color string
			Value *float64
		}
	}
}

// Link leads somewhere: a data link by URL, a list of dashboards by Tags.
type Link struct {
	Title       string
	Type        string
	URL         string
	Tags        []string
	IncludeVars bool
	KeepTime    bool
	TargetBlank bool
}

// Links are the data links of a panel, those of overrides among them.
func (p *Panel) Links() ([]Link, error) {
	out := slices.Clone(p.FieldConfig.Defaults.Links)
	for _, o := range p.FieldConfig.Overrides {
		for _, prop := range o.Properties {
			if prop.ID != "links" {
				continue
			}
			var more []Link
			if err := json.Unmarshal(prop.Value, &more); err != nil {
				return nil, fmt.Errorf("panel %q: links of an override: %w", p.Title, err)
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

// Annotation marks moments on all panels. Expr is "" for those that Grafana itself stores.
type Annotation struct {
	Name       string
	Enable     bool
	Expr       string
	Step       string
	Title      string `json:"titleFormat"`
	Text       string `json:"textFormat"`
	IconColor  string
	Datasource Datasource
}

// Parse reads a dashboard's JSON. What it does not know it leaves out; the tests beside it hold the
// files to Grafana's whole schema.
func Parse(b []byte) (*Dashboard, error) {
	var in struct {
		Dashboard
		Panels      []Panel
		Templating  struct{ List []Variable }
		Annotations struct{ List []Annotation }
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, fmt.Errorf("read the JSON: %w", err)
	}
	d := in.Dashboard
	d.Variables, d.Annotations = in.Templating.List, in.Annotations.List
	row := ""
	for _, p := range in.Panels {
		p.Row = row
		if p.Type == "row" {
			row, p.Row = p.Title, p.Title
		}
		d.Panels = append(d.Panels, p)
		for _, q := range p.Inner {
			q.Row, q.Collapsed = p.Title, true
			d.Panels = append(d.Panels, q)
		}
	}
	return &d, nil
}

// Variable of that name, or nil.
func (d *Dashboard) Variable(name string) *Variable {
	for i := range d.Variables {
		if d.Variables[i].Name == name {
			return &d.Variables[i]
		}
	}
	return nil
}

// Query is one expression of a dashboard with the place where it stands.
type Query struct {
	// Where is for people: `panel "Nodes ready", query A`.
	Where string
	// Expr is the expression; for a variable, its selector.
	Expr string
	// Panel, Target, Variable, Annotation: the one that it belongs to is set, Target with Panel.
	Panel      *Panel
	Target     *Target
	Variable   *Variable
	Annotation *Annotation
}

// Queries are all expressions of panels, variables and annotations.
func (d *Dashboard) Queries() []Query {
	var out []Query
	for i := range d.Panels {
		p := &d.Panels[i]
		for j := range p.Targets {
			t := &p.Targets[j]
			out = append(out, Query{Where: fmt.Sprintf("panel %q, query %s", p.Title, t.RefID), Expr: t.Expr, Panel: p, Target: t})
		}
	}
	for i := range d.Variables {
		if v := &d.Variables[i]; v.Selector() != "" {
			out = append(out, Query{Where: "variable " + v.Name, Expr: v.Selector(), Variable: v})
		}
	}
	for i := range d.Annotations {
		if a := &d.Annotations[i]; a.Expr != "" {
			out = append(out, Query{Where: fmt.Sprintf("annotation %q", a.Name), Expr: a.Expr, Annotation: a})
		}
	}
	return out
}
