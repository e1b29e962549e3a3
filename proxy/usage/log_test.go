package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func openLog(t *testing.T, o Options) *Log {
	t.Helper()
	if o.MaxSize == 0 {
		o.MaxSize = 1 << 20
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = 3
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// read returns the records of a file, and fails where a line is not one.
func read(t *testing.T, path string) []Record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []Record
	for line := range strings.Lines(string(data)) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%s has the line %q: %v", path, line, err)
		}
		out = append(out, r)
	}
	return out
}

func TestNilLogDiscards(t *testing.T) {
	var l *Log
	l.Write(&Record{ID: "x"})
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWriteAndClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	reg := prometheus.NewPedanticRegistry()
	l := openLog(t, Options{Path: path, Metrics: NewMetrics(reg)})
	const callers, each = 8, 200
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				l.Write(&Record{ID: fmt.Sprintf("%d-%d", c, i), Time: time.Unix(1, 123456789), Endpoint: "query"})
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	closeLog(t, l)
	l.Write(&Record{ID: "late"})
	records := read(t, path)
	if len(records) != callers*each {
		t.Fatalf("%d lines", len(records))
	}
	if r := records[0]; r.V != Version || r.Time != time.Unix(1, 123e6).UTC() || r.Metrics == nil {
		t.Errorf("got %+v", r)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	want := `
# HELP spillway_usage_log_dropped_total Lines that were not written to the usage log, because the disk was too slow or refused them.
# TYPE spillway_usage_log_dropped_total counter
spillway_usage_log_dropped_total 1
# HELP spillway_usage_log_errors_total Failed attempts to open, write or rotate the usage log.
# TYPE spillway_usage_log_errors_total counter
spillway_usage_log_errors_total 0
# HELP spillway_usage_log_lines_total Lines written to the usage log.
# TYPE spillway_usage_log_lines_total counter
spillway_usage_log_lines_total 1600
# HELP spillway_usage_log_shortened_total Lines of the usage log without what makes them long, since their caller had had its share of it.
# TYPE spillway_usage_log_shortened_total counter
spillway_usage_log_shortened_total 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestLineIsReadableAtOnce: whoever asked can find its line without waiting for others to ask.
func TestLineIsReadableAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	l := openLog(t, Options{Path: path})
	defer closeLog(t, l)
	l.Write(&Record{ID: "x"})
	waitFor(t, func() bool { return len(read(t, path)) == 1 })
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	l := openLog(t, Options{Path: path, MaxSize: 2000, MaxFiles: 3})
	for i := range 100 {
		l.Write(&Record{ID: fmt.Sprint(i)})
	}
	closeLog(t, l)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	next := 100
	for _, name := range []string{path, path + ".1", path + ".2"} {
		records := read(t, name)
		info, err := os.Stat(name)
		if err != nil || info.Size() > 2000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		for i := len(records) - 1; i >= 0; i-- {
			next--
			if records[i].ID != fmt.Sprint(next) {
				t.Fatalf("%s has %s where %d belongs", name, records[i].ID, next)
			}
		}
	}
	// Opening again goes on where the file ends.
	before := len(read(t, path))
	l = openLog(t, Options{Path: path, MaxSize: 1 << 20, MaxFiles: 3})
	l.Write(&Record{ID: "again"})
	closeLog(t, l)
	if got := read(t, path); len(got) != before+1 || got[before].ID != "again" {
		t.Errorf("%d lines, then %d", before, len(got))
	}
}

func TestRotationOfOneFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	l := openLog(t, Options{Path: path, MaxSize: 1500, MaxFiles: 1})
	for i := range 50 {
		l.Write(&Record{ID: fmt.Sprint(i)})
	}
	closeLog(t, l)
	records := read(t, path)
	if entries, _ := os.ReadDir(dir); len(entries) != 1 || len(records) == 0 || records[len(records)-1].ID != "49" {
		t.Errorf("%v, %d lines", entries, len(records))
	}
}

func TestLineLongerThanAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	l := openLog(t, Options{Path: path, MaxSize: 1024, MaxFiles: 4})
	for i := range 3 {
		l.Write(&Record{ID: fmt.Sprint(i), Facts: Facts{Matchers: []string{strings.Repeat("x", 5000)}}})
	}
	closeLog(t, l)
	for i, name := range []string{path, path + ".1", path + ".2"} {
		if got := read(t, name); len(got) != 1 || got[0].ID != fmt.Sprint(2-i) {
			t.Errorf("%s: %d lines", name, len(got))
		}
	}
}

func TestFileMovedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	m := NewMetrics(nil)
	l := openLog(t, Options{Path: path, Metrics: m})
	l.Write(&Record{ID: "a"})
	waitFor(t, func() bool { return testutil.ToFloat64(m.lines) == 1 })
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	l.Write(&Record{ID: "b"})
	closeLog(t, l)
	if a, b := read(t, path+".old"), read(t, path); len(a) != 1 || len(b) != 1 || b[0].ID != "b" {
		t.Errorf("%v, then %v", a, b)
	}
}

// waitFor waits for another goroutine's system call to end, which synctest cannot do; however slow
// the disk is, for a minute at most.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatal("waited in vain")
}

func TestTornLastLine(t *testing.T) {
	whole := string((&Record{ID: "whole"}).Line())
	for _, tc := range []struct{ name, before, kept string }{
		{"empty", "", ""},
		{"whole", whole, whole},
		{"torn", whole + whole[:20], whole},
		{"torn at the start", `{"v`, ""},
		{"torn first line", whole[:50], ""},
		{"not ours", "something else", "something else\n"},
		{"not ours, several lines", "one\ntwo", "one\ntwo\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "usage.jsonl")
			if err := os.WriteFile(path, []byte(tc.before), 0o644); err != nil {
				t.Fatal(err)
			}
			l := openLog(t, Options{Path: path})
			l.Write(&Record{ID: "new"})
			closeLog(t, l)
			got, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(got), tc.kept) ||
				strings.Count(string(got), "\n") != strings.Count(tc.kept, "\n")+1 {
				t.Errorf("got %q, %v", got, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{
		{Path: filepath.Join(dir, "none", "usage.jsonl"), MaxSize: 1, MaxFiles: 1},
		{Path: dir, MaxSize: 1, MaxFiles: 1},
		{Path: pipe, MaxSize: 1, MaxFiles: 1},
		{Path: filepath.Join(dir, "x"), MaxFiles: 1},
		{Path: filepath.Join(dir, "x"), MaxSize: 1},
		{MaxSize: 1, MaxFiles: 1},
	} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v was opened", o)
		}
	}
}

// TestDiskFull writes to the device that is always full.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full:", err)
	}
	var said bytes.Buffer
	m := NewMetrics(nil)
	l := openLog(t, Options{Path: "/dev/full", Metrics: m, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	for range 100 {
		l.Write(&Record{ID: "x"})
	}
	closeLog(t, l)
	if testutil.ToFloat64(m.dropped) != 100 || testutil.ToFloat64(m.lines) != 0 || testutil.ToFloat64(m.errors) == 0 {
		t.Errorf("dropped %v, written %v, errors %v", testutil.ToFloat64(m.dropped), testutil.ToFloat64(m.lines),
			testutil.ToFloat64(m.errors))
	}
	if !strings.Contains(said.String(), "no space left") || strings.Count(said.String(), "\n") > 2 {
		t.Errorf("said %s", said.String())
	}
}

// disk is a file whose writes do as the test says.
type disk struct {
	mu      sync.Mutex
	data    []byte
	writing func(n int) (int, error)
}

func (d *disk) Write(p []byte) (int, error) {
	n, err := d.writing(len(p))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.data = append(d.data, p[:n]...)
	return n, err
}

func (d *disk) ReadAt(p []byte, off int64) (int, error) { return copy(p, d.data[off:]), nil }
func (d *disk) Close() error                            { return nil }
func (d *disk) Truncate(n int64) error                  { d.data = d.data[:n]; return nil }
func (d *disk) Stat() (os.FileInfo, error)              { return diskInfo{int64(len(d.data))}, nil }

type diskInfo struct{ size int64 }

func (i diskInfo) Name() string     { return "disk" }
func (i diskInfo) Size() int64      { return i.size }
func (diskInfo) Mode() os.FileMode  { return 0o600 }
func (diskInfo) ModTime() time.Time { return time.Time{} }
func (diskInfo) IsDir() bool        { return false }
func (diskInfo) Sys() any           { return nil }

// TestDiskStandsStill: requests go on, the queue is bounded, the loss is counted at once and told
// at most once a minute, and Close does not hang.
func TestDiskStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := &disk{writing: func(n int) (int, error) { <-release; return n, nil }}
		var said syncBuffer
		m := NewMetrics(nil)
		l := openLog(t, Options{
			Path: filepath.Join(t.TempDir(), "none"), Metrics: m, Logger: slog.New(slog.NewTextHandler(&said, nil)),
			open: func(string) (file, error) { return d, nil },
		})
		big := &Record{Facts: Facts{Matchers: []string{strings.Repeat("x", 64<<10)}}}
		const lines = 400
		start := time.Now()
		for range lines {
			l.Write(big)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("requests waited for %s", waited)
		}
		synctest.Wait()
		dropped := testutil.ToFloat64(m.dropped)
		if size := l.waiting.Load(); size > QueueBytes || dropped == 0 || size < QueueBytes/2 {
			t.Errorf("%d bytes wait, %v lines were dropped", size, dropped)
		}
		if n := said.lines(); n != 1 {
			t.Errorf("said %d lines at once", n)
		}
		for range 10 {
			l.Write(big)
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if n := said.lines(); n < 2 || n > 3 {
			t.Errorf("said %d lines in 100 s", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(release)
		closeLog(t, l)
		if sum := testutil.ToFloat64(m.lines) + testutil.ToFloat64(m.dropped); sum != lines+10 || l.waiting.Load() != 0 {
			t.Errorf("%v lines are accounted for, %d bytes wait", sum, l.waiting.Load())
		}
	})
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) lines() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.buf.Bytes(), []byte("\n"))
}

// TestHalfWrites: a disk that takes part of a batch and fails leaves no half line behind.
func TestHalfWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exists")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	calls := 0
	d := &disk{writing: func(n int) (int, error) {
		if calls++; calls%2 == 0 {
			return n / 2, syscall.ENOSPC
		}
		return n, nil
	}}
	r := newRotating(Options{Path: path, MaxSize: 1 << 20, MaxFiles: 1, open: func(string) (file, error) { return d, nil }})
	written := 0
	for i := range 20 {
		ok, err := r.write((&Record{ID: fmt.Sprint(i)}).Line())
		if ok != (err == nil) {
			t.Fatalf("%v, %v", ok, err)
		}
		if ok {
			written++
		}
		// The file of the test is not the one at path, so that it is opened anew each time; that is
		// what mends it.
		for line := range strings.Lines(string(d.data)) {
			if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
				t.Fatalf("half a line: %q", line)
			}
		}
	}
	if written != 10 || bytes.Count(d.data, []byte("\n")) != 10 {
		t.Errorf("%d written, %d lines", written, bytes.Count(d.data, []byte("\n")))
	}
}
