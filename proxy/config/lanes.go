package config

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Lane is a class of callers with a share of the places at the shards.
type Lane struct {
	// Name is unique and not DefaultLane; it appears in metrics and among the live queries.
	Name string `yaml:"name" is:"required pattern=^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"`
	// Match is who belongs to it: whoever fits all that is given.
	Match LaneMatch `yaml:"match" is:"required"`
	// Share is its part of the places, above 0.
	Share Part `yaml:"share" is:"required"`
	// Lend is the part of its share that other lanes may have while it needs it not, 0 to 1.
	Lend Lend `yaml:"lend" default:"0.5"`
	// MaxConcurrent is how many places it holds at one shard at most; 0 is as many as there are.
	MaxConcurrent int `yaml:"max_concurrent"`
	// MaxWait is how long a call waits for all its places at most; 0 is until its deadline.
	MaxWait time.Duration `yaml:"max_wait"`
	// First tells that the others get no call while it has one that has just begun.
	First bool `yaml:"first"`
	// NeverShed tells that its calls are made however little memory a server has; so are those of a
	// lane whose Match has SourceAlerting.
	NeverShed bool `yaml:"never_shed"`
}

// GoesOn tells whether its calls are made however little memory a server has.
func (l *Lane) GoesOn() bool { return l.NeverShed || l.Match.Source == SourceAlerting }

// LaneMatch is what a caller has to be. What is empty is not asked for.
type LaneMatch struct {
	// Tenant is the name of one of the tenants.
	Tenant string `yaml:"tenant" is:"filled"`
	// Source is what a request comes from, one of Sources, as far as its tenant may say so.
	Source string `yaml:"source" is:"one=alerting|dashboard|explore|batch|api"`
	// User and Dashboard are what headers say, from tenants that may set them.
	User      string `yaml:"user" is:"filled"`
	Dashboard string `yaml:"dashboard" is:"filled"`
}

// Part is a part of a whole: above 0 and up to 1.
type Part float64

func (p Part) String() string { return strconv.FormatFloat(float64(p), 'f', -1, 64) }

// Lend is a part of a share: 0 is nothing, 1 all of it.
type Lend float64

// UsualLend is what a lane lends where nothing is said.
const UsualLend = 0.5

// setDefaults makes it a lane that lends as much as is usual.
func (l *Lane) setDefaults() { l.Lend = UsualLend }

func (Lane) meaning() map[string]string {
	return map[string]string{
		"name":           "Unique, and not `default`; metrics and the live queries call the lane by it.",
		"match":          "Who belongs to it: whoever fits all that is given. The first lane that fits is a request's lane.",
		"share":          "Its part of each shard's places (`limits.replica_calls`, `limits.read_slots`), such as `0.5`. All shares together are at most 1; the rest is the lane `default`'s, where everybody else is.",
		"lend":           "The part of its share that other lanes may have while it has no calls, `0` to `1`. What it keeps is rounded down to whole places, and is one at least where the share comes to one or more and less than all is lent.",
		"max_wait":       "How long a call waits at most, such as `6s`, for all the places that it needs, at its shards and of the process, before it is answered with 429, also where partial answers are accepted. Without it until its deadline.",
		"first":          "Whether others' calls, but for those that are kept for their lanes, wait while it has one under way, to whichever server: for 250 ms at most, and for the lane's share of the time. For servers that share a machine.",
		"never_shed":     "Whether its calls are made however little memory a server has left and however much they need; see [shards.md](shards.md#memory). Where `match.source` is `alerting` they are in any case.",
		"max_concurrent": "How many places at one shard it holds at most, borrowed ones included. Without it as many as are idle.",
	}
}

func (LaneMatch) meaning() map[string]string {
	return map[string]string{
		"tenant": "The name of one of `tenants`.",
		"source": "What the request comes from, as far as its tenant may say so (`may_set`): `alerting` (Fromalert, X-Rule-Uid, or, where it may set Fromalert, a Thanos ruler), `dashboard` (X-Dashboard-Uid), " +
			"`explore` (X-Grafana-User without a dashboard), `batch` (agents and `spillway relabel`, by their User-Agent), or `api`, which is everything else.",
		"user":      "The login that X-Grafana-User says, from tenants that may set it.",
		"dashboard": "The uid that X-Dashboard-Uid says, likewise.",
	}
}

// The values of lanes[].match.source.
const (
	// SourceAlerting evaluates an alert rule.
	SourceAlerting = "alerting"
	// SourceDashboard draws a dashboard.
	SourceDashboard = "dashboard"
	// SourceExplore is asked for a user, on no dashboard.
	SourceExplore = "explore"
	// SourceBatch is an agent, or spillway relabel.
	SourceBatch = "batch"
	// SourceAPI is everything else.
	SourceAPI = "api"
)

// Sources are all of them.
func Sources() []string {
	return []string{SourceAlerting, SourceDashboard, SourceExplore, SourceBatch, SourceAPI}
}

const (
	// DefaultLane is the lane of whoever fits no other one.
	DefaultLane = "default"
	// RulesLane is the lane of what evaluates alert rules, where the file has no lanes and some
	// tenant may say so. It has rulesShare of the places.
	RulesLane  = "rules"
	rulesShare = 0.2
	// maxLanes bounds the labels of metrics, and what is looked at for each call.
	maxLanes = 16
)

// LanesInForce are the lanes of the file, or those that are built in where it has none; the last
// one is DefaultLane, with the share that is left.
func (c *Config) LanesInForce() []Lane {
	out := slices.Clone(c.Lanes)
	if len(out) == 0 && maySay(c.Tenants, "Fromalert", "X-Rule-Uid") {
		out = append(out, Lane{Name: RulesLane, Match: LaneMatch{Source: SourceAlerting}, Share: rulesShare, Lend: UsualLend})
	}
	left := 1.0
	for _, l := range out {
		left -= float64(l.Share)
	}
	return append(out, Lane{Name: DefaultLane, Share: Part(max(left, 0)), Lend: UsualLend})
}

// maySay tells whether any tenant is believed one of the headers.
func maySay(all []Tenant, headers ...string) bool {
	return slices.ContainsFunc(all, func(t Tenant) bool {
		return slices.ContainsFunc(headers, func(h string) bool { return slices.Contains(t.MaySet, h) })
	})
}

// saidBy are the headers by which a source is known.
var saidBy = map[string][]string{
	SourceAlerting: {"Fromalert", "X-Rule-Uid"}, SourceDashboard: {"X-Dashboard-Uid"}, SourceExplore: {"X-Grafana-User"},
	SourceBatch: maySet,
}

// lanes checks who gets what share, after the tenants.
func (v *validator) lanes(lanes []Lane, tenants []Tenant) {
	if len(lanes) == 0 && v.has("lanes") && !v.wrong["lanes"] {
		v.problem("lanes", "the list is empty; name lanes, or remove the key and all callers are in the lane default")
	}
	if len(lanes) > maxLanes {
		v.problem("lanes", "%d lanes are more than one proxy has (%d)", len(lanes), maxLanes)
	}
	names, sum, kept := map[string]string{DefaultLane: "the lane that is built in"}, 0.0, 0.0
	for i := range lanes {
		l, path := &lanes[i], "lanes["+strconv.Itoa(i)+"]"
		switch first, twice := names[l.Name]; {
		case !groupName.MatchString(l.Name):
			v.problem(path+".name", "%q is no usable name; use up to 63 letters, digits, '_', '-' and '.'", clip.Text(l.Name, 40))
		case twice:
			v.problem(path+".name", "the name %s is that of %s too; names are unique", l.Name, first)
		default:
			names[l.Name] = path
		}
		if l.Share <= 0 && !v.wrong[path+".share"] {
			v.problem(path+".share", "the share is missing; write a part of the places, such as 0.25")
		}
		sum += float64(l.Share)
		kept += float64(l.Share) * (1 - float64(l.Lend))
		v.laneMatch(l.Match, tenants, path+".match")
	}
	switch {
	case sum > 1+1e-9:
		v.problem("lanes", "the shares add up to %s, and there is 1 for all; make some smaller, and leave a part for the lane default", Part(math.Round(sum*1e6)/1e6))
	case kept > 1-1e-9:
		v.problem("lanes", "the shares add up to 1 and nothing of them is lent, so that nobody else has a place, nor have Spillway's own questions; make some smaller, or let some lend, and leave a part for the lane default")
	}
}

// laneMatch checks that a lane can have anybody, and not everybody.
func (v *validator) laneMatch(m LaneMatch, tenants []Tenant, path string) {
	if m == (LaneMatch{}) {
		v.problem(path, "it says nothing, so that everybody would be in this lane; give tenant, source, user or dashboard")
		return
	}
	said := tenants
	if m.Tenant != "" {
		i := slices.IndexFunc(tenants, func(t Tenant) bool { return t.Name == m.Tenant })
		if i < 0 {
			v.problem(path+".tenant", "no tenant is called %q", clip.Text(m.Tenant, 40))
			return
		}
		said = tenants[i : i+1]
	}
	if m.Source != "" && !slices.Contains(Sources(), m.Source) {
		v.problem(path+".source", "%q is no source; write one of alerting, dashboard, explore, batch, api", clip.Text(m.Source, 40))
		return
	}
	for _, f := range []struct {
		key, value string
		headers    []string
	}{
		{"source", m.Source, saidBy[m.Source]},
		{"user", m.User, saidBy[SourceExplore]},
		{"dashboard", m.Dashboard, saidBy[SourceDashboard]},
	} {
		if f.value != "" && f.headers != nil && !maySay(said, f.headers...) {
			v.problem(path+"."+f.key, "nobody is believed who says so, and the lane would stay empty; put %s into the may_set of a tenant", f.headers[0])
		}
	}
}
