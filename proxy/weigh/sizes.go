package weigh

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// SizesPatience is how long a shard may take to tell how large its metrics are.
const SizesPatience = 10 * time.Second

const (
	// sizesAtOnce is of how many shards it is found out at once.
	sizesAtOnce = 4
	// nameBytes is what a shard may take, in its answer, for each name that it is asked for: about
	// 100 for a metric, 250 for a pair, and two lists of labels, of which there are few. They are
	// read name by name, and not held.
	nameBytes = 512
)

// Sizes knows how many series the metrics of shards have. It is asked for in the background of a
// request that needs it, and not waited for.
type Sizes struct {
	log    *slog.Logger
	now    func() time.Time
	by     map[*shard.Shard]*cost.Names
	ctx    context.Context // of what is asked behind requests
	cancel context.CancelFunc
	places chan struct{}
	large  chan struct{} // for who is asked for more than cost.MaxNames
	asking sync.WaitGroup
}

// NewSizes returns Sizes that know of the topology's shards what previous ones, nil for none, know
// of those that have the same replicas, and nothing of others; they have their places, too, so that
// no more shards are asked at once. What they ask ends with the context, or with Close.
func NewSizes(ctx context.Context, top *shard.Topology, previous *Sizes, now func() time.Time, log *slog.Logger) *Sizes {
	z := &Sizes{log: log, now: now, by: map[*shard.Shard]*cost.Names{}}
	z.ctx, z.cancel = context.WithCancel(ctx)
	z.places, z.large = make(chan struct{}, sizesAtOnce), make(chan struct{}, 1)
	before := map[string]*cost.Names{}
	if previous != nil {
		z.places, z.large = previous.places, previous.large
		for sh, n := range previous.by {
			before[sh.Key()] = n
		}
	}
	for _, g := range top.Groups {
		for _, sh := range g.Shards {
			if z.by[sh] = before[sh.Key()]; z.by[sh] == nil {
				z.by[sh] = &cost.Names{}
			}
		}
	}
	return z
}

// Close ends what is being asked.
func (z *Sizes) Close() {
	z.cancel()
	z.asking.Wait()
}

// Of is how many series a metric has on a shard at most, if that is known, and sees to it that it
// becomes known.
func (z *Sizes) Of(sh *shard.Shard, metric string) (int64, bool) {
	n := z.sketch(sh)
	if n == nil || n.Old(z.now()) {
		return 0, false
	}
	return n.AtMost(metric)
}

// Selects is how many series the matchers select on a shard at most, if that is known.
func (z *Sizes) Selects(sh *shard.Shard, ms []*labels.Matcher, h *cost.Hashes) (int64, bool) {
	n := z.fresh(sh)
	if n == nil {
		return 0, false
	}
	return n.Selects(ms, h)
}

// has is how many series a metric has on a shard, if the shard has named it.
func (z *Sizes) has(sh *shard.Shard, metric string) (int64, bool) {
	n := z.fresh(sh)
	if n == nil {
		return 0, false
	}
	return n.Has(metric)
}

// values is how many values a label has on a shard at most, labels how many label names there are.
func (z *Sizes) values(sh *shard.Shard, label string) (int64, bool) {
	n := z.fresh(sh)
	if n == nil {
		return 0, false
	}
	return n.Values(label)
}

func (z *Sizes) labels(sh *shard.Shard) (int64, bool) {
	n := z.fresh(sh)
	if n == nil {
		return 0, false
	}
	return n.Labels()
}

// fresh is what is known of a shard, unless it is old.
func (z *Sizes) fresh(sh *shard.Shard) *cost.Names {
	if n := z.by[sh]; n != nil && !n.Old(z.now()) {
		return n
	}
	return nil
}

// sketch is what is known of a shard, which is asked for where it is due; nil where nothing can be:
// a Thanos Query has no index of its own.
func (z *Sizes) sketch(sh *shard.Shard) *cost.Names {
	n := z.by[sh]
	if n == nil || sh.Thanos() {
		return nil
	}
	if n.Due(z.now()) {
		z.asking.Go(func() { z.ask(sh, n) })
	}
	return n
}

// Refresh sees to it that what is known of the shards of an estimate stays fresh. It is called when
// they have answered: a shard that does not is not asked one thing more.
func (z *Sizes) Refresh(e *Estimate) {
	for _, sh := range e.shards {
		z.sketch(sh)
	}
}

// Named are metrics of all shards together, a few of each size, the largest first, as far as it is
// known.
func (z *Sizes) Named() []cost.Metric { return z.together((*cost.Names).Named) }

// Jobs are the largest jobs of all shards together in the same way.
func (z *Sizes) Jobs() []cost.Metric { return z.together((*cost.Names).Jobs) }

func (z *Sizes) together(of func(*cost.Names) []cost.Metric) []cost.Metric {
	by := map[string]int64{}
	for sh := range z.by {
		if n := z.fresh(sh); n != nil {
			for _, m := range of(n) {
				by[m.Name] += m.Series
			}
		}
	}
	out := make([]cost.Metric, 0, len(by))
	for name, n := range by {
		out = append(out, cost.Metric{Name: name, Series: n})
	}
	slices.SortFunc(out, func(a, b cost.Metric) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Since is the time from which on they hold, in milliseconds.
func (z *Sizes) Since(sh *shard.Shard) int64 {
	if n := z.by[sh]; n != nil {
		return n.Since()
	}
	return 0
}

// Names is what is known of a shard; nil where it is none of the topology's.
func (z *Sizes) Names(sh *shard.Shard) *cost.Names { return z.by[sh] }

// ask asks a shard for its largest metrics, unless something is wrong with it: what it is asked
// then is what people wait for.
func (z *Sizes) ask(sh *shard.Shard, n *cost.Names) {
	_, known := n.AtMost("")
	if !sh.Sound() || sh.Strained() && known && !n.Old(z.now()) { // without it nothing is known to be too much for a server
		n.Later(z.now())
		return
	}
	limit := n.Limit()
	desks := []chan struct{}{z.large, z.places} // nobody who has a place waits for the large one
	if limit <= cost.MaxNames {
		desks = desks[1:]
	}
	for _, d := range desks {
		select {
		case d <- struct{}{}:
			defer func() { <-d }()
		case <-z.ctx.Done():
			n.Later(z.now())
			return
		}
	}
	ctx, cancel := context.WithTimeout(z.ctx, SizesPatience)
	defer cancel()
	leave, err := sh.EnterOwn(ctx) // to wait here says nothing of the shard
	if err != nil {
		n.Later(z.now())
		return
	}
	defer leave()
	began := z.now()
	req := &endpoint.Request{ID: endpoint.StatusTSDB, Filters: map[string][]string{"limit": {strconv.Itoa(limit)}}}
	var resp *shard.Response
	r, err := sh.Base() // it alone: where it is slow, another one would walk its index, too
	if err == nil {
		resp, err = r.Do(ctx, req, shard.CallOptions{MaxBytes: int64(limit) * nameBytes, Class: shard.Light, Entered: true})
	}
	if err == nil {
		err = n.Learn(resp.Body, z.now(), z.now().Sub(began))
		_ = resp.Body.Close()
	}
	switch {
	case err == nil:
		return
	case z.ctx.Err() != nil: // no fault of the shard's, and a new topology may know it
		n.Later(z.now())
		return
	case resp != nil:
		n.Unread(z.now(), z.now().Sub(began))
	default:
		n.Fail(z.now(), z.now().Sub(began))
	}
	z.log.Debug("how large a shard's metrics are is not known; series are counted for each selector",
		slog.String("shard", sh.Name()), slog.Any("err", err))
}
