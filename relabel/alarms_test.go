package relabel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// TestKeptByFew: a plan that takes hardly anything names the queries that keep the rest, and only
// then.
func TestKeptByFew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.yaml")
	const one = "groups:\n  - name: g\n    rules:\n      - {alert: Named, expr: up > 0}\n"
	const all = one + "      - {alert: All, expr: 'count({__name__=~\".+\"}) > 1'}\n"
	for _, tc := range []struct {
		text          string
		stored, drops int64
		want          string
	}{
		{all, 421, 0, "Hardly anything goes: 0 of 421 series"},
		{all, 421, 200, ""},
		{one, 421, 0, ""},
	} {
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		set := new(uses.Set)
		if err := uses.Rules(set, file); err != nil {
			t.Fatal(err)
		}
		got := keptByFew(set, propose.Saving{Series: tc.stored}, propose.Saving{Series: tc.drops})
		if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) ||
			got != "" && (!strings.Contains(got, "r.yaml:5 (alert All)") || strings.Contains(got, "Named")) {
			t.Errorf("%d of %d: %q", tc.drops, tc.stored, got)
		}
	}
}

// TestLeftOut: a plan that files were left out of says so first, with their places.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	text := []byte("groups: [{name: g, rules: [{alert: A, expr: up > 0}]}]\n")
	for _, name := range []string{"a.yaml", "b/c.yaml", "b/d.yaml"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string]string{
		"b": "Left out by --exclude: 2 files in " + filepath.Join(dir, "b") + " (2). What is used",
		"":  "",
	} {
		set := new(uses.Set)
		if pattern != "" {
			if err := set.Exclude(pattern); err != nil {
				t.Fatal(err)
			}
		}
		if err := uses.Rules(set, dir); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(alarms(set, &inventory.Inventory{}, prove.Proof{}, propose.Saving{}, propose.Saving{}), "\n")
		if !strings.Contains(got, want) || want == "" && strings.Contains(got, "Left out") {
			t.Errorf("%q: %s", pattern, got)
		}
	}
}

// TestNotRendered: sources of jsonnet beside rules that are read are an alarm, until they are left
// out.
func TestNotRendered(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "groups: [{name: g, rules: [{alert: A, expr: up > 0}]}]\n", "b.libsonnet": "{ rules+:: [{ expr: 'lost > 1' }] }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string]bool{"": true, "*.libsonnet": false} {
		for name, read := range map[string]func(*uses.Set, string) error{"rules": uses.Rules, "autoscalers": uses.Autoscalers} {
			set := new(uses.Set)
			if pattern != "" {
				if err := set.Exclude(pattern); err != nil {
					t.Fatal(err)
				}
			}
			if err := read(set, dir); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(alarms(set, &inventory.Inventory{}, prove.Proof{}, propose.Saving{}, propose.Saving{}), "\n")
			if strings.Count(got, "what is in it is jsonnet that is not rendered (1 files") != map[bool]int{true: 1}[want] {
				t.Errorf("--%s without %q: %s", name, pattern, got)
			}
		}
	}
}

// TestLogEnded: a plan of a log that ended long ago says so first, however much of it is there.
func TestLogEnded(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for ago, want := range map[time.Duration]string{
		0: "", 3 * day: "", 20 * day: "The usage log ends on 2026-11-01 ", 60 * day: "The usage log has little of the time that was asked for: 30 days of 90 days",
	} {
		var text strings.Builder
		for d := 100 * day; d >= ago; d -= day {
			fmt.Fprintf(&text, `{"v":1,"time":%q,"endpoint":"query","query":"x","metrics":["x"]}`+"\n", now.Add(time.Minute-d).Format(time.RFC3339))
		}
		file := filepath.Join(t.TempDir(), "usage.jsonl")
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		set := new(uses.Set)
		if err := uses.Log(t.Context(), set, file, uses.LogOptions{Window: 90 * day, Now: now}); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(alarms(set, &inventory.Inventory{}, prove.Proof{}, propose.Saving{}, propose.Saving{}), "\n")
		if !strings.Contains(got, want) || strings.Contains(got, "The usage log ") != (want != "") {
			t.Errorf("%s ago: %s", ago, got)
		}
	}
}
