package mixin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-jsonnet"
)

// Format says what kind of files is rendered.
type Format string

const (
	// FormatFiles is rule files of Prometheus, Thanos and vmalert (alerts/global/*.yaml,
	// alerts/shard/*.yaml) and dashboards as Grafana imports them (dashboards/*.json). It is the
	// zero value's meaning too.
	FormatFiles Format = "files"
	// FormatK8s is objects for kubectl: PrometheusRule of the Prometheus operator
	// (prometheusrules/*.yaml), ConfigMaps with the label that Grafana's sidecar looks for
	// (dashboards/*.yaml), and GrafanaDashboard of grafana-operator (grafanadashboards/*.yaml),
	// which name those ConfigMaps.
	FormatK8s Format = "k8s"
)

// Options says what to render. The zero value renders the defaults as files.
type Options struct {
	// Config is the path of a file with values that stand in place of the defaults in _config:
	// JSON, YAML (.yaml, .yml) or jsonnet (.jsonnet, .libsonnet) that evaluates to an object.
	// Objects are merged, lists and everything else replaced. "" means the defaults.
	Config string
	// Format is FormatFiles where it is "".
	Format Format
}

// Render renders the mixin. Its errors name the file and, where it is known, the line.
func Render(o Options) (Files, error) { return render(embedded, o) }

// rendered is what the mixin evaluates to.
type rendered struct {
	// Files are the groups by scope and file: "global/apiserver.yaml".
	Files      map[string]struct{ Groups []group }
	Dashboards map[string]json.RawMessage
	// Alerts are the names of all alerts that there are, if the values leave out some; Disabled are
	// those that they name.
	Alerts, Disabled []string
	Kubernetes       kubernetes
	// Folder is Grafana's, for the dashboards.
	Folder string
}

// kubernetes is _config.kubernetes: what every object carries.
type kubernetes struct {
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
	// GrafanaSidecar is how Grafana's sidecar finds ConfigMaps: by a label, and the folder by an
	// annotation.
	GrafanaSidecar struct {
		Label            string `json:"label"`
		Value            string `json:"value"`
		FolderAnnotation string `json:"folderAnnotation"`
	} `json:"grafanaSidecar"`
	// GrafanaInstances are the labels of grafana-operator's Grafana objects that get the
	// dashboards.
	GrafanaInstances map[string]string `json:"grafanaInstances"`
}

func render(fsys fs.FS, o Options) (Files, error) {
	var emit func(*rendered) (Files, error)
	switch o.Format {
	case FormatFiles, "":
		emit = asFiles
	case FormatK8s:
		emit = asObjects
	default:
		return nil, fmt.Errorf("there is no format %q; there are %s and %s", o.Format, FormatFiles, FormatK8s)
	}
	vm := newVM(fsys)
	over := "{}"
	if o.Config != "" {
		defaults, err := defaultsOf(vm)
		if err != nil {
			return nil, err
		}
		if over, err = overrides(o.Config, defaults); err != nil {
			return nil, err
		}
	}
	r, err := evaluate(vm, over)
	var files Files
	if err == nil {
		files, err = emit(r)
	}
	switch {
	case err != nil && o.Config != "":
		return nil, fmt.Errorf("render with the values of %s: %w", o.Config, err)
	case err != nil:
		return nil, fmt.Errorf("render: %w", err)
	}
	return files, nil
}

// evaluate runs the mixin with over, an object in jsonnet, over its defaults.
func evaluate(vm *jsonnet.VM, over string) (*rendered, error) {
	text, err := vm.EvaluateAnonymousSnippet("the values", fmt.Sprintf(`local mixin = import '%[1]s%[2]s';
local files = import '%[1]slib/files.libsonnet';
local chosen = mixin { _config+:: %[3]s };
{
  Files: files(chosen),
  Dashboards: chosen.grafanaDashboards,
  // All of them are evaluated once more only where a value may misspell one.
  Alerts: if chosen._config.disabledAlerts == [] then [] else [r.alert for g in (mixin { _config+:: { disabledAlerts: [] } }).prometheusAlerts.groups for r in g.rules],
  Disabled: chosen._config.disabledAlerts,
  Kubernetes: if std.objectHas(chosen._config, 'kubernetes') then chosen._config.kubernetes else {},
  Folder: if std.objectHas(chosen._config, 'grafana') then chosen._config.grafana.folder else '',
}
`, sourceDir, entry, over))
	if err != nil {
		return nil, err
	}
	var r rendered
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("a field that rule files do not have, or a value of another type: %w", err)
	}
	return &r, r.check()
}

// PanelFacts is what the mixin says of a panel and Grafana need not know.
type PanelFacts struct {
	// Quiet is why the panel is empty while all is well; "" if it must never be.
	Quiet string
	// Trouble are the sorts of trouble of the simulated cluster that must change the panel.
	Trouble []string
	// Budget is how many series all its queries together may return.
	Budget int
}

// Panels are the facts about each panel of each dashboard, by the dashboard's name and the panel's
// title.
func Panels() (map[string]map[string]PanelFacts, error) {
	text, err := newVM(embedded).EvaluateAnonymousSnippet("the facts about panels", "(import '"+sourceDir+entry+"').panelFacts")
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	var out map[string]map[string]PanelFacts
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("read the facts about panels: %w", err)
	}
	return out, nil
}

func (r *rendered) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range r.files() {
		if f.scope != "global" && f.scope != "shard" {
			bad("%s: scope %q is neither global nor shard", f.name, f.scope)
		}
	}
	for _, name := range r.Disabled {
		if !slices.Contains(r.Alerts, name) {
			bad("disabledAlerts: there is no alert %s%s", name, suggest(name, r.Alerts))
		}
	}
	return errors.Join(errs...)
}

// ruleFile is the groups of one file, in the order of the mixin.
type ruleFile struct {
	scope, name string
	groups      []group
}

// files are the rule files sorted by scope and name.
func (r *rendered) files() []ruleFile {
	var out []ruleFile
	for _, at := range slices.Sorted(maps.Keys(r.Files)) {
		scope, name, _ := strings.Cut(strings.TrimSuffix(at, ".yaml"), "/")
		out = append(out, ruleFile{scope, name, r.Files[at].Groups})
	}
	return out
}

func asFiles(r *rendered) (Files, error) {
	out := Files{}
	for _, f := range r.files() {
		b, err := ruleYAML(f.groups)
		if err != nil {
			return nil, err
		}
		out["alerts/"+f.scope+"/"+f.name+".yaml"] = b
	}
	for _, name := range slices.Sorted(maps.Keys(r.Dashboards)) {
		var b bytes.Buffer
		if err := json.Indent(&b, r.Dashboards[name], "", "  "); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", name, err)
		}
		b.WriteByte('\n')
		out["dashboards/"+dashboardName(name)+".json"] = b.Bytes()
	}
	return out, nil
}

func dashboardName(name string) string { return strings.TrimSuffix(name, ".json") }
