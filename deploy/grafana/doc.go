// Package grafana holds what Grafana needs to know of Spillway: provisioning files for the data
// source and the dashboards, and the settings of Grafana itself. README.md says why each value is
// what it is; the package's test compares the files with it and with Spillway's own defaults. There
// is no code.
package grafana
