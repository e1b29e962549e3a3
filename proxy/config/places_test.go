package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckPlaces: where nothing can be written on any machine like this one is a problem, and a
// folder that is not here yet, such as where a file is checked for another machine, a note.
func TestCheckPlaces(t *testing.T) {
	t.Parallel()
	const groups = "groups: [{name: main, shards: [{replicas: [{url: 'http://h'}]}]}]\n"
	for _, c := range []struct{ more, problem, note string }{
		{"usage_log: {path: usage.jsonl}", "", ""},
		{"usage_log: {path: here}", "usage_log.path: cannot be written: HERE is a folder; name a file in it (line 2)", ""},
		{"usage_log: {path: file/usage.jsonl}", "usage_log.path: cannot be written: DIR/file is no folder (line 2)", ""},
		{"usage_log: {path: gone/usage.jsonl}", "", "usage_log.path: DIR/gone does not exist here, and Spillway does not start without that folder (line 2)"},
		{"state_dir: here", "", ""},
		{"state_dir: gone/deeper", "", ""}, // it is made
		{"state_dir: file", "state_dir: cannot be made: DIR/file is no folder (line 2)", ""},
		{"state_dir: file/deeper/still", "state_dir: cannot be made: DIR/file is no folder (line 2)", ""},
	} {
		dir := t.TempDir()
		if err := errors.Join(
			os.Mkdir(filepath.Join(dir, "here"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
			os.WriteFile(filepath.Join(dir, "spillway.yaml"), []byte(groups+c.more+"\n"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		cfg, err := Check(filepath.Join(dir, "spillway.yaml"), nil)
		if cfg == nil {
			t.Fatal(err)
		}
		shown := func(text string) string {
			return strings.NewReplacer("HERE", filepath.Join(dir, "here"), "DIR", dir).Replace(text)
		}
		problem, note := "", ""
		if err != nil {
			problem = err.Error()
		}
		if len(cfg.Notes) > 0 {
			note = cfg.Notes.Error()
		}
		if problem != shown(c.problem) || note != shown(c.note) {
			t.Errorf("%s: problem %q, note %q\nwant %q, %q", c.more, problem, note, shown(c.problem), shown(c.note))
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
			t.Errorf("%s: the check left something: %v, %v", c.more, left, err)
		}
	}
}
