package shard

import (
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
)

// A server that was away for longer than its targets count may come back as another one: with other
// flags, or with targets that are another shard's by now. Until it was examined and compared again,
// no group that could have its series trusts anything to its shards.

// What is known of a server since it came up; returned has it.
const (
	compared   = iota // with the others, or as far as that was possible
	unexamined        // nothing yet: its flags and targets are those from before
	examined          // its flags, and not its targets
)

// isBack notes that the server is up, before anybody is told so. What is known of one that was away
// for a moment stands.
func (r *Replica) isBack() {
	if r.recentTargets() == nil && r.Shard.topology.several() {
		r.returned.Store(unexamined)
	}
}

// back are the servers whose targets are to be read and compared, since they were examined after
// they came up.
func (t *Topology) back() (out []*Replica) {
	for r := range t.replicas() {
		if r.returned.Load() == examined {
			out = append(out, r)
		}
	}
	return out
}

// Awaits tells whether a server that could hold series of the group is up again after a while, or
// for the first time, and was not compared with the others yet.
func (g *Group) Awaits() bool {
	if len(g.Shards) == 0 {
		return false
	}
	for r := range g.Shards[0].topology.replicas() {
		if r.returned.Load() != compared && (r.Shard.Group == g || g.mayShare(r.Shard)) {
			return true
		}
	}
	return false
}

// mayShare tells whether a series of the group may be on a shard of another one, for the same time.
func (g *Group) mayShare(s *Shard) bool {
	now := s.topology.opts.Clock()
	gf, gu := config.Span(g.From, g.Until, now)
	sf, su := s.Span(now)
	return max(gf, sf) < min(gu, su) && !apart(g.Labels, s.Group.Labels)
}

// noteGone notes which servers have been down for so long that what they said of themselves counts
// no more. The caller holds compare.mu.
func (t *Topology) noteGone() {
	now := time.Now()
	for r := range t.replicas() {
		r.up.mu.Lock()
		h := &r.up.health
		gone := h.state == Down && now.Sub(h.since) > targetsKeep
		r.up.mu.Unlock()
		if r.longGone.Swap(gone) != gone {
			learned.Add(1)
		}
	}
}
