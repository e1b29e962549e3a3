package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// told are the lines about nodes that were ignored for a reason.
func told(t *testing.T, r *rig, reason string) (of []string) {
	t.Helper()
	for line := range strings.Lines(r.log.String()) {
		var m struct{ Level, Decision, Reason, Node, Alert, Action string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Decision == ignored && m.Reason == reason {
			of = append(of, m.Level+" "+m.Node+" "+m.Alert+" "+m.Action)
		}
	}
	return of
}

// TestGivenUpIsTold: nobody else tells of a node that was given up, because it has waited for too
// long or because too many wait. It is a warning that names node, alert and action, and counted.
func TestGivenUpIsTold(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.maxCordoned = 0.01 })
	r.api.nodes[nodeOf(9)].unschedulable = true
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	r.later(t, waitFor)
	want := "WARN " + nodeOf(1) + " GPUXidFatal drain-reboot"
	if got := strings.Join(told(t, r, "waited"), ", "); got != want || r.count(ignored, "waited") != 1 {
		t.Errorf("%s\n%s", got, r.log)
	}
	r = newRig(t, waitMost+10, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	r.api.broken = 503 // so that what is lighter waits beside what is heavier
	for _, action := range []string{"drain", "cordon"} {
		if err := r.post(t, xid(waitMost+5, "action", action)); err == nil {
			t.Fatal("no error")
		}
	}
	r.api.broken = 0
	var all []alert
	for i := range waitMost {
		all = append(all, xid(i))
	}
	if err := r.post(t, all...); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Minute)
	if err := r.post(t, xid(waitMost+6)); err != nil {
		t.Fatal(err)
	}
	lightest, last := "WARN "+nodeOf(waitMost+5)+" GPUXidFatal ", "WARN "+nodeOf(waitMost+6)+" GPUXidFatal "
	want = lightest + "drain, " + lightest + "cordon, " + last + "drain-reboot"
	if got := strings.Join(told(t, r, "queue_full"), ", "); got != want || r.count(ignored, "queue_full") != 3 {
		t.Errorf("%s", got)
	}
}
