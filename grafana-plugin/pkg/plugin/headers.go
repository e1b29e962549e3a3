package plugin

import (
	"net/http"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/proxy/identity"
)

// headers are those that a request to the proxy carries: who asks, and what the settings pass on.
// sent are the HTTP headers of Grafana's request, meta what else stands beside it: alerting writes
// FromAlert there.
func (d *Datasource) headers(plugin backend.PluginContext, sent http.Header, meta map[string]string) http.Header {
	h := http.Header{}
	for _, name := range []string{identity.HeaderDashboard, identity.HeaderPanel, identity.HeaderRule} {
		v := sent.Get(name)
		if v == "" {
			v = meta[name]
		}
		if v = identity.Clean(v); v != "" {
			h.Set(name, v)
		}
	}
	if meta["FromAlert"] == "true" || sent.Get("FromAlert") == "true" {
		h.Set(identity.HeaderFromAlert, "true")
	}
	if plugin.User != nil {
		if v := identity.Clean(plugin.User.Login); v != "" {
			h.Set(identity.HeaderUser, v)
		}
	}
	for _, name := range d.passOn {
		if v := sent.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	return h
}
