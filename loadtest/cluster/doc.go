// Package cluster is a deterministic model of a Kubernetes GPU cluster and of
// every page that Prometheus would scrape there: kube-apiserver, etcd (main and
// events), controller manager, scheduler, kube-state-metrics, CoreDNS, the
// cluster autoscaler, Prometheus itself, and on each node node_exporter,
// dcgm-exporter, kubelet and cadvisor, with the names, types, labels and buckets
// of the real servers. Options.Exporters adds iptables-exporter and
// node-problem-detector on each node, and probers that knock at every node.
// Options.NodeKinds sets racks up otherwise: shared GPUs, immutable systems, an
// older DCGM.
//
//	m, err := cluster.New(cluster.Options{Seed: 1, Cluster: "jaguar", Nodes: 40})
//	http.Handle("/", m.Handler(time.Now))                    // scrape it live, or
//	m.Backfill(ctx, dir, cluster.BackfillOptions{            // write its past
//		From: now.Add(-time.Hour), Until: now,
//		Keep: func(t cluster.Target) bool { return cluster.Shard(t, 2) == 0 },
//	})
//
// # What it promises
//
// A page is a pure function of (Options, target, time): equal calls give equal
// bytes, in any order, in any process. Counters are integrals since their
// process was started and never fall but at a start, or where their GPU is
// reset; histograms are cumulative and agree with their counts; while an
// experiment's pods run, the GPUs under them are busy, name the pod
// and draw power. What Backfill stores for a scrape
// is what a Prometheus 3 server stores when it scrapes Handler at that moment:
// same labels (canonical le, exported_ names, what metric relabelling makes of
// them), same values, the same up and scrape_ series, stale markers where a
// series ends. A staged trouble moves the series that the real one moves, from
// From to Until, and no others; counters keep what they have counted.
//
// # How it works
//
// Each series is a curve: a rate, a wave, a level, evaluated at any moment in
// O(log n). What starts and ends reaches curves as piecewise constant steps: the
// seed places experiments on pools of nodes, one after another, each pending,
// running, failing, restarted, done. Everything that goes wrong is a Trouble on
// one time line, drawn from the seed or staged in Options.Troubles; exporters
// ask the time line and do not know which. A new sort of trouble is a Kind, and
// the curves that follow it: those of schema lines by a reaction, which is handed
// each series of a family before it goes on.
//
// Families without a life of their own are lines of schema/*.txt; those that
// follow pods, nodes and requests are Go.
//
// # Bounds
//
// A Model holds about 1 kB for each node. A page is written as a stream; for one
// node some tens of kilobytes are worked out first. Backfill holds the labels of
// 100,000 series at a time and the distinct label values (a million series: under
// 200 MB); BackfillHead holds all series, as the head it writes to does.
//
// # What it refuses
//
// Times before Options.Start, targets it does not have, kinds of trouble that no exporter follows,
// troubles of nodes, GPUs and servers that are not there. It does not model native histograms,
// exemplars, OpenMetrics pages, or a control plane whose latencies answer to its load; rates of the
// API server follow the number of nodes, not the pods' comings and goings.
package cluster
