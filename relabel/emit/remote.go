package emit

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// RemoteWrites are the lines of a prometheus.yml at which it sends on whatever is stored: what goes
// by metric_relabel_configs goes there too. One that keeps metrics by name is none of them: these
// names are uses where the file is among --rules.
func RemoteWrites(promYAML []byte) (lines []int) {
	var file struct {
		Writes []yaml.Node `yaml:"remote_write"`
	}
	if err := yaml.Unmarshal(promYAML, &file); err != nil {
		return nil // Merge has said so
	}
	for i := range file.Writes {
		var to struct {
			Rules []struct {
				Action string   `yaml:"action"`
				From   []string `yaml:"source_labels"`
			} `yaml:"write_relabel_configs"`
		}
		if err := file.Writes[i].Decode(&to); err != nil {
			continue
		}
		kept := false
		for _, r := range to.Rules {
			kept = kept || strings.EqualFold(r.Action, "keep") && slices.Contains(r.From, model.MetricNameLabel)
		}
		if !kept {
			lines = append(lines, file.Writes[i].Line)
		}
	}
	return lines
}
