package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// asNobody runs what may do with files what their owner may, and no more: root may do everything.
func asNobody(t *testing.T, dirs []string, run func()) {
	t.Helper()
	if os.Getuid() != 0 {
		run()
		return
	}
	const nobody = 65534
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(file string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(file, nobody, nobody))
		})
		if err = errors.Join(err, os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.LockOSThread() // the identity is the thread's
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
	}()
	run()
}

// TestLeftovers: what an earlier copy left, or the old version, and cannot be removed, keeps nobody
// from starting once it is no plugin any more; it is told each time. Where it is one still, nothing
// is copied.
func TestLeftovers(t *testing.T) {
	left := temporary(id) + "abc"
	for name, tc := range map[string]struct {
		locked  string // a folder from which nothing can be removed
		files   map[string]string
		version string // that is there afterwards
		want    string
	}{
		"earlier copy":     {left + "/img", map[string]string{left + "/img/.nfs0001": "", left + "/plugin.json": "{}"}, "2.0.0", ""},
		"whole":            {left, map[string]string{left + "/module.js": ""}, "2.0.0", ""},
		"old version":      {id + "/img", nil, "2.0.0", ""},
		"a plugin still":   {left, map[string]string{left + "/plugin.json": "{}"}, "1.0.0", left + "/plugin.json has to be removed"},
		"an old one still": {id, nil, "2.0.0", "/plugin.json has to be removed by hand"},
	} {
		one, two := put(t, t.TempDir(), files("1.0.0")), put(t, t.TempDir(), files("2.0.0"))
		to := t.TempDir()
		if _, err := copies(t, one, to); err != nil {
			t.Fatal(err)
		}
		put(t, to, tc.files)
		t.Cleanup(func() {
			_ = filepath.WalkDir(to, func(file string, d os.DirEntry, _ error) error {
				if d.IsDir() {
					_ = os.Chmod(file, 0o755) // so that the test's folder goes
				}
				return nil
			})
		})
		if err := os.Chmod(filepath.Join(to, tc.locked), 0o555); err != nil {
			t.Fatal(err)
		}
		asNobody(t, []string{one, two, to}, func() {
			for range 2 {
				said, err := copies(t, two, to)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: %v; want %q", name, err, tc.want)
				}
				if err == nil && strings.Count(said, "warning: "+temporary(id)) != 1 {
					t.Errorf("%s: %s", name, said)
				}
			}
		})
		if text, err := os.ReadFile(filepath.Join(to, id, "module.js")); err != nil || string(text) != "front end "+tc.version {
			t.Errorf("%s: %v: there is %s", name, err, text)
		}
		if more, _ := filepath.Glob(filepath.Join(to, temporary(id)+"*", manifest)); len(more) > 0 && tc.want == "" {
			t.Errorf("%s: Grafana finds it twice: %q", name, more)
		}
	}
}
