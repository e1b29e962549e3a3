package mix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/bench"
)

const (
	// checkPasses is at how many windows all paths are compared; warmPasses how often each path is
	// asked the mix before anything is timed.
	checkPasses, warmPasses = 2, 3
	// settle is how long a proxy is left alone before its idle memory is read.
	settle = 2 * time.Second
	// profileTime is over how long a profile is taken.
	profileTime = 15 * time.Second
)

// Measure starts the proxies, compares what the paths answer, and takes the figures. It ends early,
// with an error, when ctx does. Wrong answers are no error: the result has them.
func (w *World) Measure(ctx context.Context) (_ *Result, err error) {
	r := w.newResult()
	paths, err := w.startPaths(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopPaths(paths)) }()
	peers, err := w.peers(ctx)
	if err != nil {
		return nil, err
	}
	paths = append(paths, peers...)
	callers := callersOf(paths, slices.Max(w.o.Concurrency))
	defer closeAll(callers)

	w.o.Say("comparing what the paths answer")
	if r.Wrong, err = w.compare(ctx, callers); err != nil {
		return nil, err
	}
	for _, wrong := range r.Wrong {
		w.o.Say("WRONG  %s", wrong)
	}
	for _, concurrency := range w.o.Concurrency {
		load, err := w.load(ctx, callers, concurrency)
		if err != nil {
			return nil, err
		}
		r.Loads = append(r.Loads, *load)
	}
	if w.o.Profile != "" {
		if err := w.profiles(ctx, callers); err != nil {
			return nil, err
		}
	}
	if r.Bulk, err = w.bulk(ctx, peers); err != nil {
		return nil, err
	}
	r.Goals = r.goals()
	return r, nil
}

func callersOf(paths []*path, connections int) []*caller {
	var callers []*caller
	for _, p := range paths {
		callers = append(callers, newCaller(p, connections))
	}
	return callers
}

func closeAll(callers []*caller) {
	for _, c := range callers {
		c.close()
	}
}

// peers waits until all of them answer.
func (w *World) peers(ctx context.Context) (paths []*path, err error) {
	for _, o := range w.o.Peers {
		p := &path{name: o.Name, url: o.URL, servers: append([]*realprom.Server{w.whole}, w.parts...)}
		c := newCaller(p, 1)
		defer c.close()
		if p.pid, err = o.Wait(ctx, w.o.Say, func(ctx context.Context) error {
			_, err := c.ask(ctx, "/api/v1/query?query=1", new(bytes.Buffer))
			return err
		}); err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// compare asks every query of the mix, and the great many series, on all paths.
func (w *World) compare(ctx context.Context, callers []*caller) (wrong []string, err error) {
	for i := range checkPasses * len(w.o.Mix.Queries) {
		q, what := w.request(i)
		want, bad, err := w.check(ctx, callers, what)
		if err != nil {
			return nil, err
		}
		if want.points == 0 {
			return nil, fmt.Errorf("%s finds nothing, so it would measure nothing: %s", w.o.Mix.Queries[q].Name, what)
		}
		wrong = append(wrong, bad...)
	}
	_, bad, err := w.check(ctx, callers, w.o.Mix.bulkPath(w.end(0)))
	return append(wrong, bad...), err
}

// load takes the figures at one concurrency.
func (w *World) load(ctx context.Context, callers []*caller, concurrency int) (*Load, error) {
	n := len(w.o.Mix.Queries)
	for _, c := range callers { // connections, pools, what was learned about the shards
		if _, err := w.turn(ctx, c, 0, concurrency, 0, warmPasses*n); err != nil {
			return nil, err
		}
		for _, pid := range c.p.pids() {
			if err := realprom.ResetPeak(pid); err != nil {
				return nil, err
			}
		}
	}
	var turns []*turn
	for round := range w.o.Rounds {
		w.o.Say("concurrency %d, round %d of %d", concurrency, round+1, w.o.Rounds)
		for i := range callers { // another one begins each time
			t, err := w.turn(ctx, callers[(round+i)%len(callers)], round, concurrency, round*w.o.Requests, w.o.Requests)
			if err != nil {
				return nil, err
			}
			turns = append(turns, t)
		}
	}
	load := &Load{Concurrency: concurrency}
	for _, c := range callers {
		p := w.sum(c.p, turns)
		for _, pid := range c.p.pids() {
			if _, peak, err := realprom.Memory(pid); err == nil {
				p.PeakMiB = max(p.PeakMiB, float64(peak)/(1<<20))
			}
		}
		load.Paths = append(load.Paths, p)
	}
	return load, nil
}

// pids are the process whose memory is the path's: its proxy or, on the direct one, the server.
func (p *path) pids() []int {
	switch {
	case p.pid > 0:
		return []int{p.pid}
	case p.name == Direct, p.name == DirectShard:
		return []int{p.servers[0].PID()}
	}
	return nil
}

// profiles takes a processor profile of each Spillway process under the mix.
func (w *World) profiles(ctx context.Context, callers []*caller) error {
	if err := os.MkdirAll(w.o.Profile, 0o777); err != nil {
		return fmt.Errorf("save the profiles: %w", err)
	}
	for _, c := range callers {
		if c.p.admin == "" {
			continue
		}
		name := map[string]string{SpillwayOne: "one", SpillwayLabeled: "labels", SpillwayFour: "four"}[c.p.name]
		if name == "" {
			continue
		}
		w.o.Say("profile of %s", c.p.name)
		busy, stop := context.WithCancelCause(ctx)
		var g errgroup.Group
		g.Go(func() error {
			for i := 0; busy.Err() == nil; i++ {
				if _, err := w.turn(busy, c, 0, 2, i*len(w.o.Mix.Queries), len(w.o.Mix.Queries)); err != nil && busy.Err() == nil {
					return err
				}
			}
			return nil
		})
		admin := newCaller(&path{name: c.p.name, url: c.p.admin}, 1)
		err := admin.save(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(profileTime.Seconds())),
			filepath.Join(w.o.Profile, name+".cpu.pprof"))
		stop(errors.New("the profile is taken"))
		err = errors.Join(err, g.Wait())
		if err == nil {
			err = admin.save(ctx, "/debug/pprof/allocs", filepath.Join(w.o.Profile, name+".allocs.pprof"))
		}
		admin.close()
		if err != nil {
			return fmt.Errorf("profile of %s: %w", c.p.name, err)
		}
	}
	return nil
}

// save writes an answer into a file.
func (c *caller) save(ctx context.Context, what, file string) error {
	body, err := bench.Get(ctx, c.client, c.p.url+what)
	if err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o666)
}
