package shard

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Lookback is the lookback delta of the shards' engines, as most of those whose flags are known
// have it; 0 while none is. EngineDifferences names those that have another one.
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

// EvaluationInterval is the step that the shards' engines give a subquery without one, as most of
// those whose flags are known have it; 0 while none is.
func (t *Topology) EvaluationInterval() time.Duration {
	e, ok := t.reference()
	if !ok {
		return 0
	}
	d, err := model.ParseDuration(e.EvaluationInterval)
	if err != nil {
		return 0
	}
	return time.Duration(d)
}

// evaluationInterval reads global.evaluation_interval from the data of status/config; empty where
// it is not there.
func evaluationInterval(data []byte) string {
	var d struct {
		YAML string `json:"yaml"`
	}
	var c struct {
		Global struct {
			EvaluationInterval string `yaml:"evaluation_interval"`
		} `yaml:"global"`
	}
	if json.Unmarshal(data, &d) != nil || yaml.Unmarshal([]byte(d.YAML), &c) != nil {
		return ""
	}
	return cleaned(c.Global.EvaluationInterval)
}

// UseStartTimestamps tells whether the shards' engines, as most of those whose flags are known, use
// start timestamps of counters.
func (t *Topology) UseStartTimestamps() bool {
	e, ok := t.reference()
	return ok && slices.Contains(e.Flags, "use-start-timestamps")
}

// TypeAndUnitLabels tells whether the shards' engines, as most of those whose flags are known, take
// type and unit for parts of a metric's name.
func (t *Topology) TypeAndUnitLabels() bool {
	e, ok := t.reference()
	return ok && slices.Contains(e.Flags, "type-and-unit-labels")
}

// DelayedNameRemoval tells whether the shards' engines, as most of those whose flags are known,
// drop metric names only at the end.
func (t *Topology) DelayedNameRemoval() bool {
	e, ok := t.reference()
	return ok && slices.Contains(e.Flags, "promql-delayed-name-removal")
}
