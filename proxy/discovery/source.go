package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	prom "github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/dns"
	"github.com/prometheus/prometheus/discovery/file"
	"github.com/prometheus/prometheus/discovery/http"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/proxy/config"
)

// source looks up the shards of one group.
type source struct {
	w     *Watch
	group string
	from  config.ShardsFrom
	rules []*relabel.Config
	log   *slog.Logger
	stop  context.CancelFunc
	now   func() time.Time

	mu      sync.Mutex
	groups  map[string]*targetgroup.Group // by their source, as last told
	told    chan struct{}                 // closed, and another one made, each time something was learned
	ready   bool                          // all have answered once, and could be used
	refused error                         // why what is found cannot be used; nil where it can
	known   map[string]*server            // by address
	shards  []config.Shard                // in force
	print   string                        // of shards, to know a change by
}

// server is one that was found.
type server struct {
	found
	seen time.Time // when it was found last
	kept bool      // no longer found
}

// discoverer is Prometheus' own for what is configured.
func (s *source) discoverer() (prom.Discoverer, error) {
	every := model.Duration(cmp.Or(s.from.RefreshInterval, config.DefaultRefreshInterval))
	var c prom.Config
	o := prom.DiscovererOptions{Logger: s.log, SetName: s.group}
	switch {
	case len(s.from.Files) > 0:
		for _, pattern := range s.from.Files {
			if names, err := filepath.Glob(pattern); err != nil || len(names) == 0 {
				return nil, fmt.Errorf("no file is called %s; write it, with the servers' addresses under targets", pattern)
			}
		}
		c = &file.SDConfig{Files: s.from.Files, RefreshInterval: every}
	case len(s.from.DNSSRV) > 0:
		c = &dns.SDConfig{Names: s.from.DNSSRV, RefreshInterval: every, Type: "SRV"}
	default:
		client := s.from.Replica("").HTTPClient
		var err error
		if o.HTTPClientOptions, err = listOptions(s.from.HTTP, client); err != nil {
			return nil, err
		}
		c = &http.SDConfig{URL: s.from.HTTP, RefreshInterval: every, HTTPClientConfig: client}
	}
	reg := prometheus.NewRegistry() // theirs are of single mechanisms; ours are of groups
	refresh := prom.NewRefreshMetrics(reg)
	m := c.NewDiscovererMetrics(reg, refresh)
	if err := refresh.Register(); err != nil {
		return nil, err
	}
	if err := m.Register(); err != nil {
		return nil, err
	}
	o.Metrics = m
	return c.NewDiscoverer(o)
}

// follow takes what is found until the context ends.
func (s *source) follow(ctx context.Context, ch <-chan []*targetgroup.Group) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case groups := <-ch:
			s.take(groups)
		case <-timer.C:
			s.take(nil)
		}
		timer.Reset(s.nextEnd())
	}
}

// nextEnd is how long until the next kept server may be let go.
func (s *source) nextEnd() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Hour
	for _, k := range s.known {
		if k.kept {
			next = min(next, max(k.seen.Add(s.keep()).Sub(s.now()), time.Second))
		}
	}
	return next
}

func (s *source) keep() time.Duration { return cmp.Or(s.from.Keep, config.DefaultKeep) }

// take learns what was found; nothing is what time alone has changed.
func (s *source) take(groups []*targetgroup.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		close(s.told)
		s.told = make(chan struct{})
	}()
	for _, g := range groups {
		if g != nil {
			s.groups[g.Source] = g
		}
	}
	all := sortedValues(s.groups)
	servers, err := s.servers(all)
	if err == nil && !s.answered() {
		return // the rest is to come
	}
	var shards []config.Shard
	known := s.known
	if err == nil {
		known = s.merged(servers)
		shards, err = s.assemble(known)
	}
	if err != nil {
		if s.refused == nil || s.refused.Error() != err.Error() {
			s.log.Error("what shards_from finds cannot be used; what was found before stays in force", "err", err)
		}
		s.refused = err
		s.w.metrics.refused.WithLabelValues(s.group).Set(1)
		return
	}
	s.refused = nil
	s.w.metrics.refused.WithLabelValues(s.group).Set(0)
	s.report(known)
	s.known, s.shards = known, shards
	var b strings.Builder
	for _, k := range sortedValues(known) {
		fmt.Fprintln(&b, k.found)
	}
	changed := b.String() != s.print
	s.print = b.String()
	if s.ready && changed {
		s.w.touch()
	}
	s.ready = true
}

// answered tells whether every file and every name has been answered.
func (s *source) answered() bool {
	for _, pattern := range s.from.Files {
		names, _ := filepath.Glob(pattern) // a bad pattern was refused
		for _, name := range names {
			if s.groups[name+":0"] == nil {
				return false
			}
		}
	}
	for _, name := range s.from.DNSSRV {
		if s.groups[name] == nil {
			return false
		}
	}
	return len(s.groups) > 0
}

// missing is who has not answered.
func (s *source) missing() string {
	var out []string
	for _, pattern := range s.from.Files {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if s.groups[name+":0"] == nil {
				out = append(out, name)
			}
		}
	}
	for _, name := range s.from.DNSSRV {
		if s.groups[name] == nil {
			out = append(out, name)
		}
	}
	if s.from.HTTP != "" {
		out = append(out, s.from.HTTP)
	}
	return strings.Join(out[:min(len(out), 5)], ", ")
}

// await waits until there are shards.
func (s *source) await(ctx context.Context) ([]config.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ready {
		if s.refused != nil && s.answered() {
			return nil, s.refused
		}
		told := s.told
		s.mu.Unlock()
		select {
		case <-told:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if !s.ready && ctx.Err() != nil {
			return nil, cmp.Or(s.refused, fmt.Errorf("no servers yet from %s; the log may say why, and a group is not asked by half", s.missing()))
		}
	}
	return slices.Clone(s.shards), nil
}

// merged are the servers that are in force: those found now, and those found not long ago that
// nobody has taken the place of.
func (s *source) merged(servers []found) map[string]*server {
	now := s.now()
	out := map[string]*server{}
	places := map[string]bool{}
	for _, f := range servers {
		out[f.url] = &server{found: f, seen: now}
		if f.replica != "" {
			places[f.shard+"\x00"+f.replica] = true
		}
	}
	for url, k := range s.known {
		if out[url] == nil && now.Sub(k.seen) < s.keep() && !places[k.shard+"\x00"+k.replica] {
			out[url] = &server{found: k.found, seen: k.seen, kept: true}
		}
	}
	if len(out) == 0 { // the last ones stay
		for url, k := range s.known {
			out[url] = &server{found: k.found, seen: k.seen, kept: true}
		}
	}
	return out
}

// report logs and counts what came and went.
func (s *source) report(known map[string]*server) {
	kept := 0
	for url, k := range known {
		was := s.known[url]
		switch {
		case was == nil && s.ready:
			s.log.Info("shards_from: a server has come", "url", url, "shard", k.shard)
		case k.kept && !was.kept:
			s.log.Warn("shards_from: a server is no longer found; it is asked on for a while", "url", url, "shard", k.shard, "keep", s.keep())
		}
		if k.kept {
			kept++
		}
	}
	for url, k := range s.known {
		if known[url] == nil {
			s.log.Warn("shards_from: a server is asked no more", "url", url, "shard", k.shard)
		}
	}
	s.w.metrics.servers.WithLabelValues(s.group, "found").Set(float64(len(known) - kept))
	s.w.metrics.servers.WithLabelValues(s.group, "kept").Set(float64(kept))
}

var errNoServer = errors.New("no server is found; a group has at least one")
