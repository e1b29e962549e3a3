// Package live holds the datasource against the truth: a past of simulated clusters is written as
// the blocks of what their Prometheus servers would have stored, with what the mixin's rules would
// have recorded of it; real Prometheus servers and the proxy answer from them, and the model knows
// which pods, GPUs, Xids and GPU hours there were.
//
//	w, err := live.Write(ctx, live.Options{Dir: dir, Clusters: []live.Cluster{{Model: m, Shards: 2, Replicas: 2}}, From: from, Until: until, Rules: alerts.Global()})
//	if err != nil { … }
//	s, err := w.Serve(ctx, spillway)
//	if err != nil { … }
//	defer s.Stop()
//	client asks s.URL
//
// # What it promises
//
// Servers store what they would have scraped with deploy/exporters' relabelings: pages about all
// nodes are divided by node among shards, replicas scraped at different moments, no series has its
// cluster's label: the proxy adds it. Rules were evaluated over all clusters at each multiple of
// their interval, and are on a server of their own, as a ruler writes them. Servers listen on free
// ports of 127.0.0.1, and Stop ends them by their process ids.
//
// # What it refuses
//
// It does not scrape and does not wait: hours are there in the time that it takes to compute them.
// Two clusters of one name are an error.
//
// # What it holds
//
// A process for each replica of each shard, one for what was recorded and the proxy, about 100 MiB
// each at twelve nodes; blocks below Options.Dir.
package live
