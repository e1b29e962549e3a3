package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func testEvents(t *testing.T, s *stage) {
	rows := s.rows(t, `{"queryType":"events","experiments":["`+spread+`"]}`)
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[id(row, "id")] || id(row, "id") == "" {
			t.Errorf("event %v is there twice, or has no id", row)
		}
		seen[id(row, "id")] = true
		if at := row["time"].(time.Time); at.Before(s.from.Add(-every)) && row["timeEnd"] == nil || at.After(s.until) {
			t.Errorf("event %v is outside the window", row)
		}
	}
	// has says that an event about all of these words begins within a step of a moment.
	has := func(at time.Time, words ...string) bool {
		return slices.ContainsFunc(rows, func(row map[string]any) bool {
			d := row["time"].(time.Time).Sub(at)
			all := strings.ToLower(fmt.Sprint(row["title"], " ", row["text"], " ", row["tags"]))
			return d > -2*time.Minute && d < 12*time.Minute &&
				!slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, strings.ToLower(w)) })
		})
	}
	x := s.faults[string(cluster.GPUXidFatal)]
	node, _, _ := strings.Cut(x.Target, "/")
	if !has(x.From, "xid 95", node) {
		t.Errorf("no event tells of Xid 95 on %s at %s: %v", node, x.From, rows)
	}
	ill := s.faults[string(cluster.NodeNotReady)]
	if !has(ill.From, ill.Target, "ready") {
		t.Errorf("no event tells that %s is not ready at %s: %v", ill.Target, ill.From, rows)
	}
	for _, p := range s.of(spread) { // the Xid ended some
		if p.Failed && p.Removed.Sub(p.Ended) > 2*late && p.Ended.After(s.from.Add(5*time.Minute)) &&
			p.Ended.Before(s.until.Add(-5*time.Minute)) && !has(p.Ended, "fail") {
			t.Errorf("no event tells that pods failed at %s, %s among them", p.Ended, p.Name)
		}
	}
}
