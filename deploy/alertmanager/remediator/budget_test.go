package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestBudget(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes = 2 })
	if err := r.post(t, xid(1), xid(2), xid(3), xid(4, "alertname", "GPUFellOffBus")); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot"})
	if r.count(refused, "max_nodes") != 2 {
		t.Errorf("%s", r.log)
	}
	// A restart does not forget: what was done is on the nodes.
	again := newController(r.c.settings, r.c.kube, r.manager.URL, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	again.now = r.c.now
	defer again.client.CloseIdleConnections()
	if err := again.decide(t.Context(), payload{Version: "4", Alerts: []alert{xid(3)}}); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot"})
	// The window moves on, and one that waited gets its turn when Alertmanager repeats.
	r.clock = r.clock.Add(61 * time.Minute)
	if err := r.post(t, xid(3)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot", nodeOf(3): "drain-reboot"})
	// A mark whose time cannot be read counts as new.
	r.api.nodes[nodeOf(1)].notes[markTime] = "yesterday"
	if err := r.post(t, xid(4)); err != nil {
		t.Fatal(err)
	}
	if _, out := r.api.out()[nodeOf(4)]; out {
		t.Error("a mark that cannot be read is no mark")
	}
}

// TestGivenBackWithItsMark: nodes that were uncordoned long ago, with their marks left on, count in
// the window again when they are cordoned again.
func TestGivenBackWithItsMark(t *testing.T) {
	r := newRig(t, 100, nil)
	for i := range 10 {
		n := r.api.nodes[nodeOf(i)]
		n.labels[markLabel], n.notes[markTime] = "true", "2026-11-20T12:00:00Z"
		n.taints = []taint{{Key: taintKey, Value: "drain-reboot", Effect: "NoSchedule"}}
	}
	for i := range 10 {
		if err := r.post(t, xid(i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.api.out(); len(got) != 3 || r.api.nodes[nodeOf(0)].notes[markTime] != "2026-11-21T12:00:00Z" {
		t.Errorf("three an hour may be cordoned: %v at %s", got, r.api.nodes[nodeOf(0)].notes[markTime])
	}
}

// TestLightActionsLeaveRoom: GPUs that wait for a reset by the hundred take a part of the budget,
// and a dead one gets its place.
func TestLightActionsLeaveRoom(t *testing.T) {
	for _, act := range []bool{true, false} {
		r := newRig(t, 200, func(s *settings) { s.act, s.maxCordoned = act, 0.03 })
		done := func() int { return r.count(cordoned, "ok") + r.count(wouldDo, "act_not_set") }
		light := func(i int) alert {
			return xid(i, "alertname", "GPURowRemapPending", "action", []string{"cordon", "reset-when-idle"}[i%2])
		}
		var all []alert
		for i := range 100 {
			all = append(all, light(i))
		}
		// Behind them in one payload, and after it.
		if err := r.post(t, append(all, xid(100))...); err != nil {
			t.Fatal(err)
		}
		if done() != 2 || r.count(refused, "max_light") != 99 {
			t.Errorf("act %v: %d nodes, one of light actions and one of others may be taken out\n%s", act, done(), r.log)
		}
		if err := r.post(t, light(101), xid(102), xid(103, "alertname", "GPUFellOffBus")); err != nil {
			t.Fatal(err)
		}
		if done() != 3 || r.count(refused, "max_nodes") != 2 {
			t.Errorf("act %v: %d nodes, three may be taken out in an hour\n%s", act, done(), r.log)
		}
		if !act {
			continue
		}
		// Of the six that may be out at once three may be light, and in time they are.
		for range 5 {
			r.clock = r.clock.Add(61 * time.Minute)
			if err := r.post(t, all...); err != nil {
				t.Fatal(err)
			}
		}
		lights := func() (n int) {
			for _, a := range r.api.out() {
				if a == "cordon" || a == "reset-when-idle" {
					n++
				}
			}
			return n
		}
		if lights() != 3 || len(r.api.out()) != 5 {
			t.Errorf("%v", r.api.out())
		}
		// What becomes heavier is light no longer.
		if err := r.post(t, xid(1, "alertname", "GPUFellOffBus")); err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(61 * time.Minute)
		if err := r.post(t, all...); err != nil {
			t.Fatal(err)
		}
		if got := r.api.out(); len(got) != 6 || lights() != 3 {
			t.Errorf("%v", got)
		}
	}
}

// TestShareOfAllNodes counts nodes that others cordoned, page by page, whether or not the server
// says how many there are.
func TestShareOfAllNodes(t *testing.T) {
	for _, silent := range []bool{false, true} {
		r := newRig(t, 40, func(s *settings) { s.maxNodes, s.maxCordoned, s.markCordoned = 100, 0.1, true })
		r.api.page, r.api.silent = 7, silent
		for i := range 3 {
			r.api.nodes[nodeOf(30+i)].unschedulable = true
		}
		if err := r.post(t, xid(1), xid(2)); err != nil {
			t.Fatal(err)
		}
		if got := r.api.out(); len(got) != 4 || got[nodeOf(1)] == "" {
			t.Errorf("silent %v: 3 of 40 nodes were cordoned, one more is a tenth: %v", silent, got)
		}
		if r.count(refused, "max_cordoned") != 1 {
			t.Errorf("silent %v: %s", silent, r.log)
		}
		// One that somebody cordoned is only marked, as long as no more than that share is.
		if err := r.post(t, xid(30), xid(31), xid(32)); err != nil {
			t.Fatal(err)
		}
		if got := r.api.out(); len(got) != 4 || got[nodeOf(32)] != "drain-reboot" {
			t.Errorf("%v", got)
		}
		for i := range 3 {
			r.api.nodes[nodeOf(20+i)].unschedulable = true
		}
		if err := r.post(t, xid(20)); err != nil {
			t.Fatal(err)
		}
		if got := r.api.out(); got[nodeOf(20)] != "" || r.count(refused, "max_cordoned") != 2 {
			t.Errorf("four of 40 nodes are marked, a tenth, and one more is: %v", got)
		}
	}
}

// TestShareOfFewNodes: 2 % of 10 nodes are none, and one may go, also for a light action; unless
// somebody has cordoned one already.
func TestShareOfFewNodes(t *testing.T) {
	for _, act := range []bool{true, false} {
		r := newRig(t, 10, func(s *settings) { s.act, s.maxCordoned = act, 0.02 })
		for _, a := range []alert{xid(1, "action", "cordon"), xid(2)} {
			if err := r.post(t, a); err != nil {
				t.Fatal(err)
			}
		}
		if done := r.count(cordoned, "ok") + r.count(wouldDo, "act_not_set"); done != 1 || r.count(refused, "max_cordoned") != 1 {
			t.Errorf("act %v: one of ten nodes may go: %s", act, r.log)
		}
	}
	r := newRig(t, 49, func(s *settings) { s.maxCordoned = 0.02 })
	r.api.nodes[nodeOf(30)].unschedulable = true
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	if got := r.api.out(); got[nodeOf(1)] != "" || r.count(refused, "max_cordoned") != 1 {
		t.Errorf("%v", got)
	}
}

// TestCountsBeginWithNothing: a first cordon, or a first refusal, is a step from 0.
func TestCountsBeginWithNothing(t *testing.T) {
	r := newRig(t, 10, nil)
	if n, most := testutil.CollectAndCount(r.c.decisions), 18; n != most {
		t.Errorf("%d counts are there at the start, want %d", n, most)
	}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(r.c.decisions); n != 18 || r.count(cordoned, "ok") != 1 {
		t.Errorf("%d", n)
	}
}

// TestFromLightToHeavyIsANewNode: jobs run on where a node waits for a reset. To drain it for
// something heavier takes a place in the window like any other node, and is counted there.
func TestFromLightToHeavyIsANewNode(t *testing.T) {
	const nodes = 70
	r := newRig(t, 7500, func(s *settings) { s.maxCordoned, s.maxNodes = 0.02, 300 })
	var all []alert
	for i := range nodes {
		all = append(all, xid(i, "alertname", "GPUNVLinkErrors", "action", "drain"))
		if err := r.post(t, xid(i, "alertname", "GPURowRemapPending", "action", "reset-when-idle")); err != nil {
			t.Fatal(err)
		}
	}
	heavies := func() (n int) {
		for _, action := range r.api.out() {
			if !isLight(action) {
				n++
			}
		}
		return n
	}
	if got := len(r.api.out()); got != nodes || heavies() != 0 {
		t.Fatalf("%d nodes are out, %d not for a light action", got, heavies())
	}
	r.clock = r.clock.Add(61 * time.Minute)
	r.c.maxNodes = 3
	if err := r.post(t, append(all, xid(nodes))...); err != nil {
		t.Fatal(err)
	}
	if heavies() != 3 || r.api.nodes[nodeOf(0)].notes[markTime] != "2026-11-21T13:01:00Z" || r.count(refused, "max_nodes") != nodes-2 {
		t.Errorf("%d are drained, of %s\n%s", heavies(), r.api.nodes[nodeOf(0)].notes[markTime], r.log)
	}
	// A restart does not forget: the new time is on the nodes.
	again := newController(r.c.settings, r.c.kube, r.manager.URL, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	again.now = func() time.Time { return r.clock }
	defer again.client.CloseIdleConnections()
	post := func(alerts ...alert) {
		t.Helper()
		if err := again.decide(t.Context(), payload{Version: "4", Alerts: alerts}); err != nil {
			t.Fatal(err)
		}
	}
	post(append(all, xid(nodes+1))...)
	if heavies() != 3 {
		t.Errorf("after a restart %d are drained", heavies())
	}
	r.clock = r.clock.Add(61 * time.Minute)
	post(all...) // and the one that waits
	if heavies() != 6 {
		t.Errorf("three more have a place in the next window, and %d are drained", heavies())
	}
	// Nor is one drained while more than the share of all nodes are cordoned, by whomever.
	r.clock = r.clock.Add(61 * time.Minute)
	for i := range 80 {
		r.api.nodes[nodeOf(1000+i)].unschedulable = true
	}
	post(all...)
	if got := int(testutil.ToFloat64(again.decisions.WithLabelValues(refused, "max_cordoned"))); got != nodes-4 {
		t.Errorf("%d were refused for the share", got)
	}
}

// TestWouldGoFromLightToHeavy: what is planned only is decided on in the same way.
func TestWouldGoFromLightToHeavy(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.act = false })
	light := xid(0, "alertname", "GPURowRemapPending", "action", "reset-when-idle")
	if err := r.post(t, light, xid(1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, a := range []alert{light, xid(0)} {
			if err := r.post(t, a); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r.count(wouldDo, "act_not_set") != 3 || r.count(already, "same") != 3 {
		t.Errorf("%s", r.log)
	}
	if err := r.post(t, xid(2), xid(3)); err != nil {
		t.Fatal(err)
	}
	if r.count(wouldDo, "act_not_set") != 4 || r.count(refused, "max_nodes") != 1 {
		t.Errorf("%s", r.log)
	}
}

// TestStepsThatAreFree: a node whose taint was taken off is out for somebody else, and only where
// those are marked it takes a place.
func TestStepsThatAreFree(t *testing.T) {
	for _, c := range []struct {
		from, to string
		even     bool // those are marked that others have cordoned
		refused  string
	}{
		{"cordon", "reset-when-idle", false, ""},
		{"cordon", "drain", false, "max_nodes"},
		{"reset-when-idle", "cordon-reboot", false, "max_nodes"},
		{"drain", "drain-reboot", false, ""},
		{"", "drain", false, "planned"},
		{"", "drain", true, "max_nodes"},
		{"of-before", "drain", false, "max_nodes"},
	} {
		r := newRig(t, 10, func(s *settings) { s.maxNodes, s.markCordoned = 1, c.even })
		if err := r.post(t, xid(1)); err != nil {
			t.Fatal(err)
		}
		n := r.api.nodes[nodeOf(2)]
		n.unschedulable, n.labels[markLabel], n.notes[markTime] = true, "true", "2026-11-20T12:00:00Z"
		if c.from != "" {
			n.taints = []taint{{Key: taintKey, Value: c.from, Effect: "NoSchedule"}}
			n.notes[markAction] = c.from
		}
		if err := r.post(t, xid(2, "action", c.to)); err != nil {
			t.Fatal(err)
		}
		if got := r.api.out()[nodeOf(2)] == c.to; got != (c.refused == "") || !got && r.count(refused, c.refused) != 1 {
			t.Errorf("%+v: %v\n%s", c, r.api.out(), r.log)
		}
	}
}

// giveBack puts a node back into service as docs/remediation.md says, with or without its mark.
func (r *rig) giveBack(i int, mark bool) {
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	n := r.api.nodes[nodeOf(i)]
	n.unschedulable, n.taints = false, nil
	if !mark {
		delete(n.labels, markLabel)
	}
	n.version++
	n.boot += " again"
}

// restart is another controller over the same nodes.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	log := slog.New(slog.NewJSONHandler(r.log, nil))
	r.c = newController(r.c.settings, r.c.kube, r.manager.URL, log, prometheus.NewRegistry())
	r.c.now = func() time.Time { return r.clock }
	t.Cleanup(r.c.client.CloseIdleConnections)
}

// TestGivenBackCounts: a node that was given back, or taken away and made anew, has used its place
// in the window all the same: else a bad driver rolls through the fleet, a node at a time.
func TestGivenBackCounts(t *testing.T) {
	for name, after := range map[string]func(r *rig, i int){
		"given back":                    func(r *rig, i int) { r.giveBack(i, false) },
		"given back, and restarted":     func(r *rig, i int) { r.giveBack(i, false); r.restart(t) },
		"given back, and kept its mark": func(r *rig, i int) { r.giveBack(i, true) },
		"its object is another":         func(r *rig, i int) { clear(r.api.nodes[nodeOf(i)].notes); r.giveBack(i, false) },
		"its object is gone":            func(r *rig, i int) { delete(r.api.nodes, nodeOf(i)) },
		"still out, and only restarted": func(r *rig, _ int) { r.restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1000, nil)
			r.api.page = 300
			times := []time.Time{}
			for i := range 40 {
				if err := r.post(t, xid(i, "alertname", "GPUFellOffBus")); err != nil { // nobody waits for that
					t.Fatal(err)
				}
				if _, out := r.api.out()[nodeOf(i)]; out {
					times = append(times, r.clock)
					after(r, i)
				}
				r.clock = r.clock.Add(200 * time.Second)
			}
			for i, at := range times {
				if i >= 3 && at.Sub(times[i-3]) < time.Hour {
					t.Errorf("the cordons of %s and %s are four within an hour, three are allowed", times[i-3], at)
				}
			}
			// 133 minutes: three at once, three an hour later, three in the hour after that.
			if len(times) != 9 {
				t.Errorf("%d nodes were cordoned, want 9", len(times))
			}
		})
	}
}

// TestSickAfterEveryRepair: one node that is cordoned again and again uses a place each time.
func TestSickAfterEveryRepair(t *testing.T) {
	for _, mark := range []bool{false, true} {
		r := newRig(t, 1000, func(s *settings) { s.maxNodes = 2 })
		for range 12 {
			if err := r.post(t, xid(7)); err != nil {
				t.Fatal(err)
			}
			r.giveBack(7, mark)
			r.clock = r.clock.Add(4 * time.Minute)
		}
		if got := r.count(cordoned, "ok"); got != 2 || r.count(refused, "max_nodes") != 10 {
			t.Errorf("mark %v: the node was cordoned %d times within 48 minutes\n%s", mark, got, r.log)
		}
	}
}

// TestLightGivenBackCounts: so do light actions, in their part of the window.
func TestLightGivenBackCounts(t *testing.T) {
	r := newRig(t, 1000, nil)
	for i := range 5 {
		if err := r.post(t, xid(i, "alertname", "GPURowRemapPending", "action", "reset-when-idle")); err != nil {
			t.Fatal(err)
		}
		r.giveBack(i, false)
		if i == 0 {
			r.restart(t)
		}
		r.clock = r.clock.Add(time.Minute)
	}
	if got := r.count(refused, "max_light"); got != 4 {
		t.Errorf("%d of four were refused\n%s", got, r.log)
	}
	// What becomes heavier takes the place of what it was, and what is given back then is one.
	r = newRig(t, 1000, nil)
	for _, a := range []alert{xid(0, "action", "cordon"), xid(0), xid(1), xid(2), xid(3)} {
		if err := r.post(t, a); err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(time.Minute)
	}
	if got := r.count(cordoned, "ok"); got != 4 || r.count(refused, "max_nodes") != 1 {
		t.Errorf("%d were cordoned\n%s", got, r.log)
	}
}

// TestLostAnswerCounts: a cordon that was done, and whose answer was lost, has used its place in
// the window, whether or not the node still bears the mark. What was refused has used none, and
// the nodes are not read again for it.
func TestLostAnswerCounts(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.maxNodes = 2 })
	r.api.stuck = []string{nodeOf(0)}
	if err := r.post(t, xid(0)); err == nil || !r.c.done.recalled {
		t.Errorf("%v, recalled %v", err, r.c.done.recalled)
	}
	for i := range 3 {
		r.api.lost = 504
		if err := r.post(t, xid(i+1, "alertname", "GPUFellOffBus")); (err == nil) != (i == 2) {
			t.Fatal(err)
		}
		r.giveBack(i+1, false)
		r.clock = r.clock.Add(time.Minute)
	}
	if got := r.count(refused, "max_nodes"); got != 1 || r.api.patches != 2 {
		t.Errorf("%d patches\n%s", r.api.patches, r.log)
	}
}

// TestPatchesThatFailListNobody: an admission webhook that is down fails each patch, and of a fleet
// all nodes are listed once for that, not for each: the API server is ill as it is.
func TestPatchesThatFailListNobody(t *testing.T) {
	r := newRig(t, 40, func(s *settings) { s.maxNodes = 100 })
	r.api.refuses = 500
	var all []alert
	for i := range 20 {
		all = append(all, xid(i))
	}
	for range 2 {
		if err := r.post(t, all...); err == nil {
			t.Fatal("no error")
		}
	}
	if r.api.lists > 1 || r.count(failed, "api") != 40 {
		t.Errorf("%d lists\n%s", r.api.lists, r.log)
	}
	// None was done, and none has used a place.
	r.api.refuses, r.c.maxNodes = 0, 2
	if err := r.post(t, xid(30), xid(31), xid(32)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(30): "drain-reboot", nodeOf(31): "drain-reboot"})
}

// TestUnsureTakesAPlace: a cordon of which nobody can tell whether it was done counts until the
// node can be read again, the light ones among those.
func TestUnsureTakesAPlace(t *testing.T) {
	for _, done := range []bool{true, false} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 3 })
		r.api.lost = 504
		if !done {
			r.api.lost, r.api.refuses = 0, 500
		}
		if err := r.post(t, xid(1, "action", "cordon")); err == nil {
			t.Fatal("no error")
		}
		r.giveBack(1, false)
		r.api.refuses, r.api.unread = 0, nodeOf(1)
		if err := r.post(t, xid(2, "action", "cordon")); err != nil {
			t.Fatal(err)
		}
		if got := r.count(refused, "max_light"); got != 1 {
			t.Errorf("done %v: %d light ones are refused\n%s", done, got, r.log)
		}
		if err := r.post(t, xid(3), xid(4), xid(5)); err != nil {
			t.Fatal(err)
		}
		want(t, r, map[string]string{nodeOf(3): "drain-reboot", nodeOf(4): "drain-reboot"})
		r.api.unread = ""
		if err := r.post(t, xid(6)); err != nil {
			t.Fatal(err)
		}
		if out := r.api.out(); len(out) != 3 == !done {
			t.Errorf("done %v: %v\n%s", done, out, r.log)
		}
	}
}

// TestLostAnswerFromLightToHeavy: a node that was out for a light action is one, whether or not the
// heavier one was done whose answer was lost.
func TestLostAnswerFromLightToHeavy(t *testing.T) {
	for _, done := range []bool{true, false} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 2 })
		if err := r.post(t, xid(1, "action", "cordon")); err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(time.Minute)
		r.api.lost = 504
		if !done {
			r.api.lost, r.api.refuses = 0, 500
		}
		if err := r.post(t, xid(1)); err == nil {
			t.Fatal("no error")
		}
		r.giveBack(1, false)
		r.api.refuses = 0
		if err := r.post(t, xid(2), xid(3)); err != nil {
			t.Fatal(err)
		}
		if got := len(r.api.out()); got != 1 || r.count(refused, "max_nodes") != 1 {
			t.Errorf("done %v: %d are out\n%s", done, got, r.log)
		}
	}
}
