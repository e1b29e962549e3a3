// Package compose holds a Grafana with the datasource for experiments, all dashboards and the demo,
// in containers. Its tests hold the files to what they name: flags, files, settings, versions.
// Nothing here starts a container.
package compose
