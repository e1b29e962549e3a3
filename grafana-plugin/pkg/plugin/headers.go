package plugin

import (
	"net/http"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/proxy/identity"
)

// queryHeaders are headers with what says that an alert asks. sent are the HTTP headers of
// Grafana's request for data, meta what else stands beside it: alerting writes FromAlert there. No
// other request has that of Grafana: it hands a browser's own headers on with calls of resources.
func (d *Datasource) queryHeaders(plugin backend.PluginContext, sent http.Header, meta map[string]string) http.Header {
	h := d.headers(plugin, sent, meta)
	pass(h, sent, meta, identity.HeaderRule)
	if meta["FromAlert"] == "true" || sent.Get("FromAlert") == "true" {
		h.Set(identity.HeaderFromAlert, "true")
	}
	return h
}

// pass puts the first value that either has under a name into h.
func pass(h, sent http.Header, meta map[string]string, names ...string) {
	for _, name := range names {
		v := sent.Get(name)
		if v == "" {
			v = meta[name]
		}
		if v = identity.Clean(v); v != "" {
			h.Set(name, v)
		}
	}
}

// headers are those that a request to the proxy carries: who asks, and what the settings pass on.
func (d *Datasource) headers(plugin backend.PluginContext, sent http.Header, meta map[string]string) http.Header {
	h := http.Header{}
	pass(h, sent, meta, identity.HeaderDashboard, identity.HeaderPanel)
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
