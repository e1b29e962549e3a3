// Package mix measures what a proxy costs: the time, processor time and memory of a mix of
// dashboard queries, asked of one real Prometheus server directly, through Go's own reverse proxy,
// through Spillway, and through Spillway over four servers that share the same series.
// `spillway-lab loadtest mix` runs it.
//
//	w, err := mix.Start(ctx, mix.Options{Spillway: "dist/spillway", Series: 1_000_000})
//	defer w.Close()
//	r, err := w.Measure(ctx)
//	// r.Goals, r.WriteMarkdown(os.Stdout), r.Save(dir)
//
// # What is asked
//
// mix.yaml: instant queries, and range queries over the last hour in steps of 30 s, as the panels
// of a GPU cluster's dashboards send them. With every pass over the mix the windows move by a
// second, with every request the node that a node's page is about changes, and all paths are asked
// the same; so nothing comes out of a cache, and no path has an easier day.
//
// # What the servers hold
//
// The last 70 minutes of a simulated cluster, every series with all its samples (one in 30 s), in
// one block: once as a whole on one server, once split over four by the label node (Shard). Nothing
// is thinned out: a million series are 120 million samples, 0.4 GB for each of the two copies.
//
// # How it is measured
//
// Servers and proxies are processes of their own. In every round each path gets its turn, another
// one beginning each time, so that what else the machine does hits all alike; ratios are taken
// within a round, and the median of the rounds is reported. Processor time is the kernel's, of each
// process, over its turn. Before anything is timed, all paths answer the whole mix at several
// windows, and their answers are compared: label sets and times must be equal, values within 1e-12.
//
// The query that returns a great many series is asked of fresh proxies. Their memory is the
// kernel's high-water mark, over what they had after a pass over the mix. Its time is held against
// that of the slowest shard when all shards are asked at the same time by somebody who throws the
// answers away: on a machine with fewer processors than shards they slow each other down whoever
// asks. The time of a shard that is asked alone is reported as well.
//
// # What it refuses
//
// A query that finds nothing measures nothing: it is an error. Machines other than Linux: nothing
// else tells the processor time of another process. Processes of others are never touched; a peer's
// processor time is read if it listens on this machine.
//
// # Memory
//
// About 300 MB while the data of a million series is made; afterwards two copies of the largest
// answer (60 MB for 20,000 series).
package mix
