package relabel

import (
	"context"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// served adds the rules that the servers behind the source evaluate. One that does not show them
// gets a warning: not every API has rules.
func served(ctx context.Context, o Options) error {
	for _, s := range inventory.Servers(o.Source) {
		data, err := s.Rules(ctx)
		if err == nil {
			err = uses.Served(o.Uses, s.String(), data)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			o.Uses.Refused = append(o.Uses.Refused, err.Error())
			o.Uses.Warnings = append(o.Uses.Warnings, err.Error()+"; what its rules use counts as unused, but for those that are given (--rules)")
		}
	}
	return nil
}

// unrecorded are the names of recorded series that are used and whose rules are not known.
func unrecorded(set *uses.Set, inv *inventory.Inventory) []uses.Unrecorded {
	var scraped uses.Scraped
	for _, m := range inv.Metrics {
		scraped.Add(m.Name, m.Type)
	}
	return set.Unrecorded(scraped.Has)
}

// rulesAreMissing is the alarm about them.
func rulesAreMissing(all []uses.Unrecorded) string {
	if len(all) == 0 {
		return ""
	}
	return "Rules are missing, so that nothing here is proven: " + uses.MissingRules(all) + ". What their rules read is not known and may go, but for metrics that stand in these names. Give the rules (--rules, or the API of the server that evaluates them as one more --scrape=api+URL), or name in --keep what nothing records any more, and make the plan again."
}

// Unproven says in a few words why the plan's rules do not count as proven, and is empty where they
// do.
func (p *Plan) Unproven() string {
	switch {
	case len(p.Unrecorded) > 0:
		return "rules are missing from what was given"
	case p.Inputs.Lost > 0:
		return "the usage log lost requests"
	case p.Inputs.Unrendered > 0:
		return "sources of dashboards or rules were not rendered"
	case p.Proof.Replay.Weak() != "":
		return "the replay showed little"
	}
	return ""
}
