package usage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second process is refused in a sentence that names the file, and may write once the first is
// gone. Logs of one process share the file, as a reload needs it.
func TestOneProcessWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	o := Options{Path: path, MaxSize: 1 << 20, MaxFiles: 2}
	// As another process has it: the lock belongs to an opened file.
	take := func() (f *os.File, taken bool) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f, tryLock(f)
	}
	held := func() bool {
		f, taken := take()
		defer f.Close()
		return taken
	}
	other, taken := take()
	if taken {
		t.Fatal("nobody holds the lock yet")
	}
	if l, err := Open(o); err == nil {
		_ = l.Close(t.Context())
		t.Fatal("two processes write one file")
	} else if !strings.Contains(err.Error(), "another process writes to "+path+"; give each Spillway a file of its own") {
		t.Errorf("the refusal: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	first, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(o)
	if err != nil {
		t.Fatalf("a reload: %v", err)
	}
	if !held() {
		t.Error("nobody holds the lock")
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	second.Write(&Record{Endpoint: "query"})
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if held() {
		t.Error("the lock stays")
	}
}

// A rotation takes the lock along.
func TestRotationKeepsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	r := newRotating(Options{Path: path, MaxSize: 10, MaxFiles: 2, open: openFile})
	for range 3 {
		if ok, err := r.write([]byte("123456789\n")); !ok || err != nil {
			t.Fatal(ok, err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if !tryLock(f) {
			t.Error("anybody may write after a rotation")
		}
		f.Close()
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}
