package shard

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/oauth"
	"github.com/spillwayproject/spillway/proxy/shard/h1"
)

const (
	// idleConnTimeout is below the five minutes after which Prometheus closes an idle connection,
	// so that we close first.
	idleConnTimeout = 90 * time.Second
	// maxHeaderBytes bounds what one answer's header can cost.
	maxHeaderBytes = 64 << 10
	// maxIdleConns is how many idle connections to one server are kept: what comes again within a
	// moment. fewIdleConns stay for idleConnTimeout, the others, which a burst left, for
	// burstConnTimeout: the server counts them among those that it takes.
	maxIdleConns, fewIdleConns = 24, 8
	burstConnTimeout           = 15 * time.Second
	// maxAllIdleConns is how many are kept to all servers together, beside one to each.
	maxAllIdleConns = 256
	// maxConns bounds the connections to one server where net/http dials: it may go on dialing for
	// calls that have ended.
	maxConns = 64
)

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// newTransport builds the round tripper of one upstream. It speaks HTTP/1.1 only: each call has its
// connection for itself, so leaving one is closing it, and no call waits behind another's body. It
// is used without http.Client, so a redirect is an answer and never followed. Plain HTTP without
// credentials goes by package h1, for less processor time; everything else by net/http.
func newTransport(cfg commonconfig.HTTPClientConfig, base *url.URL, dial DialFunc, shared *h1.Shared) (http.RoundTripper, error) {
	cfg.FollowRedirects = false
	if base.Scheme == "http" && bare(cfg) {
		addr := base.Host
		if base.Port() == "" {
			addr = net.JoinHostPort(base.Hostname(), "80")
		}
		return &h1.Transport{
			Addr: addr, Dial: dial, MaxHeaderBytes: maxHeaderBytes, MaxIdle: maxIdleConns, IdleTimeout: idleConnTimeout,
			Few: fewIdleConns, BurstTimeout: burstConnTimeout, Shared: shared,
		}, nil
	}
	name, c := base.Host, &counted{}
	rt, err := oauth.RoundTripper(cfg, name, c.dialer(dial), commonconfig.WithIdleConnTimeout(idleConnTimeout))
	if err != nil {
		return nil, err
	}
	if b, ok := rt.(oauth.Bounded); ok {
		if t, ok := b.RoundTripper.(*http.Transport); ok { // without wrappers for credentials; with them oauth's bound of the header stands
			t.MaxResponseHeaderBytes = maxHeaderBytes
			t.TLSHandshakeTimeout = 5 * time.Second
			t.MaxConnsPerHost = maxConns
		}
	}
	c.RoundTripper = rt
	return c, nil
}

// counted is a round tripper of net/http that knows how many connections it has. prometheus/common
// lets it keep a thousand idle ones and has no setting for that.
type counted struct {
	http.RoundTripper
	open atomic.Int64

	mu      sync.Mutex
	surplus time.Time // since when more were idle than are kept; zero while they are not
}

func (c *counted) dialer(dial DialFunc) commonconfig.DialContextFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c.open.Add(1)
		return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
	}
}

type countedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// look closes the idle connections once more of them have been there for burstConnTimeout than are
// kept. It is called at the end of every call, health probes included, with those that are under
// way.
func (c *counted) look(busy int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch idle := c.open.Load() - busy; {
	case idle <= maxIdleConns-fewIdleConns:
		c.surplus = time.Time{}
	case c.surplus.IsZero():
		c.surplus = now
	case now.Sub(c.surplus) >= burstConnTimeout:
		c.surplus = time.Time{}
		closeIdle(c.RoundTripper)
	}
}

// CloseIdleConnections closes the connections that no call uses.
func (c *counted) CloseIdleConnections() { closeIdle(c.RoundTripper) }

// bare tells that nothing is configured that concerns plain HTTP.
func bare(cfg commonconfig.HTTPClientConfig) bool {
	cfg.FollowRedirects, cfg.EnableHTTP2, cfg.TLSConfig = false, false, commonconfig.TLSConfig{}
	return reflect.ValueOf(cfg).IsZero()
}

func closeIdle(rt http.RoundTripper) {
	if c, ok := rt.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
