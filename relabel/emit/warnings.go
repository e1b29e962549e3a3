package emit

import (
	"fmt"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/config"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// Warnings are the regexes that are longer than config.MaxRegexBytes or have more than
// config.MaxRegexAlternatives alternatives, in the order of the rules.
func Warnings(p *relabel.Plan) []string {
	var out []string
	for i := range p.Rules {
		for _, text := range tooLong(&p.Rules[i]) {
			out = append(out, fmt.Sprintf("rule %s: %s", p.Rules[i].ID, text))
		}
	}
	return out
}

func tooLong(r *propose.Rule) []string {
	var out []string
	for _, c := range r.Relabel {
		if c == nil {
			continue
		}
		if text := config.LongRegex(pattern(c)); text != "" {
			out = append(out, text)
		}
	}
	return out
}
