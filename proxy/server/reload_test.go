package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestReloadSaysWhatTheStartSays: remarks on a configuration are said by a reload, too, each time
// that one is taken up.
func TestReloadSaysWhatTheStartSays(t *testing.T) {
	r, file := reloadable(t)
	writeText(t, file, strings.Replace(r.config, "limits: {", "limits: {metadata_range: 400d, ", 1))
	for range 2 { // the second one changes nothing
		if err := r.s.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	said := slices.DeleteFunc(r.log.atLeast(slog.LevelWarn), func(line string) bool {
		return !strings.Contains(line, "limits.metadata_range")
	})
	if len(said) != 1 {
		t.Errorf("%q", r.log.atLeast(slog.LevelWarn))
	}
}

// TestReloadOfAStateDir: what the next start would not find is refused by the reload.
func TestReloadOfAStateDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("where root may make no folder is known of Linux only")
	}
	r, file := reloadable(t)
	before := r.s.state.Load()
	writeText(t, file, r.config+"state_dir: /proc/spillway\n")
	if err := r.s.Reload(); err == nil || !strings.Contains(err.Error(), "state_dir: mkdir /proc/spillway") || r.s.state.Load() != before {
		t.Error(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	writeText(t, file, r.config+"state_dir: "+dir+"\n")
	if err := r.s.Reload(); err != nil {
		t.Error(err)
	}
	if is, err := os.Stat(dir); err != nil || !is.IsDir() {
		t.Error(err)
	}
}

// reloadable is a rig with a configuration file, which is not written yet.
func reloadable(t *testing.T) (r *rig, file string) {
	file = filepath.Join(t.TempDir(), "spillway.yaml")
	return newRig(t, manyShards(1), limits(ample), func(o *Options) { o.ConfigFile = file }), file
}
