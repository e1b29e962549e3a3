package emit

import "github.com/prometheus/prometheus/model/relabel"

// Lines are a rule as it stands in metric_relabel_configs: an element of the list, without
// indentation.
func Lines(c *relabel.Config) ([]string, error) { return configLines(c, prometheusSpelling) }
