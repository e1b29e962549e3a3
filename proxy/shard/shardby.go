package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// shard_by promises that series which agree on its labels are on one shard. Where that is false,
// joins and aggregations that run on the shards give wrong numbers, so the promise is checked as
// that of a hashmod is: no value of the label may be on two shards in the last hour. Until a value
// was seen on two it is believed. Of several labels one that is disjoint proves it; where none is,
// the combinations may yet be, which nobody here can read, and it is believed.

// shardByWindow is the time whose values are compared. A target that moves to another shard is on
// both for as long, and the promise not believed.
const shardByWindow = time.Hour

// shardByCheck is what is known of a group's promise.
type shardByCheck struct {
	mu     sync.Mutex
	values map[*Replica]map[string]map[uint64]struct{} // hashes of the values by label
	state  RuleState
	why    string
}

// ShardByState tells whether the group's shard_by holds: unchecked, trusted or broken, and why
// where it is broken. Empty without shard_by.
func (g *Group) ShardByState() (state RuleState, why string) {
	if len(g.ShardBy) == 0 {
		return "", ""
	}
	g.shardBy.mu.Lock()
	defer g.shardBy.mu.Unlock()
	if g.shardBy.state == "" {
		return RuleUnchecked, ""
	}
	return g.shardBy.state, g.shardBy.why
}

func (g *Group) shardByBroken() bool {
	state, _ := g.ShardByState()
	return state == RuleBroken
}

// checkShardBy reads the replica's values of the labels of shard_by and compares them with those of
// the group's other shards. What cannot be read stays as it was.
func (r *Replica) checkShardBy(ctx context.Context) {
	g := r.Shard.Group
	if len(g.ShardBy) == 0 || len(g.Shards) < 2 {
		return
	}
	now := r.up.opts.Clock()
	from, until := r.Shard.Span(now)
	from, until = max(from, now.Add(-shardByWindow).UnixMilli()), min(until, now.UnixMilli())
	read := map[string][]string{}
	if from <= until {
		for _, name := range g.ShardBy {
			req := &endpoint.Request{ID: endpoint.LabelValues, Label: name, Start: endpoint.At(from), End: endpoint.At(until)}
			raw, err := r.data(r.fetch(ctx, probeJSON, req.Path(), r.writer(req), maxFactBytes))
			var values []string
			if err != nil || json.Unmarshal(raw, &values) != nil {
				return
			}
			read[name] = values
		}
	}
	g.compareShardBy(r, read)
}

// compareShardBy takes in what a replica has of the labels of shard_by.
func (g *Group) compareShardBy(r *Replica, read map[string][]string) {
	c := &g.shardBy
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[*Replica]map[string]map[uint64]struct{}{}
	}
	own := map[string]map[uint64]struct{}{}
	same := c.state != RuleBroken // what broke it is found anew each time
	for name, values := range read {
		own[name] = make(map[uint64]struct{}, len(values))
		for _, v := range values {
			if v != "" {
				own[name][maphash.String(hashSeed, v)] = struct{}{}
			}
		}
		same = same && len(own[name]) == len(c.values[r][name]) && !slices.ContainsFunc(values, func(v string) bool {
			_, ok := c.values[r][name][maphash.String(hashSeed, v)]
			return v != "" && !ok
		})
	}
	if same && len(read) > 0 && c.state == RuleTrusted {
		return
	}
	c.values[r] = own
	was := c.state
	c.state, c.why = g.judgeShardBy(read, r)
	switch log := r.up.opts.Logger; {
	case c.state == RuleBroken && was != RuleBroken:
		log.Error("a group's shard_by is false; nothing that relies on it runs on the shards until that is corrected", slog.String("group", g.Name), slog.String("why", c.why))
	case was == RuleBroken && c.state != RuleBroken:
		log.Info("a group's shard_by holds again", slog.String("group", g.Name))
	}
}

// judgeShardBy looks for a label none of whose values is on two shards. The caller holds the lock.
// An example of a value that is, is named from what was read just now where it is in that, else the
// label alone.
func (g *Group) judgeShardBy(read map[string][]string, r *Replica) (RuleState, string) {
	state, why := RuleTrusted, ""
	seen := 0
	for _, s := range g.Shards {
		if slices.ContainsFunc(s.Replicas, func(r *Replica) bool { return g.shardBy.values[r] != nil }) {
			seen++
		}
	}
	for _, name := range g.ShardBy {
		at := map[uint64]*Shard{}
		broken := ""
		for _, s := range g.Shards {
			for _, rep := range s.Replicas {
				for h := range g.shardBy.values[rep][name] {
					if other := at[h]; other != nil && other != s && broken == "" {
						broken = fmt.Sprintf("shards %s and %s both hold values of %s", other.Name(), s.Name(), name)
						if i := slices.IndexFunc(read[name], func(v string) bool { return maphash.String(hashSeed, v) == h }); i >= 0 {
							broken = fmt.Sprintf("shards %s and %s both hold series with %s=%q", other.Name(), s.Name(), name, cleaned(read[name][i]))
						}
					}
					at[h] = s
				}
			}
		}
		if broken == "" {
			if seen < len(g.Shards) {
				return RuleUnchecked, ""
			}
			return RuleTrusted, ""
		}
		state, why = RuleBroken, broken+"; take "+name+" out of shard_by, or have each of its values scraped by one shard"
	}
	if len(g.ShardBy) > 1 {
		return RuleUnchecked, ""
	}
	return state, why
}

var descShardBy = prometheus.NewDesc("spillway_shard_by_trusted",
	"1 while a group's shard_by is believed, 0 while a value of its label is on two shards, so that nothing which relies on it runs on the shards.", []string{"group"}, nil)
