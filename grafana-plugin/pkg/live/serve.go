package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// Servers are the running servers of a world.
type Servers struct {
	// URL is the proxy's, Admin that of its own metrics, without a slash at the end.
	URL, Admin string

	mu    sync.Mutex
	stops []func() error // the proxy's last
	proxy *realprom.Process
}

// Serve starts a real Prometheus for each server of the world, and the proxy (the binary at spillway) in front of them with the limits that it has by default. ctx bounds the start; they end with Stop.
func (w *World) Serve(ctx context.Context, spillway string) (_ *Servers, err error) {
	s := &Servers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	at := map[string]string{}
	var work errgroup.Group
	work.SetLimit(2)
	start := func(name string, external labels.Labels) {
		work.Go(func() error {
			srv, err := realprom.Start(ctx, realprom.Options{
				Blocks: []string{w.path(name)}, Config: "global: {evaluation_interval: 1m}\n", ExternalLabels: external, Flags: []string{"--storage.tsdb.retention.time=90d"},
			})
			if err != nil {
				return fmt.Errorf("start %s: %w", name, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stops, at[name] = append(s.stops, srv.Stop), srv.URL()
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
	file := filepath.Join(w.dir, "spillway.yaml")
	if err := os.WriteFile(file, []byte(w.groups(at)), 0o600); err != nil {
		return nil, fmt.Errorf("write the proxy's configuration: %w", err)
	}
	proxy, addrs, err := realprom.StartOnPorts(ctx, realprom.PortOptions{Path: spillway, Ports: 2, Args: func(at []string) []string {
		return []string{"proxy", "--config.file=" + file, "--web.listen-address=" + at[0], "--web.admin-listen-address=" + at[1]}
	}})
	if err != nil {
		return nil, err
	}
	s.stops, s.proxy = append(s.stops, proxy.Stop), proxy
	s.URL, s.Admin = "http://"+addrs[0], "http://"+addrs[1]
	return s, nil
}

const replicaLabel = "prometheus_replica"

// groups are those of the proxy's configuration, as deploy has them.
func (w *World) groups(at map[string]string) string {
	var b strings.Builder
	b.WriteString("groups:\n")
	for _, c := range w.clusters {
		fmt.Fprintf(&b, "  - name: %[1]s\n    labels: {cluster: %[1]s}\n    replica_labels: [%[2]s]\n", c.name(), replicaLabel)
		if c.Shards > 1 {
			fmt.Fprintf(&b, "    shard_by: [node]\n    hashmod: {labels: [node], modulus: %d}\n", c.Shards)
		}
		if c.Replicas > 1 {
			b.WriteString("    heartbeat: up\n")
		}
		b.WriteString("    shards:\n")
		for shard := range c.Shards {
			var replicas []string
			for replica := range c.Replicas {
				replicas = append(replicas, fmt.Sprintf("{url: %q}", at[folder(c.name(), shard, replica)]))
			}
			hash := ""
			if c.Shards > 1 {
				hash = fmt.Sprintf("hash: %d, ", shard)
			}
			fmt.Fprintf(&b, "      - {%sreplicas: [%s]}\n", hash, strings.Join(replicas, ", "))
		}
	}
	if w.recorded {
		fmt.Fprintf(&b, "  - name: recorded\n    shards: [{replicas: [{url: %q}]}]\n", at[recordedFolder])
	}
	return b.String()
}

// ProxyPeak is the proxy's highest resident memory in bytes so far.
func (s *Servers) ProxyPeak() (int64, error) { return s.proxy.PeakRSS() }

// Stop ends the proxy, then the servers. It may be called more than once.
func (s *Servers) Stop() error {
	s.mu.Lock()
	stops := s.stops
	s.stops = nil
	s.mu.Unlock()
	var errs []error
	if n := len(stops); n > 0 && s.URL != "" {
		errs = append(errs, stops[n-1]())
		stops = stops[:n-1]
	}
	var closing errgroup.Group
	for _, stop := range stops {
		closing.Go(stop)
	}
	return errors.Join(append(errs, closing.Wait())...)
}
