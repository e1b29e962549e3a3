package main

import (
	"testing"
	"time"
)

// TestXidBesideAnother: an Xid waits for the end of a fleet alert also where an alert that is not
// believed meanwhile asks for as much or more in the same payload, and comes first there.
func TestXidBesideAnother(t *testing.T) {
	for _, action := range []string{"drain-reset", "drain"} {
		r := newRig(t, 10, nil)
		r.manager.names = []string{"LocationLost"}
		if err := r.post(t, xid(1, "alertname", "GPUUncorrectableECC", "action", "drain-reset"), xid(1, "action", action)); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		r.manager.names = nil
		r.later(t, waitEvery)
		want(t, r, map[string]string{nodeOf(1): action})
	}
}

// TestLeavingIsLookedAtLast: what is not believed while a fleet alert fires does not wait either
// for a node that is leaving; and that one leaves says nothing of fleet alerts, which are asked
// for.
func TestLeavingIsLookedAtLast(t *testing.T) {
	r := newRig(t, 10, nil)
	r.manager.names = []string{"FleetGPUExporterMissing"}
	r.api.nodes[nodeOf(1)].taints = []taint{{Key: leavingTaints[0], Effect: "NoSchedule"}}
	if err := r.post(t, xid(1, "alertname", "GPUUncorrectableECC", "action", "drain-reset")); err != nil {
		t.Fatal(err)
	}
	if got := r.waits(); len(got) != 0 {
		t.Errorf("%v wait for what is not believed", got)
	}
	if err := r.post(t, xid(1), xid(2)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	delete(r.api.nodes, nodeOf(2))
	r.later(t, waitEvery)
	r.manager.names = nil
	r.later(t, waitEvery)
	r.later(t, waitFor+time.Hour)
	if got := r.count(ignored, waited); got != 1 {
		t.Errorf("%d have waited for too long\n%s", got, r.log)
	}
}

// TestOneThatCannotBeRead: a node that cannot be read keeps no other one from its turn.
func TestOneThatCannotBeRead(t *testing.T) {
	r := newRig(t, 10, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(2)); err != nil {
		t.Fatal(err)
	}
	r.api.unread = nodeOf(1)
	_ = r.post(t, xid(1)) // its start is not known
	r.later(t, waitEvery)
	r.manager.names = nil
	r.later(t, waitEvery)
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(2): "drain-reboot"})
}
