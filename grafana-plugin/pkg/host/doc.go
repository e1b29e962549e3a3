// Package host runs the built datasource as Grafana does: it starts the binary, shakes hands with
// it over hashicorp/go-plugin and asks it over gRPC. So tests see what Grafana sees, and
// dashboards/page shows the plugin's editors and dashboards where there is no Grafana.
//
//	h, err := host.Start(host.Options{Binary: "grafana-plugin/dist/gpx_spillway_experiments_linux_amd64"})
//	if err != nil {
//		return err
//	}
//	defer h.Close()
//	server, err := host.NewServer(host.ServerOptions{Host: h, Instance: backend.DataSourceInstanceSettings{UID: "experiments", URL: "http://127.0.0.1:9090"}})
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe("127.0.0.1:3000", server)
//
// # What it promises
//
// Host passes requests on and gives back what came, a message of up to 2 GiB. A request ends in the
// plugin when its context does here. The plugin's process gets no environment but the handshake's,
// so what it does depends on the datasource's settings alone. Close ends the process and waits for
// it.
//
// Server speaks the part of Grafana's HTTP API that a datasource's front end uses: POST
// /api/ds/query, /api/datasources/uid/UID/resources/…, /api/datasources/uid/UID/health, and GET and
// PUT of the datasource itself, whose secrets are never given out. Requests carry the headers that
// Grafana's backend adds or passes on, and no others. The answers have Grafana's form and status.
//
// # What it refuses
//
// To be a Grafana: there are no users, permissions, alerts, expressions nor streams, one
// organisation and one datasource. A plugin that has ended is not started again: every request says
// that it has ended, and how.
//
// # Bounds
//
// A request's body may have 4 MiB. Starting takes at most Options.StartTimeout.
package host
