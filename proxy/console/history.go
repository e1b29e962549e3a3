package console

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/ui"
)

const (
	// HistorySpan is how far back plots go, HistoryStep the time between two of their points.
	HistorySpan = 10 * time.Minute
	HistoryStep = 10 * time.Second

	points    = int(HistorySpan / HistoryStep)
	maxLanes  = 32
	maxShards = 1024
)

// Lane is what a lane has at all shards together.
type Lane struct {
	// Name is the lane's.
	Name string `json:"name"`
	// Held is how many places it holds, Waiting how many calls wait for one.
	Held    int `json:"held"`
	Waiting int `json:"waiting"`
	// WaitedSeconds is how long those have waited, all together, who wait no more.
	WaitedSeconds float64 `json:"waited_s"`
	// Refused is how many found no place, or no room to wait.
	Refused int64 `json:"refused"`
}

// Glance is what changes from one moment to the next.
type Glance struct {
	// At is when.
	At time.Time `json:"at"`
	// MemoryUsed and MemoryLimit are of memory.budget, in bytes.
	MemoryUsed  int64 `json:"memory_used"`
	MemoryLimit int64 `json:"memory_limit"`
	// Live is how many requests are under way.
	Live int `json:"live"`
	// Lanes are as they are configured, Shards how full each shard's gate is.
	Lanes  []Lane         `json:"lanes"`
	Shards []shard.Places `json:"shards"`
}

// history is the glances of HistorySpan.
type history struct {
	mu   sync.Mutex
	ring []Glance
}

// run takes a glance every HistoryStep until ctx ends.
func (h *history) run(ctx context.Context, look func() Glance) {
	tick := time.NewTicker(HistoryStep)
	defer tick.Stop()
	for {
		h.add(look())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *history) add(g Glance) {
	g.Lanes, g.Shards = slices.Clone(g.Lanes[:min(len(g.Lanes), maxLanes)]), slices.Clone(g.Shards[:min(len(g.Shards), maxShards)])
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) >= points {
		h.ring = slices.Delete(h.ring, 0, len(h.ring)-points+1)
	}
	h.ring = append(h.ring, g)
}

// all are the glances, the oldest first.
func (h *history) all() []Glance {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ring)
}

// lanes is a line for each lane that is there now, of a value at each glance.
func lanes(all []Glance, now []Lane, value func(Lane) float64) []ui.Line {
	lines := make([]ui.Line, len(now))
	for i, l := range now {
		lines[i].Name = l.Name
		for _, g := range all {
			if k := slices.IndexFunc(g.Lanes, func(o Lane) bool { return o.Name == l.Name }); k >= 0 {
				lines[i].Points = append(lines[i].Points, ui.Point{At: g.At, Value: value(g.Lanes[k])})
			}
		}
	}
	return lines
}

// memory is the line of the memory in use, in bytes.
func memory(all []Glance) []ui.Line {
	line := ui.Line{Name: "memory.budget in use"}
	for _, g := range all {
		line.Points = append(line.Points, ui.Point{At: g.At, Value: float64(g.MemoryUsed)})
	}
	return []ui.Line{line}
}

// strip draws what a shard's gate held, as the d of two SVG paths, the oldest on the left: a stroke
// for each glance at which something was held, as high as the part of the places, up to 20, and one
// for each at which calls waited.
func strip(all []Glance, p shard.Places) (held, waited string) {
	var h, w []byte
	same := func(o shard.Places) bool { return o.Group == p.Group && o.Shard == p.Shard }
	k := -1
	for i, g := range all {
		if k < 0 || k >= len(g.Shards) || !same(g.Shards[k]) { // they change places at a reload only
			if k = slices.IndexFunc(g.Shards, same); k < 0 {
				continue
			}
		}
		x, s := (points-len(all)+i)*4+2, g.Shards[k]
		if up := min(20, (s.Held*20+max(s.Places, 1)-1)/max(s.Places, 1)); up > 0 {
			h = fmt.Appendf(h, "M%d 20v-%d", x, up)
		}
		if s.Waiting > 0 {
			w = fmt.Appendf(w, "M%d 22v3", x)
		}
	}
	return string(h), string(w)
}
