// Package dashboards measures what the dashboards cost on a large cluster: every panel is asked
// through Spillway, with the limits that it has by default, over real Prometheus servers that share
// the series of a simulated cluster by the hash of the node.
//
//	r, err := dashboards.Measure(ctx, rules.Options{Servers: bench.Servers{Spillway: binary}, Files: files}, dashboards.Options{})
//
// The servers are those of package rules, and so is what is recorded: a real ruler runs before the
// panels are asked, for as long as rules.Options says, and is ended then. Options.Then may look at
// the servers before they are ended too.
//
// # What it promises
//
// A panel's queries are asked at once, as Grafana does, so the time of a panel is that of its
// slowest. Each panel is asked several times, one after the other, with a window that moves, and
// its figure is the median. Variables have what they open with: All where there is All, else their
// first option. A panel that is refused or fails is reported with the reason, and so is one over
// its bound that reads no recorded series.
//
// # What it holds
//
// One answer at a time, which is bounded by the proxy; the servers' data as package rules says.
package dashboards
