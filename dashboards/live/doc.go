// Package live shows the dashboards on real servers. Two simulated clusters have a past with
// troubles on its time line; it is written as the blocks of what their Prometheus servers would
// have stored, with what rules would have recorded of it, and real Prometheus servers and the proxy
// answer every query of every panel, variable and annotation from them:
//
//	p, err := live.MakePast(ctx, live.Options{Dir: dir, Troubles: []cluster.Kind{cluster.GPUHot}})
//	if err != nil { … }
//	s, err := live.Serve(ctx, p, binary)
//	if err != nil { … }
//	defer s.Stop()
//	answers := s.Proxy.Ask(ctx, question)
//
// # What it promises
//
// Nobody waits: hours of troubles, each at its own time, are made in the time that it takes to
// compute them, and durations are those of the rules as they are deployed. The servers are
//
//   - jaguar: two shards of two replicas, which scraped at different moments; pages about all nodes
//     are divided by node, as deploy/exporters does. Rules with scope shard were evaluated by each.
//   - ibis: one server, a small cluster without staged troubles.
//   - rules: what the ruler recorded of both.
//   - Reference: one Prometheus with all of this, each cluster's label on every series; of replicas
//     the first. Choices has the others.
//   - Calm: the same as Reference without ibis and without the troubles. What differs between the
//     two at one moment is what a trouble changed.
//
// Servers listen on free ports of 127.0.0.1, and Stop ends them by their process ids.
//
// # What it refuses
//
// It does not scrape: alerts/live does, and two tests here show that what is scraped answers the
// same queries, and what only a real ruler, Alertmanager and proxy have to tell (see Elsewhere). A
// kind of trouble that nobody has said a target for is an error.
//
// # What it holds
//
// Nine processes (three more once Choices was asked), about 100 MiB each at twelve nodes, and
// blocks below Options.Dir: 2 MB for each hour and node.
package live
