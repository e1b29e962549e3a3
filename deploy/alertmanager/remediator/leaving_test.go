package main

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLeavingNodesAreLeftAlone: a node that is deleted is planned work, and one that an autoscaler
// takes away is leaving, also where those are marked that others have cordoned: its place in the
// budget is for one that stays.
func TestLeavingNodesAreLeftAlone(t *testing.T) {
	for _, even := range []bool{false, true} {
		r := newRig(t, 10, func(s *settings) { s.maxNodes, s.markCordoned = 10, even })
		r.api.nodes[nodeOf(0)].deleted = "2026-11-21T11:59:00Z"
		for i, key := range leavingTaints {
			r.api.nodes[nodeOf(i+1)].taints = []taint{{Key: key, Effect: "NoSchedule"}}
		}
		leaving := len(leavingTaints) + 1
		var all []alert
		for i := range leaving + 1 {
			all = append(all, xid(i))
		}
		if err := r.post(t, all...); err != nil {
			t.Fatal(err)
		}
		want(t, r, map[string]string{nodeOf(leaving): "drain-reboot"})
		// So is one that begins to leave between the decision and the deed.
		r.api.before = func(n *fakeNode) { n.version++; n.deleted = "2026-11-21T11:59:00Z" }
		if err := r.post(t, xid(leaving+1)); err != nil {
			t.Fatal(err)
		}
		// And one that an autoscaler begins to take away.
		r.api.before = func(n *fakeNode) { n.version++; n.taints = []taint{{Key: leavingTaints[1], Effect: "NoSchedule"}} }
		if err := r.post(t, xid(leaving+2)); err != nil {
			t.Fatal(err)
		}
		if got := r.count(refused, "planned"); got != 2 || r.api.patches != 1 {
			t.Errorf("marks those of others %v: %d are planned work\n%s", even, got, r.log)
		}
		if got := r.count(refused, "leaving"); got != leaving || len(r.waits()) != leaving {
			t.Errorf("marks those of others %v: %d are leaving, %v wait\n%s", even, got, r.waits(), r.log)
		}
	}
}

// TestLeavingNodesMayStay: an autoscaler that cannot drain a node takes its taint off again, which
// is nothing unusual. What was asked for meanwhile waits for that, also where the autoscaler has
// cordoned the node, and takes nobody's place or turn. It ends with the node.
func TestLeavingNodesMayStay(t *testing.T) {
	for _, cordons := range []bool{false, true} {
		r := newRig(t, 10, func(s *settings) { s.maxNodes = 2 })
		leave := []taint{{Key: leavingTaints[0], Effect: "NoSchedule"}}
		for _, i := range []int{1, 3} {
			r.api.nodes[nodeOf(i)].taints, r.api.nodes[nodeOf(i)].unschedulable = leave, cordons
		}
		if err := r.post(t, xid(1), xid(2), xid(3)); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		if got := r.waits(); !slices.Equal(got, []string{nodeOf(1), nodeOf(3)}) || r.api.out()[nodeOf(2)] != "drain-reboot" {
			t.Errorf("it cordons %v: %v wait, %v are out\n%s", cordons, got, r.api.out(), r.log)
		}
		r.api.nodes[nodeOf(1)].taints, r.api.nodes[nodeOf(1)].unschedulable = nil, false
		delete(r.api.nodes, nodeOf(3))
		r.later(t, waitEvery)
		r.later(t, waitEvery)
		want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot"})
		if got := r.waits(); len(got) != 0 || r.count(ignored, "gone") != 1 {
			t.Errorf("it cordons %v: %v wait\n%s", cordons, got, r.log)
		}
	}
}

// TestLeavingSaysNothingOfTheFleet: while a fleet alert fires that is why a node is refused,
// whether or not it is leaving, and the time does not count.
func TestLeavingSaysNothingOfTheFleet(t *testing.T) {
	r := newRig(t, 10, nil)
	r.manager.names = []string{"FleetNodesFailing"}
	r.api.nodes[nodeOf(1)].taints = []taint{{Key: leavingTaints[0], Effect: "NoSchedule"}}
	if err := r.post(t, xid(1, "action", "replace"), xid(2)); err != nil {
		t.Fatal(err)
	}
	if err := r.post(t, xid(1, "action", "replace")); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitFor+time.Hour)
	if got := r.waits(); len(got) != 2 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
}

// TestLeavingIsOneKindOfNodes: the alerts take the same taints for those of a node that is taken
// away, or whose machine its cloud says is off; of the latter they tell all the same.
func TestLeavingIsOneKindOfNodes(t *testing.T) {
	text, err := os.ReadFile("../../../jsonnet/config.libsonnet")
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, list := range []string{"toBeDeleted", "switchedOff"} {
		m := regexp.MustCompile(list + `: '([^']+)'`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("jsonnet/config.libsonnet has no %s", list)
		}
		of = append(of, strings.Split(strings.ReplaceAll(string(m[1]), "[.]", "."), "|")...)
	}
	if !slices.Equal(of, leavingTaints) {
		t.Errorf("%v, and the alerts have %v", leavingTaints, of)
	}
}

// TestLeavingTaintsAreAFlag: the keys that are given take the place of the default's, as where the
// mixin's list was overridden; none is nobody. What is no key is refused.
func TestLeavingTaintsAreAFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want taintKeys
	}{
		{nil, leavingTaints},
		{[]string{"--leaving-taints=example.com/leaves,ours"}, taintKeys{"example.com/leaves", "ours"}},
		{[]string{"--leaving-taints="}, taintKeys{}},
	} {
		var s settings
		f := flag.NewFlagSet("", flag.ContinueOnError)
		s.flags(f)
		if err := f.Parse(c.args); err != nil || !slices.Equal(s.leavingTaints, c.want) {
			t.Errorf("%q: %q, %v", c.args, s.leavingTaints, err)
		}
		r := newRig(t, 10, func(o *settings) { o.leavingTaints = s.leavingTaints })
		r.api.nodes[nodeOf(0)].taints = []taint{{Key: "example.com/leaves", Effect: "NoSchedule"}}
		r.api.nodes[nodeOf(1)].taints = []taint{{Key: "node.kubernetes.io/out-of-service", Effect: "NoExecute"}}
		if err := r.post(t, xid(0), xid(1)); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for i, key := range []string{"example.com/leaves", "node.kubernetes.io/out-of-service"} {
			if !slices.Contains(c.want, key) {
				out[nodeOf(i)] = "drain-reboot"
			}
		}
		want(t, r, out)
	}
	if len(leavingTaints) != 6 {
		t.Errorf("the default was changed by a flag: %q", leavingTaints)
	}
	var k taintKeys
	for _, wrong := range []string{"a,,b", "a b", "a=b", "/x"} {
		if k.Set(wrong) == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
