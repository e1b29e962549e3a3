package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/spillwayproject/spillway/internal/timers"
)

// cappedConn is a client's connection: one of the listener's, with deadlines that cost little while
// they are kept, and a first write that waits for the second.
type cappedConn struct {
	net.Conn
	l           *capped
	slot        chan struct{} // of the listener's, which it holds
	who         netip.Prefix  // whose share it counts to
	once        sync.Once
	read, write deadline
	head        headOf

	writing sync.Mutex
	joins   bool   // what is written now is held
	held    []byte // goes out with the next write
}

func newCappedConn(conn net.Conn, l *capped, slot chan struct{}, who netip.Prefix) *cappedConn {
	c := &cappedConn{Conn: conn, l: l, slot: slot, who: who}
	c.read.init(conn.SetReadDeadline, l.waits)
	if s, ok := conn.(syscall.Conn); ok {
		c.read.unread = func() bool { return unread(s) }
	}
	c.write.init(conn.SetWriteDeadline, l.waits)
	return c
}

// Close implements net.Conn.
func (c *cappedConn) Close() error {
	c.once.Do(func() {
		c.l.open.Dec()
		c.l.from.leave(c.who)
		<-c.slot
		c.noHead()
	})
	c.read.close()
	c.write.close()
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *cappedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.write.put(t)
}

// SetReadDeadline implements net.Conn. A spare connection is not waited for longer than spareTime.
func (c *cappedConn) SetReadDeadline(t time.Time) error {
	if latest := time.Now().Add(spareTime); c.spare() && (t.IsZero() || t.After(latest)) {
		t = latest
	}
	return c.read.put(t)
}

// spare tells whether the connection is one of those beyond the cap.
func (c *cappedConn) spare() bool { return c.slot == c.l.spare }

// SetWriteDeadline implements net.Conn.
func (c *cappedConn) SetWriteDeadline(t time.Time) error { return c.write.put(t) }

// distant is how far away a deadline must be to wait on the server's timers.
const distant = time.Second

// deadline is one of a connection's two. Each request sets some that are seconds away and takes
// them back a moment later; the connection itself is only told of those that are near, or have
// passed.
type deadline struct {
	set    func(time.Time) error // the connection's own
	unread func() bool           // whether something has come that nobody has read; may be nil

	mu     sync.Mutex
	timer  *timers.Timer
	at     time.Time // what the timer waits for; zero for nothing
	own    bool      // the connection itself has one
	lates  int       // how often it was put off because we are late ourselves
	closed bool
}

// A client whose bytes have come in time and lie in the kernel, because this process was starved of
// processors, is not late: it is given as much longer as this, so many times at most.
const (
	ourDelay = time.Second
	maxLates = 5
)

func (d *deadline) init(set func(time.Time) error, waits *timers.Set) {
	d.set, d.timer = set, waits.New(d.pass)
}

func (d *deadline) put(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	if !d.at.IsZero() {
		d.timer.Stop()
		d.at = time.Time{}
	}
	if !t.IsZero() {
		if wait := time.Until(t); wait >= distant {
			d.timer.Reset(wait)
			d.at, d.lates, t = t, 0, time.Time{}
		}
	}
	if t.IsZero() && !d.own {
		return nil
	}
	d.own = !t.IsZero()
	return d.set(t)
}

// pass is called when the timer goes off.
func (d *deadline) pass() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Now().Before(d.at) { // another one was set in that moment
		return
	}
	if d.unread != nil && d.lates < maxLates && d.unread() {
		d.lates++
		d.at = time.Now().Add(ourDelay)
		d.timer.Reset(ourDelay)
		return
	}
	d.at, d.own = time.Time{}, true
	_ = d.set(time.Now()) // fails where the connection is closed, which is as good
}

// unread looks whether a socket holds what has not been read, without reading it.
func unread(s syscall.Conn) (yes bool) {
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { yes = peek(fd) })
	return yes
}

func (d *deadline) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.at = true, time.Time{}
	d.timer.Stop()
}

// heldBytes is the buffer in which net/http gathers the header and the beginning of an answer, and
// writes as soon as it is full.
const heldBytes = 4 << 10

// Write implements net.Conn.
func (c *cappedConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	switch {
	case c.joins && len(c.held)+len(p) <= heldBytes:
		c.held = append(c.held, p...)
		return len(p), nil
	case len(c.held) == 0:
		return c.Conn.Write(p)
	}
	c.joins = false
	before := len(c.held)
	both := net.Buffers{c.held, p}
	c.held = c.held[:0]
	n, err := both.WriteTo(c.Conn)
	return max(int(n)-before, 0), err
}

// together writes a part of an answer through w, whose connection it is, in one system call.
// net/http would send the first 4 KiB, with the header or the chunk's length, and then the rest:
// two packets, of which the first wakes a client that can do nothing before it has the second. With
// now it leaves at once; else a short one would leave only when the request is done with, its
// metrics and the usage log too.
func (c *cappedConn) together(w http.ResponseWriter, p []byte, now bool) (int, error) {
	if c == nil || !now && len(p) < 3*heldBytes { // so that the rest is longer than net/http keeps
		return w.Write(p)
	}
	c.join(true)
	n, err := w.Write(p)
	if c.join(false); now && err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if c.holds() && err == nil { // net/http had nothing more to send
		_, err = c.Write(nil)
	}
	return n, err
}

// join says whether what is written from now on is held.
func (c *cappedConn) join(joins bool) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.joins = joins
}

func (c *cappedConn) holds() bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	return len(c.held) > 0
}

// connOf is the key of a request's connection.
type connOf struct{}

// withConn is the server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connOf{}, ours(c))
}

// ours is the connection of ours that net/http has; nil where it is none.
func ours(c net.Conn) *cappedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	o, _ := c.(*cappedConn)
	return o
}

// conn is the connection of a request; nil where it is not one of ours.
func conn(r *http.Request) *cappedConn {
	c, _ := r.Context().Value(connOf{}).(*cappedConn)
	return c
}

// abort ends a handler whose answer must not look whole. net/http cuts the connection and logs
// nothing.
func abort(r *http.Request) {
	if c := conn(r); c != nil && !r.ProtoAtLeast(1, 1) {
		_ = c.Close() // before TLS says that this is the end
	}
	panic(http.ErrAbortHandler)
}

// resetIfCut has the connection of an answer to HTTP/1.0 end in a reset, whatever ends it, this
// process' own end too, until whole is called: such an answer has no chunks, so that its end is
// that of the connection.
func resetIfCut(r *http.Request) (whole func()) {
	c := conn(r)
	if c == nil || r.ProtoAtLeast(1, 1) {
		return func() {}
	}
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return func() {}
	}
	_ = tcp.SetLinger(0) // the client may be gone
	return func() { _ = tcp.SetLinger(-1) }
}
