package main

import (
	"maps"
	"slices"
	"testing"
)

// TestNobodyIsStarved: those that are refused or fail each by itself, time and again, are heavier
// than others and more than a round looks at, and these have their turn all the same. They keep
// theirs.
func TestNobodyIsStarved(t *testing.T) {
	const heavy, light = waitLook + 20, waitLook + 21
	for name, stuck := range map[string]bool{"of one rack": false, "cannot be changed": true} {
		r := newRig(t, 100, func(s *settings) {
			s.maxNodes, s.maxCordoned = 1000, 1
			if err := s.maxOf.Set("rack=1"); err != nil {
				t.Fatal(err)
			}
		})
		r.manager.names = []string{"FleetNodesFailing"}
		var all []alert
		for i := range heavy {
			all = append(all, xid(i, "action", "replace"))
			if stuck {
				delete(r.api.nodes[nodeOf(i)].labels, "rack")
				r.api.stuck = append(r.api.stuck, nodeOf(i))
			}
		}
		r.api.nodes[nodeOf(90)].unschedulable = true
		r.api.nodes[nodeOf(light)].labels["rack"] = "r2"
		all = append(all, xid(light, "action", "drain"))
		if err := r.post(t, all...); err != nil {
			t.Fatal(err)
		}
		for range 3 { // with which start each waits is known then
			r.later(t, waitEvery)
		}
		r.manager.names = nil
		for range 4 {
			r.later(t, waitEvery)
		}
		if got := r.api.out(); got[nodeOf(light)] != "drain" || len(got) != 2 {
			t.Errorf("%s: %v", name, got)
		}
		// Each of them is looked at within some rounds.
		r.api.nodes[nodeOf(heavy-1)].labels["rack"] = "r3"
		r.api.stuck = slices.DeleteFunc(r.api.stuck, func(node string) bool { return node == nodeOf(heavy-1) })
		for range 4 {
			r.later(t, waitEvery)
		}
		if got := r.api.out(); got[nodeOf(heavy-1)] != "replace" {
			t.Errorf("%s: %v", name, slices.Sorted(maps.Keys(got)))
		}
	}
}
