package shard

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// Which series are where, as the configuration promises it and the servers are seen to keep it:
// proxy/trust knows the promises and judges what a server has, here it is read.

// Prune tells which shards can hold series that match ms between from and until (milliseconds,
// inclusive): nil where that is not known, so that all must be asked; else the predicate of those
// that can. It may hold for none of the group's shards: where two matchers exclude each other, or
// where the group's Names have none that the matchers select. It is nil where a value belongs to a
// shard that the group does not have: nobody is known to hold it, and it is asked for everywhere
// instead of nowhere. Metrics that shards have alone, by their Names, are there whatever else the
// matchers say; alone tells that those are they.
//
// What it says holds only at the moment: it is asked anew for each request, and only while every
// shard has been seen to keep the promise.
func (g *Group) Prune(ms []*labels.Matcher, from, until int64, now time.Time) (holds func(*Shard) bool, alone bool) {
	if g.Names != nil && g.Names.Exclude(ms) && g.NamesTrusted() {
		return func(s *Shard) bool { return s.Group != g }, false
	}
	if g.homes != nil {
		covers := func(i int) bool { return g.Shards[i].covers(from, until, now) }
		if at, known := g.homes.Hold(ms, covers); known && g.ShardNamesTrusted() {
			return func(s *Shard) bool { return s.Group != g || slices.Contains(at, s.Index) }, true
		}
	}
	if g.Hashmod == nil {
		return nil, false
	}
	hold := g.Hashmod.Hold(ms)
	if hold == nil || !g.HashmodTrusted() {
		return nil, false
	}
	away := maps.Clone(hold)
	for _, s := range g.Shards {
		delete(away, s.Hash)
	}
	if len(away) > 0 {
		return nil, false
	}
	return func(s *Shard) bool { return s.Group != g || hold[s.Hash] }, false
}

// HashmodTrusted tells whether requests of the group are pruned by its hashmod: on every shard a
// replica has been seen to keep it lately, and there is none that may be asked and has not been
// seen to. A replica that answers no queries now counts as it did when it was last asked. Always
// false without a hashmod.
func (g *Group) HashmodTrusted() bool { return g.Hashmod != nil && g.trusted((*Replica).hashmodAt) }

// NamesTrusted tells whether requests of the group are pruned by its names, as HashmodTrusted does
// by its hashmod. Always false without names.
func (g *Group) NamesTrusted() bool { return g.Names != nil && g.trusted((*Replica).namesAt) }

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
			if state, _ := r.Hashmod(); state == trust.Broken {
				return true
			}
		}
	}
	return false
}

// ShardByState tells whether the group's shard_by holds, and why where it is broken. Empty without
// shard_by.
func (g *Group) ShardByState() (state trust.State, why string) {
	if len(g.ShardBy) == 0 {
		return "", ""
	}
	return g.apart.State()
}

func (g *Group) shardByBroken() bool {
	state, _ := g.ShardByState()
	return state == trust.Broken
}

// Hashmod is what is known of the replica's keeping its group's hashmod, and why where it is not
// trusted. Empty without one.
func (r *Replica) Hashmod() (state trust.State, why string) { return r.hashmodAt(time.Now()) }

func (r *Replica) hashmodAt(now time.Time) (state trust.State, why string) {
	h := r.Shard.Group.Hashmod
	if h == nil {
		return "", ""
	}
	return r.known(&r.up.health.hashmod, now, r.Shard.promised.hashmod, h.Label)
}

// Names is what is known of the replica's keeping to its group's names, and why where it is not
// trusted. Empty without names.
func (r *Replica) Names() (state trust.State, why string) { return r.namesAt(time.Now()) }

func (r *Replica) namesAt(now time.Time) (state trust.State, why string) {
	if r.Shard.Group.Names == nil {
		return "", ""
	}
	return r.known(&r.up.health.names, now, r.Shard.promised.names, model.MetricNameLabel)
}

// hashmodOf is the group's; nil where it has none.
func hashmodOf(c *config.Group) *trust.Hashmod {
	if c.Hashmod.Modulus <= 0 || len(c.Hashmod.Labels) != 1 {
		return nil
	}
	return &trust.Hashmod{Label: c.Hashmod.Labels[0], Modulus: uint64(c.Hashmod.Modulus)}
}

// apartOf watches the group's shard_by.
func (g *Group) apartOf() *trust.Apart {
	var names []string
	for _, s := range g.Shards {
		names = append(names, s.Name())
	}
	return trust.NewApart(g.ShardBy, names)
}

// checkPromises looks whether the server keeps what its group's hashmod and names promise, and the
// names of other shards, and logs what has changed since before, when that was done last.
func (r *Replica) checkPromises(ctx context.Context, f *selfFacts, before time.Time) {
	hashmod, names, shardNames := f.hashmod, f.names, f.shardNames
	read := map[[2]int64]trust.Values{} // names, by the time that they are of
	has := func(from, until int64) trust.Values {
		v, ok := read[[2]int64{from, until}]
		if !ok {
			v = r.values(ctx, model.MetricNameLabel, from, until)
			read[[2]int64{from, until}] = v
		}
		return v
	}
	f.hashmod, f.names, f.shardNames = r.checkHashmod(ctx, hashmod), r.checkNames(has, names), r.checkShardNames(has, shardNames)
	now, bound := time.Now(), r.believed()
	if h := r.Shard.Group.Hashmod; h != nil {
		r.tell("hashmod", withoutHashmod, hashmod.After(bound, before, h.Label), f.hashmod.After(bound, now, h.Label))
	}
	const label = model.MetricNameLabel
	r.tell("names", withoutNames, names.After(bound, before, label), f.names.After(bound, now, label))
	r.tell("shards[].names", withoutHomes, shardNames.After(bound, before, label), f.shardNames.After(bound, now, label))
}

// checkHashmod looks whether each value of the hashmod's label that the server has in its shard's
// time belongs there.
func (r *Replica) checkHashmod(ctx context.Context, last trust.Fact) trust.Fact {
	h, hash := r.Shard.Group.Hashmod, r.Shard.Hash
	if h == nil {
		return trust.Fact{}
	}
	now := time.Now()
	from, until := r.Shard.Span(r.up.opts.Clock())
	v := r.values(ctx, h.Label, from, until)
	return trust.Check(last, r.Shard.promised.hashmod, h.Label, v, now, h.Wrong(hash))
}

// checkNames looks whether the group's patterns have each metric name that the server has in its
// shard's time.
func (r *Replica) checkNames(has func(from, until int64) trust.Values, last trust.Fact) trust.Fact {
	n := r.Shard.Group.Names
	if n == nil {
		return trust.Fact{}
	}
	now := time.Now()
	v := has(r.Shard.Span(r.up.opts.Clock()))
	return trust.Check(last, r.Shard.promised.names, model.MetricNameLabel, v, now, n.Wrong)
}

// shardByWindow is the time whose values are compared. A target that moves to another shard is on
// both for as long, and shard_by not believed.
const shardByWindow = time.Hour

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
			v := r.values(ctx, name, from, until)
			if v.Away || v.Unread != "" { // it serves what it had
				g.apart.Stands(trust.Server{Shard: r.Shard.Index, Replica: r.Index}, time.Now())
				return
			}
			read[name] = v.List
		}
	}
	was, is := g.apart.Compare(trust.Server{Shard: r.Shard.Index, Replica: r.Index}, time.Now(), read)
	switch log := r.up.opts.Logger; {
	case is == trust.Broken && was != trust.Broken:
		_, why := g.apart.State()
		log.Error("a group's shard_by is false; nothing that relies on it runs on the shards until that is corrected", slog.String("group", g.Name), slog.String("why", why))
	case was == trust.Broken && is != trust.Broken:
		log.Info("a group's shard_by holds again", slog.String("group", g.Name))
	}
}

var descShardBy = prometheus.NewDesc("spillway_shard_by_trusted",
	"1 while a group's shard_by is believed, 0 while a value of its label is on two shards, so that nothing which relies on it runs on the shards.", []string{"group"}, nil)
