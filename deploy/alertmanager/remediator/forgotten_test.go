package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestForgottenIsTold: what waits is in memory. A program that is told to end says in its log what
// it forgets, each with node, alert and action, and how many: nobody else knows.
func TestForgottenIsTold(t *testing.T) {
	api, manager := newFakeAPI(t, 10), newFakeManager(t)
	manager.names, manager.started = []string{"FleetNodesFailing"}, time.Now().Add(-time.Hour)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("kube-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, waiting := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		at, code := make(chan string, 1), make(chan int, 1)
		var out safeBuffer
		args := []string{
			"--listen-address=127.0.0.1:0", "--cluster=jaguar", "--alertmanager=" + manager.URL, "--watchdog=", "--watchdog-scope=",
			"--kubernetes-url=" + api.URL, "--kubernetes-token-file=" + token, "--kubernetes-ca-file=",
		}
		go func() { code <- run(ctx, args, &out, func(a net.Addr) { at <- "http://" + a.String() }) }() // waited for below
		var base string
		select {
		case base = <-at:
		case c := <-code:
			t.Fatalf("exit code %d: %s", c, out.String())
		}
		if waiting {
			body, err := json.Marshal(payload{Version: "4", Alerts: []alert{xid(2, "action", "drain"), xid(1)}})
			if err != nil {
				t.Fatal(err)
			}
			if code, text := send(t, "POST", base+"/webhook", "", string(body)); code != 200 {
				t.Errorf("%d %s", code, text)
			}
		}
		cancel()
		if c := <-code; c != 0 {
			t.Errorf("it ended with %d", c)
		}
		var told []string
		for line := range strings.Lines(out.String()) {
			var m struct {
				Level, Msg, Node, Alert, Action string
				Nodes                           int
			}
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			if m.Level != "WARN" {
				continue
			}
			if m.Node != "" {
				told = append(told, m.Msg+" "+m.Node+" "+m.Alert+" "+m.Action)
			} else {
				told = append(told, strings.Repeat("I", m.Nodes))
			}
		}
		var want []string
		if waiting {
			want = []string{
				"forgotten " + nodeOf(1) + " GPUXidFatal drain-reboot",
				"forgotten " + nodeOf(2) + " GPUXidFatal drain",
				"II",
			}
		}
		if !slices.Equal(told, want) {
			t.Errorf("%q\n%s", told, out.String())
		}
	}
}

// TestForgottenIsAll: what waits behind something heavier of the same node is told too, of one
// node.
func TestForgottenIsAll(t *testing.T) {
	r := newRig(t, 10, nil)
	kept(r, "drain-reboot", "first", "drain", "")
	r.c.forget()
	for _, part := range []string{`"action":"drain-reboot"`, `"action":"drain"`, `"nodes":1`} {
		if n := strings.Count(r.log.String(), part); n != 1 {
			t.Errorf("%s is there %d times:\n%s", part, n, r.log)
		}
	}
}

// TestStartIsTold: a program that was killed tells nothing. That it was started anew is a metric,
// so that a rule can say so.
func TestStartIsTold(t *testing.T) {
	before := time.Now().Unix()
	r := newRig(t, 1, nil)
	if got := testutil.ToFloat64(r.c.started); got < float64(before) || got > float64(time.Now().Unix()+1) {
		t.Errorf("it says that it was started at %f", got)
	}
	base, _ := start(t, "--listen-address=127.0.0.1:0", "--cluster=jaguar", "--alertmanager=http://127.0.0.1:1",
		"--kubernetes-url=http://127.0.0.1:1", "--kubernetes-ca-file=", "--kubernetes-token-file=")
	if code, text := send(t, "GET", base+"/metrics", "", ""); code != 200 || !strings.Contains(text, "\nremediator_start_time_seconds ") {
		t.Errorf("%d\n%s", code, text)
	}
}
