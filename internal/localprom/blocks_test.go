package localprom

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// snapshot returns a directory with blocks that hold text's series from start on.
func snapshot(t testing.TB, text string, start time.Time) string {
	t.Helper()
	s, err := Start(t.Context(), Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	load(t, s, text, start)
	dir := t.TempDir()
	if err := s.DB().Snapshot(dir, true); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBlocks(t *testing.T) {
	now := time.Now().Truncate(time.Minute)
	old, older := snapshot(t, jobs, now.Add(-3*time.Hour)), snapshot(t, jobs, now.Add(-6*time.Hour))
	s := start(t, Options{Blocks: []string{old}, DisableWAL: true})
	load(t, s, "load 15s\n  up 1x4", now.Add(-time.Minute))
	c := promAPI(t, s)
	count := func(at time.Time) string {
		v, _, err := c.Query(t.Context(), `count({job="api"})`, at)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(v.String(), " @")[0]
	}
	if got := count(now.Add(-3*time.Hour + time.Minute)); got != "{} => 5" {
		t.Errorf("from the block given at the start: %q", got)
	}
	if got := count(now.Add(-6*time.Hour + time.Minute)); got != "" {
		t.Errorf("before the back-fill: %q", got)
	}
	if err := s.AddBlocks(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if err := s.AddBlocks(t.Context(), older); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if got := count(now.Add(-6*time.Hour + time.Minute)); got != "{} => 5" {
		t.Errorf("after the back-fill: %q", got)
	}
	if err := s.AddBlocks(t.Context(), filepath.Join(old, "none")); err == nil || !strings.Contains(err.Error(), "blocks directory") {
		t.Errorf("no such directory: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What was linked is whole after the shard that had it is gone.
	s2 := start(t, Options{Blocks: []string{old, older}})
	if n := len(s2.DB().Blocks()); n != 2 {
		t.Errorf("%d blocks in a second shard, want 2", n)
	}
}
