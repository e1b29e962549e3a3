// Package plugin measures what the Grafana datasource for experiments costs on a large cluster:
// every view of an experiment of 4,000 GPUs on 500 nodes is asked of the proxy, with the limits
// that it has by default, over real Prometheus servers that share the series of 7,500 nodes by the
// hash of the node.
//
//	r, err := plugin.Measure(ctx, plugin.Options{Servers: bench.Servers{Spillway: binary}})
//
// # What it promises
//
// The servers' past is written as blocks, with what the mixin's rules recorded of it over the whole
// window: nothing is read that a deployment would not have. A view is answered by the datasource's
// own code, as its backend does for a panel, so its time is that of all its questions, of the
// proxy, of the servers and of the frames. Each view is asked several times, one after the other,
// with a window that moves by a second, and its figure is the median. A view that is refused,
// fails, gives nothing or takes longer than the bound is reported with the reason.
//
// There is something to see in each view: some of the experiment's GPUs are slow, one has memory
// that waits for a reset, one of its nodes was not ready for a while. Pods that wait and events are
// looked at a little later than the others, after the experiment has lost all its pods and half of
// the new ones find no node. Views of which nothing may come are asked too, since an empty answer
// costs the questions whether something is not set up.
//
// # What it refuses
//
// A view that reads a recorded series which was not recorded here: its figure would be of nothing.
//
// # What it holds
//
// A process of about 1 GB for each server, their blocks below Options.Dir (3 GB), and one view's
// answers at a time.
package plugin
