// Package demo runs the main job on one machine with nothing else installed: embedded Prometheus
// shards full of a simulated GPU cluster's data, scraping it live, and the real proxy in front of
// them. Rules run as they are deployed: those of alerts/shard in the shards, those of alerts/global
// in a ruler that asks the proxy and whose store is the proxy's group `rules`. The history has
// recorded series and alerts too, of a day at most.
//
// It promises: ready within a minute of its start at its default size on two cores; every port on
// loopback; nothing left behind when it ends (data lives in a temporary folder). The newest hour at
// most is filled in before it is ready, older history behind, and what rules record last: it says
// when.
//
// Memory: the demo's own size, about 25 KiB for each series and replica; 2 groups of 40 nodes on 8
// servers need about 1.5 GiB.
package demo
