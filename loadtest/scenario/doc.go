// Package scenario brings storms of queries over real Prometheus servers and watches what becomes
// of them, asked through Spillway and asked directly.
//
//	res, err := scenario.Run(ctx, scenario.Options{Scenario: scenario.Killer, Spillway: "dist/spillway", Series: 300_000, Servers: 4, Callers: 8})
//	// res.Verdicts(), res.Report(), res.WriteText(os.Stdout), res.Save(dir)
//
// # What is measured
//
// Every server is a process of its own, and so is the proxy (the spillway binary itself, with
// nothing but its shards in its configuration, so every bound has its default). A run is: the
// servers start and come to rest, an idle stretch, the storm, a few seconds after it. Every 100 ms
// the memory of every process is read; where the kernel allows it (Linux), a sample is the highest
// resident memory SINCE the one before, so nothing hides between two samples. The servers are
// judged against their own highest memory of the idle stretch. What a server weighs at rest is a
// matter of what it did last, so all of them collect their garbage first and answer everyday
// queries until they have collected a few times by themselves, as servers in use do all day;
// Side.Rest has the heights on that way.
//
// # What the servers hold
//
// The same series twice: in the HEAD, from a write-ahead log that the real servers replay, with
// samples up to the moment of the start; and in older blocks. That is the worst case on both roads.
// Asked directly without a range, a server selects from the head and all blocks, so it has to
// collect and sort every matching series before it writes the first. Asked through Spillway, the
// window is the last 55 minutes, which the head alone answers: so the head must be full, or the
// test would prove nothing. 60 % of the series are buckets, which is what the killer selects.
// Samples are few (one in five minutes): the killer never reads any, and the less a server weighs
// at rest the less a given growth is allowed to be. Servers have no scrape configuration: any
// growth is the storm's.
//
// All servers hold copies of one cluster. The proxy knows each as a group of its own, so nothing of
// what they send falls together in the merge.
//
// Asked directly, ONE server has all the callers, as each of the four has when they are asked
// through Spillway. With all four asked at once on one machine, they would fight over its CPUs, and
// callers would give up before their questions cost what they cost on a machine of one's own.
//
// # The mixed storm
//
// RunStorm brings everything that has taken a server down at once, as data describes it
// (loadtest/storm), while on-call people ask what they always ask, before the storm and in it.
// Both runs have the same arrivals. Through Spillway on-call people and batches have lanes of
// their own, by tenants; limits are sized for the servers as docs/operations.md says
// (max_shard_bytes and shard_budget are an eighth of what a server holds at rest, replica_calls
// its processors), all else has its default. Directly each request goes to one server, in turn, as
// dashboards with a data source for each cluster send it; through Spillway what names no cluster
// goes to every server, so that these have more to do there, and dashboards name one cluster in
// turn. The callers are in this process: Side.Busy says who had the processors. Proxies of others
// (Options.Peers) are asked as Spillway is, each in a run of its own.
//
// # What it refuses
//
// It never takes the machine down: a server has a limit on its memory, at which it is killed as in
// a container of that size, and when the machine has less than 3 GiB left, the run ends
// (Options.KeepFree). Only processes that it started are ended.
//
// # Memory
//
// Making the data holds one head: about 1.5 KiB for each series. Afterwards 8 MiB for each call
// under way.
package scenario
