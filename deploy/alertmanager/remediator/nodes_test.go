package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// exclude are the selectors of some flags.
func exclude(t *testing.T, flags ...string) selectors {
	t.Helper()
	s := defaultSelectors()
	for _, f := range flags {
		if err := s.Set(f); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestExcludedNodes: without the nodes of the control plane nobody can mend anything, and no
// program may drain them. Others are named by selectors, of which one must match.
func TestExcludedNodes(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		out   []int // of: control-plane, master, ingress, storage of pool a, storage of pool b, none
	}{
		"the default":         {nil, []int{2, 3, 4, 5}},
		"another one":         {[]string{"role=ingress"}, []int{0, 1, 3, 4, 5}},
		"two":                 {[]string{"role in (ingress, storage)", "node-role.kubernetes.io/control-plane"}, []int{1, 5}},
		"both in one must be": {[]string{"role=storage,pool!=a"}, []int{0, 1, 2, 3, 5}},
		"nobody":              {[]string{""}, []int{0, 1, 2, 3, 4, 5}},
		"nobody, and one":     {[]string{"", "role"}, []int{0, 1, 5}},
	} {
		r := newRig(t, 10, func(s *settings) { s.maxNodes, s.maxCordoned, s.exclude = 100, 1, exclude(t, c.flags...) })
		var all []alert
		for i, of := range []map[string]string{
			{"node-role.kubernetes.io/control-plane": ""},
			{"node-role.kubernetes.io/master": "true"},
			{"role": "ingress"},
			{"role": "storage", "pool": "a"},
			{"role": "storage", "pool": "b"},
			{},
		} {
			r.api.nodes[nodeOf(i)].labels = of
			all = append(all, xid(i))
		}
		if err := r.post(t, all...); err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if _, got := r.api.out()[nodeOf(i)]; got != slices.Contains(c.out, i) {
				t.Errorf("%s: node %d is cordoned: %v", name, i, got)
			}
		}
		told := strings.Count(r.log.String(), `"decision":"refused","reason":"excluded"`)
		if got := r.count(refused, "excluded"); got != len(all)-len(c.out) || got != told {
			t.Errorf("%s: %d refused\n%s", name, got, r.log)
		}
		// They do not wait for a turn that never comes.
		if got := r.waits(); len(got) != 0 {
			t.Errorf("%s: %v wait", name, got)
		}
	}
}

// TestExcludedIsOneNodesReason: what is behind such a node in a payload is decided on by itself,
// and one that was refused for a fleet alert and is one of them does not wait on.
func TestExcludedIsOneNodesReason(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.exclude = exclude(t, "role=ingress") })
	r.api.nodes[nodeOf(0)].labels["role"], r.api.nodes[nodeOf(2)].labels["role"] = "ingress", "ingress"
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(1), xid(2)); err != nil {
		t.Fatal(err)
	}
	if got := r.waits(); len(got) != 2 {
		t.Fatalf("%v wait", got)
	}
	r.manager.names = nil
	if err := r.post(t, xid(0, "action", "replace"), xid(3)); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(3): "drain-reboot"})
	if got := r.waits(); len(got) != 0 || r.count(refused, "excluded") != 2 {
		t.Errorf("%v wait\n%s", got, r.log)
	}
}

// TestExcludeFlag: what is no selector is said, and the help names the default.
func TestExcludeFlag(t *testing.T) {
	var out bytes.Buffer
	code := run(t.Context(), []string{"--exclude=a in b"}, &out, nil)
	if code != 2 || !strings.Contains(out.String(), "no label selector") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	out.Reset()
	if code := run(t.Context(), []string{"--help"}, &out, nil); code != 0 ||
		!strings.Contains(out.String(), "(default node-role.kubernetes.io/control-plane or node-role.kubernetes.io/master)") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// TestMaxOf: no more than so many nodes of a rack are out at a time, by whomever. What has no such
// label is not bound.
func TestMaxOf(t *testing.T) {
	for _, act := range []bool{true, false} {
		r := newRig(t, 20, func(s *settings) {
			s.act, s.maxNodes, s.maxCordoned = act, 100, 1
			for _, text := range []string{"rack=2", "nvidia.com/gpu.clique=1"} {
				if err := s.maxOf.Set(text); err != nil {
					t.Fatal(err)
				}
			}
		})
		for i := range 20 {
			r.api.nodes[nodeOf(i)].labels = map[string]string{"rack": string(rune('a' + i/5))}
		}
		for _, i := range []int{5, 6} { // of rack b
			r.api.nodes[nodeOf(i)].labels["nvidia.com/gpu.clique"] = "7.0"
		}
		r.api.nodes[nodeOf(10)].unschedulable = true // of rack c, by somebody
		for _, i := range []int{17, 18, 19} {
			delete(r.api.nodes[nodeOf(i)].labels, "rack")
		}
		done := func(i int) bool {
			reason := map[bool]string{true: "ok", false: "act_not_set"}[act]
			return strings.Contains(r.log.String(), fmt.Sprintf(`"reason":%q,"node":%q`, reason, nodeOf(i)))
		}
		for _, i := range []int{0, 1, 2, 5, 6, 7, 11, 12, 17, 18, 19} {
			if err := r.post(t, xid(i)); err != nil {
				t.Fatal(err)
			}
			if got, want := done(i), !slices.Contains([]int{2, 6, 12}, i); got != want {
				t.Errorf("act %v: node %d is taken out: %v", act, i, got)
			}
		}
		if got := r.count(refused, "max_of"); got != 3 {
			t.Errorf("act %v: %d were refused\n%s", act, got, r.log)
		}
		if got := r.waits(); len(got) != 3 {
			t.Errorf("act %v: %v wait", act, got)
		}
		if !act {
			continue
		}
		// They have their turn when one is back, and a light mark that becomes heavy is none more.
		r.later(t, waitEvery)
		n := r.api.nodes[nodeOf(0)]
		n.unschedulable, n.taints, n.labels[markLabel] = false, nil, ""
		r.later(t, waitEvery)
		if out := r.api.out(); out[nodeOf(2)] != "drain-reboot" || len(r.waits()) != 2 {
			t.Errorf("%v, and %v wait", out, r.waits())
		}
		r.api.nodes[nodeOf(1)].taints[0].Value, r.api.nodes[nodeOf(1)].notes[markAction] = "cordon", "cordon"
		if err := r.post(t, xid(1, "action", "replace")); err != nil || r.api.out()[nodeOf(1)] != "replace" {
			t.Errorf("%v: %v", err, r.api.out())
		}
	}
}

// TestMaxOfHoldsUpNobody: what nodes of a rack are refused for holds for no other rack.
func TestMaxOfHoldsUpNobody(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.maxOf = perValue{{label: "rack", nodes: 1}} })
	r.api.nodes[nodeOf(3)].labels["rack"] = "r2"
	if err := r.post(t, xid(1), xid(2), xid(3)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(3): "drain-reboot"})
}

// TestMaxOfFlag: what is no label and no number is said.
func TestMaxOfFlag(t *testing.T) {
	for _, wrong := range []string{"rack", "rack=", "rack=0", "rack=a", "=1", "a b=1", "rack=-1", "a/b/c=1"} {
		var p perValue
		if err := p.Set(wrong); err == nil {
			t.Errorf("%q is taken: %+v", wrong, p)
		}
	}
	var p perValue
	for _, right := range []string{"rack=2", "nvidia.com/gpu.clique=1"} {
		if err := p.Set(right); err != nil {
			t.Error(err)
		}
	}
	if p.String() != "rack=2 nvidia.com/gpu.clique=1" {
		t.Errorf("%q", p.String())
	}
}
