package fakeshard

import (
	"context"
	"net"
	"sync"
)

// Memory is a listener whose connections are pipes in memory, for Config.Listener in tests under
// testing/synctest: nothing on them waits in a system call, so a bubble's clock can advance. Its
// pipes hold no bytes (a write returns when it was read), and they know no RST: a reset is seen by
// the peer as a close.
type Memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

var _ net.Listener = (*Memory)(nil)

// NewMemory returns a listener to give to one shard. Inside a synctest bubble it must be made
// there.
func NewMemory() *Memory {
	return &Memory{conns: make(chan net.Conn), done: make(chan struct{})}
}

// DialContext connects to the listener, whatever the address: it fits http.Transport.DialContext.
func (m *Memory) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.done:
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: m.Addr(), Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: m.Addr(), Err: context.Cause(ctx)}
	}
}

// Accept implements net.Listener.
func (m *Memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *Memory) Close() error {
	m.once.Do(func() { close(m.done) })
	return nil
}

// Addr implements net.Listener.
func (m *Memory) Addr() net.Addr { return memoryAddr{} }

type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "fakeshard.invalid:9090" }
