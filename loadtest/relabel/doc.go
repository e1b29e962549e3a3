// Package relabel makes what `spillway relabel` is measured with: a large server's blocks, and what
// is looked at of them.
//
//	o := relabel.Options{Series: 10_000_000, Names: 3000, Jobs: 20, Seed: 1}
//	err := errors.Join(relabel.MakeBlocks(ctx, "data", o), relabel.MakeUses("uses", o))
//
// # What it promises
//
// The proportions are those of a Kubernetes cluster: nearly half of the series are buckets of
// histograms (12 to 30 of them), then come those of kube-state-metrics, of containers and of nodes;
// a few metrics have most of the series, and some (go_…, process_…) are in every job. About a tenth
// of the metrics are looked at. Equal options write equal series and equal texts, and there are
// exactly as many series as asked for.
//
// # What it does not
//
// The samples mean nothing: there is one short chunk for each series, of a few shapes, with the
// buckets of a histogram in order. Package cluster has a model whose values fit together.
//
// # Memory
//
// MakeBlocks holds the series of one metric and the strings of one block: some 300 MB for ten
// million series. MakeUses holds the different queries.
package relabel
