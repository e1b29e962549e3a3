package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// caps are how many connections a listener has at once: most, of one address each, and spare ones
// beyond most, which are there for health alone.
type caps struct{ most, each, spare int }

// listen opens a TCP listener with these caps. What comes from an address that has its share is a
// spare connection, or is closed at once where these are taken; beyond all caps the next one waits
// in the kernel until one closes. Keep-alive finds silent clients within 45 s.
func listen(address string, n caps, name string, m *metrics, waits *timers.Set, log *slog.Logger) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return &capped{
		Listener: l, slots: make(chan struct{}, n.most), spare: make(chan struct{}, n.spare), done: make(chan struct{}),
		from: crowd{most: n.each, of: map[netip.Prefix]int{}}, over: m.connsOver.WithLabelValues(name),
		open: m.conns.WithLabelValues(name), full: m.connsFull.WithLabelValues(name), failed: m.unaccepted.WithLabelValues(name),
		waits: waits,
		log:   log.With("listener", name),
	}, nil
}

type capped struct {
	net.Listener
	slots  chan struct{}
	spare  chan struct{}
	done   chan struct{}
	from   crowd
	once   sync.Once
	open   prometheus.Gauge
	full   prometheus.Counter
	over   prometheus.Counter
	failed prometheus.Counter
	waits  *timers.Set
	log    *slog.Logger
	// longHeads bounds what all connections hold of heads; nil where these are short.
	longHeads *longHeadPlaces
	told      time.Time // when a failure was logged; Accept's alone
}

// spareConnections are those that the main listener takes beyond its cap, so that whoever asks
// whether it is well is told, and not by a time-out: a kubelet would restart a proxy that has
// nothing but many clients. Each is closed after its answer, and after spareTime where it asks
// nothing.
const (
	spareConnections = 32
	spareTime        = time.Second
	// acceptComplaints is the shortest time between two lines about connections that could not be
	// accepted.
	acceptComplaints = 10 * time.Second
)

// crowd counts connections by the address that they come from.
type crowd struct {
	most int // of one address
	mu   sync.Mutex
	of   map[netip.Prefix]int // those that have any
}

// whose is whose share a connection takes from.
func whose(c net.Conn) netip.Prefix {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return identity.Holder(tcp.AddrPort().Addr())
}

// enter counts one more, and is false where its address has its share without it.
func (c *crowd) enter(who netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[who]++
	return c.of[who] <= c.most
}

func (c *crowd) leave(who netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who] > 1 {
		c.of[who]--
	} else {
		delete(c.of, who)
	}
}

// Accept implements net.Listener.
func (c *capped) Accept() (net.Conn, error) {
	for {
		conn, err := c.accept()
		if conn != nil || err != nil {
			return conn, err
		}
	}
}

// accept accepts one; neither is one that was closed at once.
func (c *capped) accept() (net.Conn, error) {
	slot := c.slots
	select {
	case c.slots <- struct{}{}:
	default:
		c.full.Inc()
		select {
		case c.slots <- struct{}{}:
		case c.spare <- struct{}{}:
			slot = c.spare
		case <-c.done:
			return nil, net.ErrClosed
		}
	}
	conn, err := c.Listener.Accept()
	if err != nil {
		<-slot
		if !errors.Is(err, net.ErrClosed) {
			c.complain(err)
		}
		return nil, err
	}
	if slot == c.spare {
		select {
		case c.slots <- struct{}{}: // one was given back while nobody came
			<-slot
			slot = c.slots
		default:
		}
	}
	who := whose(conn)
	if !c.from.enter(who) && slot == c.slots {
		c.over.Inc()
		<-c.slots
		select {
		case c.spare <- struct{}{}:
			slot = c.spare
		default:
			c.from.leave(who)
			_ = conn.Close() // nobody has heard of it yet
			return nil, nil
		}
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3})
	}
	c.open.Inc()
	return newCappedConn(conn, c, slot, who), nil
}

// complain counts and says that a connection could not be accepted. net/http waits a moment then,
// and goes on.
func (c *capped) complain(err error) {
	c.failed.Inc()
	if now := time.Now(); now.Sub(c.told) >= acceptComplaints {
		c.told = now
		c.log.Error("a client's connection could not be accepted; if files are too many, raise the limit of open files (ulimit -n, LimitNOFILE)", "err", err)
	}
}

// Close implements net.Listener.
func (c *capped) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Listener.Close()
}

// clientConns are the connections and what they wait for. When the proxy stops, a request may be on
// its way over any on which none is under way, and the answer of one that is may have begun without
// saying that it is the last. The zero value is ready for use.
type clientConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]waited
	closed bool
}

type waited struct {
	state http.ConnState // new, active or idle
	since time.Time
}

// watch is the server's ConnState.
func (w *clientConns) watch(c net.Conn, state http.ConnState) {
	if state == http.StateIdle {
		ours(c).nextHead()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case state == http.StateClosed || state == http.StateHijacked:
		delete(w.conns, c)
	case state == http.StateNew && w.closed:
		_ = c.Close() // its serving goroutine sees that and ends
	default:
		if w.conns == nil {
			w.conns = map[net.Conn]waited{}
		}
		w.conns[c] = waited{state, time.Now()}
	}
}

// quiet waits until each that has no request has waited for one for the patience, and requests that
// began before have ended or gone on for as long; at most for most, and until ctx ends. Where there
// are no connections it returns at once.
func (w *clientConns) quiet(ctx context.Context, began time.Time, patience, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		var left time.Duration
		w.mu.Lock()
		for _, c := range w.conns {
			switch {
			case c.state != http.StateActive:
				left = max(left, patience-time.Since(c.since))
			case c.since.Before(began):
				left = max(left, patience-time.Since(began))
			}
		}
		w.mu.Unlock()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(left, 20*time.Millisecond)) // most of them will have gone by then
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// close closes those on which no request has arrived, and those that are still to come: net/http's
// Shutdown would wait five seconds for each of them, so that one that a browser or a balancer keeps
// ready would hold up every exit.
func (w *clientConns) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for c, is := range w.conns {
		if is.state == http.StateNew {
			_ = c.Close() // likewise
		}
	}
}
