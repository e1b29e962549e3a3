package localprom

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
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

func TestLinkBlocksTakesBlocksOnly(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	id := ulid.MustNew(1, nil).String()
	for _, name := range []string{id + "/meta.json", id + "/chunks/000001", "wal/00000000", "lock", "notes/meta.json", id + ".tmp-for-deletion/meta.json"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A half-made block of an earlier try is replaced.
	if err := os.MkdirAll(filepath.Join(to, id+".tmp-for-creation", "chunks", "000009"), 0o755); err != nil {
		t.Fatal(err)
	}
	ids, err := LinkBlocks(t.Context(), from, to)
	if err != nil || len(ids) != 1 || ids[0].String() != id {
		t.Fatalf("%v, %v", ids, err)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(to, id, "chunks", "000001")); err != nil || string(b) != id+"/chunks/000001" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(to, id, "chunks", "000009")); err == nil {
		t.Error("the half-made block is in the whole one")
	}
}

func TestCopyFile(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(from, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(from, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if err := copyFile(filepath.Join(dir, "none"), to); err == nil {
		t.Error("a file that is not there was copied")
	}
}
