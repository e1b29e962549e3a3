package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/deploy/ruler"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/proxy/config"
)

// Servers are the running servers of a world.
type Servers struct {
	// URL is the proxy's, Admin that of its own metrics, without a slash at the end.
	URL, Admin string

	world    *World
	spillway string
	proxy    *realprom.Process

	mu      sync.Mutex
	at      map[string]string // the URL of each server by the name of its folder
	stops   []func() error    // of servers
	proxies []*realprom.Process
}

// Serve starts a real Prometheus for each server of the world, and the proxy (the binary at
// spillway) in front of them with the limits that it has by default. ctx bounds the start; they end
// with Stop.
func (w *World) Serve(ctx context.Context, spillway string) (_ *Servers, err error) {
	s := &Servers{world: w, spillway: spillway, at: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	var work errgroup.Group
	work.SetLimit(2)
	start := func(name string, external labels.Labels) {
		work.Go(func() error {
			srv, err := realprom.Start(ctx, realprom.Options{
				Blocks: []string{w.path(name)}, Config: "global: {evaluation_interval: 1m}\n", ExternalLabels: external,
				Flags: []string{"--storage.tsdb.retention.time=90d"},
			})
			if err != nil {
				return fmt.Errorf("start %s: %w", name, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stops, s.at[name] = append(s.stops, srv.Stop), srv.URL()
			return nil
		})
	}
	for _, c := range w.clusters {
		for shard := range c.Shards {
			for replica := range c.Replicas {
				start(folder(c.name(), shard, replica), labels.FromStrings(clusterLabel, c.name(), replicaLabel, string(rune('a'+replica))))
			}
		}
	}
	if w.recorded {
		start(recordedFolder, labels.EmptyLabels())
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	proxy, addrs, err := s.startProxy(ctx, "spillway.yaml", math.MaxInt)
	if err != nil {
		return nil, err
	}
	s.proxy, s.URL, s.Admin = proxy, "http://"+addrs[0], "http://"+addrs[1]
	return s, nil
}

// First starts one more proxy, which knows the first replica of each shard alone, and returns its
// URL: replicas scrape at different moments, and its answers do not depend on which is asked. It
// ends with Stop.
func (s *Servers) First(ctx context.Context) (string, error) {
	_, addrs, err := s.startProxy(ctx, "first.yaml", 1)
	if err != nil {
		return "", err
	}
	return "http://" + addrs[0], nil
}

// startProxy starts a proxy over at most so many replicas of each shard and returns it with its
// address and that of its own metrics.
func (s *Servers) startProxy(ctx context.Context, file string, replicas int) (*realprom.Process, []string, error) {
	file = filepath.Join(s.world.dir, file)
	if err := config.WriteFile(file, config.Of(s.world.groups(s.at, replicas)...)); err != nil {
		return nil, nil, err
	}
	proxy, addrs, err := realprom.StartOnPorts(ctx, realprom.PortOptions{Path: s.spillway, Ports: 2, Args: func(at []string) []string {
		return []string{"proxy", "--config.file=" + file, "--web.listen-address=" + at[0], "--web.admin-listen-address=" + at[1]}
	}})
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies = append(s.proxies, proxy)
	return proxy, addrs, nil
}

const replicaLabel = "prometheus_replica"

// groups are those of the proxy's configuration, as deploy has them, with at most so many replicas
// of each shard.
func (w *World) groups(at map[string]string, replicas int) []config.Group {
	var groups []config.Group
	for _, c := range w.clusters {
		replicas := min(replicas, c.Replicas)
		g := config.Group{
			Name: c.name(), Labels: map[string]string{"cluster": c.name()}, ReplicaLabels: []string{replicaLabel},
			Shards: make([]config.Shard, c.Shards),
		}
		if replicas > 1 {
			g.Heartbeat = "up"
		}
		for i := range g.Shards {
			for replica := range replicas {
				g.Shards[i].Replicas = append(g.Shards[i].Replicas, config.Replicas(at[folder(c.name(), i, replica)])...)
			}
			if c.Shards > 1 {
				g.Shards[i].Hash = config.Hash{N: uint64(i), Set: true}
			}
		}
		if c.Shards > 1 {
			g.ShardBy, g.Hashmod = []string{"node"}, config.Hashmod{Labels: []string{"node"}, Modulus: c.Shards}
		}
		groups = append(groups, g)
	}
	if w.recorded {
		groups = append(groups, config.Group{
			Name: "recorded", Names: ruler.Names(),
			Shards: []config.Shard{{Replicas: config.Replicas(at[recordedFolder])}},
		})
	}
	return groups
}

// ProxyPeak is the proxy's highest resident memory in bytes so far.
func (s *Servers) ProxyPeak() (int64, error) { return s.proxy.PeakRSS() }

// Stop ends the proxies, then the servers. It may be called more than once.
func (s *Servers) Stop() error {
	s.mu.Lock()
	stops, proxies := s.stops, s.proxies
	s.stops, s.proxies = nil, nil
	s.mu.Unlock()
	var errs []error
	for _, p := range proxies {
		errs = append(errs, p.Stop())
	}
	var closing errgroup.Group
	for _, stop := range stops {
		closing.Go(stop)
	}
	return errors.Join(append(errs, closing.Wait())...)
}
