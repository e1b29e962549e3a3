package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/deploy/alertmanager"
)

// quiet is Alertmanager's answer that has one silence, of matchers as its API writes them.
func quiet(state string, matchers ...string) string {
	return fmt.Sprintf(`[{"id":"a","status":{"state":%q},"comment":"seen to","matchers":[%s]}]`, state, strings.Join(matchers, ","))
}

// is is the matcher of one label's value, as its API writes it.
func is(name, value string) string {
	return fmt.Sprintf(`{"name":%q,"value":%q,"isRegex":false,"isEqual":true}`, name, value)
}

// TestSilencedWhileItWaits: Alertmanager posts no alert that is silenced, so that nobody cordons
// its node. One that waits here when somebody silences it is not cordoned either, whatever it waits
// for, and goes on waiting; others have the place.
func TestSilencedWhileItWaits(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 1 })
		if fleet {
			r.manager.names = []string{"FleetNodesFailing"}
		}
		if err := r.post(t, xid(0), xid(1), xid(2, "action", "drain")); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		r.manager.names = nil
		r.manager.silences = quiet("active", is("node", nodeOf(1)))
		r.later(t, waitEvery)
		out := map[string]string{nodeOf(0): "drain-reboot"}
		want(t, r, out)
		r.later(t, time.Hour)
		out[nodeOf(2)] = "drain"
		want(t, r, out)
		r.later(t, 2*time.Hour)
		want(t, r, out)
		if got := r.waits(); !slices.Equal(got, []string{nodeOf(1)}) || r.count(refused, silenced) == 0 {
			t.Errorf("%v wait\n%s", got, r.log)
		}
		r.manager.silences = quiet("expired", is("node", nodeOf(1)))
		r.later(t, waitEvery)
		out[nodeOf(1)] = "drain-reboot"
		want(t, r, out)
	}
}

// TestSilencesAreAskedForOnce: in a round once, for however many that wait, and for nobody who does
// not: Alertmanager has just posted that one.
func TestSilencesAreAskedForOnce(t *testing.T) {
	r := newRig(t, 100, func(s *settings) { s.maxNodes = 50 })
	r.manager.names = []string{"FleetNodesFailing"}
	r.manager.silences = quiet("active", is("alertname", "GPUXidFatal"))
	var all []alert
	for i := range 7 {
		all = append(all, xid(i))
	}
	if err := r.post(t, all...); err != nil {
		t.Fatal(err)
	}
	r.later(t, waitEvery)
	if r.manager.asked != 0 {
		t.Errorf("asked %d times for what a fleet alert holds back", r.manager.asked)
	}
	r.manager.names = nil
	r.later(t, waitEvery)
	want(t, r, map[string]string{})
	if r.manager.asked != 1 || r.count(refused, silenced) != 7 || len(r.waits()) != 7 {
		t.Errorf("asked %d times, %v wait\n%s", r.manager.asked, r.waits(), r.log)
	}
	// The time goes on: somebody looks at a node that he has silenced.
	r.later(t, waitFor)
	if len(r.waits()) != 0 || r.count(ignored, waited) != 7 {
		t.Errorf("%v wait\n%s", r.waits(), r.log)
	}
	r.manager.asked = 0
	if err := r.post(t, xid(9)); err != nil {
		t.Fatal(err)
	}
	want(t, r, map[string]string{nodeOf(9): "drain-reboot"})
	if r.manager.asked != 0 {
		t.Errorf("asked %d times for what was posted", r.manager.asked)
	}
}

// TestSilencesThatCannotBeRead: an answer that is missing is a no, asked for once in a round too,
// and the payload beside it is decided on.
func TestSilencesThatCannotBeRead(t *testing.T) {
	for _, answer := range []string{
		"null", "<html>", `{}`, quiet("active", is("node", "x"))[:60],
		quiet("active", `{"name":"node","value":"(","isRegex":true,"isEqual":true}`),
	} {
		r := newRig(t, 100, func(s *settings) { s.maxNodes = 50 })
		r.manager.names = []string{"FleetNodesFailing"}
		if err := r.post(t, xid(1), xid(2)); err != nil {
			t.Fatal(err)
		}
		r.later(t, waitEvery)
		r.manager.names, r.manager.silences = nil, answer
		r.later(t, waitEvery)
		want(t, r, map[string]string{})
		if got := r.waits(); len(got) != 2 || r.count(failed, "alertmanager") != 1 || r.manager.asked != 1 {
			t.Errorf("%s: %v wait\n%s", answer, got, r.log)
		}
		if err := r.post(t, xid(3)); err != nil {
			t.Errorf("%s: the payload is answered with %v", answer, err)
		}
		want(t, r, map[string]string{nodeOf(3): "drain-reboot"})
		if r.manager.asked != 2 {
			t.Errorf("%s: asked %d times", answer, r.manager.asked)
		}
		r.manager.silences = ""
		r.later(t, waitEvery)
		want(t, r, map[string]string{nodeOf(1): "drain-reboot", nodeOf(2): "drain-reboot", nodeOf(3): "drain-reboot"})
	}
}

// TestSilencesMatchAsInAlertmanager: what a real one says of a silence is read, and an alert is
// matched by it where Alertmanager matches it.
func TestSilencesMatchAsInAlertmanager(t *testing.T) {
	conf, err := alertmanager.Rehearsal(alertmanager.Config, "http://127.0.0.1:1", 100)
	if err != nil {
		t.Fatal(err)
	}
	am, err := alertmanager.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := am.Stop(); err != nil {
			t.Error(err)
		}
	}()
	r := newRig(t, 1, nil)
	r.c.alertmanager = am.URL()
	labels := xid(1).Labels
	labels["path"] = "a\nb"
	type m struct {
		Name    string `json:"name"`
		Value   string `json:"value"`
		IsRegex bool   `json:"isRegex"`
		IsEqual bool   `json:"isEqual"`
	}
	for _, c := range []struct {
		matchers []m
		pending  bool
		want     bool
	}{
		{[]m{{"node", nodeOf(1), false, true}}, false, true},
		{[]m{{"node", nodeOf(1), false, true}}, true, false}, // it begins later
		{[]m{{"node", nodeOf(2), false, true}}, false, false},
		{[]m{{"node", nodeOf(1), false, false}, {"cluster", "jaguar", false, true}}, false, false},
		{[]m{{"node", nodeOf(2), false, false}, {"cluster", "jaguar", false, true}}, false, true},
		{[]m{{"node", nodeOf(1), false, true}, {"alertname", "GPUHot", false, true}}, false, false}, // all must match
		{[]m{{"node", "gpu-0000.", true, true}}, false, true},
		{[]m{{"node", "gpu-0000", true, true}}, false, false}, // from the beginning to the end
		{[]m{{"node", "pu-00001", true, true}}, false, false},
		{[]m{{"node", "x|gpu-00001", true, true}}, false, true}, // with all its alternatives
		{[]m{{"node", "gpu|00001", true, true}}, false, false},
		{[]m{{"node", "gpu-0000.", true, false}, {"cluster", "jaguar", false, true}}, false, false},
		{[]m{{"node", "cpu-.+", true, false}, {"cluster", "jaguar", false, true}}, false, true},
		{[]m{{"node", "gpu.00001", false, true}}, false, false},                                     // no regular expression
		{[]m{{"team", "", false, true}, {"cluster", "jaguar", false, true}}, false, true},           // a label that is not there is empty
		{[]m{{"team", "infra|", true, true}, {"cluster", "jaguar", false, true}}, false, true},      // likewise
		{[]m{{"team", "infra", false, false}, {"cluster", "jaguar", false, true}}, false, true},     // likewise
		{[]m{{"team", ".+", true, true}, {"cluster", "jaguar", false, true}}, false, false},         // likewise
		{[]m{{"path", "a.b", true, true}, {"cluster", "jaguar", false, true}}, false, false},        // a dot is no line's end
		{[]m{{"path", "(?s)a.b", true, true}, {"cluster", "jaguar", false, true}}, false, true},     // unless it is asked for
		{[]m{{"NODE", nodeOf(1), false, true}, {"cluster", "jaguar", false, true}}, false, false},   // as it is written
		{[]m{{"node", "GPU-00001", false, true}, {"cluster", "jaguar", false, true}}, false, false}, // likewise
	} {
		begin := time.Now().Add(-time.Minute)
		if c.pending {
			begin = begin.Add(time.Hour)
		}
		body, err := json.Marshal(map[string]any{
			"matchers": c.matchers, "startsAt": begin, "endsAt": begin.Add(2 * time.Hour), "createdBy": "t", "comment": "t",
		})
		if err != nil {
			t.Fatal(err)
		}
		code, text := sendJSON(t, am.URL()+"/api/v2/silences", string(body))
		var made struct{ SilenceID string }
		if err := json.Unmarshal([]byte(text), &made); err != nil || code != 200 {
			t.Fatalf("%+v: %d %s", c.matchers, code, text)
		}
		list, err := r.c.silences(t.Context())
		if err != nil {
			t.Fatalf("%+v: %v", c.matchers, err)
		}
		if got := slices.ContainsFunc(list, func(s silence) bool { return s.match(labels) }); got != c.want {
			t.Errorf("%+v: %v", c.matchers, got)
		}
		if code, text := send(t, "DELETE", am.URL()+"/api/v2/silence/"+made.SilenceID, "", ""); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	if list, err := r.c.silences(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v are left, which have ended (%v)", list, err)
	}
}

// sendJSON posts a body that says what it is.
func sendJSON(t *testing.T, address, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
