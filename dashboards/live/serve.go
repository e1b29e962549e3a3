package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// Servers are the running servers of a past.
type Servers struct {
	// Proxy, Reference and Calm answer; Rules is what the ruler wrote.
	Proxy, Reference, Calm, Rules Source

	transport *http.Transport
	mu        sync.Mutex
	stops     []func() error
	proxy     *realprom.Process
}

// Serve starts real Prometheus servers on the blocks of the past, and the proxy in front of those of the clusters. ctx bounds the start; the servers end with Stop.
func Serve(ctx context.Context, p *Past, spillway string) (_ *Servers, err error) {
	s := &Servers{transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	var (
		at   = map[string]string{}
		work errgroup.Group
	)
	work.SetLimit(3)
	start := func(name string, external labels.Labels, blocks ...string) {
		work.Go(func() error {
			for i, b := range blocks {
				blocks[i] = p.path(b)
			}
			srv, err := realprom.Start(ctx, realprom.Options{
				Blocks: blocks, Config: "global: {evaluation_interval: 1m}\n", ExternalLabels: external, Flags: []string{"--storage.tsdb.retention.time=90d"},
			})
			if err != nil {
				return fmt.Errorf("start %s: %w", name, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stops = append(s.stops, srv.Stop)
			at[name] = srv.URL()
			return nil
		})
	}
	reference, calm := []string{referenceSmall, "rules"}, []string{"calm-rules"}
	for n := range shards {
		for r := range replicas {
			start(shardName(n, r), labels.FromStrings("cluster", big, "prometheus_replica", string(rune('a'+r))), shardName(n, r))
		}
		reference, calm = append(reference, asReference(n)), append(calm, asCalm(n))
	}
	start(small, labels.FromStrings("cluster", small, "prometheus_replica", "a"), small)
	start("rules", labels.EmptyLabels(), "rules")
	start("reference", labels.EmptyLabels(), reference...)
	start("calm", labels.EmptyLabels(), calm...)
	if err := work.Wait(); err != nil {
		return nil, err
	}
	file := filepath.Join(p.dir, "spillway.yaml")
	if err := os.WriteFile(file, []byte(proxyConfig(at)), 0o600); err != nil {
		return nil, fmt.Errorf("write the proxy's configuration: %w", err)
	}
	proxy, api, _, err := realprom.StartProxy(ctx, spillway, file, nil)
	if err != nil {
		return nil, err
	}
	s.proxy = proxy
	client := &http.Client{Transport: s.transport}
	s.Proxy = Source{"the proxy", api, client}
	s.Reference, s.Calm, s.Rules = Source{"the reference", at["reference"], client}, Source{"the calm twin", at["calm"], client}, Source{"the ruler's store", at["rules"], client}
	return s, nil
}

// proxyConfig is the proxy's file, as deploy has it for these servers.
func proxyConfig(at map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "groups:\n  - name: %[1]s\n    labels: {cluster: %[1]s}\n    replica_labels: [prometheus_replica]\n    shard_by: [node]\n    hashmod: {labels: [node], modulus: %[2]d}\n    heartbeat: up\n    shards:\n", big, shards)
	for s := range shards {
		fmt.Fprintf(&b, "      - hash: %d\n        replicas: [{url: %q}, {url: %q}]\n", s, at[shardName(s, 0)], at[shardName(s, 1)])
	}
	fmt.Fprintf(&b, "  - name: %[1]s\n    labels: {cluster: %[1]s}\n    replica_labels: [prometheus_replica]\n    shards: [{replicas: [{url: %[2]q}]}]\n", small, at[small])
	fmt.Fprintf(&b, "  - name: rules\n    shards: [{replicas: [{url: %q}]}]\n", at["rules"])
	return b.String()
}

// Stop ends the proxy and then the servers, all at once.
func (s *Servers) Stop() error {
	s.mu.Lock()
	stops, proxy := s.stops, s.proxy
	s.stops, s.proxy = nil, nil
	s.mu.Unlock()
	var errs [2]error
	if proxy != nil {
		errs[0] = proxy.Stop()
	}
	var closing errgroup.Group
	for _, stop := range stops {
		closing.Go(stop)
	}
	errs[1] = closing.Wait()
	s.transport.CloseIdleConnections()
	return errors.Join(errs[:]...)
}
