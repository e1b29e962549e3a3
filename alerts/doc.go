// Package alerts holds the rule files that jsonnet/ renders with its defaults, for those who have
// no jsonnet, and what proves them.
//
//	global/   rules over the whole fleet: they run in a ruler that asks the proxy
//	shard/    rules about one Prometheus, which run in it: they must not depend on anything else
//	tests/    promtool's rule tests: for every alert one case that fires, a near miss, one without data and two clusters at once
//	live/     the rules on real servers, with troubles staged in the simulated cluster
//	soak/     the rules over weeks of the simulated cluster: what fires falsely, what is missed
//
// metrics.yaml is the metrics and labels that the rules name, with the exporter that each comes
// from.
//
// # What is promised
//
// Tests hold the rules to this: what is committed is what is rendered; every alert has its cases
// and its page in docs/runbooks; halving or doubling any threshold breaks a case of that alert;
// every metric and label exists, with its type, in the pages of the exporter and in those of the
// simulated cluster; counters are only looked at through rate and increase; no alert about one node
// or GPU is critical; every alert keeps the label cluster, and its annotations name no label that
// it lacks.
//
// # Bounds
//
// The files are embedded as they are, some hundred kilobytes. Nothing is parsed here.
package alerts
