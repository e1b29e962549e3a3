package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/pause"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/loadtest/storm"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// StormOptions say what a mixed storm is, and how hard. Zero values take the defaults named.
type StormOptions struct {
	// Storm is what comes; storm.Builtin().
	Storm storm.Storm
	// Spillway is the spillway binary, run as the proxy.
	Spillway string
	// Series is how many each server holds; 300,000. Servers is how many there are; 2.
	Series, Servers int
	// Idle is how long only on-call people ask; 1m. Duration is how long the storm comes then; 1m.
	Idle, Duration time.Duration
	// Tail is how long callers of the storm are waited for after it; 30s.
	Tail time.Duration
	// Everyday is how long the servers may work to come to rest; 2m. Warm is how long on-call's
	// queries are asked before anything is measured, and how long it is measured what the servers
	// can answer; 4s.
	Everyday, Warm time.Duration
	// MemoryLimit is the resident memory in bytes at which a server is killed; 3 GiB. LimitUntold
	// is as in Options.
	MemoryLimit int64
	LimitUntold bool
	// ReplicaCalls is the proxy's limits.replica_calls: how many calls a server gets at once. A
	// Prometheus evaluates a query on one processor, so it is a server's part of the machine's
	// processors, 2 at least and 24, the proxy's default, at most.
	ReplicaCalls int
	// ProcessCalls is the proxy's limits.process_calls: one more than the machine has processors, 3
	// at least, so that all of the storm has one call where on-call's lane keeps the others.
	ProcessCalls int
	// KeepFree is the memory in bytes that the machine must have left, or the run ends; 3 GiB.
	KeepFree int64
	// NoDirect leaves out the run without Spillway.
	NoDirect bool
	// Peers are other proxies, started by others, in front of the same servers. Each has a run of
	// its own.
	Peers []bench.Peer
	// Port, if not 0, is where the first server listens too, in each run, the others on the next
	// ones: so that peers can be configured beforehand.
	Port int
	// Seed chooses the simulated cluster, and when callers arrive.
	Seed uint64
	// Dir is where data is made, in a folder of its own that is removed; the temporary folder.
	Dir string
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// minShardBytes is the least that one query may make a server hold, however small the server is.
const minShardBytes = 16 << 20

// restPart is which part of what a server holds at rest all queries together may make it hold: it
// grows by two to three times as much, since Go's garbage collector lets a heap double.
const restPart = 8

func (o StormOptions) withDefaults() StormOptions {
	if len(o.Storm.Parts) == 0 {
		o.Storm = storm.Builtin()
	}
	o.Series, o.Servers = cmp.Or(o.Series, 300_000), cmp.Or(o.Servers, 2)
	o.Idle, o.Duration, o.Tail = cmp.Or(o.Idle, time.Minute), cmp.Or(o.Duration, time.Minute), cmp.Or(o.Tail, 30*time.Second)
	o.Everyday, o.Warm = cmp.Or(o.Everyday, 2*time.Minute), cmp.Or(o.Warm, 4*time.Second)
	o.ReplicaCalls = cmp.Or(o.ReplicaCalls, min(24, max(2, runtime.NumCPU()/o.Servers)))
	o.ProcessCalls = cmp.Or(o.ProcessCalls, max(3, runtime.NumCPU()+1))
	o.MemoryLimit, o.KeepFree = cmp.Or(o.MemoryLimit, 3<<30), cmp.Or(o.KeepFree, 3<<30)
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// Validate returns everything that is wrong with the options, after defaults.
func (o StormOptions) Validate() error {
	o = o.withDefaults()
	var p bench.Problems
	p.Check(o.Spillway != "", "the path of the spillway binary is missing")
	p.Check(o.Series >= minSeries && o.Series <= 20_000_000, "series: %d is outside %d (a cluster's control plane alone) to 20,000,000", o.Series, minSeries)
	p.Check(o.Servers >= 1 && o.Servers <= 64, "servers: %d is outside 1 to 64", o.Servers)
	p.Check(o.Idle >= time.Second && o.Idle <= time.Hour, "idle: %s is outside 1s to 1h", o.Idle)
	p.Check(o.Duration >= time.Second && o.Idle+o.Duration <= 45*time.Minute, "duration: %s is less than 1s, or so long that the newest samples leave the last 50 minutes", o.Duration)
	p.Check(o.Tail > 0, "tail: must be above 0")
	p.Check(o.Everyday >= 0 && o.Warm > 0, "everyday work and warming up: must not be negative")
	p.Check(o.MemoryLimit >= 256<<20, "memory limit: %d MiB is less than 256 MiB, on which no server starts", o.MemoryLimit>>20)
	p.Check(o.ReplicaCalls >= 1, "replica calls: %d must be above 0", o.ReplicaCalls)
	p.Check(o.ProcessCalls >= 1, "process calls: %d must be above 0", o.ProcessCalls)
	p.Check(o.KeepFree >= 0, "memory to be kept free: must not be negative")
	p.CheckPorts(o.Port, o.Servers)
	p.Check(o.Port > 0 || len(o.Peers) == 0, "peers need a port at which they find the servers in each run")
	p.CheckPeers(o.Peers, spillway)
	return p.Err()
}

// StormResult is what was found.
type StormResult struct {
	Options StormOptions
	Data    Data
	Machine Machine
	// Through is the run through Spillway; Direct, nil where it was left out, the one without;
	// Peers are those through others.
	Through, Direct *StormSide
	Peers           []*StormSide
}

// spillway is what it is called beside its peers.
const spillway = "Spillway"

// front is what stands before the servers in a run: it aims the attack.
type front func(ctx context.Context, f *fleet, atRest int64, attack *storm.Attack) error

// StormSide is one way of asking.
type StormSide struct {
	report.Run
	// OnCall are the requests of on-call people, Replies those of the storm; times count from when
	// the run began.
	OnCall, Replies []storm.Reply
	// Rest is how heavy the servers were before the idle stretch.
	Rest Heights
	// Idle and Busy say who had the processors before the storm and in it.
	Idle, Busy Processors
	// Waited is how long on-call's calls waited in the storm for places at servers that others had,
	// all together, and of the proxy's run only.
	Waited time.Duration
	// Stopped says why the run was ended early; empty where it was not.
	Stopped string
}

// Processors is who had the machine's processors over a stretch of time, in processors: 2 is two of
// them all the time. Total is everybody, also those who have nothing to do with the test.
type Processors struct {
	Servers, Proxy, Callers, Total float64
	Ready                          Ready
}

// Ready is how many threads could have run and had no processor, on average.
type Ready struct{ Servers, Proxy, Callers float64 }

// callersGC is how much garbage the callers let lie, in percent of what they hold.
const callersGC = 400

// RunStorm makes the data and does both runs, as Run does.
func RunStorm(ctx context.Context, o StormOptions) (_ *StormResult, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(callersGC)) // who asks is to have little of the processors
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	o.Storm.Parts = slices.Clone(o.Storm.Parts) // rates are measured
	dir, err := os.MkdirTemp(o.Dir, "spillway-storm-")
	if err != nil {
		return nil, fmt.Errorf("the load test needs a folder: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &StormResult{Options: o, Machine: Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH}}
	if r.Machine.Memory, err = available(); err != nil {
		return nil, fmt.Errorf("how much memory has the machine: %w", err)
	}
	o.Say("making %d series for each of %d servers", o.Series, o.Servers)
	if r.Data, err = MakeData(ctx, filepath.Join(dir, "data"), o.Series, o.Seed, time.Now()); err != nil {
		return nil, err
	}
	o.Say("made %d series, %d of them buckets, in the head and in %d blocks", r.Data.Series, r.Data.Buckets, r.Data.Blocks)
	if r.Through, err = r.run(ctx, filepath.Join(dir, "through"), "Through "+spillway, r.proxyFor); err != nil {
		return nil, err
	}
	for i, p := range o.Peers {
		side, err := r.run(ctx, filepath.Join(dir, fmt.Sprint("peer-", i+1)), "Through "+p.Name, r.peerFor(p))
		if err != nil {
			return nil, err
		}
		r.Peers = append(r.Peers, side)
	}
	if !o.NoDirect {
		if r.Direct, err = r.run(ctx, filepath.Join(dir, "direct"), "Asked directly", directly); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// run is one way of asking, on fresh servers.
func (r *StormResult) run(ctx context.Context, dir, name string, before front) (_ *StormSide, err error) {
	o := r.Options
	o.Say("%s: starting servers: %d", name, o.Servers)
	f, err := servers{n: o.Servers, port: o.Port, memoryLimit: o.MemoryLimit, told: !o.LimitUntold}.start(ctx, r.Data, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	attack := storm.Attack{Seed: o.Seed}
	if attack.Pods, err = pods(ctx, f.servers[0].URL()); err != nil {
		return nil, err
	}
	side := &StormSide{Run: report.Run{Name: name}}
	if side.Rest, err = f.rest(ctx, o.Everyday); err != nil {
		return nil, err
	}
	if err := before(ctx, f, side.Rest.InUse, &attack); err != nil {
		return nil, err
	}
	o.Say("%s: servers at rest; the largest had %d MiB when it was ready, %d after a collection, %d after everyday queries",
		name, side.Rest.Started>>20, side.Rest.Collected>>20, side.Rest.InUse>>20)
	if err := r.warm(ctx, attack); err != nil {
		return nil, err
	}
	if _, err = f.rest(ctx, o.Everyday); err != nil { // what warming took is not to count as idle
		return nil, err
	}
	if err := r.watchStorm(ctx, f, attack, side); err != nil {
		return nil, err
	}
	o.Say("%s: %s", name, side.Summary())
	return side, nil
}

// directly aims the attack at the servers themselves, in turn.
func directly(_ context.Context, f *fleet, _ int64, attack *storm.Attack) error {
	for _, url := range f.urls() {
		attack.Targets = append(attack.Targets, storm.Target{URL: url})
	}
	return nil
}

// proxyFor starts the proxy with the storm's tenants and lanes, sized for the servers as
// docs/operations.md says, and aims the attack at it.
func (r *StormResult) proxyFor(ctx context.Context, f *fleet, atRest int64, attack *storm.Attack) error {
	limit := int64(0) // a server that was told says it itself
	if r.Options.LimitUntold {
		limit = r.Options.MemoryLimit
	}
	c := proxyConfig(f.urls(), limit)
	c.Limits.ReplicaCalls = r.Options.ReplicaCalls
	c.Limits.ProcessCalls = r.Options.ProcessCalls
	c.Limits.ReadSlots = min(c.Limits.ReadSlots, max(1, r.Options.ReplicaCalls/2))
	c.Limits.MaxShardBytes = min(c.Limits.MaxShardBytes, max(minShardBytes, atRest/restPart))
	c.Limits.ShardBudget = c.Limits.MaxShardBytes
	r.Options.Say("limits: replica_calls %d, process_calls %d, read_slots %d, max_shard_bytes and shard_budget %d MiB",
		c.Limits.ReplicaCalls, c.Limits.ProcessCalls, c.Limits.ReadSlots, c.Limits.MaxShardBytes>>20)
	attack.Tokens = map[string]string{}
	for _, name := range r.Options.Storm.Tenants() {
		token := "token-of-" + name
		file := filepath.Join(f.dir, name+".token")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			return err
		}
		attack.Tokens[name] = token
		c.Tenants = append(c.Tenants, config.Tenant{Name: name, BearerTokenFile: file, MaySet: []string{
			identity.HeaderUser, identity.HeaderDashboard, identity.HeaderPanel, identity.HeaderRule, identity.HeaderFromAlert,
		}})
	}
	for _, l := range r.Options.Storm.Lanes {
		lane := config.Lane{
			Name: l.Tenant, Match: config.LaneMatch{Tenant: l.Tenant}, Share: config.Part(l.Share), MaxConcurrent: l.MaxConcurrent,
			Lend: config.UsualLend, First: l.First, MaxWait: l.MaxWait,
		}
		if l.Lend != nil {
			lane.Lend = config.Lend(*l.Lend)
		}
		c.Lanes = append(c.Lanes, lane)
	}
	if err := f.startProxy(ctx, r.Options.Spillway, c); err != nil {
		return err
	}
	target := storm.Target{URL: f.members[len(f.members)-1].url}
	for _, g := range c.Groups {
		target.Clusters = append(target.Clusters, g.Labels["cluster"])
	}
	attack.Targets = []storm.Target{target}
	return nil
}

// warm asks on-call's queries for a few seconds, which nobody measures, and finds the rates of the
// parts that are multiples of what can be answered: once, so that both runs have the same storm.
func (r *StormResult) warm(ctx context.Context, attack storm.Attack) error {
	attack.RunEvenly(ctx, time.Now(), r.Options.Warm, r.Options.Storm.OnCall)
	parts := r.Options.Storm.Parts
	for i, p := range parts {
		if p.TimesGoodput == 0 {
			continue
		}
		attack.Goodput(ctx, p, r.Options.Warm) // what the proxy finds out about selectors, it finds out once
		goodput := attack.Goodput(ctx, p, r.Options.Warm)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if goodput == 0 {
			return fmt.Errorf("%s: nothing was answered while nobody else asked, so that nobody knows what %g times as much is", p.Name, p.TimesGoodput)
		}
		parts[i].Rate, parts[i].TimesGoodput = p.TimesGoodput*goodput, 0
		r.Options.Say("%s: %.1f a second can be answered, so %.1f arrive", p.Name, goodput, parts[i].Rate)
	}
	return nil
}

// watchStorm has on-call people ask, has the storm come, and watches.
func (r *StormResult) watchStorm(ctx context.Context, f *fleet, attack storm.Attack, side *StormSide) error {
	o := r.Options
	runCtx, stop := context.WithCancelCause(ctx)
	w := watch(f.members, o.KeepFree, stop)
	defer w.stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer stop(nil) // before the wait
	all.Go(func() { side.OnCall = attack.RunEvenly(runCtx, w.began, o.Idle+o.Duration, o.Storm.OnCall) })
	o.Say("%s: only on-call people ask for %s", side.Name, o.Idle)
	before := f.usage()
	if err := pause.For(runCtx, o.Idle); err != nil {
		return err
	}
	atStorm := f.usage()
	side.Idle = atStorm.since(before)
	waited := r.onCallWaits(f)
	o.Say("%s: the storm comes for %s", side.Name, o.Duration)
	side.Storm.Begin = time.Since(w.began)
	stormCtx, end := context.WithTimeout(runCtx, o.Duration+o.Tail)
	defer end()
	all.Go(func() {
		_ = pause.For(stormCtx, o.Duration) // or until the storm was over
		side.Busy = f.usage().since(atStorm)
	})
	all.Go(func() { // nobody is left to be asked
		for _, s := range f.servers {
			select {
			case <-s.Done():
			case <-stormCtx.Done():
			}
		}
		end()
	})
	began := time.Now()
	side.Replies = attack.Run(stormCtx, began, o.Duration, o.Storm.Parts...)
	for i := range side.Replies {
		side.Replies[i].Due += began.Sub(w.began)
	}
	side.Storm.End = time.Since(w.began)
	side.Waited = r.onCallWaits(f) - waited
	end()
	if err := pause.For(runCtx, afterStorm); err != nil && !errors.Is(err, errMachineFull) {
		return err
	}
	all.Wait()
	side.Processes = w.stop()
	if cause := context.Cause(runCtx); errors.Is(cause, errMachineFull) {
		side.Stopped = cause.Error()
		o.Say("%s: stopped early: %s", side.Name, side.Stopped)
	}
	side.forReport()
	return nil
}

// onCallWaits is how long on-call's calls have waited at the proxy's gates so far, by its metrics.
func (r *StormResult) onCallWaits(f *fleet) time.Duration {
	if f.proxy == nil {
		return 0
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	text, err := bench.Get(context.Background(), client, f.admin+"/metrics")
	if err != nil {
		return 0
	}
	key := fmt.Appendf(nil, "spillway_lane_wait_seconds_total{lane=%q} ", r.Options.Storm.OnCall.Tenant)
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, key); ok {
			s, _ := strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64)
			return time.Duration(s * float64(time.Second))
		}
	}
	return 0
}

// forReport gives the report the requests that it draws and counts.
func (s *StormSide) forReport() {
	for _, q := range s.Replies {
		s.Requests = append(s.Requests, report.Request{
			Began: q.Due, Took: q.Took, Outcome: q.Outcome, OK: q.Verdict == storm.OK, Bytes: q.Bytes,
		})
	}
	slices.SortFunc(s.OnCall, func(a, b storm.Reply) int { return cmp.Compare(a.Due, b.Due) })
	for _, q := range s.OnCall {
		if q.Verdict != storm.Ended {
			s.Latency = append(s.Latency, report.Point{At: q.Due, Took: q.Took, OK: q.Verdict == storm.OK})
		}
	}
}

// pods are at most 1,000 names of pods that a server knows.
func pods(ctx context.Context, server string) ([]string, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	text, err := bench.Get(ctx, client, server+"/api/v1/label/pod/values?match[]=container_cpu_usage_seconds_total&limit=1000")
	if err != nil {
		return nil, fmt.Errorf("which pods are there: %w", err)
	}
	var a struct{ Data []string }
	if err := json.Unmarshal(text, &a); err != nil || len(a.Data) == 0 {
		return nil, fmt.Errorf("%s names no pods: %w", server, cmp.Or(err, errors.New("an empty answer")))
	}
	return a.Data, nil
}
