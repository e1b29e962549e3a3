package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/deploy/alertmanager"
)

// disk is an alert that comes again by itself while there is something to mend.
func disk(i int, pairs ...string) alert {
	return xid(i, append([]string{"alertname", "NodeDiskError", "action", "drain"}, pairs...)...)
}

// TestEndsThatAreNotPosted: twelve nodes fail, three are drained and nine wait for the budget,
// until it is seen that these are many. What is inhibited when it ends is not posted. Nobody drains
// the eight that are well again when the fleet alert is over.
func TestEndsThatAreNotPosted(t *testing.T) {
	r := newRig(t, 100, nil)
	var all []alert
	for i := range 12 {
		all = append(all, disk(i))
	}
	if err := r.post(t, all...); err != nil {
		t.Fatal(err)
	}
	r.manager.names = []string{"FleetNodesFailing"}
	r.later(t, time.Hour)
	r.manager.alerts = []map[string]string{all[7].Labels} // only this one goes on
	r.later(t, time.Hour)
	if got := r.waits(); len(got) != 9 || r.manager.askedNode != 0 {
		t.Errorf("%v wait; asked %d times while a fleet alert holds everything back", got, r.manager.askedNode)
	}
	r.manager.names = nil
	for range 4 {
		r.later(t, 61*time.Minute)
	}
	want(t, r, map[string]string{nodeOf(0): "drain", nodeOf(1): "drain", nodeOf(2): "drain", nodeOf(7): "drain"})
	if got := r.waits(); len(got) != 0 || r.count(ignored, ended) != 8 {
		t.Errorf("%v wait, %d have ended\n%s", got, r.count(ignored, ended), r.log)
	}
	told := told(t, r, ended)
	if want := "INFO " + nodeOf(3) + " NodeDiskError drain"; len(told) != 8 || told[0] != want {
		t.Errorf("told: %q, the first should be %s", told, want)
	}
}

// TestWhichEnd: one that stands for what happened once waits on, and is not asked for. Of those
// that come again it is over where Alertmanager has none with all its labels.
func TestWhichEnd(t *testing.T) {
	for _, tc := range []struct {
		waits, has []string // pairs of labels; nil: Alertmanager has none
		out        bool
		asked      int
	}{
		{nil, nil, true, 0},
		{[]string{"alertname", "GPUUncorrectableECC"}, nil, true, 0},
		{[]string{"alertname", "GPUNVLinkErrors", "error", "link-down"}, nil, true, 0},
		{[]string{"alertname", "GPUNVLinkErrors", "error", "replay"}, nil, false, 1},
		{[]string{"class", "link"}, nil, false, 1},
		{[]string{"alertname", "NodeDiskError"}, nil, false, 1},
		{[]string{"alertname", "NodeDiskError"}, []string{"alertname", "NodeDiskError"}, true, 1},
		{[]string{"alertname", "NodeDiskError"}, []string{"alertname", "NodeDiskError", "gpu", "4"}, false, 1},
		{[]string{"alertname", "NodeDiskError"}, []string{"alertname", "NodeDiskError", "device", "sda"}, false, 1},
		{[]string{"class", `link`, "alertname", `GPUXid"\`}, []string{"class", "link", "alertname", `GPUXid"\`}, true, 1},
	} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if err := r.post(t, xid(0, "action", "replace"), xid(1, tc.waits...)); err != nil {
			t.Fatal(err)
		}
		r.manager.alerts = nil
		if tc.has != nil {
			r.manager.alerts = []map[string]string{xid(1, tc.has...).Labels}
		}
		r.later(t, waitEvery) // with which start it waits is known now
		r.manager.askedNode = 0
		if got := r.waits(); tc.out && len(got) != 1 {
			t.Errorf("%+v: %v wait for the budget\n%s", tc, got, r.log)
		}
		r.later(t, 61*time.Minute)
		if _, out := r.api.out()[nodeOf(1)]; out != tc.out || len(r.waits()) != 0 {
			t.Errorf("%+v: %v are out, %v wait\n%s", tc, r.api.out(), r.waits(), r.log)
		}
		if tc.out && r.manager.askedNode != tc.asked {
			t.Errorf("%+v: asked %d times", tc, r.manager.askedNode)
		}
	}
}

// TestPostedIsNotAskedFor: what Alertmanager posts fires now.
func TestPostedIsNotAskedFor(t *testing.T) {
	r := newRig(t, 10, nil)
	if err := r.c.decide(t.Context(), payload{Version: "4", Alerts: []alert{disk(1)}}); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(1): "drain"})
	if r.manager.askedNode != 0 {
		t.Errorf("asked %d times", r.manager.askedNode)
	}
}

// TestEndOfOneBesideAnother: what waits behind one that has ended has its turn.
func TestEndOfOneBesideAnother(t *testing.T) {
	r := newRig(t, 10, nil)
	kept(r, "drain", "") // of a start that nobody could read
	heavy := disk(1, "action", "drain-reboot")
	r.c.waiting.keep(wish{node: nodeOf(1), action: "drain-reboot", alert: heavy, since: r.clock, broke: r.clock, boot: "first"}, r.clock)
	r.c.waiting.keep(wish{node: nodeOf(1), action: "drain", alert: xid(1, "action", "drain"), since: r.clock, broke: r.clock}, r.clock)
	for range 3 {
		r.later(t, waitEvery)
	}
	want(t, r, map[string]string{nodeOf(1): "drain"})
	if r.count(ignored, ended) != 1 || len(r.waits()) != 0 {
		t.Errorf("%v wait\n%s", r.waits(), r.log)
	}
}

// TestNoAnswerIsNoEnd: where Alertmanager does not say that the alert has ended it waits on, which
// is told, and is drained when that says that it fires.
func TestNoAnswerIsNoEnd(t *testing.T) {
	for _, answer := range []string{"null", "<html>", "{}"} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if err := r.post(t, xid(0), disk(1)); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		r.manager.ofNode = answer
		r.later(t, 61*time.Minute)
		want(t, r, map[string]string{nodeOf(0): "drain-reboot"})
		if got := r.waits(); len(got) != 1 || r.count(failed, "alertmanager") != 1 || !strings.Contains(r.log.String(), "makes no sense") {
			t.Errorf("%s: %v wait\n%s", answer, got, r.log)
		}
		r.manager.ofNode = ""
		r.later(t, waitEvery)
		want(t, r, map[string]string{nodeOf(0): "drain-reboot", nodeOf(1): "drain"})
	}
}

// TestYoungKnowsOfNoEnd: an Alertmanager that has just been started has no alerts yet, also where
// it is started between two questions, or another one answers the second.
func TestYoungKnowsOfNoEnd(t *testing.T) {
	for _, between := range []bool{false, true} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if err := r.post(t, xid(0), disk(1)); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		has := r.manager.alerts
		r.clock = r.clock.Add(61 * time.Minute)
		r.manager.alerts = nil
		if between {
			r.manager.onNode = func() { r.manager.started = r.clock }
		} else {
			r.manager.started = r.clock
		}
		r.later(t, waitEvery)
		want(t, r, map[string]string{nodeOf(0): "drain-reboot"})
		if got := r.waits(); len(got) != 1 || r.count(failed, "alertmanager") != 1 || r.count(ignored, ended) != 0 {
			t.Errorf("between %v: %v wait\n%s", between, got, r.log)
		}
		r.manager.onNode, r.manager.alerts = nil, has
		r.later(t, young)
		want(t, r, map[string]string{nodeOf(0): "drain-reboot", nodeOf(1): "drain"})
	}
}

// TestEndedForAll: where Alertmanager's name stands for several, an alert has ended that none of
// those has which answer: what sends it may not reach the one that is asked.
func TestEndedForAll(t *testing.T) {
	for _, second := range []string{"has it", "has none", "is away", "answers with nonsense"} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if err := r.post(t, xid(0), disk(1)); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		u, err := url.Parse(r.manager.URL)
		if err != nil {
			t.Fatal(err)
		}
		hosts := []string{}
		other := newFakeManager(t)
		other.alerts = r.manager.alerts
		r.manager.alerts = nil
		switch second {
		case "has none":
			other.alerts = nil
		case "answers with nonsense":
			other.broken = "<html>"
		}
		if second != "is away" {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.2", u.Port()))
			if err != nil {
				t.Fatal(err)
			}
			s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				hosts = append(hosts, q.Host)
				other.Config.Handler.ServeHTTP(w, q)
			})}}
			s.Start()
			defer s.Close()
		}
		r.c.resolve = func(_ context.Context, name string) ([]string, error) {
			if name != u.Hostname() {
				return nil, fmt.Errorf("who is %s", name)
			}
			return []string{u.Hostname(), "127.0.0.2"}, nil
		}
		r.later(t, 61*time.Minute)
		_, out := r.api.out()[nodeOf(1)]
		if out != (second == "has it") || len(r.waits()) != 0 || r.count(ignored, ended) == 1 == out {
			t.Errorf("the other one %s: %v are out, %v wait\n%s", second, r.api.out(), r.waits(), r.log)
		}
		if second == "has it" && !slices.Equal(hosts, []string{u.Host}) { // by the name that is in the flag
			t.Errorf("asked as %q", hosts)
		}
	}
}

// TestEachIsTrustedByTheName: each of several Alertmanagers is asked at its address, and shows a
// certificate for the name of the flag.
func TestEachIsTrustedByTheName(t *testing.T) {
	m, ours := newFakeManager(t), newAuthority(t, "ours")
	m.alerts = []map[string]string{disk(1).Labels}
	s := httptest.NewUnstartedServer(m.Config.Handler)
	_ = s.Listener.Close()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Listener, s.TLS = l, &tls.Config{Certificates: []tls.Certificate{*ours.server(t)}} // for 127.0.0.1
	s.StartTLS()
	defer s.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, 10, nil)
	r.c.alertmanager = "https://" + net.JoinHostPort("127.0.0.1", port)
	r.c.resolve = func(context.Context, string) ([]string, error) { return []string{"127.0.0.2", "::2"}, nil }
	file := filepath.Join(t.TempDir(), "ca.crt")
	write(t, file, ours.pem)
	if err := r.c.trusts(file, ""); err != nil {
		t.Fatal(err)
	}
	each := r.c.several(t.Context())
	if want := []string{"https://127.0.0.2:" + port, "https://[::2]:" + port}; !slices.Equal(each, want) {
		t.Fatalf("%q, want %q", each, want)
	}
	if list, err := r.c.firing(t.Context(), each[0], `node="`+nodeOf(1)+`"`); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	for url, want := range map[string]string{
		"http://am": "http://192.0.2.1:80", "https://am/path": "https://192.0.2.1:443/path", "http://am:1/path": "http://192.0.2.1:1/path",
	} {
		r.c.alertmanager = url
		r.c.resolve = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1", "192.0.2.2"}, nil }
		if got := r.c.several(t.Context()); len(got) != 2 || got[0] != want {
			t.Errorf("%s: %q", url, got)
		}
		r.c.resolve = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
		if got := r.c.several(t.Context()); len(got) != 0 {
			t.Errorf("%s is one: %q", url, got)
		}
	}
}

// ending is the remediation's end of a real Alertmanager, and what that has posted there.
type ending struct {
	*rig
	url    string
	stop   func() // before anything of the controller's is looked at
	mu     sync.Mutex
	posted []string // status, alert and node
	shift  atomic.Int64
}

// newEnding starts a real Alertmanager with the deployed routes before a controller, to which it is
// an hour old.
func newEnding(t *testing.T) *ending {
	t.Helper()
	e := &ending{rig: newRig(t, 10, func(s *settings) { s.maxNodes = 1 })}
	e.shift.Store(int64(time.Hour))
	e.c.now = func() time.Time { return time.Now().Add(time.Duration(e.shift.Load())) }
	to := handler(e.c, "", prometheus.NewRegistry())
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/remediation" {
			return // other receivers
		}
		var text strings.Builder
		p, err := readPayload(io.TeeReader(r.Body, &text))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e.mu.Lock()
		for _, a := range p.Alerts {
			e.posted = append(e.posted, a.Status+" "+a.Labels["alertname"]+" "+a.Labels["node"])
		}
		e.mu.Unlock()
		q := httptest.NewRequestWithContext(r.Context(), http.MethodPost, "/webhook", strings.NewReader(text.String()))
		to.ServeHTTP(w, q)
	}))
	conf, err := alertmanager.Rehearsal(alertmanager.Config, door.URL, 1000)
	if err != nil {
		t.Fatal(err)
	}
	am, err := alertmanager.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	e.stop = func() {
		if err := am.Stop(); err != nil {
			t.Error(err)
		}
		door.Close()
	}
	t.Cleanup(e.stop)
	e.url, e.c.alertmanager = am.URL(), am.URL()
	return e
}

// send has an alert fire, or end.
func (e *ending) send(t *testing.T, labels map[string]string, fires bool) {
	t.Helper()
	now := time.Now()
	end := now
	if fires {
		end = now.Add(time.Hour)
	}
	body, err := json.Marshal([]any{map[string]any{"labels": labels, "startsAt": now.Add(-time.Minute), "endsAt": end}})
	if err != nil {
		t.Fatal(err)
	}
	if code, text := sendJSON(t, e.url+"/api/v2/alerts", string(body)); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
}

// times is how often something has been posted.
func (e *ending) times(what string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.posted {
		if p == what {
			n++
		}
	}
	return n
}

// until waits for something.
func (e *ending) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			e.stop()
			t.Fatalf("waited in vain until %s: %q\n%s", what, e.posted, e.log)
		}
	}
}

// has tells whether Alertmanager has an alert.
func (e *ending) has(t *testing.T, labels map[string]string) bool {
	t.Helper()
	list, err := e.c.firing(t.Context(), e.url, fmt.Sprintf("alertname=%q", labels["alertname"]))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(h held) bool { return maps.Equal(h.Labels, labels) })
}

// TestInhibitedEnds: of a real Alertmanager's alert that is inhibited, or silenced, when it ends no
// end is posted, neither then nor when that is over. Its node is not drained, and one whose alert
// goes on is.
func TestInhibitedEnds(t *testing.T) {
	e := newEnding(t)
	e.send(t, xid(0).Labels, true)
	e.until(t, "the first is out", func() bool { return len(e.api.out()) == 1 })
	fleet := map[string]string{"alertname": "FleetNodesFailing", "severity": "critical", "cluster": "jaguar"}
	for i := 1; i <= 4; i++ {
		e.send(t, disk(i).Labels, true)
		e.until(t, "it waits", func() bool { return slices.Contains(e.waits(), nodeOf(i)) })
	}
	// Beside the three whose alerts will end one that is never inhibited, of the same group, and
	// asks for nothing: whatever Alertmanager has to say of the group comes with it.
	beside := func(i int) map[string]string { return xid(i, "action", "raise-gc-thresh").Labels }
	for i := 1; i <= 3; i++ {
		e.send(t, beside(i), true)
	}
	rounds := func() {
		t.Helper()
		for i := 1; i <= 3; i++ {
			what := "firing GPUXidFatal " + nodeOf(i)
			before := e.times(what)
			e.until(t, what+" is posted again", func() bool { return e.times(what) >= before+3 })
		}
	}
	if code, text := sendJSON(t, e.url+"/api/v2/silences", fmt.Sprintf(
		`{"matchers":[%s,%s],"startsAt":%q,"endsAt":%q,"createdBy":"t","comment":"t"}`, is("node", nodeOf(2)), is("alertname", "NodeDiskError"),
		time.Now().UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	e.until(t, "it is silenced", func() bool { list, err := e.c.silences(t.Context()); return err == nil && len(list) == 1 })
	e.send(t, disk(2).Labels, false)
	e.send(t, disk(3).Labels, false)
	e.until(t, "the end of what nobody holds back is posted", func() bool { return e.times("resolved NodeDiskError "+nodeOf(3)) > 0 })
	e.send(t, fleet, true)
	e.until(t, "the fleet alert is there", func() bool { return e.has(t, fleet) })
	e.send(t, disk(1).Labels, false)
	rounds()
	e.send(t, fleet, false)
	e.until(t, "the fleet alert is over", func() bool { return !e.has(t, fleet) })
	rounds()
	for i := 1; i <= 2; i++ {
		if n := e.times("resolved NodeDiskError " + nodeOf(i)); n != 0 {
			t.Errorf("its end was posted %d times: Alertmanager does that now", n)
		}
	}
	for range 4 {
		e.shift.Add(int64(61 * time.Minute))
		e.c.wait(t.Context())
	}
	e.stop()
	want(t, e.rig, map[string]string{nodeOf(0): "drain-reboot", nodeOf(4): "drain"})
	over := told(t, e.rig, ended) // the third one's end may be asked for before it is posted
	has := func(i int) bool { return slices.Contains(over, "INFO "+nodeOf(i)+" NodeDiskError drain") }
	if got := e.waits(); len(got) != 0 || !has(1) || !has(2) || has(4) {
		t.Errorf("%v wait, %q have ended\n%s", got, over, e.log)
	}
}
