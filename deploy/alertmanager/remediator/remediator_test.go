package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nodeOf(i int) string { return fmt.Sprintf("gpu-%05d", i) }

// xid is an alert about a node, with labels changed by pairs.
func xid(i int, pairs ...string) alert {
	a := alert{Status: "firing", Fingerprint: "f", Labels: map[string]string{
		"alertname": "GPUXidFatal", "severity": "auto", "cluster": "jaguar", "node": nodeOf(i), "gpu": "3", "xid": "79", "class": "dead",
		"action": "drain-reboot",
	}}
	for j := 0; j+1 < len(pairs); j += 2 {
		if pairs[j] == "status" {
			a.Status = pairs[j+1]
		} else {
			a.Labels[pairs[j]] = pairs[j+1]
		}
	}
	return a
}

func (r *rig) post(t *testing.T, alerts ...alert) error {
	t.Helper()
	r.manager.hears(alerts)
	return r.c.decide(t.Context(), payload{Version: "4", Alerts: alerts})
}

func (r *rig) count(decision, reason string) int {
	return int(testutil.ToFloat64(r.c.decisions.WithLabelValues(decision, reason)))
}

func want(t *testing.T, r *rig, out map[string]string) {
	t.Helper()
	if got := r.api.out(); !maps.Equal(got, out) {
		t.Errorf("cordoned are %v, want %v\n%s", got, out, r.log)
	}
}

func TestCordons(t *testing.T) {
	r := newRig(t, 10, nil)
	r.api.nodes[nodeOf(1)].taints = []taint{
		{Key: "nvidia.com/gpu", Value: "present", Effect: "NoSchedule", TimeAdded: "2026-01-01T00:00:00Z"},
	}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
	n := r.api.nodes[nodeOf(1)]
	if n.labels[markLabel] != "true" || n.labels["rack"] != "r1" || n.notes[markTime] != "2026-11-21T12:00:00Z" ||
		n.notes[markReason] != "GPUXidFatal xid=79 gpu=3" {
		t.Errorf("%+v", n)
	}
	if len(n.taints) != 2 || n.taints[0].Key != "nvidia.com/gpu" || n.taints[0].TimeAdded == "" {
		t.Errorf("taints are %+v: another's must stay as it was", n.taints)
	}
	if got := r.manager.filters; !slices.Equal(got, []string{`alertname=~"Fleet.+"`, `cluster="jaguar"`}) {
		t.Errorf("Alertmanager was asked for %v", got)
	}

	// The same again changes nothing, nor does a lighter one; a heavier one replaces the taint.
	for range 3 {
		if err := r.post(t, xid(1), xid(1, "action", "drain")); err != nil {
			t.Fatal(err)
		}
	}
	if r.api.patches != 1 || r.count(already, "same") != 3 {
		t.Errorf("%d patches, %d times already done", r.api.patches, r.count(already, "same"))
	}
	if err := r.post(t, xid(1, "action", "replace", "alertname", "GPURowRemapFailure")); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "replace"})
	// A repeat does not make it newer: the window counts from the first time.
	if r.api.nodes[nodeOf(1)].notes[markTime] != "2026-11-21T12:00:00Z" || len(r.api.nodes[nodeOf(1)].taints) != 2 {
		t.Errorf("%+v", r.api.nodes[nodeOf(1)])
	}

	// What ends an alert does not bring the node back.
	if err := r.post(t, xid(1, "status", "resolved")); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "replace"})

	// The audit log has a line for each decision, each an object.
	lines := 0
	for line := range strings.Lines(r.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil || m["decision"] == "" || m["node"] != nodeOf(1) || m["fingerprint"] != "f" {
			t.Errorf("%s: %v", line, err)
		}
		lines++
	}
	if lines != 6 {
		t.Errorf("%d lines for 6 decisions:\n%s", lines, r.log)
	}
}

func TestHeaviestOfSeveral(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.maxNodes = 4 })
	if err := r.post(t, xid(2, "action", "drain"), xid(2, "action", "drain-reboot"), xid(2, "action", "reset-when-idle")); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(2): "drain-reboot"})
	if r.api.patches != 1 {
		t.Errorf("%d patches for one node", r.api.patches)
	}
	// The driver's own advice goes before the table's, whichever comes first; a GPU that is to be
	// sent back is sent back.
	for i, actions := range [][]string{
		{"recovery-action", "drain-reboot"}, {"cordon-reboot", "recovery-action"}, {"recovery-action", "replace"},
	} {
		for _, a := range actions {
			if err := r.post(t, xid(3+i, "action", a)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want(t, r, map[string]string{
		nodeOf(2): "drain-reboot", nodeOf(3): "recovery-action", nodeOf(4): "recovery-action", nodeOf(5): "replace",
	})
}

func TestDryRunIsTheDefault(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.act = false })
	for range 2 {
		if err := r.post(t, xid(0), xid(1), xid(2), xid(3)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, r, map[string]string{})
	// It says what the budget would have said.
	if r.count(wouldDo, "act_not_set") != 3 || r.count(refused, "max_nodes") != 2 || r.count(already, "same") != 3 || r.api.patches != 0 {
		t.Errorf("%d patches\n%s", r.api.patches, r.log)
	}
	r.clock = r.clock.Add(61 * time.Minute)
	if err := r.post(t, xid(3)); err != nil {
		t.Fatal(err)
	}
	if r.count(wouldDo, "act_not_set") != 4 {
		t.Errorf("the window does not move on\n%s", r.log)
	}
}

func TestIgnored(t *testing.T) {
	for _, c := range []struct {
		reason string
		alert  alert
	}{
		{"resolved", xid(1, "status", "resolved")},
		{"severity", xid(1, "severity", "critical")},
		{"severity", xid(1, "severity", "")},
		{"cluster", xid(1, "cluster", "ibis")},
		{"cluster", xid(1, "cluster", "")},
		{"node", xid(1, "node", "")},
		{"node", xid(1, "node", "../pods/x")},
		{"node", xid(1, "node", "a?b")},
		{"action", xid(1, "action", "")},
		{"action", xid(1, "action", "explode")},
		{"no_cordon", xid(1, "action", "raise-gc-thresh")},
		{"gone", xid(77)},
	} {
		r := newRig(t, 10, nil)
		if err := r.post(t, c.alert); err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		if r.count(ignored, c.reason) != 1 {
			t.Errorf("%v is not ignored for %s:\n%s", c.alert, c.reason, r.log)
		}
		want(t, r, map[string]string{})
	}
}

// TestPlannedWorkIsLeftAlone: a node that somebody else has cordoned gets no mark, by which it
// would be drained or rebooted, unless that is asked for.
func TestPlannedWorkIsLeftAlone(t *testing.T) {
	r := newRig(t, 10, nil)
	r.api.nodes[nodeOf(1)].unschedulable = true
	if err := r.post(t, xid(1), xid(2)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "", nodeOf(2): "drain-reboot"})
	if n := r.api.nodes[nodeOf(1)]; len(n.labels) != 1 || len(n.notes) != 0 || r.count(refused, "planned") != 1 {
		t.Errorf("%+v\n%s", n, r.log)
	}
	// So does one that is cordoned between the decision and the deed.
	r.api.before = func(n *fakeNode) { n.version++; n.unschedulable = true }
	if err := r.post(t, xid(3)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "", nodeOf(2): "drain-reboot", nodeOf(3): ""})
	if r.count(refused, "planned") != 2 {
		t.Errorf("%s", r.log)
	}
	// What was cordoned here is nobody else's work: it may become heavier.
	if err := r.post(t, xid(2, "action", "replace")); err != nil {
		t.Fatal(err)
	}
	r.c.markCordoned = true
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "replace", nodeOf(3): ""})
}

// TestFloodIsBounded: whatever comes, for however long, and though no fleet alert is known, few
// nodes of a fleet are touched. Half of them somebody has cordoned for a roll-out, and their jobs
// run on: what reads the marks must not reboot those either.
func TestFloodIsBounded(t *testing.T) {
	const nodes, share, hours = 150, 0.04, 4
	for name, c := range map[string]struct {
		act      bool
		cordoned int // by somebody
		most     int // marks in the end
	}{
		"acts":                         {true, 0, nodes * share},
		"acts, and half are cordoned":  {true, nodes / 2, nodes * share},
		"would act":                    {false, 0, 0},
		"would act, half are cordoned": {false, nodes / 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nodes, func(s *settings) { s.act, s.maxCordoned, s.markCordoned = c.act, share, true })
			for i := range c.cordoned {
				r.api.nodes[nodeOf(i)].unschedulable = true
			}
			marks := func() (n int) {
				for _, action := range r.api.out() {
					if action != "" {
						n++
					}
				}
				return n
			}
			for hour := range hours {
				// All in one call, and every node by itself, again and again: as a fleet does whose
				// pod network is cut.
				var all []alert
				for i := range nodes {
					all = append(all, xid(i, "alertname", "NodeUnreachable", "action", "cordon-reboot"))
				}
				if err := r.post(t, all...); err != nil {
					t.Fatal(err)
				}
				for i := range nodes {
					if err := r.post(t, all[i], xid(i)); err != nil {
						t.Fatal(err)
					}
				}
				if got, most := marks(), min(3*(hour+1), c.most); got != most {
					t.Fatalf("after %d hours %d nodes are marked, not %d", hour+1, got, most)
				}
				if got := r.count(wouldDo, "act_not_set"); !c.act && got != 3*(hour+1) {
					t.Fatalf("after %d hours it would have cordoned %d nodes, not three an hour", hour+1, got)
				}
				r.clock = r.clock.Add(time.Hour + time.Second)
			}
			if out := len(r.api.out()); out > c.cordoned+c.most {
				t.Errorf("%d nodes are cordoned", out)
			}
		})
	}
}

// TestManyNodesAtOnce: of hundreds of nodes that fail together the API server is asked about those
// that the budget allows and about one that it does not, also when the payload comes again: each
// was asked about once and more, 1,600 calls, with everybody else waiting.
func TestManyNodesAtOnce(t *testing.T) {
	const nodes = 400
	for name, change := range map[string]func(*rig){
		"the budget of the window": func(*rig) {},
		"the share of all nodes":   func(r *rig) { r.c.maxNodes, r.c.maxCordoned = nodes, 3.0/nodes },
		"a fleet alert":            func(r *rig) { r.manager.names = []string{"FleetNodesNotReady"} },
		"would act":                func(r *rig) { r.c.act = false },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nodes, nil)
			change(r)
			var all []alert
			for i := range nodes {
				all = append(all, xid(i))
			}
			for time := range 3 {
				r.api.calls = 0
				if err := r.post(t, all...); err != nil {
					t.Fatal(err)
				}
				if r.api.calls > 40 {
					t.Errorf("time %d: %d calls of the API server", time, r.api.calls)
				}
			}
			if n := r.api.patches; n > 3 {
				t.Errorf("%d nodes were cordoned", n)
			}
		})
	}
}

// TestOthersTakeTurns: while a payload of many nodes is decided on, another one is too.
func TestOthersTakeTurns(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes, s.maxCordoned = 100, 1 })
	r.api.delay = time.Millisecond
	var all []alert
	for i := range 99 {
		all = append(all, xid(i))
	}
	// The first node is kept in its turn until the other payload waits for one.
	begun, waiting := make(chan struct{}), make(chan struct{})
	r.api.before = func(*fakeNode) { close(begun); <-waiting }
	flood, other := make(chan error, 1), make(chan error, 1)
	go func() { flood <- r.c.decide(t.Context(), payload{Alerts: all}) }()
	<-begun
	go func() { other <- r.c.decide(t.Context(), payload{Alerts: []alert{xid(99)}}) }()
	for !waitsForItsTurn() {
		time.Sleep(time.Millisecond)
	}
	close(waiting)
	for _, err := range []error{<-other, <-flood} {
		if err != nil {
			t.Error(err)
		}
	}
	out := r.api.out()
	if first := slices.Index(r.api.patched, nodeOf(99)); first < 0 || first > 50 || out[nodeOf(99)] == "" {
		t.Errorf("%d nodes came first", first)
	}
}

// waitsForItsTurn tells whether a goroutine waits until another one has decided on a node.
func waitsForItsTurn() bool {
	stacks := make([]byte, 1<<20)
	for _, one := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(one, "[sync.Mutex.Lock") && strings.Contains(one, ".inTurn(") {
			return true
		}
	}
	return false
}

func TestNothingDuringAFleetAlert(t *testing.T) {
	r := newRig(t, 10, nil)
	r.manager.names = []string{"FleetNodesNotReady"}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{})
	if r.count(refused, "fleet_alert") != 1 {
		t.Errorf("%s", r.log)
	}
	r.manager.names = nil
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
}

// TestNothingWithoutTheWatchdog: an Alertmanager that nobody sends to knows of no alert, and says
// so. What fires always must be there before "none" is believed.
func TestNothingWithoutTheWatchdog(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.watchdog = "Watchdog" })
	if err := r.post(t, xid(1)); err == nil || !strings.Contains(err.Error(), "Watchdog") {
		t.Errorf("%v", err)
	}
	want(t, r, map[string]string{})
	if r.count(failed, "alertmanager") != 1 {
		t.Errorf("%s", r.log)
	}
	r.manager.always = []string{"Watchdog"}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(2)); err != nil || r.count(refused, "fleet_alert") != 1 {
		t.Errorf("%v %s", err, r.log)
	}
}

// TestNothingWhileNobodyWatchesTheFleet: while the rules about the fleet fail, Alertmanager takes
// fleet alerts for over. The Watchdog of those rules must be there, and must have come of late.
func TestNothingWhileNobodyWatchesTheFleet(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.watchdog, s.watchdogScope = "Watchdog", "fleet" })
	r.manager.always = []string{"Watchdog"} // of whichever Prometheus
	for _, c := range []struct {
		watched any
		says    string
	}{
		{nil, `does not know of Watchdog{cluster="jaguar", scope="fleet"}`},
		{r.clock.Add(-3 * time.Minute), "has heard of Watchdog{cluster=\"jaguar\", scope=\"fleet\"} at 2026-11-21T11:57:00Z last"},
	} {
		r.manager.watched = c.watched
		if err := r.post(t, xid(1)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.watched, err)
		}
	}
	want(t, r, map[string]string{})
	if r.count(failed, "alertmanager") != 2 {
		t.Errorf("%s", r.log)
	}
	r.manager.watched = r.clock.Add(-110 * time.Second)
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
	r.manager.names = []string{"FleetNodesFailing"}
	if err := r.post(t, xid(2)); err != nil || r.count(refused, "fleet_alert") != 1 {
		t.Errorf("%v %s", err, r.log)
	}
}

// TestNothingWhileAlertmanagerIsYoung: what fires always comes from whoever sends first after its
// start; the fleet alert, from another one, may come a minute later.
func TestNothingWhileAlertmanagerIsYoung(t *testing.T) {
	r := newRig(t, 10, func(s *settings) { s.watchdog = "Watchdog" })
	r.manager.always = []string{"Watchdog"}
	for _, c := range []struct {
		started any
		says    string
	}{
		{r.clock.Add(-4 * time.Minute), "was started at 2026-11-21T11:56:00Z"},
		{r.clock.Add(time.Hour), "was started at 2026-11-21T13:00:00Z"}, // by another clock: nobody knows
		{"", "makes no sense"},
		{time.Time{}, "does not say when it was started"},
	} {
		r.manager.started = c.started
		if err := r.post(t, xid(1)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("started %v: %v, not %q", c.started, err, c.says)
		}
	}
	want(t, r, map[string]string{})
	if r.count(failed, "alertmanager") != 4 || r.api.patches != 0 {
		t.Errorf("%d patches: %s", r.api.patches, r.log)
	}
	// The node waits meanwhile, and has its turn by itself.
	r.manager.started = r.clock
	r.later(t, 4*time.Minute)
	want(t, r, map[string]string{})
	r.later(t, time.Minute)
	want(t, r, map[string]string{nodeOf(1): "drain-reboot"})
}

// TestMissingAnswersAreNo: what cannot be asked stops it, and Alertmanager is told to come again.
func TestMissingAnswersAreNo(t *testing.T) {
	for name, breakIt := range map[string]func(*rig){
		"Alertmanager is away":             func(r *rig) { r.manager.Close() },
		"Alertmanager answers nonsense":    func(r *rig) { r.manager.broken = "<html>" },
		"Alertmanager answers null":        func(r *rig) { r.manager.broken = "null" },
		"the API server fails":             func(r *rig) { r.api.broken = 500 },
		"the API server is overloaded":     func(r *rig) { r.api.broken = 429 },
		"the token is not taken":           func(r *rig) { r.api.token = "another" },
		"the API server is away":           func(r *rig) { r.api.Close() },
		"the file of the token is missing": func(r *rig) { r.c.kube.tokenFile = "/nonexistent" },
	} {
		r := newRig(t, 10, nil)
		breakIt(r)
		if err := r.post(t, xid(1)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if len(r.api.out()) != 0 {
			t.Errorf("%s: a node was cordoned", name)
		}
		if !strings.Contains(r.log.String(), `"decision":"failed"`) {
			t.Errorf("%s: %s", name, r.log)
		}
	}
}

func TestConflict(t *testing.T) {
	r := newRig(t, 10, nil)
	r.api.before = func(n *fakeNode) { // somebody else taints it in between
		n.version++
		n.taints = append(n.taints, taint{Key: "other", Effect: "NoExecute"})
	}
	if err := r.post(t, xid(1)); err != nil {
		t.Fatal(err)
	}
	if n := r.api.nodes[nodeOf(1)]; len(n.taints) != 2 || !n.unschedulable {
		t.Errorf("%+v: the other's taint is lost", n)
	}
}

// TestActionsOfTheAlerts: every action that an alert of severity auto asks for is known here.
func TestActionsOfTheAlerts(t *testing.T) {
	files, err := filepath.Glob("../../../alerts/global/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules in alerts/global (make generate): %v", err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "action: "); ok {
				seen[strings.Trim(v, `'"`)] = true
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("the alerts name the actions %v only", slices.Sorted(maps.Keys(seen)))
	}
	for a := range seen {
		if weight(a) < 0 {
			t.Errorf("an alert asks for the action %q, which is not known here", a)
		}
	}
}

func TestReadPayload(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"version":"4","alerts":[]}`:         true,
		`{"version":"4","alerts":[]} `:        true,
		`{"version":"5","alerts":[]}`:         false,
		`{"alerts":[]}`:                       false,
		`{"version":"4"}{"version":"4"}`:      false,
		`{"version":"4","alerts":[{"labels":`: false,
		``:                                    false,
		`null`:                                false,
		`{"version":"4","alerts":{}}`:         false,
	} {
		if _, err := readPayload(strings.NewReader(body)); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}
