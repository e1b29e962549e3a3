package exporters

import (
	"fmt"

	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// Relabel gives the metric_relabel_configs of each job that has some: what becomes of a page's
// series before they are stored, for histories and rehearsals that do not scrape by the deployed
// file itself.
func Relabel(o Options) (map[string][]*relabel.Config, error) {
	text, err := Render(o)
	if err != nil {
		return nil, err
	}
	var file struct {
		Scrape []struct {
			Job     string            `yaml:"job_name"`
			Relabel []*relabel.Config `yaml:"metric_relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return nil, fmt.Errorf("read deploy/exporters/prometheus.yml: %w", err)
	}
	out := map[string][]*relabel.Config{}
	for _, j := range file.Scrape {
		if len(j.Relabel) > 0 {
			out[j.Job] = j.Relabel
		}
	}
	return out, nil
}
