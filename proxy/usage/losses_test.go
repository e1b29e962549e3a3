package usage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestLossesAreTold: what has no line has at least one that says so, as soon as it can be written,
// and no more than one a minute.
func TestLossesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := false
		d := &disk{writing: func(n int) (int, error) {
			if full {
				return 0, syscall.ENOSPC
			}
			return n, nil
		}}
		l := openLog(t, Options{Path: filepath.Join(t.TempDir(), "none"), open: func(string) (file, error) { return d, nil }})
		ask := func(times int) {
			for range times {
				l.Write(&Record{ID: "x", Endpoint: "query"})
				synctest.Wait()
			}
		}
		start := time.Now()
		at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second).UTC() }
		ask(1)
		time.Sleep(10 * time.Second)
		full = true
		ask(3)
		time.Sleep(20 * time.Second)
		ask(2)
		full = false
		time.Sleep(10 * time.Second)
		ask(2) // which tell of five
		full = true
		ask(1)
		full = false
		ask(1) // within the minute
		time.Sleep(time.Minute)
		ask(1) // which tells of one
		full = true
		ask(1)
		full = false
		closeLog(t, l) // which tells of another one
		type told struct {
			lost    int64
			from    time.Time
			seconds float64
		}
		var got []told
		lines := 0
		for text := range strings.Lines(string(d.data)) {
			var r Record
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			lines++
			if (r.Purpose == Lost) != (r.Lost > 0) || r.Purpose == Lost && (r.Endpoint != "" || r.Query != "") {
				t.Errorf("%s", text)
			}
			if r.Lost > 0 {
				got = append(got, told{r.Lost, r.Time, r.RangeSeconds})
			}
		}
		want := []told{{5, at(10), 20}, {1, at(40), 0}, {1, at(100), 0}}
		if len(got) != len(want) || lines != 5+len(want) {
			t.Fatalf("%d lines, %+v", lines, got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("told %+v, want %+v", got[i], want[i])
			}
		}
	})
}

// TestEmptiedFileIsTold: where a full file cannot be moved aside, it is emptied, and what stood in
// it is lost.
func TestEmptiedFileIsTold(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	if err := os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	line := len((Record{ID: "0"}).Line())
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, Options{Path: path, MaxSize: int64(4 * line), MaxFiles: 2})
		for range 6 {
			l.Write(&Record{ID: "0"})
			synctest.Wait()
		}
		closeLog(t, l)
	})
	lost := int64(0)
	for _, r := range read(t, path) {
		lost += r.Lost
	}
	if lost < 4 {
		t.Errorf("told of %d lost lines", lost)
	}
}
