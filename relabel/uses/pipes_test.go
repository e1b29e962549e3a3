//go:build unix

package uses

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFilesThatAreNone: a pipe below a folder would be waited for without end; it is left out and
// named, once.
func TestFilesThatAreNone(t *testing.T) {
	dir := folder(t, "a.yaml", "groups: [{name: g, rules: [{alert: A, expr: 'used_a > 1'}]}]\n", "..data/b.yaml", "{}")
	pipe := filepath.Join(dir, "x.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"y.yaml": pipe, "z.yaml": filepath.Join(dir, "..data/b.yaml")} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for flag, read := range flags {
		set := new(Set)
		done := make(chan error, 1)
		go func() { done <- read(set, dir) }()
		select {
		case err := <-done:
			said := strings.Join(set.Warnings, "\n")
			names := strings.Contains(said, pipe+" is no regular file") &&
				strings.Contains(said, filepath.Join(dir, "y.yaml")+" is no regular file")
			if err != nil || !set.keeps("used_a") || !names || strings.Count(said, "no regular file") != 2 {
				t.Errorf("behind --%s: %v, warnings %q", flag, err, set.Warnings)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("behind --%s: it waits for the pipe", flag)
		}
	}
}
