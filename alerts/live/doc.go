// Package live shows the alerts on real servers: two shards of two Prometheus replicas scrape the
// simulated cluster, the proxy stands in front of them, a Thanos ruler evaluates the global rules
// through the proxy and writes what it finds to a Prometheus of its own, each Prometheus evaluates
// the shard rules, and a real Alertmanager sends to a receiver that writes down what a person or
// the remediation controller would have got.
//
//	rig, err := live.Start(ctx, live.Options{Dir: dir, Spillway: binary, Rules: rules})
//	if err != nil { … }
//	defer rig.Stop()
//	rig.World.Stage(cluster.Trouble{Kind: cluster.NodeDown, Target: "gpu-00003", From: soon, Until: later})
//	// rig.Record.Firing() tells what has reached the receiver
//
// Cases is the table of troubles: what is staged, the alerts that must come, and those that may
// come beside them with the reason. docs/alerts-by-trouble.md is made from it.
//
// # What it promises
//
// Everything that Start started is ended by Stop, by its own process id, in the order in which
// nothing waits for anything that is gone; if this process dies the kernel ends the rest. Servers
// listen on free ports of 127.0.0.1. The log of every process is a file in Options.Dir. A program
// that is missing is an error which names the make target that installs it. Troubles are staged
// while servers scrape: the model's pages are a pure function of its options and the time, and a
// trouble that begins later changes nothing that was shown before.
//
// Time is compressed and nothing else: every duration of the rules is divided by the mixin's
// timeScale, servers scrape each second, and thresholds stay what they are.
//
// A rig that does not get its share of the machine is told from rules that are wrong: World.GivenUp
// counts the scrapes that were broken off.
//
// # What it refuses
//
// It judges nothing about alerts whose window is longer than the run: the table marks these, and
// rule tests show them. It has no alert rules of its own. A seed is chosen whose own failures,
// drawn by the model, keep out of the run, so that what fires is owed to what was staged.
//
// # What it holds
//
// Eight processes (five Prometheus, the proxy, the ruler, Alertmanager), together about 1 GiB of
// memory with 12 nodes, and each notification that was received.
package live
