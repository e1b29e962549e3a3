package usage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPartsOfOneMoment: of a log that is rotated while its files are read each line is read once,
// and none is left out that was there at the beginning.
func TestPartsOfOneMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	o := Options{Path: path, MaxSize: 500, MaxFiles: 4}
	l := openLog(t, o)
	for i := range 40 {
		l.Write(&Record{ID: fmt.Sprint(i)})
	}
	closeLog(t, l)
	var want strings.Builder
	names, err := Parts(path)
	if err != nil || len(names) != 4 {
		t.Fatalf("%v: %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want.Write(text)
	}
	parts, err := OpenParts(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for i, p := range parts {
		if p.Name != names[i] {
			t.Errorf("%s stands where %s belongs", p.Name, names[i])
		}
		if _, err := io.Copy(&got, io.LimitReader(p, int64(want.Len()))); err != nil {
			t.Error(err)
		}
		l := openLog(t, o)
		for range 5 { // which rotate the files
			l.Write(&Record{ID: "later"})
		}
		closeLog(t, l)
	}
	if err := CloseParts(parts); err != nil {
		t.Error(err)
	}
	if all := got.String(); !strings.HasPrefix(all, want.String()) {
		t.Errorf("read %d bytes that are not the %d that there were", len(all), want.Len())
	}
	if _, err := OpenParts(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a log that is not there is opened")
	}
}

// TestFewerFiles: what was kept when more files were wanted is removed with the next rotation.
func TestFewerFiles(t *testing.T) {
	for _, keep := range []int{3, 1} {
		path := filepath.Join(t.TempDir(), "usage.jsonl")
		for _, files := range []int{6, keep} {
			l := openLog(t, Options{Path: path, MaxSize: 500, MaxFiles: files})
			for i := range 60 {
				l.Write(&Record{ID: fmt.Sprint(i)})
			}
			closeLog(t, l)
			if names, err := Parts(path); err != nil || len(names) != files {
				t.Errorf("with %d files there are %v, %v", files, names, err)
			}
		}
	}
}
