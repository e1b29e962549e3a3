package propose

import (
	"math"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// sampleGroups is how many groups of series are watched for one label of one metric: labels that
// merge series merge most of them, and the few others are found by the proof.
const sampleGroups = 32

// Collisions watches a sample of the series for labels without which two of them would be one, so
// that a label that cannot go does not stand in the way of one that can.
//
// A group is all series that are equal without the label. Groups are chosen by their hashes, the
// smallest ones, so that the members of a group that is watched are all seen, whatever their order.
// It holds sampleGroups groups with two series each for every label that no answer depends on, and
// is for one goroutine.
type Collisions struct {
	metrics map[[2]string][]*sample // by job and name
	buf     []byte
}

// sample is what is watched of one label of one metric.
type sample struct {
	label  []string // one
	limit  uint64   // larger hashes are not watched
	groups map[uint64]*alike
	series int64 // in the groups
}

// alike are some series that are equal without the label.
type alike struct {
	series        int64
	first, second string
}

// NewCollisions prepares the sample: which labels are watched follows from the inventory and the
// uses. Every series must be observed before Propose is called.
func NewCollisions(inv *inventory.Inventory, set *uses.Set, index *uses.Index, o Options) *Collisions {
	c := &Collisions{metrics: map[[2]string][]*sample{}}
	p := newProposer(inv, set, index, o.withDefaults())
	for _, s := range p.all {
		s.blind = nil // which needs select nothing is not known yet
		for _, name := range p.candidates(s) {
			key := [2]string{s.Job, s.Name}
			c.metrics[key] = append(c.metrics[key], &sample{label: []string{name}, limit: math.MaxUint64, groups: map[uint64]*alike{}})
		}
	}
	return c
}

// Observe shows it a stored series.
func (c *Collisions) Observe(ls labels.Labels) {
	for _, s := range c.metrics[[2]string{ls.Get(model.JobLabel), ls.Get(model.MetricNameLabel)}] {
		var hash uint64
		hash, c.buf = ls.HashWithoutLabels(c.buf, s.label...)
		if hash > s.limit {
			continue
		}
		g := s.groups[hash]
		if g == nil {
			g = &alike{first: ls.String()}
			s.groups[hash] = g
		} else if g.second == "" {
			g.second = ls.String()
		}
		g.series++
		s.series++
		for len(s.groups) > sampleGroups {
			s.limit /= 2
			for hash, g := range s.groups {
				if hash > s.limit {
					s.series -= g.series
					delete(s.groups, hash)
				}
			}
		}
	}
}

// of is what was seen of one label; nil where nothing was watched.
func (c *Collisions) of(m *inventory.Metric, label string) *sample {
	if c == nil {
		return nil
	}
	for _, s := range c.metrics[[2]string{m.Job, m.Name}] {
		if s.label[0] == label {
			return s
		}
	}
	return nil
}

// example shows two series that would be one; empty where there are none in the sample. Of several
// it is the one that sorts first.
func (s *sample) example() string {
	text := ""
	if s == nil {
		return text
	}
	for _, g := range s.groups {
		if g.second == "" {
			continue
		}
		if shown := g.first + " and " + g.second + " would be one"; text == "" || shown < text {
			text = shown
		}
	}
	return text
}

// merged is about how many of so many series would be saved by aggregating the label away.
func (s *sample) merged(of int64) int64 {
	if s == nil || s.series == 0 {
		return 0
	}
	return int64(math.Round(float64(of) * (1 - float64(len(s.groups))/float64(s.series))))
}
