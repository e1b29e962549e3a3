package fidelity

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/seamref"
)

// TestWhatRulesAreFor: three rules whose absence ten worlds hardly show are each held against the
// one case that they are for. Times are in seconds, scrapes 15 s apart; s is a stale marker, S one
// of a scrape that succeeded, f a sample of a scrape that failed.
func TestWhatRulesAreFor(t *testing.T) {
	for _, c := range []struct {
		name, base, other string
		until             int64
		without           seamref.Rules
		want, wrong       string // with the rule, and without it
	}{
		{"the target did not show the series at 45, and shows it again at 53: without the rule its value goes on", "0 15 30 45S 60 75", "8 23 38 53 68", 80, seamref.Rules{NoMarkers: true}, "a0 a15 a30 a45S a60 a75", "a0 a15 a30 b38 a60 a75"},
		{"the base was stopped at 50: without the rule a query at 65 gets what it knew at 45", "0 15 30 45", "8 23 38 53", 65, seamref.Rules{LateEdges: true}, "a0 a15 a30 a45 b53", "a0 a15 a30 a45"},
		{
			"a pod is removed at 43, the other replica finds it dead at 44 and is stopped itself: without the rule up is 0 for as long as a query looks back", "0 15 30 45s", "14 29 44f", 300,
			seamref.Rules{Before: true},
			"a0 a15 a30 a45s", "a0 a15 a30 b44f",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, other := entries(t, c.base, 0), entries(t, c.other, 1)
			if got := written(seamref.Splice(base, other, 0, c.until)); got != c.want {
				t.Errorf("the rules make %s, not %s", got, c.want)
			}
			if got := written(c.without.Splice(base, other, 0, c.until)); got != c.wrong {
				t.Errorf("without the rule there is %s, not %s: the case does not show what it is for", got, c.wrong)
			}
		})
	}
}

// entries reads a line of times.
func entries(t *testing.T, text string, copy int) (out []seamref.Sample) {
	t.Helper()
	for _, f := range strings.Fields(text) {
		at, err := strconv.ParseInt(strings.TrimRight(f, "sSf"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s := seamref.Sample{T: at, Copy: copy, Marker: strings.ContainsAny(f, "sS")}
		switch f[len(f)-1] {
		case 'S':
			s.Scrape = seamref.Succeeded
		case 'f':
			s.Scrape, s.Zero = seamref.Failed, true
		}
		out = append(out, s)
	}
	return out
}

func written(ss []seamref.Sample) string {
	var out []string
	for _, s := range ss {
		mark := ""
		switch {
		case s.Marker && s.Scrape == seamref.Succeeded:
			mark = "S"
		case s.Marker:
			mark = "s"
		case s.Scrape == seamref.Failed:
			mark = "f"
		}
		out = append(out, fmt.Sprintf("%c%d%s", "ab"[s.Copy], s.T, mark))
	}
	return strings.Join(out, " ")
}
