// Package rules measures what rules cost on a large cluster: a real Thanos ruler evaluates them
// through Spillway over real Prometheus servers that share the series of a simulated cluster by the
// hash of the node.
//
//	r, err := rules.Measure(ctx, rules.Options{Servers: bench.Servers{Spillway: binary}, Files: map[string][]byte{"gpu.yaml": text}})
//
// The servers hold the past that rules look back on and, because the ruler runs in real time, the
// minutes to come. They evaluate Options.ShardFiles themselves, as shards do, from when they start:
// what these record has no past. What the ruler records goes to a Prometheus of its own, which is a
// group of the proxy, so rules over recorded series find them, as deployed.
//
// # What it promises
//
// The figures are the ruler's own (prometheus_rule_group_last_duration_seconds), and of a group
// that the servers evaluate those of the slowest one, read after every evaluation; the first one of
// a group, which meets cold caches, is kept apart. A group whose rules fail is reported with its
// failures, not left out. Where Spillway does not trust what its configuration says of the servers,
// and would answer everything the slow way, there is an error and no figures. All processes are
// ended by their own process id and all data is removed.
//
// What it does not show: the servers read blocks, whose index has to be decoded for each series,
// where a server in service has these minutes in memory, so that its own groups take half as long;
// and all of them share one machine, for which Options.Spread makes up.
//
// # What it holds
//
// Result.Series says how many series the servers hold: 5.9 million for 7,500 nodes of eight GPUs.
// They are written as blocks, below Options.Dir, and removed at the end.
package rules
