// Package exporters holds what has to be exported and scraped for Spillway's alerts and rules: the
// counters of dcgm-exporter (dcgm-counters.csv), the flags of kube-state-metrics and node_exporter
// (kube-state-metrics.flags, node-exporter.flags), and the configuration of one shard's Prometheus
// with its normalising relabelings (prometheus.yml). docs/exporters.md has the reasons.
//
// What it promises. Every metric and label that a rule of alerts/ names is exported by what is
// here: a test reads the rules and names what is missing. A target, and a series of a page that is
// about several nodes, is kept by exactly one of the shards, and everything about one node by the
// same: that is what `shard_by: [node]` of Spillway's configuration promises.
//
// What it refuses. Render takes no value that the configuration could not hold as text: names that
// are not plain words are errors.
//
// What it holds: the files, about 30 KiB.
//
//	conf, err := exporters.Render(exporters.Options{Cluster: "jaguar", Shard: 0, Shards: 4, Replica: "a"})
package exporters
