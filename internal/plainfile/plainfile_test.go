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

// TestReplace: a file is whole or as it was, and nothing stays beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	says := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, werr := io.WriteString(w, text)
			return errors.Join(werr, err)
		}
	}
	for _, step := range []struct {
		text string
		err  error
		want string
	}{{"one", nil, "one"}, {"two", errors.New("half"), "one"}, {"three", nil, "three"}} {
		err := Replace(path, 0o600, says(step.text, step.err))
		got, rerr := os.ReadFile(path)
		info, serr := os.Stat(path)
		if (err == nil) != (step.err == nil) || rerr != nil || string(got) != step.want || serr != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%q: %v, %q, %v", step.text, err, got, info.Mode())
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v: %v", err, entries)
	}
	if err := Replace(filepath.Join(dir, "gone", "file"), 0o600, says("", nil)); err == nil {
		t.Error("written into a folder that is not there")
	}
}

// TestWriteWhatIsThere: a file keeps its mode, a link stays and what it leads to is replaced, and
// what is no regular file is written to.
func TestWriteWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	err := errors.Join(os.WriteFile(file, []byte("old"), 0o640), os.Chmod(file, 0o640), os.Symlink(file, link), syscall.Mkfifo(pipe, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	owner := os.Getuid()
	if owner == 0 { // who may give files away
		if owner, err = 4321, os.Chown(file, 4321, 4321); err != nil {
			t.Fatal(err)
		}
	}
	text := func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }
	if err := Write(link, 0o600, text); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	is, serr := os.Stat(file)
	if err := errors.Join(err, serr); err != nil || string(got) != "new" || is.Mode().Perm() != 0o640 {
		t.Errorf("%q, %v, %v", got, is.Mode(), err)
	}
	if st, ok := is.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != owner {
		t.Errorf("the file belongs to somebody else now, not to %d", owner)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	read := make(chan string)
	go func() {
		b, _ := os.ReadFile(pipe)
		read <- string(b)
	}()
	if err := Write(pipe, 0o600, text); err != nil {
		t.Error(err)
	}
	if got := <-read; got != "new" {
		t.Errorf("the pipe's reader gets %q", got)
	}
	if err := Write(os.DevNull, 0o600, text); err != nil {
		t.Error(err)
	}
	if is, err := os.Stat(os.DevNull); err != nil || is.Mode().IsRegular() {
		t.Errorf("%s is a file now: %v", os.DevNull, err)
	}
	out := os.Stdout
	defer func() { os.Stdout = out }()
	if os.Stdout, err = os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Stdout.Close() }()
	if err := Write(link, 0o600, text); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "newnew" {
		t.Errorf("what this process prints to is %q: %v", got, err)
	}
	if err := Write(dir, 0o600, text); err == nil || !strings.Contains(err.Error(), "it is a folder") {
		t.Errorf("a folder: %v", err)
	}
}
