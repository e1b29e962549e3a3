package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"path/filepath"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/deploy/ruler"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/proxy/config"
)

// Servers are the running servers of a past.
type Servers struct {
	// Proxy, Reference and Calm answer; Rules is what the ruler wrote.
	Proxy, Reference, Calm, Rules Source

	past      *Past
	transport *http.Transport
	mu        sync.Mutex
	stops     []func() error
	proxy     *realprom.Process

	choices []Source // see Choices
}

// Serve starts real Prometheus servers on the blocks of the past, and the proxy in front of those
// of the clusters. ctx bounds the start; the servers end with Stop.
func Serve(ctx context.Context, p *Past, spillway string) (_ *Servers, err error) {
	s := &Servers{past: p, transport: &http.Transport{MaxIdleConnsPerHost: 8}}
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
			url, err := s.start(ctx, name, external, blocks...)
			if err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			at[name] = url
			return nil
		})
	}
	calm := []string{"calm-rules"}
	for n := range shards {
		for r := range replicas {
			start(shardName(n, r), labels.FromStrings("cluster", big, "prometheus_replica", string(rune('a'+r))), shardName(n, r))
		}
		calm = append(calm, asCalm(n))
	}
	start(small, labels.FromStrings("cluster", small, "prometheus_replica", "a"), small)
	start("rules", labels.EmptyLabels(), "rules")
	start("reference", labels.EmptyLabels(), reference(make([]int, shards))...)
	start("calm", labels.EmptyLabels(), calm...)
	if err := work.Wait(); err != nil {
		return nil, err
	}
	file := filepath.Join(p.dir, "spillway.yaml")
	if err := config.WriteFile(file, proxyConfig(at)); err != nil {
		return nil, err
	}
	proxy, api, _, err := realprom.StartProxy(ctx, spillway, file, nil)
	if err != nil {
		return nil, err
	}
	s.proxy = proxy
	client := s.client()
	s.Proxy = Source{"the proxy", api, client}
	s.Reference, s.Calm, s.Rules = Source{"the reference", at["reference"], client}, Source{"the calm twin", at["calm"], client},
		Source{"the ruler's store", at["rules"], client}
	return s, nil
}

func (s *Servers) client() *http.Client { return &http.Client{Transport: s.transport} }

// start runs a Prometheus on some of the past's blocks and gives its URL.
func (s *Servers) start(ctx context.Context, name string, external labels.Labels, blocks ...string) (string, error) {
	var dirs []string
	for _, b := range blocks {
		dirs = append(dirs, s.past.path(b))
	}
	srv, err := realprom.Start(ctx, realprom.Options{
		Blocks: dirs, Config: "global: {evaluation_interval: 1m}\n", ExternalLabels: external,
		Flags: []string{"--storage.tsdb.retention.time=90d"},
	})
	if err != nil {
		return "", fmt.Errorf("start %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, srv.Stop)
	return srv.URL(), nil
}

// reference is where the blocks of a reference are that has the chosen replica of each shard of the
// big cluster.
func reference(choice []int) []string {
	blocks := []string{referenceSmall, "rules"}
	for shard, replica := range choice {
		blocks = append(blocks, asReference(shard, replica))
	}
	return blocks
}

// Choices are references as Reference is, which has the first replica of each shard, for every
// other choice of replicas: they scraped at other moments, so that answers from them are as right,
// and others. They are written and started when they are first asked for. It is not for several
// callers at once.
func (s *Servers) Choices(ctx context.Context) ([]Source, error) {
	if s.choices != nil {
		return s.choices, nil
	}
	for shard := range shards {
		for replica := 1; replica < replicas; replica++ {
			if err := s.past.writeServer(ctx, s.past.whole(shard, replica), s.past.start); err != nil {
				return nil, fmt.Errorf("write the past of %s: %w", asReference(shard, replica), err)
			}
		}
	}
	var out []Source
	for choice := range choices(shards, replicas) {
		name := fmt.Sprintf("the reference of replicas %v", choice)
		url, err := s.start(ctx, name, labels.EmptyLabels(), reference(choice)...)
		if err != nil {
			return nil, err
		}
		out = append(out, Source{name, url, s.client()})
	}
	s.choices = out
	return out, nil
}

// choices are all ways to choose one of replicas for each of shards, but that of the first
// everywhere. A choice is the caller's to keep.
func choices(shards, replicas int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		choice := make([]int, shards)
		for {
			at := 0
			for ; at < shards; at++ {
				if choice[at]++; choice[at] < replicas {
					break
				}
				choice[at] = 0
			}
			if at == shards || !yield(slices.Clone(choice)) {
				return
			}
		}
	}
}

// proxyConfig is the proxy's file, as deploy has it for these servers.
func proxyConfig(at map[string]string) *config.Config {
	group := func(name string, shards ...config.Shard) config.Group {
		return config.Group{
			Name: name, Labels: map[string]string{"cluster": name}, ReplicaLabels: []string{"prometheus_replica"},
			Shards: shards,
		}
	}
	whole := group(big)
	whole.ShardBy, whole.Hashmod, whole.Heartbeat = []string{"node"}, config.Hashmod{Labels: []string{"node"}, Modulus: shards}, "up"
	for s := range shards {
		whole.Shards = append(whole.Shards,
			config.Shard{Hash: config.Hash{N: uint64(s), Set: true}, Replicas: config.Replicas(at[shardName(s, 0)], at[shardName(s, 1)])})
	}
	return config.Of(whole, group(small, config.Shard{Replicas: config.Replicas(at[small])}),
		config.Group{Name: "rules", Names: ruler.Names(), Shards: []config.Shard{{Replicas: config.Replicas(at["rules"])}}})
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
