package scenario

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/pause"
	"github.com/spillwayproject/spillway/loadtest/bench"
)

// What a server weighs at rest depends on what it did last. One that has just replayed its log
// holds the replay's garbage, up to twice its live heap; one that has just collected holds next to
// none, and any work at all, of whatever kind, raises it to Go's goal for the next collection, 75 %
// above the live heap. A server in use lives between the two, so that is where measuring begins:
// every server collects, which takes the replay away, and answers everyday queries until it has
// collected a few times by itself.

const (
	// everydayCycles is more than two: one of them may be the collection that Go makes every two
	// minutes anyway, far below its goal.
	everydayCycles = 4
	// restStretch is how long memory has to stand still before a server is at rest; restMax how
	// long that is waited for.
	restStretch = 5 * time.Second
	restMax     = time.Minute
)

// everyday are queries as dashboards send them: by name, small.
var everyday = []string{
	`sum by (instance) (rate(node_network_receive_bytes_total[15m]))`,
	`sum by (mode) (rate(node_cpu_seconds_total[15m]))`,
	`avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL < 1e15)`,
	`sum by (namespace) (rate(container_cpu_usage_seconds_total[15m]))`,
	`count by (namespace, phase) (kube_pod_status_phase == 1)`,
}

// Heights are the highest resident memory of any server, in bytes, on the way to rest.
type Heights struct {
	// Started is right after the start, Collected after a collection, InUse after the everyday
	// queries.
	Started, Collected, InUse int64
}

// rest brings the servers into the state of servers in use, and waits until their memory stands
// still.
func (f *fleet) rest(ctx context.Context, everydayMax time.Duration) (h Heights, err error) {
	h.Started = f.highest()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	var g errgroup.Group
	g.SetLimit(2)
	for _, s := range f.servers {
		g.Go(func() error {
			for range 2 { // what the first one finds, the second one has swept
				if _, err := bench.Get(ctx, client, s.URL()+"/debug/pprof/heap?gc=1"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return h, fmt.Errorf("bring the servers to rest: %w", err)
	}
	if err := f.still(ctx); err != nil {
		return h, err
	}
	h.Collected = f.highest()
	for _, s := range f.servers {
		g.Go(func() error { return workADay(ctx, client, s.URL(), everydayMax) })
	}
	if err := g.Wait(); err != nil {
		return h, fmt.Errorf("bring the servers to rest: %w", err)
	}
	err = f.still(ctx)
	h.InUse = f.highest()
	return h, err
}

// highest is the resident memory of the largest server now.
func (f *fleet) highest() (bytes int64) {
	for _, s := range f.servers {
		if rss, err := s.RSS(); err == nil {
			bytes = max(bytes, rss)
		}
	}
	return bytes
}

// still waits until no memory moves.
func (f *fleet) still(ctx context.Context) error {
	w := watch(f.members, 0, func(error) {})
	defer w.stop()
	for limit := time.Now().Add(restMax); time.Now().Before(limit); {
		if err := pause.For(ctx, restStretch/5); err != nil {
			return err
		}
		if w.resting(restStretch) {
			return nil
		}
	}
	return nil // still moving: the idle stretch will show it
}

// workADay has one server work until it has collected everydayCycles times more, or for so long at
// most. One that has not collected by then has much room, and its idle stretch begins a little low,
// which is to its disadvantage.
func workADay(ctx context.Context, client *http.Client, server string, most time.Duration) error {
	began, err := collections(ctx, client, server)
	if err != nil {
		return err
	}
	for i, limit := 0, time.Now().Add(most); time.Now().Before(limit); i++ {
		now := time.Now()
		q := url.Values{
			"query": {everyday[i%len(everyday)]}, "step": {"5"},
			"start": {strconv.FormatInt(now.Add(-50*time.Minute).Unix(), 10)}, "end": {strconv.FormatInt(now.Unix(), 10)},
		}
		if _, err := bench.Get(ctx, client, server+"/api/v1/query_range?"+q.Encode()); err != nil {
			return err
		}
		if i%len(everyday) != len(everyday)-1 {
			continue
		}
		n, err := collections(ctx, client, server)
		if err != nil {
			return err
		}
		if n >= began+everydayCycles {
			return nil
		}
	}
	return nil
}

// collections is how often a server has collected its garbage.
func collections(ctx context.Context, client *http.Client, server string) (int64, error) {
	text, err := bench.Get(ctx, client, server+"/metrics")
	if err != nil {
		return 0, err
	}
	if n, ok := number(text, "go_gc_duration_seconds_count "); ok {
		return n, nil
	}
	return 0, fmt.Errorf("%s does not say how often it has collected its garbage", server)
}
