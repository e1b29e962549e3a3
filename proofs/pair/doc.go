// Package pair kills a real Prometheus of a pair and starts it again, while callers and two rulers
// ask Spillway what dashboards and rules ask, over ten times as many series as max_series lets any
// request read.
//
// It promises: nobody is refused and nothing fails; the numbers stay what they are; from a second
// after the kill on no series are fetched because of it, neither while one is away nor once it is
// back; no failure is charged to the server that is left, no alert names it, its breaker stays
// closed, and nothing is asked of it twice. ProxyReplicaDown names the one that is gone, and nobody
// once it is back, has replayed its log and been asked again: for a real Thanos Ruler, which
// evaluates it through Spillway over Spillway's own metrics as the pair has scraped them, and for a
// real Prometheus that scrapes them itself, evaluates all alerts about Spillway in compressed time,
// and reads from Spillway by remote read. Each of the pair had an hour's outage of its own during
// the day before: range queries of that day have no gap while both can be asked, and that of the
// server that is left while it is the only one.
//
// The outages of an hour are blocks that were written beforehand; what is killed is away for
// seconds. BenchmarkOutages measures what such a day costs beside one of a pair that never failed.
//
// It needs tools/bin/prometheus and tools/bin/thanos. It holds two servers of 4,200 series each,
// scraped every second (-pair.every), a third one, a Thanos Ruler, and the mixin as it is rendered,
// for about a minute; with -pair.kills each of the pair is killed in turn.
package pair
