package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLeavingNodesAreLeftAlone: a node that an autoscaler takes away, or that is deleted, is
// planned work, also where those are marked that others have cordoned: its place in the budget is
// for one that stays.
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
		if got := r.count(refused, "planned"); got != leaving+1 || r.api.patches != 1 || len(r.waits()) != 0 {
			t.Errorf("marks those of others %v: %d are planned work, %v wait\n%s", even, got, r.waits(), r.log)
		}
	}
}

// TestLeavingIsOneKindOfNodes: the alerts take the same taints for those of a node that is taken
// away.
func TestLeavingIsOneKindOfNodes(t *testing.T) {
	text, err := os.ReadFile("../../../jsonnet/config.libsonnet")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`toBeDeleted: '([^']+)'`).FindSubmatch(text)
	if m == nil {
		t.Fatal("jsonnet/config.libsonnet has no toBeDeleted")
	}
	if of := strings.Split(strings.ReplaceAll(string(m[1]), "[.]", "."), "|"); !slices.Equal(of, leavingTaints) {
		t.Errorf("%v, and the alerts have %v", leavingTaints, of)
	}
}
