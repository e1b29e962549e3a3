//go:build unix

package plainfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": file, "to a pipe": pipe, "to nothing": filepath.Join(dir, "absent")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{file, filepath.Join(dir, "link")} { // a mounted secret is a link
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "text" {
			t.Errorf("%s: %q, %v", path, b, err)
		}
		_ = f.Close()
		if err := Check(path); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{pipe, filepath.Join(dir, "to a pipe"), dir, os.DevNull} {
		_, err := Open(path)
		for _, err := range []error{err, Check(path)} {
			if !errors.Is(err, ErrIrregular) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for _, name := range []string{"absent", "to nothing"} {
		path := filepath.Join(dir, name)
		if _, err := Open(path); !errors.Is(err, fs.ErrNotExist) || Check(path) != nil {
			t.Errorf("%s: %v, %v", name, err, Check(path))
		}
	}
}
