package server

import (
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/timers"
)

// listen opens a TCP listener that has at most so many connections at once: the next one waits in the kernel until one closes. Keep-alive finds silent
// clients within 45 s.
func listen(address string, most int, name string, m *metrics, waits *timers.Set) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return &capped{
		Listener: l, slots: make(chan struct{}, most), done: make(chan struct{}),
		open: m.conns.WithLabelValues(name), full: m.connsFull.WithLabelValues(name), waits: waits,
	}, nil
}

type capped struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
	open  prometheus.Gauge
	full  prometheus.Counter
	waits *timers.Set
}

// Accept implements net.Listener.
func (c *capped) Accept() (net.Conn, error) {
	select {
	case c.slots <- struct{}{}:
	default:
		c.full.Inc()
		select {
		case c.slots <- struct{}{}:
		case <-c.done:
			return nil, net.ErrClosed
		}
	}
	conn, err := c.Listener.Accept()
	if err != nil {
		<-c.slots
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3})
	}
	c.open.Inc()
	return newCappedConn(conn, c), nil
}

// Close implements net.Listener.
func (c *capped) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Listener.Close()
}

// unasked are the connections on which no request has arrived yet. net/http's Shutdown would wait five seconds for each of them, so that one that a browser
// or a balancer keeps ready would hold up every exit.
type unasked struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// watch is the server's ConnState.
func (u *unasked) watch(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		_ = c.Close() // its serving goroutine sees that and ends
	default:
		if u.conns == nil {
			u.conns = map[net.Conn]struct{}{}
		}
		u.conns[c] = struct{}{}
	}
}

// close closes them, and those that are still to come.
func (u *unasked) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close() // likewise
	}
	clear(u.conns)
}

// requiresClientCert tells whether a web configuration makes every caller show a certificate that is verified.
func requiresClientCert(data []byte) bool {
	var c struct {
		TLS struct {
			ClientAuth string `yaml:"client_auth_type"`
			CertFile   string `yaml:"cert_file"`
			Cert       string `yaml:"cert"`
		} `yaml:"tls_server_config"`
	}
	if yaml.Unmarshal(data, &c) != nil {
		return false
	}
	return (c.TLS.CertFile != "" || c.TLS.Cert != "") && c.TLS.ClientAuth == "RequireAndVerifyClientCert"
}

// memoryLimit is GOMEMLIMIT in bytes.
func memoryLimit() int64 { return debug.SetMemoryLimit(-1) }
