package server

import (
	"testing"
	"time"
)

// What is absent has the labels of the selector, whatever is said of its samples.
func TestExactByNameAbsent(t *testing.T) {
	apart := []string{`foo{node="a"} 5`, `foo{node="b"} 20`}
	cases := []exactNamed{
		{"smoothed", apart, `absent(nothing{region="eu",job="x"} smoothed)`, `{job="x", region="eu"} 1`},
		{"anchored", apart, `absent_over_time(nothing{region="eu",job="x"}[1m] anchored)`, "error"},
		{"smoothed over time", apart, `absent_over_time(nothing{region="eu"}[1m] smoothed)`, "error"},
		{"with the group's label", apart, `absent(nothing{cluster="jaguar",job="x"} smoothed)`, "*"},
		{"there", apart, `absent(foo{node="a"} smoothed)`, ""},
		{"as it is", apart, `absent(nothing{region="eu",job="x"})`, `{job="x", region="eu"} 1`},
	}
	shards := exactShards(cases)
	for name, labelled := range map[string]bool{"without labels": false, "with a label": true} {
		t.Run(name, func(t *testing.T) {
			h := exactTable(t, 1, labelled, "", shards...)
			end := h.w.start.Add(17*time.Minute + 3*time.Second)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { h.named(t, c, end, !labelled) })
			}
			if t.Logf("ran as %v", h.tally.modes); h.tally.modes["push"] == 0 {
				t.Errorf("nothing was asked of shards: %v", h.tally.modes)
			}
		})
	}
}
