package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spillwayproject/spillway/internal/pause"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/report"
)

// Options say how hard a storm is. Zero values take the defaults named.
type Options struct {
	// Scenario is what the callers ask; Killer.
	Scenario Scenario
	// Spillway is the spillway binary, run as the proxy.
	Spillway string
	// Series is how many each server holds; 300,000. Servers is how many there are; 4. Callers ask
	// at once; 8.
	Series, Servers, Callers int
	// Idle is how long the servers are watched before the storm; 1m. Duration is how long callers
	// begin new requests; 30s.
	Idle, Duration time.Duration
	// Everyday is how long the servers may work to come to rest; 2m.
	Everyday time.Duration
	// Patience is how long a caller waits for an answer; 2m. Grafana waits for 30s, curl and
	// promtool for ever.
	Patience time.Duration
	// MemoryLimit is the resident memory in bytes at which a server is killed; 3 GiB.
	MemoryLimit int64
	// LimitUntold leaves the servers in the dark about MemoryLimit. In a container Prometheus finds
	// its limit and has Go collect ever harder as it comes near (GOMEMLIMIT at 90 %), so here it is
	// told too, unless this is set.
	LimitUntold bool
	// KeepFree is the memory in bytes that the machine must have left, or the run ends; 3 GiB.
	KeepFree int64
	// NoDirect leaves out the run without Spillway.
	NoDirect bool
	// Seed chooses the simulated cluster.
	Seed uint64
	// Dir is where data is made, in a folder of its own that is removed; the temporary folder.
	Dir string
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

const (
	minSeries = 70_000
	// afterStorm is how long is watched on, since a server goes on after its callers have left.
	afterStorm = 3 * time.Second
)

func (o Options) withDefaults() Options {
	o.Series, o.Servers, o.Callers = cmp.Or(o.Series, 300_000), cmp.Or(o.Servers, 4), cmp.Or(o.Callers, 8)
	o.Idle, o.Duration = cmp.Or(o.Idle, time.Minute), cmp.Or(o.Duration, 30*time.Second)
	o.Everyday, o.Patience = cmp.Or(o.Everyday, 2*time.Minute), cmp.Or(o.Patience, 2*time.Minute)
	o.MemoryLimit, o.KeepFree = cmp.Or(o.MemoryLimit, 3<<30), cmp.Or(o.KeepFree, 3<<30)
	if o.Scenario.Name == "" {
		o.Scenario = Killer
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// Validate returns everything that is wrong with the options, after defaults.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p bench.Problems
	p.Check(o.Spillway != "", "the path of the spillway binary is missing")
	p.Check(o.Series >= minSeries && o.Series <= 20_000_000, "series: %d is outside %d (a cluster's control plane alone) to 20,000,000", o.Series, minSeries)
	p.Check(o.Servers >= 1 && o.Servers <= 64, "servers: %d is outside 1 to 64", o.Servers)
	p.Check(o.Callers >= 1 && o.Callers <= 1000, "callers: %d is outside 1 to 1,000", o.Callers)
	p.Check(o.Idle >= time.Second && o.Idle <= time.Hour, "idle: %s is outside 1s to 1h", o.Idle)
	p.Check(o.Duration >= time.Second && o.Idle+o.Duration <= 50*time.Minute, "duration: %s is less than 1s, or so long that the newest samples leave the last 55 minutes", o.Duration)
	p.Check(o.Everyday >= 0, "everyday work: must not be negative")
	p.Check(o.Patience >= time.Second, "patience: %s is less than 1s", o.Patience)
	p.Check(o.MemoryLimit >= 256<<20, "memory limit: %d MiB is less than 256 MiB, on which no server starts", o.MemoryLimit>>20)
	p.Check(o.KeepFree >= 0, "memory to be kept free: must not be negative")
	return p.Err()
}

// Result is what was found.
type Result struct {
	Options Options
	Data    Data
	Machine Machine
	// Through is the run through Spillway; Direct, nil where it was left out, the one without.
	Through, Direct *Side
}

// Machine is where it was found.
type Machine struct {
	CPUs   int
	Memory int64 // bytes that could be had when the test began
	OS     string
}

// Side is one way of asking.
type Side struct {
	report.Run
	Replies []Reply
	// Rest is how heavy the servers were before the idle stretch.
	Rest Heights
	// Stopped says why the run was ended early; empty where it was not.
	Stopped string
}

// Run makes the data and does both runs. It ends early, with an error, when ctx does. An error
// means that nothing was measured; what the servers suffered is in the result.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	dir, err := os.MkdirTemp(o.Dir, "spillway-"+o.Scenario.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("the load test needs a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &Result{Options: o, Machine: Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH}}
	if r.Machine.Memory, err = available(); err != nil {
		return nil, fmt.Errorf("how much memory has the machine: %w", err)
	}
	o.Say("making %d series for each of %d servers", o.Series, o.Servers)
	began := time.Now()
	if r.Data, err = MakeData(ctx, filepath.Join(dir, "data"), o.Series, o.Seed, time.Now()); err != nil {
		return nil, err
	}
	o.Say("made %d series, %d of them buckets, in the head and in %d blocks, in %s", r.Data.Series, r.Data.Buckets, r.Data.Blocks, time.Since(began).Round(time.Second))
	if r.Through, err = r.run(ctx, filepath.Join(dir, "through"), "Through Spillway", true); err != nil {
		return nil, err
	}
	if !o.NoDirect {
		if r.Direct, err = r.run(ctx, filepath.Join(dir, "direct"), "Asked directly", false); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// run is one way of asking, on fresh servers.
func (r *Result) run(ctx context.Context, dir, name string, proxied bool) (_ *Side, err error) {
	o := r.Options
	n := o.Servers
	if !proxied {
		n = 1 // see doc.go
	}
	o.Say("%s: starting servers: %d", name, n)
	began := time.Now()
	f, err := servers{n: n, memoryLimit: o.MemoryLimit, told: !o.LimitUntold}.start(ctx, r.Data, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if proxied {
		if err := f.startProxy(ctx, o.Spillway, proxyConfig(f.urls(), 0)); err != nil {
			return nil, err
		}
	}
	heights, err := f.rest(ctx, o.Everyday)
	if err != nil {
		return nil, err
	}
	o.Say("%s: servers at rest %s after their start; the largest had %d MiB when it was ready, %d after a collection, %d after everyday queries",
		name, time.Since(began).Round(time.Second), heights.Started>>20, heights.Collected>>20, heights.InUse>>20)
	o.Say("%s: watching them idle for %s", name, o.Idle)

	stormCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := watch(f.members, o.KeepFree, stop)
	defer w.stop()
	if err := pause.For(stormCtx, o.Idle); err != nil {
		return nil, err
	}
	run := &Side{Run: report.Run{Name: name}, Rest: heights}
	s := callers{asks: o.Scenario.Asks, callers: o.Callers, duration: o.Duration, patience: o.Patience, began: w.began}
	for _, m := range f.members {
		if proxied == (m.role == report.Proxy) {
			s.targets = append(s.targets, target{url: m.url, gone: m.proc.Done()})
		}
	}
	o.Say("%s: %d callers ask for %s", name, o.Callers, o.Duration)
	run.Storm.Begin = time.Since(w.began)
	run.Replies = s.run(stormCtx)
	run.Storm.End = time.Since(w.began)
	if err := pause.For(stormCtx, afterStorm); err != nil && !errors.Is(err, errMachineFull) {
		return nil, err
	}
	run.Processes = w.stop()
	for _, reply := range run.Replies {
		run.Requests = append(run.Requests, reply.Request)
	}
	if cause := context.Cause(stormCtx); errors.Is(cause, errMachineFull) {
		run.Stopped = cause.Error()
		o.Say("%s: stopped early: %s", name, run.Stopped)
	}
	o.Say("%s: %s", name, run.Summary())
	return run, nil
}
