package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a file on a disk that fails or stalls for a while.
type disk struct {
	*os.File
	mu    sync.Mutex
	full  error
	stall chan struct{} // closed when it goes on
	room  int64         // for the file, 0 is any
	tried int
}

func (d *disk) WriteAt(p []byte, at int64) (int, error) {
	d.mu.Lock()
	full, stall, room := d.full, d.stall, d.room
	d.tried++
	d.mu.Unlock()
	if stall != nil {
		<-stall
	}
	if full != nil {
		n, _ := d.File.WriteAt(p[:min(len(p), 7)], at)
		return n, full
	}
	if room > 0 && at+int64(len(p)) > room {
		n, _ := d.File.WriteAt(p[:min(max(room-at, 0), int64(len(p)))], at)
		return n, errFull
	}
	return d.File.WriteAt(p, at)
}

func (d *disk) set(full error, stall chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.stall = full, stall
}

var errFull = errors.New("no space left on device")

// on begins a journal on a disk; told are what it tells.
func on(t *testing.T, before string) (j *Journal, d *disk, left []Leftover, told func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "running.journal")
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if left, err = take(f); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	d = &disk{File: f}
	if before != "" {
		d.full = errFull
	}
	j = open(d, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, fmt.Sprint(err))
	})
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j, d, left, func() string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := strings.Join(all, ", ")
		all = nil
		return out
	}
}

// stands are the digests that the next start would find.
func (d *disk) stands(t *testing.T) string {
	t.Helper()
	synctest.Wait()
	text, err := os.ReadFile(d.Name())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, part := range strings.Split(string(text), `{"d":"`) {
		if i > 0 {
			out = append(out, part[:strings.IndexByte(part, '"')])
		}
	}
	slices.Sort(out)
	if len(text) > 0 && !strings.HasPrefix(string(text), magic) {
		return "no journal"
	}
	return strings.Join(out, " ")
}

// TestComesBack: a file that could not be written once is written anew after a pause, with those
// alone who are under way then, and from then on as before.
func TestComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, d, _, told := on(t, "")
		stays := j.Enter(Leftover{Digest: "stays"}, nothing)
		goes := j.Enter(Leftover{Digest: "goes"}, nothing)
		if got := d.stands(t); got != "goes stays" || !j.Working() {
			t.Fatalf("%q", got)
		}
		d.set(errFull, nil)
		j.Enter(Leftover{Digest: "meets it"}, func() int64 { return 5 })
		if got := told(); got != errFull.Error() || j.Working() {
			t.Errorf("told %q", got)
		}
		j.Leave(goes)
		j.Enter(Leftover{Digest: "later"}, nothing)
		if got := d.stands(t); got != "" {
			t.Errorf("while it fails %s are accused", got)
		}
		time.Sleep(leastPause - time.Second)
		d.set(nil, nil)
		if got := d.stands(t); got != "" || j.Working() {
			t.Errorf("before the pause is over: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got, said := d.stands(t), told(); got != "later meets it stays" || said != "<nil>" || !j.Working() {
			t.Errorf("afterwards %q stand there, told %q", got, said)
		}
		j.Leave(stays)
		j.Enter(Leftover{Digest: "new"}, nothing)
		if got := d.stands(t); got != "later meets it new" {
			t.Errorf("it goes on with %q", got)
		}
	})
}

// TestPauses: a disk that goes on failing is tried after ever longer pauses, and told once.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, d, _, told := on(t, "")
		d.set(errFull, nil)
		j.Leave(j.Enter(Leftover{Digest: "a"}, nothing))
		var tries []time.Duration
		began, seen := time.Now(), 0
		synctest.Wait()
		for at := range 60 * 60 {
			d.mu.Lock()
			if d.tried > seen && at > 0 {
				tries = append(tries, time.Since(began))
			}
			seen = d.tried
			d.mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if got, want := fmt.Sprint(tries), "[1m0s 3m0s 7m0s 15m0s 25m0s 35m0s 45m0s 55m0s]"; got != want {
			t.Errorf("tried after %s, want %s", got, want)
		}
		if got := told(); got != errFull.Error() {
			t.Errorf("told %q", got)
		}
		d.set(nil, nil)
		time.Sleep(mostPause)
		if got := told(); got != "<nil>" || !j.Working() {
			t.Errorf("told %q", got)
		}
		d.set(errFull, nil) // soon again: at the longest pause at once
		j.Leave(j.Enter(Leftover{Digest: "a"}, nothing))
		d.set(nil, nil)
		time.Sleep(mostPause - time.Second)
		if j.Working() {
			t.Error("what fails again at once is tried at once")
		}
		time.Sleep(2*time.Second + mostPause)
		d.set(errFull, nil) // long after
		j.Leave(j.Enter(Leftover{Digest: "a"}, nothing))
		d.set(nil, nil)
		time.Sleep(leastPause + time.Second)
		if !j.Working() {
			t.Error("what was well for long is tried late")
		}
	})
}

// TestStaysFull: a disk that has room for a few requests and not for more is full until it has room
// for as many as it failed at, though nobody is under way meanwhile. Then those have their place.
func TestStaysFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, d, _, told := on(t, "")
		room := func(bytes int64) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.room = bytes
		}
		burst := func() {
			var slots []*Slot
			for range 40 {
				slots = append(slots, j.Enter(Leftover{Digest: "d"}, nothing))
			}
			synctest.Wait()
			for _, s := range slots {
				j.Leave(s)
			}
		}
		room(4096)
		burst()
		if got := told(); got != errFull.Error() || j.Working() {
			t.Fatalf("told %q", got)
		}
		for range 60 * 60 {
			time.Sleep(time.Second)
			if j.Working() {
				t.Fatal("it works on a disk that is full")
			}
		}
		room(64 << 10)
		time.Sleep(mostPause)
		if got := told(); got != "<nil>" || !j.Working() || d.stands(t) != "" {
			t.Fatalf("told %q, %q stand there", got, d.stands(t))
		}
		burst()
		if got := told(); got != "" || !j.Working() || d.stands(t) != "" {
			t.Errorf("told %q, %q stand there", got, d.stands(t))
		}
	})
}

// TestStall: a disk that takes nothing for some seconds has not failed: once it goes on the file is
// written anew.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, d, _, told := on(t, "")
		stays := j.Enter(Leftover{Digest: "stays"}, nothing)
		synctest.Wait()
		stall := make(chan struct{})
		d.set(nil, stall)
		for range Slots + 1 {
			j.Leave(j.Enter(Leftover{Digest: "passes"}, nothing))
		}
		if got := told(); got != errSlow.Error() || j.Working() {
			t.Errorf("told %q", got)
		}
		d.set(nil, nil)
		close(stall)
		time.Sleep(slowPause + time.Millisecond)
		if got, said := d.stands(t), told(); got != "stays" || said != "<nil>" || !j.Working() {
			t.Errorf("a second later %q stand there, told %q", got, said)
		}
		j.Leave(stays)
		if got := d.stands(t); got != "" {
			t.Errorf("%q", got)
		}
	})
}

// TestOpensOnFullDisk: who was under way at a kill is told though the disk is full at the start,
// and the file is tried again.
func TestOpensOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, d, left, told := on(t, magic+`{"d":"killer","b":"2026-01-01T00:00:00Z","h":1}`+"\n")
		if len(left) != 1 || left[0].Digest != "killer" {
			t.Errorf("%+v", left)
		}
		if got := told(); got != errFull.Error() || j.Working() || d.stands(t) != "" {
			t.Errorf("told %q, %q stand there", got, d.stands(t))
		}
		j.Enter(Leftover{Digest: "next"}, nothing)
		d.set(nil, nil)
		time.Sleep(leastPause + time.Second)
		if got := d.stands(t); got != "next" || !j.Working() {
			t.Errorf("%q stand there", got)
		}
	})
}

// TestHalfMagic: what a full disk has left of a file's beginning is no file of somebody else's.
func TestHalfMagic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running.journal")
	if err := os.WriteFile(path, []byte(magic[:7]), 0o600); err != nil {
		t.Fatal(err)
	}
	j, left, err := Open(path, unfailing)
	if err != nil || len(left) > 0 {
		t.Fatalf("%v, %v", left, err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
