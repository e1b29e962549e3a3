package config

import (
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Limits are the bounds of one request. In an effective Limits, as LimitsFor returns it, every
// field is above zero.
type Limits struct {
	// Timeout is the deadline of the whole request.
	Timeout time.Duration `yaml:"timeout" default:"25s"`
	// MaxSeries is how many series the proxy holds or returns for one request; of labels and
	// label_values, how many names or values.
	MaxSeries int `yaml:"max_series" default:"50000"`
	// MaxSeriesTouched is how many series the shards select for one query, as estimated.
	MaxSeriesTouched int `yaml:"max_series_touched" default:"2000000"`
	// MaxSamples is how many samples the proxy holds or returns for one request.
	MaxSamples int64 `yaml:"max_samples" default:"50000000"`
	// MaxResponseBytes is how many bytes the shards may send for one request, and how many its
	// answer may have.
	MaxResponseBytes int64 `yaml:"max_response_bytes" unit:"bytes" default:"64MiB"`
	// MaxShardBytes is what one request may make one server hold, as estimated.
	MaxShardBytes int64 `yaml:"max_shard_bytes" unit:"bytes" default:"512MiB"`
	// MaxRange is the longest time a request may look at.
	MaxRange time.Duration `yaml:"max_range" default:"31d"`
	// MetadataRange is how far back series, labels and label values look where no metric is named;
	// never above MaxRange.
	MetadataRange time.Duration `yaml:"metadata_range" default:"55m"`
	// MaxQueryBytes is the longest query text, and the longest selector.
	MaxQueryBytes int64 `yaml:"max_query_bytes" unit:"bytes" default:"64KiB"`
	// Unselective is UnselectiveRefuse or UnselectiveAllow.
	Unselective string `yaml:"unselective" default:"refuse" is:"one=refuse|allow"`
}

func (Limits) meaning() map[string]string {
	return map[string]string{
		"timeout": "The deadline of the whole request. The default stays under Grafana's own 30 s, so that Spillway's sentence is " +
			"seen. A client's `timeout=` can only lower it.",
		"max_series": "How many series Spillway holds or returns for one request; of `labels` and `label_values`, how many names or " +
			"values.",
		"max_series_touched": "How many series all shards together select for one query, each selector's by itself, as estimated from what they say of " +
			"their metrics or as counted; see [max_series_touched](bounds/max_series_touched.md).",
		"max_samples":        "How many samples it holds or returns for one request.",
		"max_response_bytes": "How many bytes the shards may send for one request, and how many its answer may have.",
		"max_shard_bytes": "What one query may make one server hold while it evaluates, as estimated from how many series it selects there. " +
			"Range queries that would take more are asked in pieces of time. A quarter of what the smallest server holds at rest is a good value.",
		"max_range": "The longest time that a request may look at.",
		"metadata_range": "How far back `series`, `labels` and `label_values` look where no metric is named. The default stays within " +
			"Prometheus' head block, where such a request is cheap. Never above `max_range`.",
		"max_query_bytes": "The longest query text, and the longest selector.",
		"unselective": "What becomes of selectors that name no metric and select nothing in particular, in `query`, `query_range`, " +
			"`query_exemplars` and `federate`: `refuse`, or `allow` under the other limits. Lists of what they select are cut at 1,000 series from each shard, with `allow` at `max_series`.",
	}
}

// LimitsSection is the key limits of the file: the ceiling of all requests, and overrides for
// single endpoints. An override can only lower the ceiling.
type LimitsSection struct {
	Limits `yaml:",inline"`
	// ReadSlots is how many remote reads one replica is asked at once, by all requests together.
	ReadSlots int `yaml:"read_slots" default:"8"`
	// ReplicaCalls is how many calls of any kind it is asked at once.
	ReplicaCalls int `yaml:"replica_calls" default:"24"`
	// ProcessCalls is how many calls to all servers together are under way; 0 is as many as the
	// files that the process may have open allow.
	ProcessCalls int `yaml:"process_calls"`
	// ShardBudget is what all of them together may make one server hold, as estimated; never below
	// MaxShardBytes.
	ShardBudget int64 `yaml:"shard_budget" unit:"bytes" default:"1GiB"`
	// Rewrites is try or RewritesOff.
	Rewrites string `yaml:"rewrites" default:"try" is:"one=try|off"`
	// Shadow are the bounds that are told of and not enforced.
	Shadow []string `yaml:"shadow" is:"max=7"`
	// Endpoints holds what the file overrides for an endpoint; a field that it does not override is
	// zero.
	Endpoints map[endpoint.ID]Limits `yaml:"endpoints"`
}

// Shadowable are the bounds that Shadow may have; package policy says what becomes of them.
var Shadowable = []string{
	"max_range", "metadata_range", "unselective", "max_series_touched", "max_shard_bytes", "max_series", "max_response_bytes",
}

func (LimitsSection) meaning() map[string]string {
	return map[string]string{
		"read_slots": "How many remote reads one replica is asked at once, by all requests of this Spillway together; see " +
			"[read_slots](bounds/read_slots.md). With several Spillways before the same servers, 8 divided by their number.",
		"replica_calls": "How many calls of any kind it is asked at once, at least `read_slots`; see " +
			"[replica_calls](bounds/replica_calls.md). With several Spillways, 24 divided by their number or more.",
		"process_calls": "How many calls to all servers together are under way, where that is to be fewer than a quarter of the files that Spillway may have open, " +
			"such as one more than the processors of a machine that has all servers; see [process_calls](bounds/process_calls.md).",
		"shard_budget": "What all calls of this Spillway together may make one server hold while it evaluates, as estimated: each of its `replica_calls` places is an " +
			"equal part of it, and a call takes as many as it needs; see [replica_calls](bounds/replica_calls.md). Counts as `max_shard_bytes` " +
			"where that is more. Twice `max_shard_bytes` is a good value; each of several Spillways has its own, so divide it by their number.",
		"rewrites": "Whether a refusal looks for a query that would be answered, and tries it: `try`, or `off`; see [rewrites](rewrites.md).",
		"shadow": "Bounds that are not enforced: what they would refuse or cut is answered, counted and written to the usage log; see " +
			"[operations](operations.md#in-shadow). One or more of `max_range`, `metadata_range`, `unselective`, `max_series_touched`, " +
			"`max_shard_bytes`, `max_series` and `max_response_bytes`, for all endpoints and tenants.",
		"endpoints":               "Overrides for one endpoint, by its name in the table below.",
		"endpoints.*.unselective": "`refuse` for this endpoint where `limits.unselective` is `allow`.",
	}
}

// endpointIDs are the endpoints that limits can be written for, in the order of the reference.
var endpointIDs = func() (ids []endpoint.ID) {
	for _, e := range endpoint.Table {
		ids = append(ids, e.ID)
	}
	return ids
}()

// LimitsFor returns what bounds a request to the endpoint: the file's override, or the endpoint's
// own value, or the ceiling, and never more than the ceiling.
func (c *Config) LimitsFor(id endpoint.ID) Limits {
	ceiling, over, def := c.Limits.Limits, c.Limits.Endpoints[id], id.Limits()
	l := Limits{
		Timeout:          bounded(ceiling.Timeout, over.Timeout, def.Timeout),
		MaxSeries:        bounded(ceiling.MaxSeries, over.MaxSeries, def.MaxSeries),
		MaxSeriesTouched: bounded(ceiling.MaxSeriesTouched, over.MaxSeriesTouched),
		MaxSamples:       bounded(ceiling.MaxSamples, over.MaxSamples),
		MaxResponseBytes: bounded(ceiling.MaxResponseBytes, over.MaxResponseBytes, def.MaxResponseBytes),
		MaxShardBytes:    bounded(ceiling.MaxShardBytes, over.MaxShardBytes),
		MaxRange:         bounded(ceiling.MaxRange, over.MaxRange),
		MetadataRange:    bounded(ceiling.MetadataRange, over.MetadataRange),
		MaxQueryBytes:    bounded(ceiling.MaxQueryBytes, over.MaxQueryBytes),
		Unselective:      ceiling.Unselective,
	}
	l.MetadataRange = min(l.MetadataRange, l.MaxRange)
	if over.Unselective == UnselectiveRefuse {
		l.Unselective = UnselectiveRefuse
	}
	return l
}

// bounded is the first of the values that is not zero, at most the ceiling.
func bounded[T int | int64 | time.Duration](ceiling T, values ...T) T {
	for _, v := range values {
		if v != 0 {
			return min(v, ceiling)
		}
	}
	return ceiling
}
