package cost

// A node may be kept for a team by a taint whose value is the team. What of it stands free costs
// money that somebody has to pay: the bill names the team beside it, and bills the team only where
// the directory says so, since a taint is no contract.

// What is done with what was kept for a team and stood free.
const (
	reservedBeside = "beside" // shown, in no row of the bill
	reservedBilled = "billed" // in the team's rows
)

// keptFor is what of a node was kept for each team, in GPU ms of its total. A taint that was there
// for a part of the time that the node was, counts for that part.
func (p *page) keptFor(k nodeKey, total, there float64) map[string]float64 {
	taints := p.f.reserved[at[nodeKey]{k, p.i}]
	if len(taints) == 0 || there == 0 {
		return nil
	}
	kept, sum := map[string]float64{}, 0.0
	for _, d := range sortedDevices(taints) {
		team := d.resource
		ms := p.samples(k, map[device]float64{d: taints[d]}, func(string) float64 { return 1 })
		kept[team] += ms
		sum += ms
	}
	// Two teams at once have a half each.
	for team := range kept {
		kept[team] *= total / max(there, sum)
	}
	return kept
}

// unused is what stood free of what was kept for each team, in GPU ms: the same part of it as of
// the whole node. When within the window it stood free is not known, so that what the team itself
// held there counts as held of what was kept for it: who used all of it does not pay for the time
// before.
func (p *page) unused(k nodeKey, did state, kept map[string]float64) map[string]float64 {
	capacity := did.held + did.unhealthy + did.free - did.beyond
	if capacity <= 0 || did.free <= 0 {
		return nil
	}
	out := map[string]float64{}
	for team, ms := range kept {
		if v := min(ms*did.free/capacity, ms-p.ofTeam[teamNode{k, team}]); v > 0 {
			out[team] = v
		}
	}
	return out
}
