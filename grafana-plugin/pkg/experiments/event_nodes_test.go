package experiments

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// hiding answers as another does, but for queries of a metric, of which it has nothing; gauges are
// the nodes whose gauges of Xids were asked for over a range.
type hiding struct {
	prom.Asker
	metric string

	mu     sync.Mutex
	gauges []string
}

func (h *hiding) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	if h.metric != "" && strings.Contains(query, h.metric) {
		return prom.Answer{}, nil
	}
	return h.Asker.Instant(ctx, query, at)
}

func (h *hiding) Range(ctx context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	a, err := h.Asker.Range(ctx, query, from, until, step)
	if strings.Contains(query, "DCGM_FI_DEV_XID_ERRORS") {
		h.mu.Lock()
		for _, s := range a.Series {
			h.gauges = append(h.gauges, s.Labels["node"])
		}
		h.mu.Unlock()
	}
	return a, err
}

// TestXidEvents: what rules recorded of the gauges tells which of them are read over the range, and
// the events are those that all of them tell.
func TestXidEvents(t *testing.T) {
	w := worldOf(t, "xids")
	const from, until = 90 * time.Minute, 299 * time.Minute
	events := func(metric string) (found, gauges []string) {
		h := &hiding{Asker: w.asker, metric: metric}
		r := w.run(t, settingsOf(t, ""), `{"queryType":"events","experiments":["x"]}`, from, until)
		r.asker = h
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(h.gauges)
		return rowsOf(t, frames[0], "time", "title", "text"), h.gauges
	}
	all, gauges := events("node:gpu_seen:count")
	equal(t, "gauges that are read where rules say nothing", gauges,
		[]string{"again", "blank", "came", "late", "lost", "new", "now", "old", "other"})
	some, gauges := events("")
	equal(t, "events", some, all)
	equal(t, "gauges that are read", gauges, []string{"again", "came", "late", "lost", "new", "now", "other"})
	var nodes []string
	for _, e := range all {
		_, after, _ := strings.Cut(e, "of node ")
		name, _, _ := strings.Cut(after, " ")
		nodes = append(nodes, name)
	}
	equal(t, "nodes with events", slices.Sorted(slices.Values(nodes)), []string{"again", "lost", "new", "now", "other"})
}

// TestPresence: what happens on a node belongs to who was there, or had left it eventGrace before
// at most: a pod is evicted minutes after its node went silent.
func TestPresence(t *testing.T) {
	n := node{"c", "n"}
	there := presence{n: {{1_000_000, 2_000_000}}}
	grace := eventGrace.Milliseconds()
	for _, c := range []struct {
		name string
		node node
		at   [2]int64
		want bool
	}{
		{"before", n, [2]int64{900_000, 999_999}, false},
		{"from before until it came", n, [2]int64{900_000, 1_000_000}, true},
		{"meanwhile", n, [2]int64{1_500_000, 1_500_000}, true},
		{"soon after", n, [2]int64{2_000_000 + grace, 2_000_000 + grace}, true},
		{"too late", n, [2]int64{2_000_001 + grace, 2_000_001 + grace}, false},
		{"elsewhere", node{"c", "m"}, [2]int64{1_500_000, 1_500_000}, false},
	} {
		if got := there.overlaps(c.node, c.at[0], c.at[1]); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
