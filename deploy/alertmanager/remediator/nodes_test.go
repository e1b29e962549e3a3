package main

import (
	"bytes"
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
