// Package soak runs the alerts' rules over weeks of the simulated cluster's time, as fast as the
// machine can, and holds what fires against what the simulator knows was wrong.
//
//	r, err := soak.Run(ctx, soak.Options{
//		Rules: soak.Rules{Global: alerts.Global(), Shard: alerts.Shard()},
//		Seed: 1, Length: 30 * 24 * time.Hour, Cluster: cluster.Options{Nodes: 100},
//	})
//	fmt.Print(r)          // every sort of incident with the time to its alerts; what is false, what is missing
//	r.False("auto")       // drains that nothing explains
//
//	go test ./alerts/soak -run TestSoak -soak.days 30 -soak.nodes 100 -soak.seed 1 -timeout 10h -v
//
// # What it promises
//
// Rules are evaluated by Prometheus' own code: its groups, its alerting and recording rules and its
// engine, so that for, keep_firing_for, stale markers, the order of rules and rules that read
// themselves are what they are on a server. Each group is evaluated at the moments that Prometheus
// gives it, on as many processors as there are: groups that read nothing of one another at once,
// and each finds what it would find if all were evaluated in order of time. Two runs of the same
// options give the same report, times of the machine aside.
//
// The cluster is that of loadtest/cluster, its series those of deploy/exporters' relabelling. What
// goes wrong is drawn from the seed after one table, catalogue, a line for each sort: failing nodes
// and GPUs, of which two are sick at a time, and from 300 nodes on one of each hundred; as much
// planned and ordinary work beside them, for which no alert of the judged severities may fire; and
// every three days a share of the fleet. Reboots and restarts that the model draws itself are
// ordinary work too. Of a small fleet at most two nodes are down unannounced at once, those reboots
// counted, for three are what its page is for: those come with a share of the fleet alone.
//
// An alert is explained where an incident that may raise it, by the table, lasts or has ended since
// less than the alert's windows, and its labels node and gpu are the incident's. It is false
// otherwise, and also where it fires on when the incident is over for longer. An alert that an
// incident must raise and that did not begin during it is missed.
//
// # What it leaves out, and why
//
// By default the alerts of severity auto and critical about nodes, GPUs, locations, pods and the
// fleet are evaluated, and the rules that record what they read; Options.All adds the control
// plane's, whose series are more than those of a small fleet, and none of which is staged: what
// fires of them is false. Alerts about servers that the simulator does not have (the proxy, the
// ruler, Alertmanager, the remediation controller) are not evaluated: unseen has the list.
//
// There is one server that scrapes all: two shards, two replicas and the proxy are alerts/live's.
// Nor are there Alertmanager's inhibitions: what it would hold back counts here.
//
// Scrapes are a minute apart, and no group is evaluated oftener than that: between two scrapes it
// would see what it has seen, and a for-clause ends half a minute later at most.
//
// An incident is not staged where the model reboots its node meanwhile, and not within two hours of
// another one on the same node: what hides it would be taken for a fault of the rules.
//
// # Bounds
//
// Samples are held in memory, 16 bytes each, of every family as long as some rule can reach them:
// most for an hour, a few for three days. Scrapes are five minutes ahead of the rules at most. The
// labels of all series that rules read come on top, twice, and the model's time for a window of
// three hours.
package soak
