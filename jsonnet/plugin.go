package mixin

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// PluginDir is where the dashboards of the Grafana plugin are in the repository; its build copies
// them into the plugin.
const PluginDir = "grafana-plugin/src/dashboards"

// PluginDashboards are the dashboards that the datasource for experiments brings along, by the path
// of their files in the repository. Grafana imports them from the plugin, so that they are rendered
// with the defaults only. They ask query types of the plugin, and no Prometheus.
func PluginDashboards() (Files, error) {
	text, err := newVM(embedded).EvaluateAnonymousSnippet("the plugin's dashboards",
		"(import '"+sourceDir+"plugin/plugin.libsonnet')((import '"+sourceDir+entry+"')._config)")
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	var boards map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &boards); err != nil {
		return nil, fmt.Errorf("read the plugin's dashboards: %w", err)
	}
	out := Files{}
	for name, raw := range boards {
		var b bytes.Buffer
		if err := json.Indent(&b, raw, "", "  "); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", name, err)
		}
		b.WriteByte('\n')
		out[PluginDir+"/"+name] = b.Bytes()
	}
	return out, nil
}
