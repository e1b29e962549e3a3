package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/report"
)

// sampleInterval is how often memory is read.
const sampleInterval = 100 * time.Millisecond

// errMachineFull ends a run before the machine runs out of memory.
var errMachineFull = errors.New("the machine is nearly out of memory")

// watcher reads the memory of the processes of one run until it is stopped.
type watcher struct {
	began     time.Time
	keepFree  int64
	full      func(error) // called once, when the machine has less than keepFree
	members   []member
	mu        sync.Mutex
	processes []report.Process
	once      sync.Once
	wg        sync.WaitGroup
	end       context.CancelFunc
}

// outOfMemory is the death of a server that was killed at its limit.
const outOfMemory = "out of memory"

// watch begins to sample.
func watch(members []member, keepFree int64, full func(error)) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{
		began: time.Now(), keepFree: keepFree, full: full, end: cancel, members: members,
		processes: make([]report.Process, len(members)),
	}
	for i, m := range members {
		w.processes[i] = report.Process{Name: m.name, Role: m.role}
		_ = realprom.ResetPeak(m.proc.PID()) // what starting took is not a matter of this run; where it cannot be reset it counts
		w.sample(i, m)
	}
	w.wg.Go(func() { w.run(ctx) })
	return w
}

func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i, m := range w.members {
			w.sample(i, m)
		}
		if free, err := available(); err == nil && free < w.keepFree && !warned {
			warned = true
			w.full(fmt.Errorf("%w: %d MiB are left, %d are to be kept free; ask for fewer series or servers", errMachineFull, free>>20, w.keepFree>>20))
		}
	}
}

// sample appends the process's highest memory since its last sample.
func (w *watcher) sample(i int, m member) {
	at := time.Since(w.began)
	bytes, err := recentPeak(m.proc)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.processes[i]
	if p.Died != 0 {
		return
	}
	if err == nil {
		p.RSS = append(p.RSS, report.Sample{At: at, Bytes: bytes})
		return
	}
	select {
	case <-m.proc.Done():
	default:
		return // the process is ending: the next sample finds it dead
	}
	if len(p.RSS) == 0 {
		p.RSS = append(p.RSS, report.Sample{At: at})
	}
	if peak, err := m.proc.PeakRSS(); err == nil { // the last that was seen before it was killed
		p.RSS = append(p.RSS, report.Sample{At: at, Bytes: max(peak, p.RSS[len(p.RSS)-1].Bytes)})
	}
	p.Died, p.Death = at, "ended by itself"
	if m.proc.OutOfMemory() {
		p.Death = outOfMemory
	}
}

// resting tells whether no process's memory has moved by more than 2 % (or 4 MiB) over the last
// stretch.
func (w *watcher) resting(stretch time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.began)
	if now < stretch {
		return false
	}
	for _, p := range w.processes {
		low, high := int64(1)<<62, int64(0)
		for i := len(p.RSS) - 1; i >= 0 && p.RSS[i].At >= now-stretch; i-- {
			low, high = min(low, p.RSS[i].Bytes), max(high, p.RSS[i].Bytes)
		}
		if high-low > max(high/50, 4<<20) {
			return false
		}
	}
	return true
}

// stop looks once more, ends the sampling and returns what was seen. It may be called again and
// returns the same.
func (w *watcher) stop() []report.Process {
	w.once.Do(func() {
		w.end()
		w.wg.Wait()
		for i, m := range w.members {
			w.sample(i, m)
		}
	})
	return w.processes
}

// recentPeak is the highest resident memory since the last call, where the kernel tells it, else
// the memory now.
func recentPeak(p process) (int64, error) {
	rss, err := p.RSS()
	if err != nil {
		return 0, err
	}
	_, peak, err := realprom.Memory(p.PID()) // not PeakRSS, which remembers what was before a reset
	if err == nil && realprom.ResetPeak(p.PID()) == nil {
		return max(rss, peak), nil
	}
	return rss, nil
}

// number finds a line that begins with key and returns the number after it; a unit may follow.
func number(text []byte, key string) (int64, bool) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				n, err := strconv.ParseInt(string(f[0]), 10, 64)
				return n, err == nil && n >= 0
			}
		}
	}
	return 0, false
}

// available is the memory in bytes that can still be had: the machine's, or what is left in this
// process's own cgroup if that is less.
func available() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	kb, ok := number(text, "MemAvailable:")
	if !ok {
		return 0, errors.New("/proc/meminfo has no MemAvailable")
	}
	free := kb << 10
	limit, err1 := cgroupNumber("memory.max")
	used, err2 := cgroupNumber("memory.current")
	if err1 == nil && err2 == nil {
		cache := int64(0)
		if stat, err := os.ReadFile("/sys/fs/cgroup/memory.stat"); err == nil {
			cache, _ = number(stat, "inactive_file ") // the kernel takes this back when it is short
		}
		free = min(free, limit-used+cache)
	}
	return free, nil
}

// cgroupNumber reads a file of the cgroup at the root, which in a container is the container's own.
func cgroupNumber(name string) (int64, error) {
	text, err := os.ReadFile("/sys/fs/cgroup/" + name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // "max" is an error: no limit
}
