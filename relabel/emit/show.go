package emit

import (
	"strings"

	"github.com/spillwayproject/spillway/relabel/propose"
)

// Lines are a rule as it stands in metric_relabel_configs, whosever series come by there: elements
// of the list, without indentation. They are to be read: a job that is no UTF-8 has other
// characters in them.
func Lines(r *propose.Rule) ([]string, error) {
	shown := *r
	shown.Job = strings.ToValidUTF8(r.Job, "\ufffd")
	configs, err := forJob(&shown)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range configs {
		lines, err := configLines(c, prometheusSpelling)
		if err != nil {
			return nil, err
		}
		out = append(out, lines...)
	}
	return out, nil
}
