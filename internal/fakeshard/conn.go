package fakeshard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

const (
	// readBuffer is also how far a peer may pipeline while the shard still notices that it leaves.
	readBuffer = 32 << 10
	// maxBody bounds what is read of a request's body.
	maxBody = 16 << 20
)

// A conn serves one connection, one request after the other.
type conn struct {
	s  *Shard
	c  net.Conn
	n  int
	br *bufio.Reader
	bw *bufio.Writer
}

func newConn(s *Shard, c net.Conn, n int) *conn {
	return &conn{s: s, c: c, n: n, br: bufio.NewReaderSize(c, readBuffer), bw: bufio.NewWriterSize(c, 16<<10)}
}

func (c *conn) serve() {
	if script := c.s.chooseAccept(c.n); script != nil {
		ctx, stop := c.watch(nil)
		x := &execution{conn: c, ctx: ctx}
		err := x.steps(script)
		stop()
		if err != nil || c.bw.Flush() != nil {
			return
		}
	}
	for c.serveOne() {
	}
}

// serveOne reads and answers one request and tells whether the connection can be used for another.
func (c *conn) serveOne() bool {
	req, err := http.ReadRequest(c.br)
	if err != nil {
		if _, gone := c.peerError(err); !gone {
			c.refuse("400 Bad Request", "this is not an HTTP request: "+err.Error())
		}
		return false
	}
	if req.Header.Get("Expect") != "" {
		if _, err := io.WriteString(c.c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false
		}
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return false // the peer left before there was a request
	}
	if len(body) > maxBody {
		c.refuse("413 Content Too Large", "the fake shard reads at most 16 MiB of a body")
		return false
	}
	_ = req.Body.Close() // it was read to its end

	rec := &Record{
		Conn: c.n, Method: req.Method, Host: req.Host, Path: req.URL.Path, RawQuery: req.URL.RawQuery, Target: req.RequestURI,
		Header: req.Header.Clone(), Body: body[:min(len(body), maxBodyKept)], BodyBytes: int64(len(body)), Began: time.Now(),
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if err := req.ParseForm(); err != nil {
		rec.Bad = err.Error()
	}
	rec.Form = req.Form

	script := c.s.choose(rec)
	rec.Script = script.String()
	c.s.begin(rec)
	ctx, stop := c.watch(rec)
	x := &execution{conn: c, ctx: ctx, rec: rec, response: response{
		header: http.Header{}, declared: -1, limit: -1,
		keep: !req.Close && req.ProtoAtLeast(1, 1), bodiless: req.Method == http.MethodHead, old: !req.ProtoAtLeast(1, 1),
	}}
	err = x.run(script)
	stop()
	how := PeerClosed
	switch cause := context.Cause(ctx); {
	case err == nil:
		how = Completed
	case errors.Is(err, errCut):
		how = Cut
	case c.stopped():
		how = Stopped
	case errors.Is(cause, errPeerReset):
		how = PeerReset
	case !errors.Is(cause, errPeerClosed): // a write found it first
		if why, ok := c.peerError(err); ok && errors.Is(why, errPeerReset) {
			how = PeerReset
		}
	}
	c.s.end(rec, how, x.sent)
	return how == Completed && x.keep
}

// refuse answers what is not a request that the shard could record.
func (c *conn) refuse(status, why string) {
	_, _ = io.WriteString(c.c, "HTTP/1.1 "+status+"\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+why+"\n") // best effort
}

// watch reads the connection in the background, into the buffer from which the next request will be
// read, so that the peer's leaving is seen at once whatever the shard is doing. The context ends
// when the peer leaves; its cause tells how. stop ends the watch and returns when nothing reads any
// more.
func (c *conn) watch(rec *Record) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.br.Buffered() < c.br.Size() {
			_, err := c.br.Peek(c.br.Buffered() + 1)
			if err == nil {
				continue // the next request already, or a byte of it
			}
			why, ok := c.peerError(err)
			if !ok {
				return
			}
			if rec != nil && !errors.Is(why, errStopped) {
				c.s.left(rec)
			}
			cancel(why)
			// A write may be waiting for a peer that has closed its side only.
			_ = c.c.SetWriteDeadline(time.Unix(1, 0))
			return
		}
	}()
	return ctx, func() {
		_ = c.c.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.c.SetReadDeadline(time.Time{})
		cancel(nil)
	}
}

func (c *conn) stopped() bool {
	select {
	case <-c.s.stop:
		return true
	default:
		return false
	}
}

// peerError tells what an error of the connection says about the peer; ok is false where it says
// nothing (the shard itself ended the reading, or the bytes were no HTTP).
func (c *conn) peerError(err error) (why error, ok bool) {
	var op *net.OpError
	switch {
	case err == nil:
		return nil, false
	case c.stopped():
		return errStopped, true
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
		return nil, false
	case errors.Is(err, syscall.ECONNRESET):
		return errPeerReset, true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, syscall.EPIPE),
		errors.As(err, &op):
		return errPeerClosed, true
	}
	return nil, false
}

// reset closes the connection so that the peer sees a reset instead of an end.
func (c *conn) reset() {
	if t, ok := c.c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only on a connection that is gone
	}
	_ = c.c.Close() // likewise
}
