package server

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// exactFound are questions that were answered wrongly once. A world follows from its seed, so a row
// is good for as long as the worlds are made as they are.
var exactFound = []struct {
	seed                        uint64
	kind                        exactKind
	query                       string
	end, length, step, lookback int64 // milliseconds; end from the beginning of the world's data
}{
	// A leaf in place of a sum was taken for a selector, which has start timestamps. Two selectors
	// of one query are asked of two replicas, each whole where it was asked. What count_values
	// makes of values that are times is too much. Series that begin in a later stretch stand where
	// their labels do; the reference had them at the end once.
	{seed: 20261540, kind: "single", query: `bottomk by (node, gpu) (10, http_seconds_bucket offset (1m + 10s) @ 1795640839.994 * 1)`, end: 2221281},
	{seed: 20261206, kind: "gaps", query: `days_in_month(sum(node_memory_free_bytes))`, end: 2169310, length: 6300000, step: 300000},
	{seed: 20261248, kind: "gaps", query: `mixed_kind`, end: 2056101, length: 2857621, step: 300000, lookback: 90000},
	{seed: 1009162307624, kind: "gaps", query: `http_seconds_count`, end: 1247717, length: 225000, step: 15000},
	{seed: 1009162307744, kind: "gaps", query: `{__name__="slow_value"} @ 1795435688.930 < bool {__name__="http_seconds_bucket"} offset -1m51s`, end: 2070000},
	{seed: 1009162307810, kind: "gaps", query: `{__name__="http_seconds_bucket"} and {__name__="slow_value"} @ 1795436906.315`, end: 398248},
	{seed: 1009162308440, kind: "gaps", query: `{__name__="special"} @ 1795435541.982 != bool {__name__="node_info"} @ end()`, end: 2564998},
	{seed: 1009162308157, kind: "agreeing", query: `start_timestamp(sum without () ({__name__="node_memory_free_bytes"}))`, end: 831319},
	{seed: 1009162308160, kind: "single", query: `stddev_over_time((count_values without () ("node", ts_of_min_over_time(gpu_temperature[7m13s] offset (1m + 10s))))[2m:(10s + 5s)])`, end: 2012113, length: 1769029, step: 61001},
	{seed: 1009162307624, kind: "gaps", query: `count by (node) (rpc_seconds)`, end: 2033955, length: 877606, step: 37000},
	// A matrix spliced from two groups came in the order of the groups.
	{seed: 957617523159, kind: "agreeing", query: `-batch_seconds{region!="eu"}`, end: 511722, length: 21000, step: 1000},
	// The last bits of an average that the shards had a part in became a label. Zeros of both signs
	// are equal to bottomk; what is never read collides with nothing; and which series limitk takes
	// decides whether two have one name.
	{seed: 668709599480, kind: "moving", query: `bottomk(1, ({__name__="special"} % ignoring (node, s) group_left (instance, job) {__name__="up"}))`, end: 1263594, length: 177073, step: 13000},
	{seed: 668709600052, kind: "agreeing", query: `info({__name__="capacity"}, {__name__="collides"})`, end: 835629},
	{seed: 668709600407, kind: "single", query: `sum_over_time((limitk (3, ceil({__name__=~"bound|limit_.+"})))[2m:30s])`, end: 76355},
	{seed: 112987275208, kind: "agreeing", query: `sort_desc(info(special))`, end: 1695162},
	{seed: 7006, kind: "single", query: `count_values("node", avg(irate(http_seconds_count[45s])))`, end: 1854259},
	// A replica of one target was asked alone although no other one agreed with it; who lacks
	// nothing that others have is whole now.
	// No wrong answers, but taken for some: parcels in a larger expression were counted as splices,
	// so that the order of their sums was not allowed for; and what was read raw for the last
	// minute was taken for what a shard had been asked for the last quarter of an hour.
	{seed: 20261672, kind: "agreeing", query: "sum(node_memory_free_bytes) + 0.1", end: 903811},
	{seed: 20262074, kind: "agreeing", query: "ts_of_min_over_time(up[15m]) < on (cluster) count_over_time(up[1m])", end: 2679693},
	{seed: 8209, kind: "moving", query: `{__name__="node_memory_free_bytes"} @ start()`, end: 710674},
}

// TestExactFound asks them again.
func TestExactFound(t *testing.T) {
	for i, c := range exactFound {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			h := newExactHarness(t, c.seed, c.kind, &exactTally{})
			ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
			end := h.w.start.Add(ms(c.end))
			q := exactQuestion{query: c.query, start: end.Add(-ms(c.length)), end: end, step: ms(c.step), lookback: ms(c.lookback)}
			if v := h.check(q); v.failed {
				t.Errorf("%s\n\tran as %s\n\tthe world: %s", v.text, v.mode, strings.Join(h.w.traits, "; "))
			}
		})
	}
}
