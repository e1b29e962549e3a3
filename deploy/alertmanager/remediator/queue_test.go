package main

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"
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

// kept are wishes that were kept one after another, a minute apart: pairs of action and start.
func kept(r *rig, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		r.clock = r.clock.Add(time.Minute)
		r.c.waiting.keep(wish{
			node: nodeOf(1), action: pairs[i], boot: pairs[i+1], alert: xid(1, "action", pairs[i]), since: r.clock, broke: r.clock,
		}, r.clock)
	}
}

// TestLighterAfterAStart: what is asked for after a start of the node waits, though something
// heavier waits of before it. Where nobody knows which start that is of, both do, and the lighter
// one has its turn when the other one is over.
func TestLighterAfterAStart(t *testing.T) {
	for _, c := range []struct {
		kept []string
		boot string // of the node, which is ready since then
		out  string
		when time.Duration // 0: after the first wish, before the second
	}{
		{[]string{"drain-reboot", "first", "drain", "second"}, "second", "drain", 0},
		{[]string{"drain-reboot", "first", "drain", "second", "drain-reset", ""}, "second", "drain-reset", 0},
		{[]string{"drain-reboot", "first", "drain", ""}, "second", "drain", 0},
		{[]string{"drain-reboot", "first", "drain", ""}, "first", "drain-reboot", 0},
		{[]string{"drain-reboot", "", "drain", ""}, "second", "drain", 0},
		{[]string{"drain-reboot", "", "drain", "second"}, "second", "drain", 0},
		{[]string{"drain-reboot", "", "drain-reset", "", "drain", ""}, "second", "drain-reset", 0},
		{[]string{"drain-reboot", "", "drain-reset", "first", "drain", "second"}, "second", "drain", 0},
		{[]string{"drain-reboot", "first", "drain", "first"}, "second", "", 0},
		{[]string{"drain-reboot", "first", "drain", "first"}, "first", "drain-reboot", 0},
		{[]string{"drain-reboot", "first", "drain", "", "replace", "second"}, "second", "replace", 0},
		{[]string{"drain-reboot", "first", "drain-reset", "", "drain", "second"}, "second", "drain-reset", 0},
		{[]string{"drain-reboot", "", "drain-reset", "", "drain", "second"}, "second", "drain", 150 * time.Second},
		{[]string{"drain-reboot", "", "drain-reset", "", "drain", ""}, "second", "drain", 150 * time.Second},
		{[]string{"replace", "", "drain-reboot", "", "drain-reset", "", "drain", ""}, "second", "drain", 210 * time.Second},
		{[]string{"drain-reboot", "", "drain", "", "drain-reset", ""}, "second", "drain-reset", 150 * time.Second},
	} {
		r := newRig(t, 10, nil)
		at := r.clock.Add(cmp.Or(c.when, 90*time.Second))
		kept(r, c.kept...)
		n := r.api.nodes[nodeOf(1)]
		if n.boot = c.boot; c.boot != "first" {
			n.since = at
		}
		for range 4 {
			r.later(t, waitEvery)
		}
		if got := r.api.out()[nodeOf(1)]; got != c.out || len(r.waits()) != 0 {
			t.Errorf("%v, started %s: %q, and %v wait\n%s", c.kept, c.boot, got, r.waits(), r.log)
		}
	}
}

// TestWaitsBesideAnother: the lighter one ends with its own alert, waits for as long as any other,
// and outlives the one that it waits beside.
func TestWaitsBesideAnother(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxCordoned = 0.01 })
	r.api.nodes[nodeOf(9)].unschedulable = true // there is no place for another one
	kept(r, "drain-reboot", "first")
	r.later(t, 2*time.Hour)
	disk := xid(1, "alertname", "NodeDiskError", "action", "drain")
	beside := wish{node: nodeOf(1), action: "drain", alert: disk, since: r.clock, broke: r.clock}
	r.c.waiting.keep(beside, r.clock)
	if err := r.post(t, xid(1, "alertname", "NodeDiskError", "action", "drain", "status", "resolved")); err != nil {
		t.Fatal(err)
	}
	if w := r.c.waiting.list(); len(w) != 1 || len(r.c.waiting.by[nodeOf(1)]) != 1 || w[0].action != "drain-reboot" {
		t.Errorf("%+v", w)
	}
	r.c.waiting.keep(beside, r.clock)
	r.manager.hears([]alert{disk}) // it fires again
	r.manager.names = []string{"FleetNodesFailing"}
	r.later(t, waitEvery)
	r.later(t, 8*time.Hour) // that does not count
	r.manager.names = nil
	r.later(t, waitEvery)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{
		{time.Minute, "drain-reboot"},
		{4 * time.Hour, "drain"},
		{time.Hour, "drain"},
		{time.Hour, ""},
	} {
		r.later(t, c.after)
		got := ""
		for _, w := range r.c.waiting.list() {
			got = w.action
		}
		if got != c.want {
			t.Errorf("after %s more %q waits, want %q", c.after, got, c.want)
		}
	}
}
