package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// writer, in the environment, has the test's own program write a journal and wait to be killed.
const writer = "SPILLWAY_JOURNAL_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writer); path != "" {
		write(path)
	}
	goleak.VerifyTestMain(m)
}

func nothing() int64 { return 0 }

// unfailing is for journals whose file does not fail.
func unfailing(err error) { panic(err) }

// write has three requests begin, one of which ends, and says so.
func write(path string) {
	j, _, err := Open(path, unfailing)
	if err != nil {
		panic(err)
	}
	began := time.Unix(1_700_000_000, 0).UTC()
	j.Enter(Leftover{Digest: "small", Endpoint: "query", Text: "up", Began: began}, nothing)
	ended := j.Enter(Leftover{Digest: "ended", Endpoint: "query", Text: "down", Began: began}, nothing)
	j.Enter(Leftover{Digest: "large", Endpoint: "query_range", Text: strings.Repeat("sum(", 100) + "\x00", Began: began.Add(time.Second)},
		func() int64 { return 1 << 30 })
	j.Leave(ended)
	for end := time.Now().Add(time.Minute); ; time.Sleep(sampled / 10) { // until what they hold is written
		text, err := os.ReadFile(path)
		if err != nil || time.Now().After(end) {
			panic(fmt.Sprintf("it is not written: %v", err))
		}
		if bytes.Contains(text, []byte("1073741824")) {
			break
		}
	}
	j.Enter(Leftover{Digest: "last", Endpoint: "series", Text: "\n", Began: began.Add(2 * time.Second)}, nothing)
	j.settle()
	fmt.Println("written")
	select {}
}

// TestKilled: what was under way in a process that was killed is told to the next one, what held
// most first, and once.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running.journal")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writer+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, _, lerr := Open(path, unfailing); lerr == nil || !strings.Contains(lerr.Error(), "another process has it open") {
		t.Errorf("while it is open: %v", lerr)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || line != "written\n" {
		t.Fatalf("%v: %q", err, line)
	}
	j, left, err := Open(path, unfailing)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range left {
		got = append(got, fmt.Sprintf("%s %s %d", l.Digest, l.Endpoint, l.Held))
	}
	if want := "large query_range 1073741824,small query 0,last series 0"; strings.Join(got, ",") != want {
		t.Errorf("got %q, want %q", strings.Join(got, ","), want)
	}
	if !left[0].Began.Equal(time.Unix(1_700_000_001, 0)) || !strings.HasPrefix(left[0].Text, "sum(sum(") ||
		len(left[0].Text) > maxText+len("…") {
		t.Errorf("%+v", left[0])
	}
	j.Enter(Leftover{Digest: "open", Endpoint: "query"}, nothing)
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if s := j.Enter(Leftover{Digest: "late"}, nothing); s != nil {
		t.Error("a closed journal takes a request")
	}
	j, left, err = Open(path, unfailing)
	if err != nil || len(left) > 0 {
		t.Errorf("after an orderly end: %v, %+v", err, left)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestFull: as many requests as there are slots are remembered, a slot is used again, and texts of
// any characters fit.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running.journal")
	j, _, err := Open(path, unfailing)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []*Slot
	for i := range Slots {
		text := strings.Repeat("\x01", 300)
		s := j.Enter(Leftover{Digest: fmt.Sprintf("%032d", i), Endpoint: "query_exemplars", Text: text, Began: time.Now()}, nothing)
		if s == nil {
			t.Fatalf("no slot for the %dth", i)
		}
		all = append(all, s)
	}
	if j.Enter(Leftover{Digest: "more"}, nothing) != nil {
		t.Error("there are more slots than there may be")
	}
	j.Leave(all[7])
	j.Leave(nil)
	if j.Enter(Leftover{Digest: "again"}, nothing) == nil {
		t.Error("a slot that was left is not used again")
	}
	j.settle()
	text, err := os.ReadFile(path)
	filled := strings.Count(string(text), `"d":"`)
	if err != nil || len(text) != len(magic)+Slots*SlotBytes || filled != Slots || !strings.Contains(string(text), `"again"`) {
		t.Errorf("%v: %d bytes, %d slots", err, len(text), filled)
	}
}

// settle waits until what was sent is written.
func (j *Journal) settle() {
	written := make(chan struct{})
	j.mu.Lock()
	j.send(op{Slots, nil, written})
	j.mu.Unlock()
	<-written
}

// TestFailing: a file that cannot be written is told once, with nobody in it, and a disk that takes
// nothing keeps nobody waiting for long, neither who comes nor who goes.
func TestFailing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running.journal")
	told := make(chan error, 10)
	j, _, err := Open(path, func(err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	good := j.Enter(Leftover{Digest: "good"}, nothing)
	if err := j.f.Close(); err != nil {
		t.Fatal(err)
	}
	j.Enter(Leftover{Digest: "bad"}, nothing)
	if err := <-told; err == nil {
		t.Error("nobody is told that the file has failed")
	}
	j.Leave(j.Enter(Leftover{Digest: "more"}, nothing))
	if j.Working() {
		t.Error("a file that has failed works")
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte("more")) {
		t.Errorf("a file that has failed remembers: %v", err)
	}
	j.Leave(good)
	j.mu.Lock()
	if len(j.live) != 1 || len(j.free) != Slots-1 { // bad goes on
		t.Errorf("%d are held, %d slots are free", len(j.live), len(j.free))
	}
	j.mu.Unlock()
	_ = j.Close() // it is closed already
	if len(told) > 0 {
		t.Error("told twice")
	}

	stuck := &Journal{tell: func(err error) { told <- err }, ops: make(chan op, 2), live: map[int]*Slot{}, free: []int{3, 2, 1, 0}}
	first := stuck.Enter(Leftover{Digest: "first"}, nothing) // nobody writes
	second := stuck.Enter(Leftover{Digest: "second"}, nothing)
	stuck.Leave(first)
	stuck.Leave(second)
	if err := <-told; !errors.Is(err, errSlow) {
		t.Errorf("told %v", err)
	}
	began := time.Now()
	stuck.Leave(stuck.Enter(Leftover{Digest: "third"}, nothing))
	if len(stuck.ops) != 2 || stuck.Working() || time.Since(began) >= patience {
		t.Errorf("a disk that takes nothing is sent %d, or waited for", len(stuck.ops))
	}
}

// TestForeignFile: a file of somebody else's is left as it is, and half a slot tells nothing.
func TestForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running.journal")
	for _, foreign := range []string{"precious", magic + strings.Repeat("x", Slots*SlotBytes+1)} {
		if err := os.WriteFile(path, []byte(foreign), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(path, unfailing); err == nil || !strings.Contains(err.Error(), "no journal of Spillway's") {
			t.Errorf("%v", err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != foreign {
			t.Errorf("%v: it was changed", err)
		}
	}
	if _, _, err := Open(filepath.Join(path, "x"), unfailing); err == nil {
		t.Error("opened under a file")
	}
	if err := os.WriteFile(path, []byte(magic+`{"d":"half`), 0o600); err != nil {
		t.Fatal(err)
	}
	j, left, err := Open(path, unfailing)
	if err != nil || len(left) != 0 {
		t.Errorf("%v: %+v", err, left)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestNil: where nothing is kept, nothing happens.
func TestNil(t *testing.T) {
	var j *Journal
	j.Leave(j.Enter(Leftover{}, nothing))
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzOpen: no file brings it down.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(magic + `{"d":"a","e":"query","t":"up","b":"2026-01-01T00:00:00Z","h":1}` + "\n"))
	f.Add([]byte(magic + strings.Repeat("\x00", SlotBytes) + `{"d":"a"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, left, err := Open(path, unfailing)
		if err != nil {
			return
		}
		if len(left) > Slots {
			t.Errorf("%d", len(left))
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkEnterLeave(b *testing.B) {
	j, _, err := Open(filepath.Join(b.TempDir(), "j"), unfailing)
	if err != nil {
		b.Fatal(err)
	}
	what := Leftover{Digest: strings.Repeat("a", 32), Endpoint: "query_range", Text: strings.Repeat("sum(", 100), Began: time.Now()}
	for b.Loop() {
		j.Leave(j.Enter(what, nothing))
	}
	if err := j.Close(); err != nil {
		b.Error(err)
	}
}

// TestFailedAccusesNobody: a journal that has failed has nobody in its file, and holds nobody who
// has left: at a kill long after, those who were under way when it failed would be taken for the
// cause.
func TestFailedAccusesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "running.journal")
	told := make(chan error, 1)
	j, _, err := Open(path, func(err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	s := j.Enter(Leftover{Digest: "innocent"}, nothing)
	j.settle()
	j.mu.Lock()
	j.fail(errSlow)
	j.send(op{s.at, s.text(), nil}) // what was on its way
	j.mu.Unlock()
	<-told
	j.settle()
	left, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(left), "innocent") {
		t.Errorf("left in the file: %.100q, %v", left, err)
	}
	j.Leave(s)
	j.mu.Lock()
	if len(j.live) > 0 {
		t.Errorf("%d are held", len(j.live))
	}
	j.mu.Unlock()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	next, suspects, err := Open(path, unfailing)
	if err != nil || len(suspects) > 0 {
		t.Errorf("the next one is told of %v, %v", suspects, err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
