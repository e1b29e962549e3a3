package relabel

import (
	"fmt"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// nearlyAll is the share of series from which on a plan is hardly what somebody wants: a server is not run for a twentieth of what it stores.
const nearlyAll = 0.95

// alarms are what the reader of a plan has to know first.
func alarms(set *uses.Set, stored, dropped propose.Saving) []string {
	var out []string
	if set.Covers == 0 {
		why := "no usage log was given"
		if set.Logs > 0 {
			why = "the usage log has no line of the time that counts"
		}
		out = append(out, "No logged query was looked at: "+why+". What people ask in Explore, in runbooks and from programs is not known, and what nothing else uses goes. "+
			"Let Spillway write a usage log for as long as the rarest of them takes (usage_log in its configuration), and make the plan again with --usage.")
	}
	if share := float64(dropped.Series) / float64(max(stored.Series, 1)); share > nearlyAll {
		out = append(out, fmt.Sprintf("Nearly everything goes: %d of %d series. Hardly anybody stores that much for nothing; more likely the uses of it were not given. Name every folder of dashboards "+
			"(--dashboards, --grafana), rules (--rules) and autoscalers (--autoscalers), and the usage log (--usage); look at the largest rules in the report; then put the rules on one server first.",
			dropped.Series, stored.Series))
	}
	return out
}
