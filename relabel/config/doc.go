// Package config reads the relabelling rules that configuration files have, each with its line:
// prometheus.yml, the files of scrape_config_files, the ServiceMonitors, PodMonitors and
// ScrapeConfigs of prometheus-operator, and the scrape_configs in the receivers of OpenTelemetry
// collectors, of which parts that come from elsewhere (${…}) are named.
//
//	jobs, err := config.Prometheus("prometheus.yml", text)
//	objects, err := config.Monitors("monitors.yaml", text)
//
// # What it promises
//
// A rule is read by Prometheus' own decoder and validation. A rule that they refuse is there with
// its error, so that one look finds all; and so is one with a field that nobody knows, such as
// source_labels in a ServiceMonitor, which the API server drops without a word. The rest of the
// file is not looked at: service discovery of any kind may stand there.
//
// # What it refuses
//
// A file that is no YAML, and lists that are none.
//
// # Memory
//
// The nodes of one file, some ten times its size.
package config
