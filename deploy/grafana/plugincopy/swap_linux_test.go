package main

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestNeverGone: while versions replace one another, by several that copy at once, the plugin's
// folder is never away, where the file system can exchange names, and one of them is left whole.
func TestNeverGone(t *testing.T) {
	one, two := put(t, t.TempDir(), files("1.0.0")), put(t, t.TempDir(), files("2.0.0"))
	to := t.TempDir()
	if _, err := copies(t, one, to); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	looks := 0
	var looker, copiers sync.WaitGroup
	looker.Go(func() {
		for !stop.Load() {
			looks++
			if _, err := os.Stat(filepath.Join(to, id)); err != nil {
				t.Errorf("it is not there: %v", err)
				return
			}
		}
	})
	for _, from := range []string{one, two, one, two} {
		copiers.Go(func() {
			for range 10 {
				if err := run(context.Background(), []string{"--from=" + from, "--to=" + to}, io.Discard); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	copiers.Wait()
	stop.Store(true)
	looker.Wait()
	entries, err := os.ReadDir(to)
	got := found(t, to)
	if err != nil || len(entries) != 1 || !maps.Equal(got, found(t, one)) && !maps.Equal(got, found(t, two)) {
		t.Errorf("%v: left are %v", err, entries)
	}
	t.Logf("looked %d times", looks)
	if looks < 50 {
		t.Errorf("only %d looks", looks)
	}
}

// TestWaits: a lock that somebody else has is waited for, no longer than it may take.
func TestWaits(t *testing.T) {
	from, to := put(t, t.TempDir(), files("1.0.0")), t.TempDir()
	dir, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	if lock(dir) {
		t.Fatal("nobody else has it")
	}
	err = run(t.Context(), []string{"--from=" + from, "--to=" + to, "--timeout=200ms"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "another one copies into it: it took more than") {
		t.Error(err)
	}
	let := time.AfterFunc(100*time.Millisecond, func() { _ = dir.Close() })
	defer let.Stop()
	if said, err := copies(t, from, to); err != nil {
		t.Error(said, err)
	}
}

// TestExchange: Linux gives each folder the other's name.
func TestExchange(t *testing.T) {
	dir := put(t, t.TempDir(), map[string]string{"a/f": "1", "b/f": "2"})
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := exchange(f, "a", "b"); err != nil {
		t.Skip("this file system cannot, and the copy then has a moment in which nothing is there: ", err)
	}
	if got := found(t, dir); got["a/f"] != "2" || got["b/f"] != "1" {
		t.Errorf("%q", got)
	}
}
