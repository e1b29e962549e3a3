package shard

import (
	"cmp"
	"maps"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// Info is what the admin view shards tells about a replica.
type Info struct {
	// Group, Shard and Replica are its place in the configuration, places from 0.
	Group   string `json:"group"`
	Shard   int    `json:"shard"`
	Replica int    `json:"replica"`
	// URL is its address, secrets starred.
	URL string `json:"url"`
	// Type is prometheus or thanos.
	Type string `json:"type"`
	// State is up, down, misconfigured or unknown.
	State State `json:"state"`
	// Since is when the server went up or down; left out before the first probe.
	Since time.Time `json:"since,omitzero"`
	// LastProbe is when it was probed last; left out before the first probe.
	LastProbe time.Time `json:"lastProbe,omitzero"`
	// Breaker is closed, open or half-open.
	Breaker BreakerState `json:"breaker"`
	// Base tells whether it served its shard's last request.
	Base bool `json:"base"`
	// Error is why it is not up; empty where it is.
	Error string `json:"error"`
	// Starting is what it does before it is ready, such as reading its log, as far as it says so:
	// it is not asked meanwhile. Empty otherwise.
	Starting string `json:"starting"`
	// Do is what to change in the configuration where it is misconfigured.
	Do []string `json:"do"`
	// Note is what could not be found out, or keeps the server from being used in full.
	Note string `json:"note"`
	// Version is what the server calls itself.
	Version string `json:"version"`
	// ExternalLabels are those of its configuration; null where they are not known.
	ExternalLabels map[string]string `json:"externalLabels"`
	// StoresOwnLabels are the names of the group's labels and replica labels with which the server
	// stores series.
	StoresOwnLabels []string `json:"storesOwnLabels"`
	// Engine is what decides what its PromQL means, EngineDiffers in what it differs from most
	// others: nothing is pushed to it then.
	Engine        trust.Engine `json:"engine"`
	EngineDiffers []string     `json:"engineDiffers"`
	// MissingStores is what a Thanos Query answers without: its answers are refused meanwhile, or
	// flagged where a partial one is asked for. Empty otherwise.
	MissingStores string `json:"missingStores"`
	// Heartbeat is the group's, HeartbeatError why it could not be read; Whole tells whether the
	// replica can be asked and lacks nothing that another one has now (a single one never does),
	// LackingSince since when it lacks something, left out where it does not, and Lacks what, in
	// words. Unreached is the share of the targets that another replica reaches now and this one
	// fails to: 1 where it is cut off.
	Heartbeat      string    `json:"heartbeat"`
	HeartbeatError string    `json:"heartbeatError"`
	Whole          bool      `json:"whole"`
	LackingSince   time.Time `json:"lackingSince,omitzero"`
	Lacks          string    `json:"lacks"`
	Unreached      float64   `json:"unreached"`
	// Hashmod tells whether the replica keeps its group's hashmod: unchecked, trusted, or broken;
	// empty where the group has none. HashmodError says why it is not trusted. One that is not
	// turns pruning by hashmod off for its group.
	Hashmod      trust.State `json:"hashmod"`
	HashmodError string      `json:"hashmodError"`
	// Names tells the same of its group's names, by which the group is left out of requests for
	// others.
	Names      trust.State `json:"names"`
	NamesError string      `json:"namesError"`
	// ShardNames tells whether it is seen to have no metric that another shard of its group has
	// alone, by the names of that one; empty where no shard of the group has names.
	ShardNames      trust.State `json:"shardNames"`
	ShardNamesError string      `json:"shardNamesError"`
	// ShardBy tells whether the group's shard_by holds, ShardByError why it does not.
	ShardBy      trust.State `json:"shardBy"`
	ShardByError string      `json:"shardByError"`
	// Sick is what is wrong with it compared with the group's other servers, because of which the
	// group's queries are evaluated in Spillway; GroupTrusted tells whether nothing of that kind is
	// wrong with any server of the group.
	Sick         []string `json:"sick"`
	GroupTrusted bool     `json:"groupTrusted"`
	// Lagging tells whether other replicas of the shard are preferred because it kept calls
	// waiting.
	Lagging bool `json:"lagging"`
	// Silent is since when it answers nothing, where no other replica of its shard is sound:
	// requests that need it fail at once. Left out otherwise.
	Silent time.Time `json:"silent,omitzero"`
	// ClockSkew is how many seconds its clock is ahead of ours, by its Date header.
	ClockSkew float64 `json:"clockSkewSeconds"`
	// Vitals is how the server is by its own metrics.
	Vitals VitalsInfo `json:"vitals"`
	// InFlight are calls under way, Waiting those that wait for a slot.
	InFlight int `json:"inFlight"`
	Waiting  int `json:"waiting"`
	// From and Until are the shard's span at the moment, RFC 3339; empty where it has no such
	// bound.
	From  string `json:"from"`
	Until string `json:"until"`
}

// NotWhole is why the server does not count as whole, for people; empty where it does, or is not
// up, which is reason enough.
func (i Info) NotWhole() string {
	switch {
	case i.Whole || i.State != Up:
		return ""
	case i.Heartbeat == "" && i.Type == config.TypeThanos:
		return "its group has no heartbeat; of servers of type thanos those are whole that list the same stores"
	case i.Heartbeat == "":
		return "its group has no heartbeat, without which nobody knows which copy missed what: queries read all copies (heartbeat, docs/trust.md)"
	case i.HeartbeatError != "":
		return "the heartbeat tells nothing: " + i.HeartbeatError
	case i.Lacks != "":
		return i.Lacks + "; another copy is read for what reaches into that, where one is whole"
	}
	return "by the heartbeat no other copy has the same of late: one of them missed scrapes, or has just begun; queries read all copies meanwhile"
}

// Status is the state of every replica, in the order of the configuration.
func (t *Topology) Status() []Info {
	now := t.opts.Clock()
	wall := time.Now()
	ref, _ := t.reference()
	out := []Info{}
	for r := range t.replicas() {
		s, g := r.Shard, r.Shard.Group
		i := Info{
			Group: g.Name, Shard: s.Index, Replica: r.Index, URL: r.URL(), Type: r.Type(), State: r.State(),
			Breaker: r.up.breaker.current(wall),
			Base:    int(s.base.Load()) == r.Index, Do: nonNil(r.misconfigured()), EngineDiffers: nonNil(r.Engine().Differences(ref)),
			Heartbeat: g.Heartbeat,
			Whole:     len(s.Replicas) == 1, InFlight: r.InFlight(), StoresOwnLabels: []string{},
			Waiting: r.up.gates.waiting(), Vitals: r.vitalsInfo(),
		}
		i.Hashmod, i.HashmodError = r.Hashmod()
		i.Names, i.NamesError = r.Names()
		i.ShardNames, i.ShardNamesError = r.ShardNames()
		i.ShardBy, i.ShardByError = g.ShardByState()
		i.Sick, i.GroupTrusted, i.Lagging = r.sickTexts(), g.Trusted() && !g.Divides(now.UnixMilli()), r.Lagging()
		i.MissingStores, i.Silent = r.MissingStores(), r.Mute()
		unannounced, unlisted, leftOut := r.unannounced(), r.unlisted(), r.leftOutNote()
		from, until := s.Span(now)
		i.From, i.Until = moment(from), moment(until)
		if len(s.Replicas) > 1 && len(s.Replicas) <= trust.MaxReplicas {
			i.Whole = s.wholeNow(r.Index, now)
			pulse := s.beats.Pulse(r.Index)
			if pulse.Nothing && !s.lives(now) {
				pulse.Error = ""
			}
			i.HeartbeatError, i.LackingSince, i.Unreached = pulse.Error, pulse.Lacking, pulse.Unreached
			if !pulse.Lacking.IsZero() {
				i.Lacks = r.shortfall(pulse.Lacking, now)
			}
		}
		r.up.mu.Lock()
		h := &r.up.health
		i.Since, i.LastProbe, i.Error, i.Note, i.Version = h.since, h.last, h.err, h.note, h.version
		i.Starting = h.starting
		i.Note = cmp.Or(i.Note, unannounced, unlisted, leftOut)
		i.ExternalLabels, i.Engine, i.ClockSkew = maps.Clone(h.external), h.engine, h.skew.Seconds()
		for _, name := range g.ownLabels() {
			if h.stores[name] {
				i.StoresOwnLabels = append(i.StoresOwnLabels, name)
			}
		}
		r.up.mu.Unlock()
		out = append(out, i)
	}
	return out
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// moment writes a bound of a span; years outside 0 to 9999 are no bound.
func moment(ms int64) string {
	if ms < 0 || ms > 253402300799999 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}
