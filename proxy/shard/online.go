package shard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// onlineParallel is how many servers CheckOnline asks at once.
const onlineParallel = 8

// CheckOnline asks every server of the configuration what a file cannot tell: whether it is there,
// whether its external labels are named, whether replicas hold the same and shards do not, whether
// clocks and engines agree, and whether rules record the same on two shards. Each problem has the
// path of what to change; without any the list is nil. It takes at most about half a minute for
// each server, eight at a time, and holds hashes of the targets of all servers (the series of up).
func CheckOnline(ctx context.Context, cfg *config.Config) (config.Problems, error) {
	return checkOnline(ctx, cfg, Options{})
}

func checkOnline(ctx context.Context, cfg *config.Config, opts Options) (config.Problems, error) {
	t, err := New(cfg.Groups, opts, nil)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	o := &online{}
	type result struct {
		r   *Replica
		err error
	}
	var results []*result
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(onlineParallel)
	for r := range t.replicas() {
		res := &result{r: r}
		results = append(results, res)
		g.Go(func() error {
			if res.err = r.ready(gctx); res.err == nil {
				r.examine(gctx)
				res.err = r.readTargets(gctx)
			}
			return nil // one server's failure does not end the others' examination
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ask the servers: %w", context.Cause(ctx))
	}
	for _, res := range results {
		if res.err != nil {
			// the private cause too: whoever checks a configuration owns it
			o.add(res.r, ".url", "the server cannot be examined: %v", res.err)
		}
		o.replica(t, res.r)
	}
	for i, g := range t.Groups {
		if state, why := g.ShardByState(); state == trust.Broken {
			o.problems = append(o.problems, config.Problem{Path: fmt.Sprintf("groups[%d].shard_by", i), Message: why})
		}
	}
	well := map[*Replica]bool{}
	for _, res := range results {
		well[res.r] = res.err == nil
	}
	o.heartbeats(ctx, t, func(r *Replica) bool { return well[r] })
	o.pruned(ctx, t, func(r *Replica) bool { return well[r] })
	o.recorded(ctx, t, func(r *Replica) bool { return well[r] })
	for _, f := range t.targetAilments(ctx, time.Now()) {
		text := f.text
		if f.kind == SickSplit {
			text += f.r.Shard.young(ctx)
		}
		o.add(f.r, "", "%s", text)
	}
	if ctx.Err() != nil { // what was not compared is not well
		return nil, fmt.Errorf("ask the servers: %w", context.Cause(ctx))
	}
	return o.problems, nil
}

type online struct{ problems config.Problems }

func (o *online) add(r *Replica, suffix, format string, args ...any) {
	gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
	o.problems = append(o.problems, config.Problem{
		Path:    fmt.Sprintf("groups[%d].shards[%d].replicas[%d]%s", gi, r.Shard.Index, r.Index, suffix),
		Message: r.Name() + ": " + fmt.Sprintf(format, args...),
	})
}

// heartbeats tells of groups whose heartbeat selects nothing on all replicas of a shard that is to
// have something of late.
func (o *online) heartbeats(ctx context.Context, t *Topology, well func(*Replica) bool) {
	var mu sync.Mutex
	empty := map[int]string{} // the first shard of each group
	young := map[string]string{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(onlineParallel)
	for i, group := range t.Groups {
		for _, s := range group.Shards {
			if group.Heartbeat == "" || len(s.Replicas) < 2 || !s.lives(t.opts.Clock()) ||
				slices.ContainsFunc(s.Replicas, func(r *Replica) bool { return !well(r) }) {
				continue // without one, of one server, or in another time nothing is looked for; or it has its own problem
			}
			g.Go(func() error {
				s.refreshBeats(gctx)
				if none, _ := s.beats.Empty(); none {
					mu.Lock()
					defer mu.Unlock()
					empty[i] = min(cmp.Or(empty[i], s.Name()), s.Name())
					young[s.Name()] = s.young(gctx)
				}
				return nil
			})
		}
	}
	_ = g.Wait()
	for i := range t.Groups {
		if empty[i] != "" {
			o.problems = append(o.problems, config.Problem{
				Path: fmt.Sprintf("groups[%d].heartbeat", i),
				Message: fmt.Sprintf("%s selects nothing on any replica of shard %s, so that none is known to be whole, and queries read all copies; name what every server scrapes, such as up{job=\"node-exporter\"}%s",
					t.Groups[i].Heartbeat, empty[i], young[empty[i]]),
			})
		}
	}
}

// replica checks one server by itself.
func (o *online) replica(t *Topology, r *Replica) {
	for _, why := range r.misconfigured() {
		o.add(r, "", "%s", why)
	}
	o.promises(r)
	r.up.mu.Lock()
	note := r.up.health.note
	r.up.mu.Unlock()
	if note != "" {
		o.add(r, "", "%s; make sure by hand that the group names each of them", note)
	}
	if unlisted := r.unlisted(); unlisted != "" {
		o.add(r, "", "%s", unlisted)
	}
	ref, _ := t.reference()
	for _, f := range r.ailments(ref) {
		o.add(r, "", "%s", f.text)
	}
}
