package mix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/pause"
	"github.com/spillwayproject/spillway/internal/realprom"
)

// bulk asks for the great many series: every path, each shard alone, and all shards at once, in
// turn. The proxies are fresh processes that have answered the mix a few times, since what a long
// run has left in their heaps is not this query's.
func (w *World) bulk(ctx context.Context, peers []*path) (_ *Bulk, err error) {
	w.o.Say("a great many series at once")
	paths, err := w.startPaths(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopPaths(paths)) }()
	callers := callersOf(append(paths[:len(paths):len(paths)], peers...), 1)
	defer closeAll(callers)
	b := &Bulk{Query: w.o.Mix.Bulk}
	if err := w.warm(ctx, callers); err != nil {
		return nil, err
	}
	idle, err := idleOf(callers)
	if err != nil {
		return nil, err
	}
	var shards []*caller
	for _, s := range w.parts {
		shards = append(shards, newCaller(&path{name: s.URL(), url: s.URL(), servers: []*realprom.Server{s}}, 1))
	}
	defer closeAll(shards)

	took := make(map[*caller][]time.Duration)
	cpu := make(map[*caller]time.Duration)
	bufs := make([]bytes.Buffer, len(shards)) // used again: only the first, untimed answers make them grow
	atOnce := make([]time.Duration, 0, w.o.BulkRuns)
	for run := -1; run < w.o.BulkRuns; run++ { // the first is not counted
		what := w.o.Mix.bulkPath(w.end(run + 1))
		for _, c := range append(callers[:len(callers):len(callers)], shards...) {
			before, _, err := c.p.cpu()
			if err != nil {
				return nil, err
			}
			t, err := c.ask(ctx, what, &bufs[0])
			if err != nil {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				b.Failed = append(b.Failed, err.Error())
				continue
			}
			after, _, err := c.p.cpu()
			if err != nil {
				return nil, err
			}
			if run >= 0 {
				took[c] = append(took[c], t)
				cpu[c] += after - before
			} else if c.p.name == Direct {
				b.Bytes = bufs[0].Len()
				r, err := parseResult(bufs[0].Bytes(), false)
				if err != nil {
					return nil, err
				}
				b.Series, b.Points = len(r.series), r.points
			}
		}
		t, err := allAtOnce(ctx, shards, what, bufs)
		if err != nil {
			return nil, err
		}
		if run >= 0 {
			atOnce = append(atOnce, t)
		}
	}
	for _, c := range callers {
		p, err := bulkPath(c, took[c], cpu[c], idle[c.p])
		if err != nil {
			return nil, err
		}
		b.Paths = append(b.Paths, p)
	}
	for _, c := range shards {
		b.SlowestAlone = max(b.SlowestAlone, median(took[c]).Seconds())
	}
	b.SlowestAtOnce = median(atOnce).Seconds()
	return b, nil
}

// warm asks the mix once on each path, and waits until all is at rest.
func (w *World) warm(ctx context.Context, callers []*caller) error {
	for _, c := range callers {
		if _, err := w.turn(ctx, c, 0, 1, 0, len(w.o.Mix.Queries)); err != nil {
			return err
		}
	}
	return pause.For(ctx, settle)
}

// idleOf is what each proxy holds at rest, in bytes; its peak is measured from here on.
func idleOf(callers []*caller) (map[*path]int64, error) {
	idle := map[*path]int64{}
	for _, c := range callers {
		if c.p.pid == 0 {
			continue
		}
		var err error
		if idle[c.p], _, err = realprom.Memory(c.p.pid); err == nil {
			err = realprom.ResetPeak(c.p.pid)
		}
		if err != nil {
			return nil, err
		}
	}
	return idle, nil
}

// bulkPath is what the query cost on one path, with what its proxy held at rest.
func bulkPath(c *caller, took []time.Duration, cpu time.Duration, idle int64) (BulkPath, error) {
	p := BulkPath{Name: c.p.name, Seconds: median(took).Seconds()}
	if n := len(took); n > 0 {
		p.ProxyCPU = cpu.Seconds() / float64(n)
	}
	if c.p.pid > 0 {
		_, peak, err := realprom.Memory(c.p.pid)
		if err != nil {
			return p, err
		}
		p.IdleMiB, p.OverIdleMiB = float64(idle)/(1<<20), float64(max(0, peak-idle))/(1<<20)
	}
	return p, nil
}

// allAtOnce asks all shards at the same time and returns how long the slowest took.
func allAtOnce(ctx context.Context, shards []*caller, what string, bufs []bytes.Buffer) (time.Duration, error) {
	took := make([]time.Duration, len(shards))
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range shards {
		g.Go(func() (err error) {
			if took[i], err = c.ask(ctx, what, &bufs[i]); err != nil {
				return fmt.Errorf("ask the shards at once: %w", err)
			}
			return nil
		})
	}
	err := g.Wait()
	slowest := took[0]
	for _, t := range took {
		slowest = max(slowest, t)
	}
	return slowest, err
}
