package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readBytes and writeBytes are the sizes of a connection's buffers. Most answers to a dashboard
	// are in one read then; longer reads go past it.
	readBytes, writeBytes = 16 << 10, 4 << 10
	// maxInformational is how many 1xx headers may come before an answer.
	maxInformational = 5
	// verdictPatience is how long the header of an answer is waited for that explains why the
	// server stopped reading a request.
	verdictPatience = 250 * time.Millisecond
	// staleWithin is how soon a connection shows that the server had given it up while nobody used
	// it. One that breaks later broke over the request: to make that anew is for whoever sent it to
	// decide.
	staleWithin = time.Second
)

// ErrHeaderTooLarge ends a call whose answer's header is longer than MaxHeaderBytes.
var ErrHeaderTooLarge = errors.New("the header of the answer is too large")

// Transport is an http.RoundTripper for one server. Its fields are set before the first call;
// several goroutines may call it. The error of RoundTrip is the connection's, the parser's, Dial's,
// or the context's cause.
type Transport struct {
	// Addr is the server's host and port.
	Addr string
	// Dial opens a connection, under the context of the request that needs it.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// MaxHeaderBytes bounds the header of an answer, with all 1xx before it.
	MaxHeaderBytes int64
	// MaxIdle and IdleTimeout bound the idle connections.
	MaxIdle     int
	IdleTimeout time.Duration
	// Few are the idle connections that stay for IdleTimeout; what a burst left beyond them goes
	// after BurstTimeout. 0 as BurstTimeout is IdleTimeout.
	Few          int
	BurstTimeout time.Duration
	// Shared bounds the idle connections of several transports together; nil is no bound.
	Shared *Shared

	mu       sync.Mutex
	idle     []*conn // the one used last is the last
	retiring bool    // no connection becomes idle until the next call
	sweep    *time.Timer
}

// Shared is what transports that bound their idle connections together know of each other. One idle
// connection of each transport is always kept.
type Shared struct {
	// Max is how many there may be.
	Max  int
	idle atomic.Int64
}

// conn is one connection. It belongs to a call or to the pool.
type conn struct {
	net.Conn
	in     *bufio.Reader
	out    *bufio.Writer
	left   int64     // bytes that may still be read
	idleAt time.Time // when it last went back to the pool; zero while it never did
}

// Read implements io.Reader for in, within what may still be read.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, ErrHeaderTooLarge
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if req.URL.Scheme != "http" {
		return nil, closeBody(req, fmt.Errorf("the scheme is %q, not http", req.URL.Scheme))
	}
	c, err := t.take(ctx)
	if err != nil {
		return nil, closeBody(req, err)
	}
	resp, stale, err := t.call(c, req)
	if !stale || req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return resp, err
	}
	// Other idle connections are likely to be as stale: one after the other would fail.
	t.drop(c.idleAt)
	if req.GetBody != nil {
		req = req.Clone(ctx)
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	if c, err = t.dial(ctx); err != nil {
		return nil, closeBody(req, err)
	}
	resp, _, err = t.call(c, req)
	return resp, err
}

// call makes a call over a connection. stale tells that it failed because the server had given the
// connection up before.
func (t *Transport) call(c *conn, req *http.Request) (resp *http.Response, stale bool, err error) {
	ctx, began := req.Context(), time.Now()
	// Closing a connection ends whatever waits on it.
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	resp, whole, err := c.exchange(req, t.MaxHeaderBytes)
	if err != nil {
		stop()
		_ = c.Close()
		if cause := context.Cause(ctx); cause != nil {
			return nil, false, cause
		}
		return nil, !c.idleAt.IsZero() && c.left == t.MaxHeaderBytes && time.Since(began) < staleWithin, err
	}
	b := &body{
		inner: resp.Body, length: resp.ContentLength, keep: whole && !resp.Close && resp.StatusCode >= http.StatusOK, stop: stop,
		c: c, t: t,
	}
	if resp.Body == http.NoBody {
		b.err = io.EOF
		b.end(true)
	}
	resp.Body = b
	return resp, false, nil
}

func closeBody(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return err
}

// exchange writes the request and reads the header of its answer. whole is false where the server
// did not take all of the request.
func (c *conn) exchange(req *http.Request, maxHeader int64) (resp *http.Response, whole bool, err error) {
	c.left = maxHeader
	unsent := req.Write(c.out)
	if unsent == nil {
		unsent = c.out.Flush()
	}
	if unsent != nil { // a server that refuses a request need not read it
		_ = c.SetReadDeadline(time.Now().Add(verdictPatience))
	}
	for range maxInformational + 1 {
		if resp, err = http.ReadResponse(c.in, req); err != nil {
			if unsent != nil {
				err = unsent
			}
			return nil, false, err
		}
		if resp.StatusCode < http.StatusContinue || resp.StatusCode >= http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			if unsent != nil { // its body takes the time that it takes
				_ = c.SetReadDeadline(time.Time{})
			}
			return resp, unsent == nil, nil
		}
	}
	return nil, false, errors.New("the server sent one 1xx header after the other")
}

// body gives the connection back at its end.
type body struct {
	inner  io.Reader
	length int64 // -1 where it is not known
	keep   bool
	stop   func() bool
	c      *conn
	t      *Transport
	ended  atomic.Bool
	err    error // after the end
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.inner.Read(p)
	if err != nil {
		b.err = err
		b.end(err == io.EOF)
	}
	return n, err
}

// Arrived tells whether all of the answer is here already, as far as can be seen without asking the
// system. It is for planning how to read it.
func (b *body) Arrived() bool {
	if b.ended.Load() {
		return true
	}
	here, err := b.c.in.Peek(b.c.in.Buffered())
	if b.length >= 0 {
		return int64(len(here)) >= b.length
	}
	return err == nil && bytes.HasSuffix(here, []byte("\r\n0\r\n\r\n"))
}

// Close implements io.Closer. What was not read is not waited for.
func (b *body) Close() error {
	b.end(false)
	return nil
}

func (b *body) end(whole bool) {
	if b.ended.Swap(true) {
		return
	}
	if b.stop() && whole && b.keep && b.c.in.Buffered() == 0 {
		b.t.put(b.c)
		return
	}
	_ = b.c.Close()
}

// take is an idle connection or a new one.
func (t *Transport) take(ctx context.Context) (*conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for {
		t.mu.Lock()
		t.retiring = false
		last := len(t.idle) - 1
		if last < 0 {
			t.mu.Unlock()
			return t.dial(ctx)
		}
		c := t.idle[last]
		t.idle[last] = nil
		t.idle = t.idle[:last]
		t.count(-1)
		t.mu.Unlock()
		if quiet(c.Conn) && time.Since(c.idleAt) < t.IdleTimeout {
			return c, nil
		}
		_ = c.Close()
	}
}

func (t *Transport) dial(ctx context.Context) (*conn, error) {
	nc, err := t.Dial(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc}
	c.in, c.out = bufio.NewReaderSize(c, readBytes), bufio.NewWriterSize(nc, writeBytes)
	return c, nil
}

// drop closes the connections that are idle since then or longer.
func (t *Transport) drop(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n < len(t.idle) && !t.idle[n].idleAt.After(since) { // the one that went back first is the first
		_ = t.idle[n].Close()
		n++
	}
	t.idle = slices.Delete(t.idle, 0, n)
	t.count(-n)
}

// count notes that there are n idle connections more.
func (t *Transport) count(n int) {
	if t.Shared != nil {
		t.Shared.idle.Add(int64(n))
	}
}

// room tells whether one more connection may be idle.
func (t *Transport) room() bool {
	n := len(t.idle)
	return !t.retiring && n < t.MaxIdle && (n == 0 || t.Shared == nil || t.Shared.idle.Load() < int64(t.Shared.Max))
}

// lasts is how long the connection that went back first may be idle.
func (t *Transport) lasts() time.Duration {
	if len(t.idle) > t.Few && t.BurstTimeout > 0 {
		return min(t.BurstTimeout, t.IdleTimeout)
	}
	return t.IdleTimeout
}

func (t *Transport) put(c *conn) {
	c.idleAt = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.room() {
		_ = c.Close()
		return
	}
	t.idle = append(t.idle, c)
	t.count(1)
	switch {
	case t.sweep == nil:
		t.sweep = time.AfterFunc(t.lasts(), t.expire)
	case len(t.idle) == t.Few+1:
		t.sweep.Reset(t.lasts())
	}
}

// expire closes the connections that were idle for too long, and comes back for the others.
func (t *Transport) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.idle) > 0 && time.Since(t.idle[0].idleAt) >= t.lasts() {
		_ = t.idle[0].Close()
		t.idle = slices.Delete(t.idle, 0, 1)
		t.count(-1)
	}
	t.sweep = nil
	if len(t.idle) > 0 {
		t.sweep = time.AfterFunc(max(t.lasts()-time.Since(t.idle[0].idleAt), time.Millisecond), t.expire)
	}
}

// CloseIdleConnections closes the connections that no call uses, and those in use when their calls
// end, unless a new call comes first.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.idle {
		_ = c.Close()
	}
	t.count(-len(t.idle))
	t.idle, t.retiring = nil, true
	if t.sweep != nil {
		t.sweep.Stop()
		t.sweep = nil
	}
}
