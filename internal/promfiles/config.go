package promfiles

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"go.yaml.in/yaml/v3"
)

// WithExternalLabels returns the text of a prometheus.yml with its global.external_labels replaced
// by labels. Without labels it is the text as it was.
func WithExternalLabels(text string, ls labels.Labels) (string, error) {
	if ls.IsEmpty() {
		return text, nil
	}
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "", fmt.Errorf("put external labels into the configuration: %w", err)
	}
	if doc == nil {
		doc = map[string]any{}
	}
	global, ok := doc["global"].(map[string]any)
	if !ok && doc["global"] != nil {
		return "", errors.New("put external labels into the configuration: its global section is not a map")
	}
	if global == nil {
		global = map[string]any{}
	}
	values := ls.Map()
	for name, v := range values {
		values[name] = strings.ReplaceAll(v, "$", "$$") // Prometheus expands environment variables in them
	}
	global["external_labels"] = values
	doc["global"] = global
	out, err := yaml.Marshal(doc)
	return string(out), err
}
