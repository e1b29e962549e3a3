package shard

import (
	"slices"
	"time"

	"github.com/prometheus/common/model"
)

// Lookback is the lookback delta of the shards' engines, as most of those whose flags are known have it; 0 while none is. EngineDifferences names those
// that have another one.
func (t *Topology) Lookback() time.Duration {
	e, ok := t.reference()
	if !ok {
		return 0
	}
	d, err := model.ParseDuration(e.Lookback)
	if err != nil {
		return 0
	}
	return time.Duration(d)
}

// DelayedNameRemoval tells whether the shards' engines, as most of those whose flags are known, drop metric names only at the end.
func (t *Topology) DelayedNameRemoval() bool {
	e, ok := t.reference()
	return ok && slices.Contains(e.Flags, "promql-delayed-name-removal")
}
