package realprom

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test program is its own child: TestMain acts a part when this variable names one.
const partVar = "REALPROM_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(partVar) {
	case "":
		goleak.VerifyTestMain(m)
	case "fails":
		fmt.Println("first line")
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		os.Exit(3)
	case "waits":
		fmt.Println("waiting")
		select {}
	case "eats":
		var held [][]byte
		for range 400 {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			held = append(held, b)
		}
		fmt.Println("ate", len(held))
		select {}
	case "parent": // starts a child, tells its process id and dies without a word
		p, err := StartProcess(ProcessOptions{Path: "/proc/self/exe", Env: []string{partVar + "=waits"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func part(t *testing.T, name string, maxRSS int64) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartProcess(ProcessOptions{Path: exe, Env: []string{partVar + "=" + name}, MaxRSS: maxRSS})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcessThatFails(t *testing.T) {
	p := part(t, "fails", 0)
	<-p.Done()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3; its log ends with:") ||
		!strings.Contains(err.Error(), "the disk is on fire") {
		t.Errorf("error: %v", err)
	}
	if err := p.Stop(); err == nil {
		t.Error("Stop hides that the program had failed")
	}
	if _, err := p.RSS(); err == nil {
		t.Error("a program that has ended still uses memory")
	}
	if err := p.WaitReady(t.Context(), "http://127.0.0.1:1/"); err == nil || !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("wait for it: %v", err)
	}
}

func TestStopAndKill(t *testing.T) {
	for name, end := range map[string]func(*Process) error{
		"stop":       (*Process).Stop,
		"kill":       func(p *Process) error { p.Kill(); return p.Err() },
		"stop twice": func(p *Process) error { return errors.Join(p.Stop(), p.Stop()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := part(t, "waits", 0)
			if err := p.Err(); err != nil {
				t.Errorf("while it runs: %v", err)
			}
			rss, err := p.RSS()
			peak, err2 := p.PeakRSS()
			if err != nil || err2 != nil || rss <= 0 || peak <= 0 {
				t.Errorf("memory %d, peak %d, %v, %v", rss, peak, err, err2)
			}
			if err := end(p); err != nil {
				t.Error(err)
			}
			if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

func TestWaitReadyEndsWithTheContext(t *testing.T) {
	p := part(t, "waits", 0)
	defer p.Stop()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	if err := p.WaitReady(ctx, "http://127.0.0.1:1/"); err == nil || !strings.Contains(err.Error(), "no patience") {
		t.Errorf("error: %v", err)
	}
}

func TestMaxRSS(t *testing.T) {
	const limit = 128 << 20
	p := part(t, "eats", limit)
	<-p.Done()
	if !p.OutOfMemory() || !errors.Is(p.Err(), ErrOutOfMemory) || !errors.Is(p.Stop(), ErrOutOfMemory) {
		t.Errorf("ended by %v", p.Err())
	}
	if peak, err := p.PeakRSS(); err != nil || peak < limit {
		t.Errorf("peak %d, %v", peak, err)
	}
}

func TestChildDiesWithItsParent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), partVar+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as it should be
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	for running(pid) {
		select {
		case <-deadline:
			t.Fatalf("process %d outlives its parent", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// running says whether pid is a program that runs: a zombie, which an orphan may stay where nobody
// reaps, does not.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(text), "State:\tZ")
}

func TestStartOfNothing(t *testing.T) {
	if _, err := StartProcess(ProcessOptions{Path: "/nonexistent/prometheus"}); err == nil ||
		!strings.Contains(err.Error(), "start /nonexistent/prometheus") {
		t.Errorf("error: %v", err)
	}
}

func TestTail(t *testing.T) {
	var l tail
	for i := range 3 * logBytes / 8 {
		fmt.Fprintf(&l, "%07d\n", i)
	}
	if s := l.String(); len(s) != logBytes || !strings.HasSuffix(s, fmt.Sprintf("%07d\n", 3*logBytes/8-1)) || cap(l.buf) > 4*logBytes {
		t.Errorf("%d bytes in %d", len(s), cap(l.buf))
	}
	if got := l.last(2); len(strings.Split(got, "\n")) != 2 {
		t.Errorf("last two lines: %q", got)
	}
	big := strings.Repeat("x", 5*logBytes)
	if n, err := l.Write([]byte(big)); n != len(big) || err != nil || l.String() != big[:logBytes] {
		t.Errorf("one large write: %d, %v", n, err)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tprometheus\nVmHWM:\t  106108 kB\nVmRSS:\t  105900 kB\n"))
	f.Add([]byte("VmRSS:\t-1 kB\n"))
	f.Add([]byte("VmRSS:\t99999999999999999999 kB"))
	f.Add([]byte("State:\tZ (zombie)\n"))
	if v, err := parseStatus([]byte("VmHWM:\t  106108 kB\nVmRSS:\t  105900 kB\n"), "VmRSS:"); err != nil || v != 105900<<10 {
		f.Errorf("%d, %v", v, err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if v, err := parseStatus(text, "VmRSS:"); err == nil && (v < 0 || v%1024 != 0) {
			t.Errorf("%d bytes", v)
		}
	})
}

// TestMemory: what a process takes and gives back shows, and the peak stays until it is reset.
func TestMemory(t *testing.T) {
	const much, half = 64 << 20, 32 << 20
	pid := os.Getpid()
	read := func() (now, peak int64) {
		t.Helper()
		now, peak, err := Memory(pid)
		if err != nil {
			t.Fatal(err)
		}
		return now, peak
	}
	full, peak := func() (now, peak int64) {
		big := bytes.Repeat([]byte{1}, much)
		defer runtime.KeepAlive(big)
		return read()
	}()
	if full < much || peak < full-half {
		t.Errorf("with %d bytes in use: %d now, %d at most", much, full, peak)
	}
	debug.FreeOSMemory()
	now, stays := read()
	if now > full-half || stays < peak-half { // the kernel counts roughly
		t.Errorf("given back: %d now, %d at most; before %d and %d", now, stays, full, peak)
	}
	if err := ResetPeak(pid); err != nil {
		t.Fatal(err)
	}
	if _, reset := read(); reset > full-half {
		t.Errorf("the peak is %d after it was reset, and was %d", reset, stays)
	}
	if _, _, err := Memory(1 << 22); err == nil {
		t.Error("memory of a process that is not there")
	}
	if err := ResetPeak(1 << 22); err == nil {
		t.Error("the peak of a process that is not there was reset")
	}
}
