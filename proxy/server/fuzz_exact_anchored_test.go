package server

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestWhatIsTheSameAtAllSteps: a part that shards run and that an @ makes the same at all steps is
// so for what stands above it too, here as in Prometheus' engine: it warns of no sort then, gives
// timestamp() each step's own time, and answers the same.
func TestWhatIsTheSameAtAllSteps(t *testing.T) {
	ran, pushed := 0, 0
	for seed := uint64(1); ran < 3; seed++ {
		h := &exactHarness{t: t, w: newExactWorld(seed, exactSingle, time.Now()), tally: &exactTally{}}
		if h.w.strange {
			continue
		}
		ran++
		h.serve()
		at := "@ " + stamp(h.w.start.Add(h.w.length/2))
		for _, text := range []string{
			"sort(sum by (node) (up AT))",
			"sort_desc(max by (job) (rate(http_requests_total[5m] AT)) * 2)",
			"sort(sum(up AT) + on () count(up AT))",
			"sort(sum(up AT) or sum by (job) (up))", // this one does depend on the step
			"sort(sum by (job) (up))",
			"label_replace(sort(avg by (job) (up AT)), \"a\", \"b\", \"\", \"\")",
			"max_over_time(sort(sum by (job) (up AT))[5m:1m])",
			"sum_over_time((sum(up AT) + sum(up))[5m:1m])",
			"timestamp(sum(up AT))",
			"timestamp((sum(up AT)))",
			"sort(timestamp(sum(up AT)))",
			"sort(absent(nothing_has_this_name AT))",
			"sort(absent_over_time(nothing_has_this_name[5m] AT))",
			"sum(up AT) - sum(up)",
			"quantile(0.5, sum by (node) (up AT))",
			"count_values(\"v\", sum by (node) (up AT))",
			"scalar(sum(up AT)) + sum(up)",
		} {
			for _, moment := range []string{at, "@ start()", "@ end()"} {
				q := exactQuestion{query: strings.ReplaceAll(text, "AT", moment), end: h.w.start.Add(h.w.length), step: 15 * time.Second}
				q.start = q.end.Add(-10 * q.step)
				v := h.check(q)
				pushed += v.pushed
				if v.failed {
					t.Errorf("seed %d, %s: ran as %s: %s", seed, q.query, v.mode, v.text)
				}
			}
		}
	}
	if pushed == 0 {
		t.Error(fmt.Sprint("nothing ran on the shards in ", ran, " worlds"))
	}
}
