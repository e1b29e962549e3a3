package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/version"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/config"
)

// A pod has its address minutes before the server in it has started, and a DNS name its record. A
// shard that comes in such a way while its group is in force is awaited: until one of its servers
// answers, it is left out as if it was not found yet, since requests would be refused for its sake
// that were answered without it a moment ago. At a start, and where somebody has written servers
// down, in a file or a list, every shard is needed at once.

const (
	// knockEvery is the time between two questions to the servers of a shard that is awaited.
	knockEvery = time.Second
	// knockTimeout bounds each.
	knockTimeout = 2 * time.Second
	// knockParallel is how many are asked at once.
	knockParallel = 32
)

// awaited is a shard that came while its group was in force.
type awaited struct {
	since   time.Time
	servers []string // their addresses
	there   bool     // one of them has answered
}

// appears tells whether servers are found as soon as they are about to be.
func (s *source) appears() bool { return len(s.clusters) > 0 || len(s.from.DNSSRV) > 0 }

// leaveOut leaves the servers of awaited shards out of known. One that has not answered for keep is
// needed from then on, as any other.
func (s *source) leaveOut(known map[string]*server) {
	if !s.appears() || !s.ready && !s.followed {
		return
	}
	old := map[string]bool{}
	for at, k := range s.known {
		old[k.shard] = true
		if now := known[at]; now != nil { // it is called something else now
			old[now.shard] = true
		}
	}
	was := s.awaited
	s.awaited = map[string]*awaited{}
	for _, at := range slices.Sorted(maps.Keys(known)) {
		shard := known[at].shard
		if old[shard] {
			continue
		}
		a := s.awaited[shard]
		if a == nil {
			a = &awaited{since: s.now()}
			if before := was[shard]; before != nil {
				a.since, a.there = before.since, before.there
			} else {
				s.log.Info("shards_from: a shard has come; it is needed once one of its servers answers, or keep has passed",
					slog.String("shard", shard), slog.String("url", at), slog.Duration("keep", s.keep()))
			}
			s.awaited[shard] = a
		}
		a.servers = append(a.servers, at)
	}
	n := 0
	for shard, a := range s.awaited {
		if a.there || s.now().Sub(a.since) >= s.keep() {
			delete(s.awaited, shard)
			continue
		}
		for _, at := range a.servers {
			delete(known, at)
		}
		n += len(a.servers)
	}
	s.w.metrics.servers.WithLabelValues(s.group, "awaited").Set(float64(n))
	if n > 0 {
		select {
		case s.awaits <- struct{}{}:
		default:
		}
	}
}

// knock asks the servers of awaited shards until each has one that answers, as often as there are
// some.
func (s *source) knock(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.awaits:
		}
		for s.knocks(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(knockEvery):
			}
		}
	}
}

// knocks asks each of them once, and tells whether any shard is still awaited.
func (s *source) knocks(ctx context.Context) bool {
	s.mu.Lock()
	of := map[string]string{} // shards by their servers
	for shard, a := range s.awaited {
		for _, at := range a.servers {
			of[at] = shard
		}
	}
	s.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(knockParallel)
	for _, at := range slices.Sorted(maps.Keys(of)) {
		g.Go(func() error {
			if !s.w.there(ctx, s.from.Replica(at)) {
				return nil
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if a := s.awaited[of[at]]; a != nil && !a.there {
				a.there = true
				s.nudge()
			}
			return nil
		})
	}
	_ = g.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.awaited {
		if !a.there {
			return true
		}
	}
	return false
}

// there tells whether a server answers anything but that it is not ready, or not there: whatever
// else is wrong with it is found out, and told, where it is asked.
func there(ctx context.Context, r config.Replica) bool {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	base, err := r.Base()
	if err != nil {
		return true
	}
	// Nobody's credentials are needed to learn that somebody is there.
	client, err := commonconfig.NewClientFromConfig(commonconfig.HTTPClientConfig{
		TLSConfig: r.HTTPClient.TLSConfig, ProxyConfig: r.HTTPClient.ProxyConfig,
	}, "shard", commonconfig.WithKeepAlivesDisabled())
	if err != nil {
		return true
	}
	defer client.CloseIdleConnections()
	question, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/-/ready").String(), http.NoBody)
	if err != nil {
		return true
	}
	question.Header.Set("User-Agent", "Spillway/"+version.Version)
	resp, err := client.Do(question)
	if err == nil {
		_ = resp.Body.Close()
		switch resp.StatusCode { // it is not ready, or a proxy before it finds nobody there
		case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
			return false
		}
		return true
	}
	// With what is wrong here nobody else will be answered either.
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(tls.AlertError))
}
