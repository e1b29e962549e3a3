package experiments

import (
	"regexp"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

// Links in tables lead to the dashboards that the settings name, by what stands in the same row.
// Grafana puts the row's values in, percent-encoded, so that a name never becomes another parameter
// or another page. They name no datasource: those dashboards have a variable for their own.

// noDashboard is the settings' value for no links.
const noDashboard = "-"

// inRow stands for the value of a field of the same row.
func inRow(field string) string { return "${__data.fields." + field + ":percentencode}" }

// dashboard is a link to the dashboard uid in the panel's time range, with variables equal to the
// fields of the same names; none where uid is noDashboard.
func dashboard(uid, title string, fields ...string) *data.FieldConfig {
	if uid == noDashboard || uid == "" {
		return nil
	}
	url := "/d/" + uid + "?${__url_time_range}"
	for _, f := range fields {
		url += "&var-" + f + "=" + inRow(f)
	}
	return &data.FieldConfig{Links: []data.DataLink{{Title: title, URL: url}}}
}

// nodeLink is for a field node of a table that has cluster too.
func nodeLink(s model.Settings) *data.FieldConfig {
	return dashboard(s.NodeDashboard, "Node", "cluster", "node")
}

// gpuLink is for a field gpu of a table that has cluster and node too.
func gpuLink(s model.Settings) *data.FieldConfig {
	return dashboard(s.GPUDashboard, "GPU", "cluster", "node", "gpu")
}

// podLink is for a field pod of a table that has cluster and namespace too. Spillway's own
// dashboard has no variable pod, and takes no notice of it.
func podLink(s model.Settings) *data.FieldConfig {
	return dashboard(s.PodDashboard, "Pods that wait", "cluster", "namespace", "pod")
}

// podOnlyLink is podLink for a table that has no namespace.
func podOnlyLink(s model.Settings) *data.FieldConfig {
	return dashboard(s.PodDashboard, "Pods that wait", "cluster", "pod")
}

var placeholder = regexp.MustCompile(`\$\{(experiment|team|cluster|namespace)\}`)

// experimentLinks are the settings' links, for the field that names the experiment. fields says for
// each placeholder which field of the table has its value; a link whose placeholder has none is
// left out.
func experimentLinks(s model.Settings, fields map[string]string) *data.FieldConfig {
	var links []data.DataLink
	for _, l := range s.Links {
		known := true
		url := placeholder.ReplaceAllStringFunc(l.URL, func(p string) string {
			field, ok := fields[p[len("${"):len(p)-len("}")]]
			known = known && ok
			return inRow(field)
		})
		if known {
			links = append(links, data.DataLink{Title: l.Title, URL: url, TargetBlank: true})
		}
	}
	if links == nil {
		return nil
	}
	return &data.FieldConfig{Links: links}
}

// allFields are for tables that have fields experiment, team, cluster and namespace.
var allFields = map[string]string{"experiment": "experiment", "team": "team", "cluster": "cluster", "namespace": "namespace"}
