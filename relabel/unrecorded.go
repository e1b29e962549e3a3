package relabel

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/common/model"

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
			o.Uses.Warnings = append(o.Uses.Warnings, err.Error()+"; what its rules use counts as unused, but for those that are given (--rules)")
		}
	}
	return nil
}

// windows begins the names of what only nodes with Windows have. Everybody has the dashboards of
// these nodes, which come with the others, and hardly anybody the nodes.
const windows = "windows_"

// unrecorded are the names of recorded series that are used and whose rules are not known. What has
// a type is of an exporter: no server knows a type of what a rule records. What would be of Windows
// is none where nothing of Windows is stored.
func unrecorded(set *uses.Set, inv *inventory.Inventory) []uses.Unrecorded {
	typed, hasWindows := map[string]bool{}, false
	for _, m := range inv.Metrics {
		hasWindows = hasWindows || strings.Contains(m.Name, windows)
		if m.Type != "" && m.Type != model.MetricTypeUnknown {
			typed[m.Name] = true
		}
	}
	return set.Unrecorded(func(name string) bool { return typed[name] || !hasWindows && strings.Contains(name, ":"+windows) })
}

// rulesAreMissing is the alarm about them.
func rulesAreMissing(all []uses.Unrecorded) string {
	if len(all) == 0 {
		return ""
	}
	var names []string
	for _, u := range all[:min(len(all), namedUses)] {
		names = append(names, u.Name+", used in "+u.By.Place())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more (unrecorded in the plan)", more))
	}
	return fmt.Sprintf("Rules are missing, so that nothing here is proven: no known rule records %d of the used names with a colon: %s. What their rules read is not "+
		"known and may go, but for metrics that stand in these names. Give the rules (--rules, or the API of the server that evaluates them as one more --scrape=api+URL), or name in --keep what nothing records any more, and make the plan again.",
		len(all), strings.Join(names, "; "))
}

// Unproven says in a few words why the plan's rules do not count as proven, and is empty where they
// do.
func (p *Plan) Unproven() string {
	switch {
	case len(p.Unrecorded) > 0:
		return "rules are missing from what was given"
	case p.Proof.Replay.Weak() != "":
		return "the replay showed little"
	}
	return ""
}
