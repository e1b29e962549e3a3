package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// oldWindow is over how much of the oldest time of a Thanos Query it is asked for samples. Those
// that are downsampled most lie an hour apart.
const oldWindow = 2 * time.Hour

// pruned tells of groups whose Thanos Query has only downsampled samples at the old end of their
// time. It is always asked for raw ones, and its stores never take others in their place: an answer
// there is empty, and nobody can tell that from one about a time without samples.
func (o *online) pruned(ctx context.Context, t *Topology, well func(*Replica) bool) {
	found := make([]string, len(t.Groups))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(onlineParallel)
	for i, group := range t.Groups {
		for _, s := range group.Shards {
			r := s.Replicas[0] // the others are over the same stores
			if !r.Thanos() || !well(r) {
				continue
			}
			g.Go(func() error {
				found[i] = r.prunedBefore(gctx)
				return nil
			})
			break // one of each group
		}
	}
	_ = g.Wait() // they return none
	for i, what := range found {
		if what != "" {
			o.problems = append(o.problems, config.Problem{Path: fmt.Sprintf("groups[%d].from", i), Message: what})
		}
	}
}

// prunedBefore says what is wrong with the old end of the server's time; empty where nothing is, or
// where nobody can tell.
func (r *Replica) prunedBefore(ctx context.Context) string {
	now := r.Shard.topology.opts.Clock()
	from, until := r.Shard.Span(now)
	r.up.mu.Lock()
	oldest, known := r.up.stores.Oldest()
	r.up.mu.Unlock()
	if !known && from == math.MinInt64 {
		return ""
	}
	at := max(from, oldest) + oldWindow.Milliseconds()
	if at >= min(until, now.UnixMilli()) {
		return ""
	}
	selector := r.Shard.Group.Heartbeat
	if selector == "" {
		selector = "up"
	}
	query := fmt.Sprintf("count(count_over_time(%s[%s]))", selector, config.Duration(oldWindow))
	finds := func(resolution string) (found bool, err error) {
		req := &endpoint.Request{ID: endpoint.Query, Query: query, Time: endpoint.At(at)}
		build := edited(r.writer(req), parameters(func(q url.Values) { q.Set("max_source_resolution", resolution) }))
		err = r.fetch(ctx, probeJSON, req.Path(), build, smallPage, r.data(func(raw json.RawMessage) error {
			var d struct{ Result []json.RawMessage }
			err := json.Unmarshal(raw, &d)
			found = len(d.Result) > 0
			return err
		}))
		return found, err
	}
	if found, err := finds("0s"); err != nil || found {
		return ""
	}
	if found, err := finds("1h"); err != nil || !found {
		return ""
	}
	return fmt.Sprintf("%s has only downsampled samples of %s at %s, the old end of this group's time, and is always asked for raw ones: queries about such times are answered as if there were none, and absent() of them is 1; "+
		"let the group begin where the raw ones do (from: -30d for a compactor with --retention.resolution-raw=30d), or keep raw samples for longer",
		r.Name(), selector, time.UnixMilli(at).UTC().Format(time.RFC3339))
}
