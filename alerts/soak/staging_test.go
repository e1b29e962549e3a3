package soak

import (
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// TestStagingGrows: in a fleet as much goes wrong for each node as in a small cluster, even within
// hours of every sort that befalls one node, and never so much at once that it is the fleet's.
func TestStagingGrows(t *testing.T) {
	o := Options{Seed: randseed.Of(t, *seed)}
	staged := func(nodes int, length time.Duration) []*Incident {
		o := o
		o.Length, o.Cluster = length, cluster.Options{Nodes: nodes, GPUsPerNode: 4, NodesPerRack: 2, NodeKinds: kinds}
		o = o.withDefaults()
		from := o.Cluster.Start.Add(lead)
		out, _, err := stage(o, from, from.Add(length))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	atOnce := func(incidents []*Incident, of func(*sort) bool) int {
		most := 0
		for _, a := range incidents {
			n := 0
			for _, b := range incidents {
				if of(b.sort) && !b.From.After(a.From) && b.Until.After(a.From) {
					n++
				}
			}
			most = max(most, n)
		}
		return most
	}
	for nodes, bounds := range map[int][2]int{12: {1, 2}, 34: {1, 2}, 1000: {6, 10}, 7500: {38, 75}} {
		incidents := staged(nodes, 12*time.Hour)
		for _, l := range []lane{failing, working} {
			if n := atOnce(incidents, func(s *sort) bool { return s.lane == l }); n < bounds[0] || n > bounds[1] {
				t.Errorf("%d nodes, lane %d: %d incidents at once, want %d to %d", nodes, l, n, bounds[0], bounds[1])
			}
		}
	}
	// Three of twelve that are down are a trouble of the fleet, and page.
	for _, nodes := range []int{12, 34} {
		for range 20 {
			if n := atOnce(staged(nodes, 24*time.Hour), func(s *sort) bool { return s.down }); n > downAtOnce {
				t.Errorf("%d nodes: %d are down at once", nodes, n)
			}
			o.Seed++
		}
	}
	seen := map[string]bool{}
	for range 3 { // of one seed in twenty a sort is missing
		for _, i := range staged(7500, 4*time.Hour) {
			seen[i.Name] = true
		}
		o.Seed++
	}
	for _, s := range catalogue {
		if s.lane == failing && !seen[s.name] {
			t.Errorf("%s is not staged in three times four hours of 7,500 nodes", s.name)
		}
	}
}
