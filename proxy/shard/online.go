package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/config"
)

const (
	// onlineParallel is how many servers CheckOnline asks at once.
	onlineParallel = 8
	// maxSkew is how far a server's clock may be from ours before anyone is told.
	maxSkew = 30 * time.Second
)

// CheckOnline asks every server of the configuration what a file cannot tell: whether it is there, whether its external labels are named, whether
// replicas hold the same and shards do not, whether clocks and engines agree. Each problem has the path of what to change; none is a nil list. It takes
// at most about half a minute for each server, eight at a time, and holds the targets of all servers (the series of up).
func CheckOnline(ctx context.Context, cfg *config.Config) (config.Problems, error) {
	t, err := New(cfg.Groups, Options{}, nil)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	o := &online{targets: map[*Replica]map[string]bool{}}
	type result struct {
		r       *Replica
		err     error
		targets map[string]bool
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
				res.targets, res.err = r.upSeries(gctx)
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
			o.add(res.r, ".url", "the server cannot be examined: %v", res.err) // the private cause too: whoever checks a configuration owns it
		}
		if res.targets != nil {
			o.targets[res.r] = res.targets
		}
		o.replica(t, res.r)
	}
	now := time.Now()
	for _, g := range t.Groups {
		for si, s := range g.Shards {
			o.copies(s)
			for _, other := range g.Shards[si+1:] {
				o.slices(s, other, now)
			}
		}
	}
	return o.problems, nil
}

type online struct {
	problems config.Problems
	targets  map[*Replica]map[string]bool
}

func (o *online) add(r *Replica, suffix, format string, args ...any) {
	gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
	o.problems = append(o.problems, config.Problem{
		Path:    fmt.Sprintf("groups[%d].shards[%d].replicas[%d]%s", gi, r.Shard.Index, r.Index, suffix),
		Message: r.Name() + ": " + fmt.Sprintf(format, args...),
	})
}

// replica checks one server by itself.
func (o *online) replica(t *Topology, r *Replica) {
	for _, why := range r.misconfigured() {
		o.add(r, "", "%s", why)
	}
	r.up.mu.Lock()
	skew, note := r.up.health.skew, r.up.health.note
	r.up.mu.Unlock()
	if note != "" {
		o.add(r, "", "%s; make sure by hand that the group names each of them", note)
	}
	if skew.Abs() > maxSkew {
		o.add(r, "", "its clock is %s %s ours; queries about now will miss samples, so run NTP on both", skew.Abs().Round(time.Second), beforeOrAfter(skew))
	}
	for _, d := range t.EngineDifferences(r) {
		o.add(r, "", "its query engine differs from most others: %s; nothing is pushed to it until they are equal", d)
	}
}

func beforeOrAfter(d time.Duration) string {
	if d < 0 {
		return "behind"
	}
	return "ahead of"
}

// copies checks that a shard's replicas scrape the same targets.
func (o *online) copies(s *Shard) {
	first := s.Replicas[0]
	a := o.targets[first]
	for _, r := range s.Replicas[1:] {
		b := o.targets[r]
		if len(a) == 0 || len(b) == 0 {
			continue
		}
		if both := len(common(a, b)); 2*both < max(len(a), len(b)) {
			o.add(r, "", "listed as a replica of %s, but they hold different targets (%d and %d, %d in common); if they are shards, give each its own entry under shards",
				first.host, len(b), len(a), both)
		}
	}
}

// slices checks that two shards of a group do not scrape the same targets at the same time.
func (o *online) slices(a, b *Shard, now time.Time) {
	af, au := a.Span(now)
	bf, bu := b.Span(now)
	if max(af, bf) >= min(au, bu) {
		return // disjoint in time
	}
	for _, ra := range a.Replicas {
		for _, rb := range b.Replicas {
			ta, tb := o.targets[ra], o.targets[rb]
			both := common(ta, tb)
			if len(both) == 0 {
				continue
			}
			if 10*len(both) >= 9*max(len(ta), len(tb)) {
				o.add(rb, "", "holds the same targets as %s of shard %d; these two look like replicas of one shard: list them under one replicas", ra.host, a.Index)
			} else {
				o.add(rb, "", "%d of its targets are on %s of shard %d too, such as %s; a series must be on one shard only, so drop it on one or give it a label that tells them apart",
					len(both), ra.host, a.Index, both[0])
			}
			return // one pair says enough
		}
	}
}

// common are the elements of both sets, sorted.
func common(a, b map[string]bool) []string {
	if len(a) > len(b) {
		a, b = b, a
	}
	var out []string
	for k := range a {
		if b[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// upSeries are the server's targets: the label sets of up, without what Spillway sets or removes itself.
func (r *Replica) upSeries(ctx context.Context) (map[string]bool, error) {
	raw, err := r.getData(ctx, "/api/v1/query", url.Values{"query": {"up"}, "timeout": {probeTimeout.String()}})
	if err != nil {
		return nil, err
	}
	var data struct {
		ResultType string `json:"resultType"`
		Result     []struct {
			Metric map[string]string `json:"metric"`
		} `json:"result"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, fmt.Errorf("the answer to the query up makes no sense: %w", err)
	}
	if data.ResultType != "vector" {
		return nil, errors.New("the answer to the query up is no vector")
	}
	own := r.Shard.Group.ownLabels()
	out := make(map[string]bool, len(data.Result))
	for _, s := range data.Result {
		out[labels.NewBuilder(labels.FromMap(s.Metric)).Del(own...).Labels().String()] = true
	}
	return out, nil
}
