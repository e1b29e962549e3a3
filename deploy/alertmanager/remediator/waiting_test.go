package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// waits are the nodes that wait, in their order.
func (r *rig) waits() []string {
	out := []string{}
	for _, w := range r.c.waiting.list() {
		out = append(out, w.node)
	}
	return out
}

// later moves the clock and has those that wait decided on.
func (r *rig) later(t *testing.T, d time.Duration) {
	t.Helper()
	r.clock = r.clock.Add(d)
	r.c.wait(t.Context())
}

// TestXidsWait: the alert about an Xid ends after minutes and nothing repeats it. A node that was
// refused for the budget gets its turn all the same, the heaviest first, then who came first.
func TestXidsWait(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
	for i, action := range []string{"drain-reset", "drain-reset", "drain", "drain-reboot"} {
		r.clock = r.clock.Add(time.Second)
		if err := r.post(t, xid(i, "action", action)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.post(t, xid(1, "status", "resolved")); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(0): "drain-reset"})
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(3), nodeOf(1), nodeOf(2)}) {
		t.Fatalf("%v wait", got)
	}
	r.later(t, time.Minute)
	want(t, r, map[string]string{nodeOf(0): "drain-reset"})
	r.later(t, time.Hour)
	want(t, r, map[string]string{nodeOf(0): "drain-reset", nodeOf(3): "drain-reboot"})
	// A webhook gives them their turn too: before what is lighter and asked for just now.
	r.clock = r.clock.Add(61 * time.Minute)
	if err := r.post(t, xid(9, "action", "cordon", "alertname", "NodeFilesystemFull")); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(0): "drain-reset", nodeOf(3): "drain-reboot", nodeOf(1): "drain-reset"})
	// What Alertmanager repeats does not wait here.
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(2)}) {
		t.Errorf("%v wait", got)
	}
}

// TestXidsWaitForFleetAlerts: so do those that came while a fleet alert fired.
func TestXidsWaitForFleetAlerts(t *testing.T) {
	r := newRig(t, 100, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1), xid(2)); err != nil {
		t.Fatal(err)
	}
	r.later(t, 30*time.Second)
	want(t, r, map[string]string{})
	lines := r.log.Len()
	r.later(t, 30*time.Second)
	if r.log.Len() != lines || r.count(refused, "fleet_alert") != 6 {
		t.Errorf("a refusal that goes on is counted and not told: %d\n%s", r.count(refused, "fleet_alert"), r.log)
	}
	r.manager.names = nil
	r.later(t, 30*time.Second)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot"})
	if got := r.waits(); len(got) != 0 {
		t.Errorf("%v wait", got)
	}
}

// TestWhatWaits: so do other alerts that end with a window, of the budget, but not those that seem
// to rise when the exporters of a fleet come back; and an Xid of which nothing could be decided.
func TestWhatWaits(t *testing.T) {
	for _, tc := range []struct {
		alert  string
		fleet  bool // a fleet alert fires, or else the budget is used up
		broken bool // Alertmanager answers with errors
		waits  bool
	}{
		{"GPUXidFatal", true, false, true},
		{"GPUXidFatal", false, true, true},
		{"GPUNVLinkErrors", false, false, true},
		{"GPUUncorrectableECC", false, false, true},
		{"NodeDiskError", false, false, true},
		{"GPUNVLinkErrors", true, false, false},
		{"NodeDiskError", false, true, false},
		{"GPUFellOffBus", false, false, false}, // is repeated until the repair
		{"link", true, false, false},           // GPUXidFatal of that class
		{"link", false, false, true},
	} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if !tc.fleet && !tc.broken {
			if err := r.post(t, xid(0)); err != nil {
				t.Fatal(err)
			}
		}
		if tc.fleet {
			r.manager.names = []string{"FleetNodesFailing"}
		}
		if tc.broken {
			r.manager.broken = "no answer"
		}
		labels := []string{"alertname", tc.alert}
		if tc.alert == "link" {
			labels = []string{"class", "link"}
		}
		if err := r.post(t, xid(1, labels...)); tc.broken != (err != nil) {
			t.Errorf("%+v: %v", tc, err)
		}
		if got := r.waits(); slices.Equal(got, []string{nodeOf(1)}) != tc.waits {
			t.Errorf("%+v: %v wait", tc, got)
		}
	}
}

// TestTimeRunsOutOnWhatWaits: a payload that was not decided on comes again, whatever its time ran
// out on.
func TestTimeRunsOutOnWhatWaits(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
	if err := r.post(t, xid(0), xid(1, "action", "replace")); err != nil {
		t.Fatal(err)
	}
	r.later(t, 30*time.Second) // with which start the other one waits is known now
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("the time is over")
	cancel(over)
	if err := r.c.decide(ctx, payload{Alerts: []alert{xid(2, "action", "cordon")}}); !errors.Is(err, over) {
		t.Errorf("the payload is answered with %v", err)
	}
}

// TestWaitEnds: nobody waits whose node was started anew, is gone, or was taken out meanwhile, nor
// for longer than some hours.
func TestWaitEnds(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes = 4 })
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1), xid(2), xid(3), xid(4), xid(5), xid(6)); err != nil {
		t.Fatal(err)
	}
	r.later(t, 30*time.Second) // with which start each waits is known now
	r.api.nodes[nodeOf(1)].boot = "second"
	delete(r.api.nodes, nodeOf(2))
	r.api.nodes[nodeOf(3)].unschedulable = true
	n := r.api.nodes[nodeOf(4)]
	n.unschedulable, n.labels[markLabel], n.taints = true, "true", []taint{{Key: taintKey, Value: "replace", Effect: "NoSchedule"}}
	// What was marked for something lighter gets what is heavier.
	n = r.api.nodes[nodeOf(5)]
	n.unschedulable, n.labels[markLabel], n.taints = true, "true", []taint{{Key: taintKey, Value: "cordon", Effect: "NoSchedule"}}
	// It was cordoned and given back while the fleet alert fired.
	r.later(t, 30*time.Second)
	r.api.nodes[nodeOf(3)].unschedulable = false
	r.manager.names = nil
	r.later(t, 30*time.Second)
	want(t, r, map[string]string{nodeOf(4): "replace", nodeOf(5): "drain-reboot", nodeOf(6): "drain-reboot"})
	if got := r.waits(); len(got) != 0 || r.count(ignored, "rebooted") != 1 || r.count(ignored, "gone") != 1 ||
		r.count(refused, "planned") != 1 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
	// The same Xid after the start is a new one.
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	if r.api.out()[nodeOf(1)] != "drain-reboot" {
		t.Errorf("%v", r.api.out())
	}
	if err := r.post(t, xid(7), xid(8)); err != nil {
		t.Fatal(err)
	}
	if got := r.waits(); len(got) != 2 {
		t.Errorf("%v wait", got)
	}
	r.c.maxCordoned = 0.01
	r.later(t, waitFor-time.Second)
	if got := r.waits(); len(got) != 2 {
		t.Errorf("%v wait", got)
	}
	r.later(t, 2*time.Second)
	if got := r.waits(); len(got) != 0 || r.count(ignored, "waited") != 2 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
}

// TestWaitIsBounded: however many are refused, so many wait, and the lightest go first; a round
// asks about few of them.
func TestWaitIsBounded(t *testing.T) {
	r := newRig(t, waitMost+200, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	var all []alert
	for i := range waitMost + 100 {
		all = append(all, xid(i, "action", "drain"))
	}
	all = append(all, xid(waitMost+150, "action", "replace"))
	if err := r.post(t, all...); err != nil {
		t.Fatal(err)
	}
	got := r.waits()
	if len(got) != waitMost || got[0] != nodeOf(waitMost+150) {
		t.Errorf("%d wait, the first is %s", len(got), got[0])
	}
	if got := testutil.ToFloat64(r.c.waits); got != waitMost {
		t.Errorf("the metric says that %g wait", got)
	}
	for range 3 {
		r.api.calls = 0
		r.later(t, waitEvery)
		if r.api.calls > waitLook+20 {
			t.Errorf("%d calls of the API server", r.api.calls)
		}
	}
}

// TestOneThatFailsHoldsUpNobody: a node that cannot be changed is tried again, and those that are
// lighter are decided on behind it.
func TestOneThatFailsHoldsUpNobody(t *testing.T) {
	r := newRig(t, 10, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1, "action", "replace"), xid(2)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	r.manager.names, r.api.stuck = nil, []string{nodeOf(1)}
	if err := r.post(t, xid(3, "action", "drain")); err != nil {
		t.Error(err)
	}
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(2): "drain-reboot", nodeOf(3): "drain"})
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(1)}) || r.count(failed, "api") != 2 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
}

// TestWaitFails: what cannot be asked leaves them waiting.
func TestWaitFails(t *testing.T) {
	r := newRig(t, 10, nil)
	r.c.wait(t.Context()) // for nobody it asks nothing
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1), xid(2)); err != nil {
		t.Fatal(err)
	}
	r.manager.names = nil
	for name, breakIt := range map[string]func(){
		"the API server": func() { r.api.broken = 500 },
		"Alertmanager":   func() { r.manager.broken = "<html>" },
	} {
		before := r.count(failed, "api") + r.count(failed, "alertmanager")
		breakIt()
		r.later(t, waitEvery)
		if got := r.count(failed, "api") + r.count(failed, "alertmanager"); got != before+1 || len(r.waits()) != 2 {
			t.Errorf("%s: %v wait, %d more failed", name, r.waits(), got-before)
		}
		r.api.broken, r.manager.broken = 0, ""
	}
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot"})
}

// TestResolvedWaitsNoMore: a volume that stumbled is well again, and would come again if it were
// not; nobody drains 70 nodes for it during the next hours. What happened once, and wants a reset,
// waits on.
func TestResolvedWaitsNoMore(t *testing.T) {
	r := newRig(t, 7500, nil)
	var firing, resolved []alert
	for i := range 70 {
		firing = append(firing, xid(i, "alertname", "NodeDiskError", "action", "drain"))
		resolved = append(resolved, xid(i, "alertname", "NodeDiskError", "action", "drain", "status", "resolved"))
	}
	if err := r.post(t, firing...); err != nil {
		t.Fatal(err)
	}
	if got := r.waits(); len(got) != 67 {
		t.Fatalf("%d wait", len(got))
	}
	r.clock = r.clock.Add(10 * time.Minute)
	if err := r.post(t, resolved...); err != nil {
		t.Fatal(err)
	}
	for range 14 {
		r.later(t, 30*time.Minute)
	}
	if got := r.api.out(); len(got) != 3 || len(r.waits()) != 0 {
		t.Errorf("%d are out, %d wait", len(got), len(r.waits()))
	}
	for _, tc := range []struct {
		waits, ends []string // pairs of labels
		stays       bool
	}{
		{[]string{"alertname", "GPUXidFatal"}, nil, true},
		{[]string{"alertname", "GPUXidFatal", "class", "link", "action", "drain"}, nil, false},
		{[]string{"alertname", "GPUUncorrectableECC"}, nil, true},
		{[]string{"alertname", "GPUNVLinkErrors", "error", "link-down"}, nil, true},
		{[]string{"alertname", "GPUNVLinkErrors", "error", "replay"}, nil, false},
		{[]string{"alertname", "NodeDiskError"}, nil, false},
		{[]string{"alertname", "NodeDiskError", "reason", "IOError"}, []string{"alertname", "NodeDiskError", "reason", "Ext4Error"}, true},
		{[]string{"alertname", "NodeDiskError"}, []string{"alertname", "NodeDiskError", "cluster", "ibis"}, true},
	} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if err := r.post(t, xid(0), xid(1, tc.waits...)); err != nil {
			t.Fatal(err)
		}
		if tc.ends == nil {
			tc.ends = tc.waits
		}
		if err := r.post(t, xid(1, append(tc.ends, "status", "resolved")...)); err != nil {
			t.Fatal(err)
		}
		if got := r.waits(); slices.Contains(got, nodeOf(1)) != tc.stays {
			t.Errorf("%+v: %v wait", tc, got)
		}
	}
}

// TestResolvedEndsNoOtherWait: an Xid waits on where an alert of the same weight came after it and
// has ended, unless the node was started anew between the two.
func TestResolvedEndsNoOtherWait(t *testing.T) {
	for _, second := range []bool{false, true} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		disk := []string{"alertname", "NodeDiskError", "action", "drain"}
		if err := r.post(t, xid(0), xid(1, "action", "drain")); err != nil {
			t.Fatal(err)
		}
		r.c.wait(t.Context()) // with which start it waits is known now
		if second {
			r.api.nodes[nodeOf(1)].boot = "second"
		}
		if err := r.post(t, xid(1, disk...)); err != nil {
			t.Fatal(err)
		}
		if err := r.post(t, xid(1, append(disk, "status", "resolved")...)); err != nil {
			t.Fatal(err)
		}
		if got := r.waits(); slices.Contains(got, nodeOf(1)) == second {
			t.Errorf("started anew %v: %v wait", second, got)
		}
	}
}

// TestFleetAlertsUseUpNoWait: a rack that is lost on Friday evening is a ticket for Monday. What
// broke elsewhere meanwhile has its turn then, and the six hours that it may wait for the budget.
func TestFleetAlertsUseUpNoWait(t *testing.T) {
	r := newRig(t, 100, nil)
	r.manager.names = []string{"LocationLost"}
	r.c.fleetAlerts = "Fleet.+|LocationLost"
	var all []alert
	for i := range 30 {
		all = append(all, xid(i))
	}
	if err := r.post(t, all...); err != nil {
		t.Fatal(err)
	}
	counted := 0
	for range 60 { // hours
		for range 4 {
			r.later(t, 15*time.Minute)
		}
		// With no webhook at all the metric says each hour that nothing is done, and why.
		if now := r.count(refused, byFleet); now <= counted {
			t.Fatalf("%d refusals an hour ago, %d now", counted, now)
		} else {
			counted = now
		}
	}
	if got := r.waits(); len(got) != 30 || len(r.api.out()) != 0 {
		t.Fatalf("%d wait, %d are out", len(got), len(r.api.out()))
	}
	r.manager.names = nil
	r.later(t, waitEvery)
	if got := r.waits(); len(got) != 27 || len(r.api.out()) != 3 {
		t.Errorf("%d wait, %d are out", len(got), len(r.api.out()))
	}
	for range 5 {
		r.later(t, 61*time.Minute)
	}
	if got := r.waits(); len(got) != 12 || r.count(ignored, "waited") != 0 {
		t.Errorf("%d wait, %d are out", len(got), len(r.api.out()))
	}
	r.later(t, 61*time.Minute)
	if got := r.waits(); len(got) != 0 || len(r.api.out()) != 18 || r.count(ignored, "waited") != 12 {
		t.Errorf("%d wait, %d are out", len(got), len(r.api.out()))
	}
}

// TestFleetAlertsAreWaitedForAWeek: nobody knows any more what an error of a month ago was about.
// One that came later waits later, and the time between two fleet alerts counts.
func TestFleetAlertsAreWaitedForAWeek(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxCordoned = 0.01 })
	if err := r.post(t, xid(0)); err != nil { // what the share has room for
		t.Fatal(err)
	}
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	r.later(t, 10*time.Hour)
	r.manager.names = nil
	r.later(t, waitEvery) // it stood still until now
	r.later(t, 4*time.Hour)
	if err := r.post(t, xid(2)); err != nil {
		t.Fatal(err)
	}
	r.manager.names = []string{"FleetNodesFailing"}
	r.later(t, waitEvery)
	r.later(t, heldMost-11*time.Hour)
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(1), nodeOf(2)}) {
		t.Fatalf("%v wait", got)
	}
	// An hour of the week and two of the six are left of the first one.
	r.later(t, time.Hour)
	r.later(t, 2*time.Hour)
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(2)}) || r.count(ignored, "waited") != 1 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
	// The same error again is another one.
	if err := r.post(t, xid(2)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	r.later(t, heldMost)
	r.later(t, waitFor-2*time.Minute)
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(2)}) {
		t.Errorf("%v wait\n%s", got, r.log)
	}
	r.later(t, 2*time.Minute)
	if got := r.waits(); len(got) != 0 {
		t.Errorf("%v wait", got)
	}
}

// TestNobodyCanTell: while Alertmanager cannot say whether a fleet alert fires, what waits is held
// as by such an alert, and does not grow too old overnight.
func TestNobodyCanTell(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
	for i := range 2 {
		if err := r.post(t, xid(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(1)}) {
		t.Fatalf("%v wait\n%s", got, r.log)
	}
	r.manager.broken = "<html>"
	r.later(t, waitEvery)
	r.later(t, waitFor+time.Hour)
	if got := r.waits(); !slices.Equal(got, []string{nodeOf(1)}) {
		t.Errorf("%v wait\n%s", got, r.log)
	}
	r.manager.broken = ""
	r.later(t, time.Hour)
	if got := r.waits(); len(got) != 0 || r.count(ignored, "waited") != 0 {
		t.Errorf("%v wait once Alertmanager tells again\n%s", got, r.log)
	}
}
