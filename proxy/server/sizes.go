package server

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

const (
	// sizesAtOnce is of how many shards it is found out at once how large their metrics are, and
	// sizesPatience how long one may take for it.
	sizesAtOnce   = 4
	sizesPatience = 10 * time.Second
	maxSizesBytes = 1 << 20
)

// sizes knows how many series the metrics of shards have. It is asked for behind a request that
// needs it, and not waited for.
type sizes struct {
	s      *Server
	by     map[*shard.Shard]*cost.Names
	ctx    context.Context // of what is asked behind requests
	cancel context.CancelFunc
	places chan struct{}
	asking sync.WaitGroup
}

func newSizes(s *Server, top *shard.Topology) *sizes {
	z := &sizes{s: s, by: map[*shard.Shard]*cost.Names{}, places: make(chan struct{}, sizesAtOnce)}
	z.ctx, z.cancel = context.WithCancel(s.background)
	for _, g := range top.Groups {
		for _, sh := range g.Shards {
			z.by[sh] = &cost.Names{}
		}
	}
	return z
}

// close ends what is being asked.
func (z *sizes) close() {
	z.cancel()
	z.asking.Wait()
}

// of is how many series a metric has on a shard at most, if that is known, and sees to it that it
// will be. A Thanos Query has no index of its own.
func (z *sizes) of(sh *shard.Shard, metric string) (int64, bool) {
	n := z.by[sh]
	if n == nil || sh.Thanos() {
		return 0, false
	}
	if n.Due(z.s.now()) {
		z.asking.Go(func() { z.ask(sh, n) })
	}
	return n.AtMost(metric)
}

// since is from when on they are true, in milliseconds.
func (z *sizes) since(sh *shard.Shard) int64 {
	if n := z.by[sh]; n != nil {
		return n.Since()
	}
	return 0
}

// ask asks a shard for its largest metrics.
func (z *sizes) ask(sh *shard.Shard, n *cost.Names) {
	select {
	case z.places <- struct{}{}:
		defer func() { <-z.places }()
	case <-z.ctx.Done():
		n.Fail(z.s.now())
		return
	}
	ctx, cancel := context.WithTimeout(z.ctx, sizesPatience)
	defer cancel()
	began := z.s.now()
	req := &endpoint.Request{ID: endpoint.StatusTSDB, Filters: map[string][]string{"limit": {strconv.Itoa(cost.MaxNames)}}}
	resp, err := sh.Do(ctx, req, shard.CallOptions{MaxBytes: maxSizesBytes, Class: shard.Light})
	if err == nil {
		err = n.Learn(resp.Body, z.s.now(), z.s.now().Sub(began))
		_ = resp.Body.Close()
	} else {
		n.Fail(z.s.now())
	}
	if err != nil && z.ctx.Err() == nil {
		z.s.log.Debug("how large a shard's metrics are is not known; series are counted for each selector",
			slog.String("shard", sh.Name()), slog.Any("err", err))
	}
}
