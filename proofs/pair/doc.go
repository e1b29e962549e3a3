// Package pair kills a real Prometheus of a pair and starts it again, while callers and a ruler ask Spillway what dashboards and rulers ask, over ten times as many series as max_series lets any request read.
//
// It promises: nobody is refused and nothing fails; the numbers stay what they are, and within a second of the kill queries run on the server that is left; no failure is charged to it, and nothing is asked of it twice;
// ProxyReplicaDown, which a real Thanos Ruler evaluates through Spillway over Spillway's own metrics, names the one that is gone, and nobody once it is back, has replayed its log and been asked again. Each had an hour's
// outage of its own during the day before: range queries of that day have no gap while both can be asked, and that of the server that is left while it is the only one.
//
// BenchmarkOutages measures what such a day costs beside one of a pair that never failed.
//
// It needs tools/bin/prometheus and tools/bin/thanos. It holds two servers of 3,600 series each, scraped every second, for forty seconds; with -pair.kills each is killed in turn.
package pair
