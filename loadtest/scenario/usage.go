package scenario

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spillwayproject/spillway/loadtest/report"
)

// ticks is how many of the kernel's units of processor time are a second: USER_HZ, which is 100
// wherever Linux runs.
const ticks = 100

// usage is the processor time that everybody has had so far.
type usage struct {
	at                             time.Time
	servers, proxy, callers, total time.Duration
	ready                          [3]time.Duration // of servers, proxy and callers: how long threads had no processor
}

// usage reads it; what cannot be read, since it has died for example, has had none.
func (f *fleet) usage() usage {
	u := usage{at: time.Now(), total: machineTime(), callers: processTime(os.Getpid())}
	u.ready[2] = readyTime(os.Getpid())
	for _, m := range f.members {
		t := processTime(m.proc.PID())
		if m.role == report.Proxy {
			u.proxy += t
			u.ready[1] += readyTime(m.proc.PID())
		} else {
			u.servers += t
			u.ready[0] += readyTime(m.proc.PID())
		}
	}
	return u
}

// since is the share of processors that everybody had; of who died in between it is 0.
func (u usage) since(v usage) Processors {
	share := func(now, before time.Duration) float64 {
		return max(0, (now-before).Seconds()) / max(u.at.Sub(v.at).Seconds(), 1e-3)
	}
	return Processors{
		Servers: share(u.servers, v.servers), Proxy: share(u.proxy, v.proxy),
		Callers: share(u.callers, v.callers), Total: share(u.total, v.total),
		Ready: Ready{share(u.ready[0], v.ready[0]), share(u.ready[1], v.ready[1]), share(u.ready[2], v.ready[2])},
	}
}

// String is a sentence's middle.
func (p Processors) String() string {
	return fmt.Sprintf("%.2f (servers %.2f, proxy %.2f, callers %.2f); ready and without one: servers %.2f, proxy %.2f, callers %.2f",
		p.Total, p.Servers, p.Proxy, p.Callers, p.Ready.Servers, p.Ready.Proxy, p.Ready.Callers)
}

// processTime is a process' user and system time (man 5 proc_pid_stat).
func processTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // a program's name may hold anything
	if len(f) < 13 {
		return 0
	}
	return jiffies(f[11]) + jiffies(f[12])
}

// readyTime is for how long the threads of a process could have run and had no processor, added
// (Documentation/scheduler/sched-stats.rst): 0 where the kernel does not tell. What threads had
// that have ended is not in it; Go keeps its own.
func readyTime(pid int) (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if f := bytes.Fields(text); err == nil && len(f) >= 2 {
			ns, _ := strconv.ParseInt(string(f[1]), 10, 64) // of another form it is 0
			sum += time.Duration(ns)
		}
	}
	return sum
}

// machineTime is all processors' time that was not idle, waiting or another machine's (man 5
// proc_stat).
func machineTime() (sum time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	for i, f := range bytes.Fields(line) {
		if i >= 1 && i <= 7 && i != 4 && i != 5 {
			sum += jiffies(f)
		}
	}
	return sum
}

func jiffies(text []byte) time.Duration {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second / ticks
}
