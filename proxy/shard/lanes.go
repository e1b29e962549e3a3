package shard

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// Lanes are those of a shard's calls, of its replicas' read slots and of the process' calls. How
// many places one may hold at most is of a shard's calls: those of the whole process are many more,
// and those of a replica's remote reads are among the shard's. That a lane is first is of the
// process' calls: it is about servers that share a machine, and each call has one of these last.

// lanesOfAll are the lanes of the process' calls, lanesOfShard those of a shard's, and lanesOfReads
// those of a replica's read slots.
func lanesOfAll(lanes []admit.Lane) []admit.Lane {
	return lanesWith(lanes, func(l *admit.Lane) { l.Most = 0 })
}

func lanesOfShard(lanes []admit.Lane) []admit.Lane {
	return lanesWith(lanes, func(l *admit.Lane) { l.First = false })
}

func lanesOfReads(lanes []admit.Lane) []admit.Lane {
	return lanesWith(lanes, func(l *admit.Lane) { l.Most, l.First = 0, false })
}

func lanesWith(lanes []admit.Lane, change func(*admit.Lane)) []admit.Lane {
	lanes = slices.Clone(lanes)
	for i := range lanes {
		change(&lanes[i])
	}
	return lanes
}

// setLanes puts the topology's lanes, and the sizes of its gates, into force at those that it has
// taken over.
func (t *Topology) setLanes() {
	t.crowd.all.resize(t.opts.processCalls())
	t.crowd.all.SetLanes(lanesOfAll(t.opts.Lanes))
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			s.calls.resize(t.opts.MaxCalls)
			s.calls.SetLanes(lanesOfShard(t.opts.Lanes))
			for _, r := range s.Replicas {
				r.up.gates.heavy.resize(t.opts.ReadSlots)
				r.up.gates.heavy.SetLanes(lanesOfReads(t.opts.Lanes))
			}
		}
	}
}

var (
	laneLabels     = []string{"lane"}
	descLanePlaces = prometheus.NewDesc("spillway_lane_places", "Places at all shards together that calls of a lane hold, each as many as it is wide.", laneLabels, nil)
	descLaneQueue  = prometheus.NewDesc("spillway_queue_length", "Calls of a lane that wait for a place at a shard.", laneLabels, nil)

	descLaneQueueLimit = prometheus.NewDesc("spillway_queue_limit", "How many calls of a lane can wait for a place at one shard.", laneLabels, nil)
	descLaneWaited     = prometheus.NewDesc("spillway_lane_wait_seconds_total", "How long calls of a lane have waited for a place at a shard, all together.", laneLabels, nil)
	descLaneRefused    = prometheus.NewDesc("spillway_lane_refused_total",
		"Calls of a lane that found no place at a shard before their deadline or within its max_wait, or no room to wait for one.", laneLabels, nil)
)

// Lanes is what the lanes have at all shards together, in their order.
func (t *Topology) Lanes() []admit.LaneState {
	var all []admit.LaneState
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			for _, l := range s.calls.Lanes() {
				i := slices.IndexFunc(all, func(o admit.LaneState) bool { return o.Name == l.Name })
				if i < 0 {
					all = append(all, l)
					continue
				}
				all[i].Held += l.Held
				all[i].Waiting += l.Waiting
				all[i].Waited += l.Waited
				all[i].Refused += l.Refused
			}
		}
	}
	return all
}

// collectLanes tells what the lanes have at the shards. A lane is there from the configuration on.
func (t *Topology) collectLanes(metric func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
	for _, l := range t.Lanes() {
		metric(descLanePlaces, prometheus.GaugeValue, float64(l.Held), l.Name)
		metric(descLaneQueue, prometheus.GaugeValue, float64(l.Waiting), l.Name)
		metric(descLaneQueueLimit, prometheus.GaugeValue, admit.MaxWaiting, l.Name)
		metric(descLaneWaited, prometheus.CounterValue, l.Waited.Seconds(), l.Name)
		metric(descLaneRefused, prometheus.CounterValue, float64(l.Refused), l.Name)
	}
}

// Places is how full a shard's gate is.
type Places struct {
	// Group and Shard are the shard's place in the configuration.
	Group string `json:"group"`
	Shard int    `json:"shard"`
	// Held is how many places calls hold of as many as there are, Waiting how many calls wait.
	Held    int `json:"held"`
	Places  int `json:"places"`
	Waiting int `json:"waiting"`
	// Refused is how many calls found no place, or no room to wait.
	Refused int64 `json:"refused"`
	// Shed is how many calls were not made since their server had nearly no memory left.
	Shed int64 `json:"shed"`
}

// Places is how full each shard's gate is, in the order of the configuration.
func (t *Topology) Places() []Places {
	var all []Places
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			p := Places{Group: g.Name, Shard: s.Index, Places: s.calls.Places()}
			for _, l := range s.calls.Lanes() {
				p.Held += l.Held
				p.Waiting += l.Waiting
				p.Refused += l.Refused
			}
			for _, r := range s.Replicas {
				p.Shed += r.up.watched.shed.Load()
			}
			all = append(all, p)
		}
	}
	return all
}
