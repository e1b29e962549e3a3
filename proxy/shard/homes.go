package shard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// Metrics that one shard of a group has alone, by its names (trust.Homes): here the others are seen
// to have none of them.

// homesOf are the metrics that the group's shards have alone.
func (g *Group) homesOf() *trust.Homes {
	of := make([]*trust.Names, len(g.Shards))
	for i, s := range g.Shards {
		of[i] = s.Names
	}
	return trust.NewHomes(of)
}

// ShardNamesTrusted tells whether metrics that a shard has alone, by its names, are asked of that
// shard only, as HashmodTrusted does by the group's hashmod. Always false where no shard has names.
func (g *Group) ShardNamesTrusted() bool {
	return g.homes != nil && g.trusted((*Replica).shardNamesAt)
}

// ShardNames is what is known of whether the replica has no metric that another shard of its group
// has alone, and why where it is not trusted. Empty where no shard of the group has names.
func (r *Replica) ShardNames() (state trust.State, why string) { return r.shardNamesAt(time.Now()) }

func (r *Replica) shardNamesAt(now time.Time) (state trust.State, why string) {
	s := r.Shard
	switch {
	case s.Group.homes == nil:
		return "", ""
	case s.promised.shardNames == "" || s.meetsNone():
		return trust.Trusted, "" // nothing that it could break
	}
	return r.known(&r.up.health.shardNames, now, s.promised.shardNames, model.MetricNameLabel)
}

// meetsNone tells whether the shard is at no time at which another one has metrics alone.
func (s *Shard) meetsNone() bool {
	if !s.bounded() {
		return false
	}
	now := s.topology.opts.Clock()
	for i := range s.Group.homes.Others(s.Index) {
		if from, until := s.meets(s.Group.Shards[i], now); from < until {
			return false
		}
	}
	return true
}

// bounded tells whether the shard has an end of its own in time.
func (s *Shard) bounded() bool { return s.From.Set || s.Until.Set }

// meets is the time that both shards answer for, from inclusive, until exclusive.
func (s *Shard) meets(o *Shard, now time.Time) (from, until int64) {
	sf, su := s.Span(now)
	of, ou := o.Span(now)
	return max(sf, of), min(su, ou)
}

// covers tells whether the shard answers for all of what its group has between from and until, in
// milliseconds, inclusive.
func (s *Shard) covers(from, until int64, now time.Time) bool {
	if !s.bounded() {
		return true
	}
	gf, gu := config.Span(s.Group.From, s.Group.Until, now)
	f, u := s.Span(now)
	return f <= max(from, gf) && (until < u || u == gu)
}

// homesPromise is what the shard's servers must not have, and when. It is empty where there is
// nothing.
func (s *Shard) homesPromise(span string) string {
	text := s.Group.homes.Promise(s.Index)
	if text == "" {
		return ""
	}
	var sb strings.Builder
	sb.WriteString(text + span)
	for i := range s.Group.homes.Others(s.Index) {
		o := s.Group.Shards[i]
		fmt.Fprint(&sb, " ", o.From, o.Until)
	}
	return trust.Digest(sb.String())
}

// checkShardNames looks whether the server has a metric that another shard has alone, in the time
// of both. Shards of one time are looked at together.
func (r *Replica) checkShardNames(has func(from, until int64) trust.Values, last trust.Fact) trust.Fact {
	s := r.Shard
	if s.promised.shardNames == "" {
		return trust.Fact{}
	}
	at := time.Now()
	by := map[[2]int64][]int{}
	var times [][2]int64
	for i := range s.Group.homes.Others(s.Index) {
		from, until := s.meets(s.Group.Shards[i], r.up.opts.Clock())
		if from >= until {
			continue
		}
		t := [2]int64{from, until}
		if by[t] == nil {
			times = append(times, t)
		}
		by[t] = append(by[t], i)
	}
	called := func(i int) string { return s.Group.Shards[i].Name() }
	found := trust.Fact{Promise: s.promised.shardNames, State: trust.Trusted, At: at}
	for _, t := range times {
		v := has(t[0], t[1])
		f := trust.Check(last, s.promised.shardNames, model.MetricNameLabel, v, at, s.Group.homes.Wrong(by[t], called))
		if v.Away || f.State == trust.Broken {
			return f
		}
		if f.State != trust.Trusted {
			found = f
		}
	}
	return found
}

// promisedBy is the shard whose names the server is known to break, or else the first one of whose
// names nothing is known.
func (r *Replica) promisedBy() int {
	g := r.Shard.Group
	others := slices.Collect(g.homes.Others(r.Shard.Index))
	r.up.mu.Lock()
	f := r.up.health.shardNames
	r.up.mu.Unlock()
	for _, i := range others {
		if f.State == trust.Broken && g.Shards[i].Names.Has(f.Value) {
			return i
		}
	}
	return others[0]
}
