package usage

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// One file has one Log, however often it is opened and in whatever order it is given back; bounds
// are those of the last opening.
func TestSharedOpensAFileOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	var s Shared
	open := func(path string, size int64) (*Log, func(context.Context) error) {
		t.Helper()
		l, done, err := s.Open(Options{Path: path, MaxSize: size, MaxFiles: 3})
		if err != nil {
			t.Fatal(err)
		}
		return l, done
	}
	give := func(done func(context.Context) error) {
		t.Helper()
		if err := done(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, doneFirst := open(a, 1<<20) // an old configuration, with a request that goes on
	other, doneOther := open(b, 1<<20)
	again, doneAgain := open(filepath.Join(dir, ".", "a.jsonl"), 512)
	if first != again || first == other {
		t.Fatal("a file was opened twice, or two were taken for one")
	}
	give(doneOther)
	give(doneFirst)
	for range 8 { // some 300 bytes each
		again.Write(&Record{Endpoint: "query"})
	}
	give(doneAgain)
	for name, most := range map[string]int64{"a.jsonl": 512, "a.jsonl.1": 512, "a.jsonl.2": 512} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() > most || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	last, done := open(a, 1<<20) // closed in between, so opened anew
	if last == first {
		t.Error("a closed log was handed out")
	}
	last.Write(&Record{Endpoint: "last"})
	give(done)
	if text, err := os.ReadFile(a); err != nil || !strings.Contains(string(text), `"last"`) {
		t.Errorf("%s, %v", text, err)
	}
	if _, _, err := s.Open(Options{Path: filepath.Join(dir, "none", "x"), MaxSize: 1, MaxFiles: 1}); err == nil {
		t.Error("a file in no folder was opened")
	}
	if _, _, err := s.Open(Options{}); err == nil {
		t.Error("nothing was opened")
	}
	if len(s.by) != 0 {
		t.Errorf("%d logs are left", len(s.by))
	}
}
