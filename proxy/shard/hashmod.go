package shard

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
)

// Hashmod is the rule by which series were given to the shards of a group: one that has the label
// is on the shard whose Hash is Of its value.
type Hashmod struct {
	// Label is the source label of the relabel rule.
	Label string
	// Modulus is at least 1.
	Modulus uint64
}

// Of is the number that Prometheus' relabel action hashmod gives a value: the last eight bytes of
// its MD5, modulo Modulus.
func (h Hashmod) Of(value string) uint64 {
	sum := md5.Sum([]byte(value))
	return binary.BigEndian.Uint64(sum[8:]) % h.Modulus
}

// maxPruneValues is how many values of one matcher are hashed; more select nearly every shard
// anyway.
const maxPruneValues = 1024

// Prune tells which shards can hold series that match ms: nil where nothing is known of it, so that
// all must be asked; else the predicate of those that can. It may hold for no shard at all, where
// two matchers exclude each other. Matchers on labels other than that of the group's hashmod do not
// matter, nor do those that match the empty string, since series without the label may be anywhere.
// Where the group's Names have none that the matchers select, it is none of its shards.
//
// What it says holds at the moment: it is asked anew for each request, and only while every shard
// has been seen to keep the rule.
func (g *Group) Prune(ms []*labels.Matcher) func(*Shard) bool {
	if g.excludes(ms) {
		return func(s *Shard) bool { return s.Group != g }
	}
	if g.Hashmod == nil {
		return nil
	}
	var hold map[uint64]bool
	for _, m := range ms {
		if m.Name != g.Hashmod.Label || m.Matches("") {
			continue
		}
		values := finite(m)
		if len(values) == 0 || len(values) > maxPruneValues {
			continue
		}
		hashes := make(map[uint64]bool, len(values))
		for _, v := range values {
			if h := g.Hashmod.Of(v); hold == nil || hold[h] {
				hashes[h] = true
			}
		}
		hold = hashes
	}
	if hold == nil || !g.HashmodTrusted() {
		return nil
	}
	return func(s *Shard) bool { return s.Group != g || hold[s.Hash] }
}

// finite are the only values that the matcher selects; nil where they are not given one by one.
func finite(m *labels.Matcher) []string {
	switch m.Type {
	case labels.MatchEqual:
		return []string{m.Value}
	case labels.MatchRegexp:
		return m.SetMatches()
	default:
		return nil
	}
}

// HashmodTrusted tells whether requests of the group are pruned by its hashmod: on every shard a
// replica has been seen to keep the rule, and none that may be asked has not. A replica that cannot
// be asked now counts as when it was asked last. Always false without a hashmod.
func (g *Group) HashmodTrusted() bool { return g.Hashmod != nil && g.trusted((*Replica).Hashmod) }

// ShardKey are the labels that tell the group's shards apart: series that agree on all of them,
// none of them empty, are on one shard. They are those of shard_by, unless that has been seen to be
// false, or names only the label of a hashmod which a server has been seen to break. Without
// shard_by it is the hashmod's, while it is trusted. Nil where nothing tells them apart.
func (g *Group) ShardKey() []string {
	switch {
	case g.shardByBroken():
		return nil
	case len(g.ShardBy) == 1 && g.Hashmod != nil && g.ShardBy[0] == g.Hashmod.Label && g.hashmodBroken():
		return nil
	case len(g.ShardBy) > 0:
		return g.ShardBy
	case g.HashmodTrusted():
		return []string{g.Hashmod.Label}
	}
	return nil
}

func (g *Group) hashmodBroken() bool {
	for _, s := range g.Shards {
		for _, r := range s.Replicas {
			if state, _ := r.Hashmod(); state == RuleBroken {
				return true
			}
		}
	}
	return false
}

// Hashmod is what is known of the replica's keeping its group's rule, and why where it is not
// trusted. Empty without a hashmod.
func (r *Replica) Hashmod() (state RuleState, why string) {
	rule := r.Shard.Group.Hashmod
	if rule == nil {
		return "", ""
	}
	return r.known(&r.up.health.hashmod, r.Shard.hashKey(), rule.Label)
}

// hashmodOf is the group's rule; nil where it has none.
func hashmodOf(c *config.Group) *Hashmod {
	if c.Hashmod.Modulus <= 0 || len(c.Hashmod.Labels) != 1 {
		return nil
	}
	return &Hashmod{Label: c.Hashmod.Labels[0], Modulus: uint64(c.Hashmod.Modulus)}
}

// hashKey names the rule and the shard's number under it: a reload may give the server others.
func (s *Shard) hashKey() string {
	return s.Group.Hashmod.Label + " " + strconv.FormatUint(s.Group.Hashmod.Modulus, 10) + " " + strconv.FormatUint(s.Hash, 10)
}

// checkHashmod looks whether each value of the rule's label that the server has in its shard's time
// belongs there.
func (r *Replica) checkHashmod(ctx context.Context, last fact) fact {
	rule, hash := r.Shard.Group.Hashmod, r.Shard.Hash
	if rule == nil {
		return fact{}
	}
	return r.checkValues(ctx, last, r.Shard.hashKey(), rule.Label, func(v string) string {
		if h := rule.Of(v); v != "" && h != hash {
			return fmt.Sprintf("it holds %s=%q, which hashes to shard %d of %d and not to %d", rule.Label, cleaned(v), h, rule.Modulus, hash)
		}
		return ""
	})
}
