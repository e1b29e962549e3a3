// Package propose says what could go: metrics, series, buckets and labels which nothing uses, as
// rules, each with its evidence. It proves nothing; see package prove.
//
//	index := set.Index(uses.External, inv.Known()) // and index.Observe of every series
//	rules, refused := propose.Propose(inv, set, index, propose.Options{Risk: propose.Low})
//
// # What it promises
//
// It names exactly what it saw: metric names, values and jobs, one by one. Its regular expressions,
// factorised or not, match these and nothing else, whatever characters they hold. What is new
// tomorrow is kept until somebody has looked at it. One more use never takes one more series: every
// choice that is made (which buckets stay for a quantile, what is worth a rule) depends on what is
// stored and never on what else is used. A label that goes takes no series; which one it is does
// depend on the uses.
//
// Equal inputs give equal rules in the same order, those that save most first.
//
// # What it refuses
//
// It never proposes a keep rule, a rule that matches everything, a rule on up, scrape_… or recorded
// series, which metric_relabel_configs never see, or a rule on a metric with a use that selects
// nothing today: that use may wait for a trouble, or for a job of another name. The classic series
// of a native histogram stay while any of its forms is used. A label without which two series of a
// sample would be one is refused, with the two, and with what to record or to aggregate instead.
// What only a larger risk allows is refused with that risk.
//
// # Memory
//
// The rules, some kilobytes for each metric at most, and for each label that no answer depends on
// 32 groups of the sample in Collisions, some ten kilobytes.
package propose
