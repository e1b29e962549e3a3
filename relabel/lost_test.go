package relabel_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// TestLostUsage: what a usage log lacks may be the only use of something. With nothing else to go
// by there is no plan; otherwise it says so first, and proves nothing.
func TestLostUsage(t *testing.T) {
	const asked = `{"v":1,"time":"2026-11-20T11:00:00Z","user":"ada","endpoint":"query","query":"used","metrics":["used"],"verdict":"pass"}` + "\n"
	const lost = `{"v":1,"time":"2026-11-20T10:00:00Z","range_s":60,"purpose":"lost","lost":3}` + "\n"
	src := pages(t, map[string]string{"j/1": "used 1\nread 1\nunused 1\n"})
	logged := func(text string, more ...string) *uses.Set {
		set := queries(more...)
		path := write(t, filepath.Join(t.TempDir(), "usage.jsonl"), text)
		if err := uses.Log(t.Context(), set, path, uses.LogOptions{Now: now}); err != nil {
			t.Fatal(err)
		}
		return set
	}
	const alarm = "The usage log lost requests, so that nothing here is proven: 3 requests have no line, from 2026-11-20 10:00:00 to 2026-11-20 10:01:00 (UTC)."
	for name, c := range map[string]struct {
		set     *uses.Set
		refused bool
		lost    int64
	}{
		"without losses, alone": {logged(asked), false, 0},
		"alone":                 {logged(asked + lost), true, 3},
		"beside others":         {logged(asked+lost, "read"), false, 3},
	} {
		p, err := relabel.Make(t.Context(), relabel.Options{Source: src, Uses: c.set, Now: now})
		if c.refused {
			if !errors.Is(err, relabel.ErrLost) || !strings.Contains(err.Error(), "3 requests have no line") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(strings.Join(p.Alarms, "\n"), alarm); said != (c.lost > 0) || p.Inputs.Lost != c.lost {
			t.Errorf("%s: alarms %q, %d lost", name, p.Alarms, p.Inputs.Lost)
		}
		if proven := p.Unproven() == ""; proven != (c.lost == 0) {
			t.Errorf("%s: unproven %q", name, p.Unproven())
		}
		for _, r := range p.Rules {
			if strings.Contains(r.Evidence.Text, "but for 3 requests that were lost") != (c.lost > 0) {
				t.Errorf("%s: evidence %q", name, r.Evidence.Text)
			}
		}
		if len(p.Rules) == 0 {
			t.Errorf("%s: nothing goes", name)
		}
	}
}
