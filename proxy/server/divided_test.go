package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestRangeOverAShardThatComes: of a range that ends after a group got another shard only the steps
// that read the time since then are evaluated here, and the answer is of all of them.
func TestRangeOverAShardThatComes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}}, limits(ample), func(o *Options) { o.ConfigFile = file })
	third := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "instance": "jaguar-2", "job": "fake"}}})
	shards := strings.TrimSuffix(r.config, limits(ample))
	writeText(t, file, shards+fmt.Sprintf("      - replicas:\n          - {url: %q}\n", third.URL())+limits(ample))
	ask := func(what string, stretches float64) {
		t.Helper()
		before, now := plans(t, r.s, planStretches), time.Now()
		from, until := stamp(now.Add(-20*time.Minute)), stamp(now.Add(2*time.Minute))
		got := r.asks("/api/v1/query_range", "query", "sum(up)", "start", from, "end", until, "step", "30")
		n, want := plans(t, r.s, planStretches)-before, fmt.Sprintf(`"%.0f"`, 2+stretches)
		if got.status != 200 || n != stretches || strings.Count(string(got.body), want) != 45 {
			t.Errorf("%s: %d, %.0f in stretches: %.600s", what, got.status, n, got.body)
		}
	}
	ask("before", 0)
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	ask("with a third shard", 1)
	if raw := r.metric("spillway_query_plans_total", "mode=stretches", "cause=sick"); raw != 1 {
		t.Errorf("%.0f were in stretches since the targets may be moving", raw)
	}
}
