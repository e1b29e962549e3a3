package main

import (
	"slices"
	"testing"
	"time"
)

// restarted is a node whose machine was started anew, and is ready since.
func (r *rig) restarted(i int) {
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	n := r.api.nodes[nodeOf(i)]
	n.boot, n.ready, n.since = n.boot+" again", "True", r.clock
}

// TestRestartedBeforeItWasLookedAt: with which start a node waits is not known where the API server
// was away when it was asked for. One that has become ready since was started anew, and is cured.
// One that is not ready may be as sick as it was.
func TestRestartedBeforeItWasLookedAt(t *testing.T) {
	r := newRig(t, 10, nil)
	r.api.broken = 503
	if err := r.post(t, xid(1), xid(2), xid(3)); err == nil {
		t.Fatal("no error")
	}
	r.clock = r.clock.Add(3 * time.Minute)
	r.restarted(1)
	n := r.api.nodes[nodeOf(2)]
	n.ready, n.since = "Unknown", r.clock
	r.api.broken = 0
	r.later(t, 10*time.Second)
	want(t, r, map[string]string{nodeOf(2): "drain-reboot", nodeOf(3): "drain-reboot"})
	if got := r.waits(); len(got) != 0 || r.count(ignored, "perhaps_rebooted") != 1 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
	// That is not known for sure, and nobody else tells of it.
	if got := told(t, r, "perhaps_rebooted"); !slices.Equal(got, []string{"WARN " + nodeOf(1) + " GPUXidFatal drain-reboot"}) {
		t.Errorf("%v", got)
	}
}

// TestReadyAgainIsNoStart: a node that could not be reached for a moment, or whose kubelet was
// started anew, is ready since then and as sick as before. With which start it waits is known, also
// of one that is refused for what another one was, and of one that is asked for again while the API
// server is away.
func TestReadyAgainIsNoStart(t *testing.T) {
	r := newRig(t, 10, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1), xid(3)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	r.clock = r.clock.Add(time.Minute)
	second := xid(2)
	second.StartsAt = r.clock.Add(-time.Minute).Format(time.RFC3339)
	if err := r.post(t, second); err != nil { // after the first one, which waits for longer
		t.Fatal(err)
	}
	r.api.broken = 503
	if err := r.post(t, xid(3)); err == nil {
		t.Fatal("no error")
	}
	r.api.broken = 0
	r.clock = r.clock.Add(time.Second)
	for i := range 3 {
		r.api.nodes[nodeOf(i+1)].since = r.clock
	}
	r.later(t, waitEvery)
	r.manager.names = nil
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot", nodeOf(3): "drain-reboot"})
}

// TestManyAtOnceAreStillRead: of many that come together some are read at once, and all soon.
func TestManyAtOnceAreStillRead(t *testing.T) {
	r := newRig(t, 40, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	var all []alert
	for i := range 40 {
		all = append(all, xid(i))
	}
	known := func() (n int) {
		for _, w := range r.c.waiting.list() {
			if w.boot != "" {
				n++
			}
		}
		return n
	}
	if err := r.post(t, all...); err != nil {
		t.Fatal(err)
	}
	if got := known(); got != 1+noLook {
		t.Errorf("%d are read", got)
	}
	r.later(t, waitEvery)
	if got := known(); got != 40 {
		t.Errorf("%d are read", got)
	}
}

// TestAskedForAgainAfterItsStart: what is asked for after the start is not of before it, though it
// has the turn of what was.
func TestAskedForAgainAfterItsStart(t *testing.T) {
	r := newRig(t, 10, nil)
	r.api.broken = 503
	if err := r.post(t, xid(1)); err == nil {
		t.Fatal("no error")
	}
	r.clock = r.clock.Add(3 * time.Minute)
	r.restarted(1)
	r.clock = r.clock.Add(time.Minute)
	if err := r.post(t, xid(1)); err == nil {
		t.Fatal("no error")
	}
	r.api.broken = 0
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
}

// TestStartingIsNotLookedAt: a node that is about to start shows its new start before it is ready.
// What was asked for before is not of that one. A start that was known before is not another one.
func TestStartingIsNotLookedAt(t *testing.T) {
	starts := func(r *rig, boot string) {
		n := r.api.nodes[nodeOf(1)]
		n.boot, n.ready, n.since = boot, "False", r.clock
	}
	r := newRig(t, 10, nil)
	r.api.broken = 503
	if err := r.post(t, xid(1)); err == nil {
		t.Fatal("no error")
	}
	r.clock = r.clock.Add(3 * time.Minute)
	starts(r, "second")
	r.api.broken = 0
	r.later(t, waitEvery)
	r.restarted(1)
	r.api.nodes[nodeOf(1)].boot = "second"
	r.later(t, waitEvery)
	want(t, r, map[string]string{})
	if got := r.count(ignored, "perhaps_rebooted"); got != 1 || len(r.waits()) != 0 {
		t.Errorf("%d were rebooted, %v wait\n%s", got, r.waits(), r.log)
	}

	r = newRig(t, 10, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Minute)
	r.api.broken = 503
	if err := r.post(t, xid(1)); err == nil {
		t.Fatal("no error")
	}
	r.api.broken, r.manager.names = 0, nil
	r.clock = r.clock.Add(time.Second)
	starts(r, "first")
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
}

// TestAnotherNodeInBetween: a node that is made anew between the decision and the deed, under the
// same name, bears no mark for what its predecessor had.
func TestAnotherNodeInBetween(t *testing.T) {
	r := newRig(t, 10, nil)
	r.api.before = func(n *fakeNode) { n.version++; n.boot = "another" }
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{})
	if got := r.waits(); !slices.Equal(got, []string{}) || r.count(ignored, "rebooted") != 1 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
}

// TestWhenItBroke: what is posted again is about an error of before, and what has fired for hours
// about one of the last minutes.
func TestWhenItBroke(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for starts, want := range map[string]time.Duration{
		"2026-11-21T11:58:00Z": 2 * time.Minute,
		"2026-11-21T08:00:00Z": errorWithin,
		"2026-11-21T13:00:00Z": 0, // by another clock
		"":                     0,
	} {
		if got := now.Sub((alert{StartsAt: starts}).earliest(now)); got != want {
			t.Errorf("%q: %s ago, want %s", starts, got, want)
		}
	}
}

// TestMarkThatWasLeftBehind: who repairs a node may leave the label on it. When somebody cordons it
// later for work of their own, that is theirs, and nobody drains or reboots it meanwhile; nor does
// one wait for it that was asked for before.
func TestMarkThatWasLeftBehind(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.maxNodes = 10 })
	if err := r.post(t, xid(1, "action", "drain"), xid(2, "action", "drain"), xid(3, "action", "drain")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r.giveBack(i+1, true)
	}
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(2)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	for i := range 2 {
		r.api.nodes[nodeOf(i+1)].unschedulable = true
	}
	r.later(t, waitEvery)
	if got := r.waits(); len(got) != 0 {
		t.Errorf("%v wait", got)
	}
	r.manager.names = nil
	r.api.before = func(n *fakeNode) { n.version++; n.unschedulable = true }
	if err := r.post(t, xid(1), xid(3)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "", nodeOf(2): "", nodeOf(3): ""})
	if got := r.count(refused, "planned"); got != 3 {
		t.Errorf("%d are planned work\n%s", got, r.log)
	}
}
