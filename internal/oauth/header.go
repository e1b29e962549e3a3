package oauth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	commonconfig "github.com/prometheus/common/config"
)

// maxHeader is how much is read of a connection until an answer's header is there. It is counted
// beneath TLS, whose handshake counts too.
const maxHeader = 256 << 10

// errHeader ends a call whose answer's header is longer.
var errHeader = errors.New("the header of the answer is too large")

// Bounded bounds the headers of the answers of a round tripper of prometheus/common. net/http takes
// 10 MiB for one, which costs it thirty times as much where fields are short, and prometheus/common
// has no setting for that.
type Bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b Bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	var c *conn
	var mine *wait
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if a, ok := got.Conn.LocalAddr().(address); ok { // beneath TLS, and what follows connections
			c = a.of
			mine = c.begin()
		}
	}}
	resp, err := b.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil && c != nil {
		c.now.CompareAndSwap(mine, nil) // else another call has the connection by now
	}
	return resp, err
}

// CloseIdleConnections closes the connections that no request uses.
func (b Bounded) CloseIdleConnections() {
	if c, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// boundedDial makes connections that Bounded knows.
func boundedDial(dial commonconfig.DialContextFunc) commonconfig.DialContextFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		inner, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner}
		c.begin() // the handshake, and a proxy's answer
		return c, nil
	}
}

// conn is a connection of one request at a time.
type conn struct {
	net.Conn
	now atomic.Pointer[wait] // nil while no header is waited for
}

// wait is what may still be read until a header is there.
type wait struct{ left atomic.Int64 }

func (c *conn) begin() *wait {
	w := &wait{}
	w.left.Store(maxHeader)
	c.now.Store(w)
	return w
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if w := c.now.Load(); w != nil && w.left.Load() <= 0 {
		return 0, errHeader
	}
	n, err := c.Conn.Read(p)
	if w := c.now.Load(); w != nil { // may have begun since
		w.left.Add(-int64(n))
	}
	return n, err
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address{c.Conn.LocalAddr(), c} }

// address tells which connection it is of.
type address struct {
	net.Addr
	of *conn
}
