// Package pair kills a real Prometheus of a pair and starts it again, while callers ask Spillway
// what dashboards and rulers ask, over ten times as many series as max_series lets any request
// read.
//
// It promises: nobody is refused and nothing fails; the numbers stay what they are, so that
// aggregations went on running on the server that is left; no failure is charged to it; the metrics
// that alerts are made of name the one that is gone, and nobody once it is back, has replayed its
// log and been asked again.
//
// It needs tools/bin/prometheus. It holds two servers of 3,000 series each, scraped every second,
// for forty seconds; with -pair.kills each is killed in turn.
package pair
