package realprom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a program may take to end after SIGTERM. Prometheus closes its TSDB in
	// that time.
	stopGrace = 30 * time.Second
	// logBytes is how much of a program's log is kept.
	logBytes = 256 << 10
	// rssInterval is how often the memory of a program with a limit is looked at.
	rssInterval = 20 * time.Millisecond
)

// ErrOutOfMemory is the error of a program that was killed because it passed ProcessOptions.MaxRSS.
var ErrOutOfMemory = errors.New("killed: out of memory")

// ProcessOptions says what to run.
type ProcessOptions struct {
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// MaxRSS, if greater than 0, is the resident memory in bytes at which the program is killed, as
	// the kernel's OOM killer does in a container of that size. Memory is read every 20 ms, so a
	// program may be a little above it for a moment.
	MaxRSS int64
	// Log, if not nil, gets standard output and standard error as they come. It is written from
	// another goroutine.
	Log io.Writer
}

// Process is a running program. Its methods may be called from several goroutines.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  tail
	done chan struct{} // closed when the program has ended
	err  error         // how it ended; read after done

	stopping atomic.Bool
	killed   atomic.Bool
	oom      atomic.Bool
	peak     atomic.Int64 // largest peak seen, so that it can be read after the end
	watch    sync.WaitGroup
}

// StartProcess starts a program. It ends with Stop, which must be called, and at the latest with
// this process.
func StartProcess(opts ProcessOptions) (*Process, error) {
	p := &Process{name: filepath.Base(opts.Path), done: make(chan struct{})}
	p.cmd = exec.Command(opts.Path, opts.Args...)
	p.cmd.Env = append(os.Environ(), opts.Env...)
	p.cmd.SysProcAttr = dieWithParent()
	p.cmd.WaitDelay = 5 * time.Second // for the log, should a grandchild hold it open
	var out io.Writer = &p.log
	if opts.Log != nil {
		out = io.MultiWriter(&p.log, opts.Log)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out

	started := make(chan error)
	go func() { // waited for by Stop, through done
		// The kernel sends the parent's death signal when the THREAD that forked ends. So the
		// thread is kept for as long as the program runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Path, err)
	}
	if opts.MaxRSS > 0 {
		p.watch.Go(func() { p.watchRSS(opts.MaxRSS) })
	}
	return p, nil
}

func (p *Process) watchRSS(limit int64) {
	tick := time.NewTicker(rssInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		rss, err := p.RSS()
		if err != nil {
			continue // it is ending: done comes next
		}
		_, _ = p.PeakRSS() // keeps it for after the end
		if rss > limit {
			p.oom.Store(true)
			_ = p.cmd.Process.Kill() // fails only if it has ended
			return
		}
	}
}

// PID is the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the program ended, with the last lines of its log: nil while it runs, and when it
// ended well, by Stop's SIGTERM or by Kill.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	err := p.err
	switch {
	case p.oom.Load():
		err = ErrOutOfMemory
	case p.stopping.Load() && endedBy(err, syscall.SIGTERM):
		err = nil
	case p.killed.Load() && endedBy(err, syscall.SIGKILL):
		err = nil
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w; its log ends with:\n%s", p.name, err, p.log.last(20))
}

func endedBy(err error, sig syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == sig
}

// OutOfMemory says whether the program was killed because it passed MaxRSS.
func (p *Process) OutOfMemory() bool { return p.oom.Load() }

// Log is the end of what the program wrote to standard output and standard error, at most 256 KiB.
func (p *Process) Log() string { return p.log.String() }

// RSS is the program's resident memory in bytes now (VmRSS). It is an error once the program has
// ended.
func (p *Process) RSS() (int64, error) { return p.status("VmRSS:") }

// PeakRSS is the highest resident memory in bytes so far (VmHWM). After the end it is the last
// value that was read.
func (p *Process) PeakRSS() (int64, error) {
	v, err := p.status("VmHWM:")
	if err != nil {
		if last := p.peak.Load(); last > 0 {
			return last, nil
		}
		return 0, err
	}
	for {
		last := p.peak.Load()
		if v <= last {
			return last, nil
		}
		if p.peak.CompareAndSwap(last, v) {
			return v, nil
		}
	}
}

// status reads one line of /proc/PID/status, whose values are in kB.
func (p *Process) status(key string) (int64, error) {
	select {
	case <-p.done:
		return 0, fmt.Errorf("memory of %s: it has ended", p.name)
	default:
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return parseStatus(text, key)
}

// Stop sends SIGTERM, waits up to 30 s, then sends SIGKILL, and waits until the program is gone. It
// may be called more than once. The error is that of Err; having been killed by MaxRSS is one.
func (p *Process) Stop() error {
	p.stopping.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
	case <-grace.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	p.watch.Wait()
	return p.Err()
}

// Kill sends SIGKILL, as a power cut would, and waits until the program is gone.
func (p *Process) Kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
	p.watch.Wait()
}

// WaitReady asks url until it answers 200, the program ends or ctx is done; only the first is not
// an error.
func (p *Process) WaitReady(ctx context.Context, url string) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", p.name, err)
		}
		res, err := client.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			if err := p.Err(); err != nil {
				return fmt.Errorf("ended before it was ready: %w", err)
			}
			return fmt.Errorf("%s ended before it was ready; its log ends with:\n%s", p.name, p.log.last(20))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s at %s: %w; its log ends with:\n%s", p.name, url, context.Cause(ctx), p.log.last(20))
		case <-tick.C:
		}
	}
}

// tail keeps the last logBytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b[max(0, len(b)-logBytes):]...)
	if len(t.buf) > 2*logBytes { // cut seldom, so that a write costs its own length
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-logBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf[max(0, len(t.buf)-logBytes):])
}

func (t *tail) last(lines int) string {
	all := strings.Split(strings.TrimRight(t.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
