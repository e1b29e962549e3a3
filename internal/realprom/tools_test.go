package realprom

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("repo/go.mod", "// a comment\nmodule "+modulePath+"\n\ngo 1.26.0\n", 0o644)
	write("repo/tools/prometheus/go.mod", "module "+modulePath+"/tools/prometheus\n", 0o644)
	write("repo/tools/bin/prometheus", "#!/bin/sh\n", 0o755)
	write("repo/tools/bin/promtool", "", 0o644)
	write("other/go.mod", "module example.com/other\n", 0o644)
	for _, tc := range []struct{ name, dir, program, want, err string }{
		{"from the root", "repo", "prometheus", "repo/tools/bin/prometheus", ""},
		{"from below, past another go.mod", "repo/tools/prometheus", "prometheus", "repo/tools/bin/prometheus", ""},
		{"not built", "repo", "thanos", "", "thanos is not built: run `make tools` in " + filepath.Join(root, "repo")},
		{"no program", "repo", "promtool", "", "is not a program"},
		{"a folder", "repo/tools", "../bin", "", "is not a program"},
		{"another module", "other", "prometheus", "", "is not inside a checkout of " + modulePath},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := find(filepath.Join(root, tc.dir), tc.program)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v lacks %q", err, tc.err)
				}
				return
			}
			if err != nil || got != filepath.Join(root, tc.want) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}
