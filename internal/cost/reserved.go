package cost

// A node may be kept for a team by a taint whose value is the team. What of it stands free costs
// money that somebody has to pay: the bill names the team beside it, and bills the team only where
// the directory says so, since a taint is no contract.

// What is done with what was kept for a team and stood free.
const (
	reservedBeside = "beside" // shown, in no row of the bill
	reservedBilled = "billed" // in the team's rows
)

// reserving are the effects of a taint that keep pods away, the one that evicts before the other;
// PreferNoSchedule keeps nobody away. The recording rules say the same (node:reserved_for:info).
var reserving = []string{"NoExecute", "NoSchedule"}

// reservations are the samples of a node's taints, by effect, then by replica and team.
type reservations map[string]map[device]float64

// keptFor is what of a node was kept for each team, in GPU ms of its total. A taint that was there
// for a part of the time that the node was, counts for that part.
func (p *page) keptFor(k nodeKey, total, there float64) map[string]float64 {
	kept, left := map[string]float64{}, there
	for _, effect := range reserving {
		taints := p.f.reserved[at[nodeKey]{k, p.i}][effect]
		more, sum := map[string]float64{}, 0.0
		for _, d := range sortedDevices(taints) {
			more[d.resource] += p.samples(k, map[device]float64{d: taints[d]}, func(string) float64 { return 1 })
		}
		// A team's taint that is there for both effects is one. When within the window each was
		// there is not known: NoSchedule has what NoExecute leaves.
		for _, team := range sortedKeys(more) {
			more[team] = max(0, more[team]-kept[team])
			sum += more[team]
		}
		// Of one effect two teams at once have a half each.
		for team, ms := range more {
			if ms > 0 && left > 0 {
				kept[team] += ms * min(1, left/sum)
			}
		}
		left = max(0, left-sum)
	}
	for team := range kept {
		kept[team] *= total / there
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
