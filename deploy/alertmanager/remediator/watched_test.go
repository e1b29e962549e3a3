package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestWatchdogVouches: while the Watchdog of the fleet's rules counts as heard of, so does each
// alert that holds everything back: one that was sent just before the rules failed is not over for
// Alertmanager before the Watchdog is too old. The page says how old that is.
func TestWatchdogVouches(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("../../..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	m := regexp.MustCompile(`--resend-delay=(\S+)\n`).FindStringSubmatch(read("deploy/ruler/kubernetes.yaml"))
	if m == nil {
		t.Fatal("the ruler has no --resend-delay")
	}
	resend, err := time.ParseDuration(m[1])
	if err != nil {
		t.Fatal(err)
	}
	var s settings
	s.flags(flag.NewFlagSet("", flag.ContinueOnError))
	held := regexp.MustCompile("^(?:" + s.fleetAlerts + ")$")
	slowest, seen := time.Duration(0), 0
	for _, file := range []string{"fleet", "locations", "targets"} {
		var rules struct {
			Groups []struct {
				Interval string
				Rules    []struct{ Alert string }
			}
		}
		if err := yaml.Unmarshal([]byte(read("alerts/global/"+file+".yaml")), &rules); err != nil {
			t.Fatal(err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if !held.MatchString(r.Alert) {
					continue
				}
				seen++
				interval, err := time.ParseDuration(g.Interval)
				if err != nil {
					t.Fatal(err)
				}
				slowest = max(slowest, interval)
			}
		}
	}
	if seen < 10 {
		t.Fatalf("only %d rules hold everything back", seen)
	}
	// It is sent at the first evaluation more than resend after the last time, and over for
	// Alertmanager four times that after it was sent last.
	if sure := 4*resend - (resend + slowest); sentWithin > sure {
		t.Errorf("the Watchdog may be %s old, and what it vouches for is over after %s", sentWithin, sure)
	}
	page := read("docs/remediation.md")
	if want := "must have heard within two minutes"; sentWithin != 2*time.Minute || !strings.Contains(page, want) {
		t.Errorf("the Watchdog may be %s old, and the page does not say %q", sentWithin, want)
	}
	r := newRig(t, 10, func(s *settings) { s.watchdog, s.watchdogScope = "Watchdog", "fleet" })
	r.manager.always = []string{"Watchdog"}
	for i, old := range []time.Duration{sentWithin, sentWithin + time.Second} {
		r.manager.watched = r.clock.Add(-old)
		if err := r.post(t, xid(i)); (err == nil) != (old <= sentWithin) {
			t.Errorf("heard of %s ago: %v", old, err)
		}
	}
}
