// Package localprom runs Prometheus shards inside this process: a TSDB, the PromQL engine, the
// scrape, discovery, rule and notifier managers and Prometheus' own web handler, wired as
// cmd/prometheus wires them and listening on a loopback port.
//
// What it promises. Every route is Prometheus' own code: all of /api/v1 (remote read with streamed
// chunks included), /federate, /-/ready, /-/healthy, /version, /debug/pprof and the lifecycle
// routes, with their instrumentation, limits (20 concurrent queries, 10 remote reads, 512
// connections) and error texts. status/config, status/flags, status/buildinfo, status/runtimeinfo
// and features say what this shard really runs with. A client that leaves cancels its query, as in
// the real server. Close ends everything that Start began and waits for it.
//
// What it refuses. Unknown feature flags, which the real server only warns about; feature flags
// that change variables of the whole process; remote_write and agent mode. The web console is not
// here: its assets are not part of the Go module, so its pages are Prometheus' own 500 that says
// so.
//
// What is shared. Shards of one process have separate registries, data directories and engines, so
// their metrics and limits are their own. Go and process metrics (go_*, process_*), the two
// prometheus_web_federation_* counters and GOGC are those of the whole process.
//
// What it costs. An idle shard holds about 2 MiB of heap and 14 goroutines (TestCost prints both);
// series in the head cost what they cost in Prometheus, about 3 KiB each while they are scraped.
// Blocks are memory-mapped and hard-linked where the file system allows it, so eight shards on one
// set of blocks need its disk space once.
//
//	shard, err := localprom.Start(ctx, localprom.Options{ExternalLabels: labels.FromStrings("replica", "a")})
//	if err != nil { … }
//	defer shard.Close()
//	err = shard.Load("load 15s\n  up{job=\"node\"} 1x40")
//	// GET shard.URL() + "/api/v1/query?query=up&time=60"
package localprom
