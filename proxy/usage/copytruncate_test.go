package usage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// fullDisk is a file on a disk that takes some bytes, and no more, while it is full.
type fullDisk struct {
	file
	full   bool
	before func() // each write
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.before != nil {
		f.before()
	}
	if f.full {
		n, _ := f.file.Write(p[:min(7, len(p))])
		return n, errors.New("no space left on device")
	}
	return f.file.Write(p)
}

// TestCopyTruncate: a file that somebody else empties in place, as logrotate does with
// copytruncate, is as long as it is from then on: half a line is taken back to there, and no file
// is rotated that is not full.
func TestCopyTruncate(t *testing.T) {
	line := append(bytes.Repeat([]byte("x"), 999), '\n')
	for _, moment := range []string{"before", "meanwhile"} {
		path := filepath.Join(t.TempDir(), "usage.jsonl")
		var disk *fullDisk
		r := newRotating(Options{Path: path, MaxSize: 1 << 20, MaxFiles: 3, open: func(p string) (file, error) {
			f, err := openFile(p)
			disk = &fullDisk{file: f}
			return disk, err
		}})
		write := func(n int) {
			for range n {
				if ok, err := r.write(line); !ok || err != nil {
					t.Fatal(err)
				}
			}
		}
		empty := func() {
			if err := os.Truncate(path, 0); err != nil {
				t.Error(err)
			}
		}
		write(1040)
		if moment == "before" {
			empty()
		} else {
			disk.before = empty
		}
		disk.full = true
		if ok, err := r.write(line); ok || err == nil {
			t.Error("a full disk takes a line")
		}
		disk.full, disk.before = false, nil
		write(20)
		text, err := os.ReadFile(path)
		if want := bytes.Repeat(line, 20); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%s: %d bytes, of which %d are NUL (%v)", moment, len(text), bytes.Count(text, []byte{0}), err)
		}
		if _, err := os.Stat(path + ".1"); !os.IsNotExist(err) {
			t.Errorf("%s: a file was rotated that was not full (%v)", moment, err)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}
