package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// settings are what a server's configuration says for all that it scrapes and evaluates.
type settings struct {
	EvaluationInterval string            `yaml:"evaluation_interval"`
	ExternalLabels     map[string]string `yaml:"external_labels"` // never nil
	// Elsewhere tells that the server reads from other stores, too (remote_read).
	Elsewhere bool `yaml:"-"`
}

// globalSettings reads the section global from the data of status/config. Where that is large the
// rest is not parsed: its tree would take many times as much.
func globalSettings(data []byte) (settings, error) {
	var d struct {
		YAML string `json:"yaml"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return settings{}, err
	}
	section, elsewhere := d.YAML, topSection(d.YAML, "remote_read:") != "" // which servers leave out where there is none
	if len(section) > smallPage {
		section = topSection(section, "global:")
	}
	if len(section) > smallPage {
		return settings{}, fmt.Errorf("its section global has more than %d bytes", smallPage)
	}
	var c struct {
		Global settings `yaml:"global"`
	}
	if err := yaml.Unmarshal([]byte(section), &c); err != nil {
		return settings{}, errors.New("it is not YAML")
	}
	if c.Global.ExternalLabels == nil {
		c.Global.ExternalLabels = map[string]string{}
	}
	c.Global.Elsewhere = elsewhere
	return c.Global, nil
}

// MayReadElsewhere tells whether some replica reads from other stores by a remote_read of its own,
// or whether its configuration is not known.
func (s *Shard) MayReadElsewhere() bool {
	return slices.ContainsFunc(s.Replicas, func(r *Replica) bool {
		r.up.mu.Lock()
		defer r.up.mu.Unlock()
		return r.up.health.elsewhere || !r.up.health.externalOK
	})
}

// topSection cuts the lines of one key out of a YAML document as servers write them: keys of the
// top begin a line, and everything below them is indented.
func topSection(text, key string) string {
	at := 0
	if !strings.HasPrefix(text, key) {
		i := strings.Index(text, "\n"+key)
		if i < 0 {
			return ""
		}
		at = i + 1
	}
	end := at
	for line := range strings.Lines(text[at:]) {
		if end > at && line[0] != ' ' && line[0] != '\n' && line[0] != '#' {
			break
		}
		end += len(line)
	}
	return text[at:end]
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
