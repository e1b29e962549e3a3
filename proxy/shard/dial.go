package shard

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// dnsKeep is how long addresses that once worked are used when the name cannot be resolved any
	// more.
	dnsKeep = 10 * time.Minute
	// dnsFresh is how long they are used without asking: a burst of new connections is one lookup.
	dnsFresh = 5 * time.Second
)

// dialer resolves and dials under one timeout. A name is looked up by one dial at a time, for all
// that wait; its last good addresses are used for dnsFresh without asking again, and for dnsKeep
// where that fails.
type dialer struct {
	timeout time.Duration
	resolve func(ctx context.Context, host string) ([]string, error)
	connect DialFunc

	asking singleflight.Group // by host

	mu   sync.Mutex
	good map[string]goodAddrs // by host; an upstream has one host, so there is one entry (or two, with an HTTP proxy)
}

type goodAddrs struct {
	addrs   []string
	at      time.Time
	failing time.Time // since when the name cannot be looked up; zero: the last time it could
	failed  time.Time // when it could not be last
}

func newDialer(timeout time.Duration, connect DialFunc) *dialer {
	d := &dialer{timeout: timeout, resolve: net.DefaultResolver.LookupHost, connect: connect, good: map[string]goodAddrs{}}
	if connect != nil {
		d.resolve = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // its names are its own
	} else {
		// A peer that vanished without a word is noticed after 15 s and three unanswered probes.
		nd := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
		d.connect = nd.DialContext
	}
	return d
}

// dialedFor is the key of the call's context in the context of a dial. net/http dials under a
// context that keeps the values of the request's but does not end with it, so that another request
// may use the connection; a server that takes no connections would be dialed on and on for clients
// that have left.
type dialedFor struct{}

// dialError marks an error from before there was a connection: the server did nothing for this
// call.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// dial connects to the first address that answers. The timeout spans the name's resolution and all
// addresses, each of which gets its share.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, errDialTimeout)
	defer cancel()
	if call, ok := ctx.Value(dialedFor{}).(context.Context); ok {
		defer context.AfterFunc(call, cancel)()
	}
	conn, err := d.dialAll(ctx, network, addr)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errDialTimeout) {
			err = cause
		}
		return nil, &dialError{err}
	}
	return conn, nil
}

// ours tells failures to connect that are this machine's own: no file, port or buffer is left. They
// say nothing about the server.
func ours(err error) bool {
	var dial *dialError
	return errors.As(err, &dial) &&
		(errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
			errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM))
}

func (d *dialer) dialAll(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || net.ParseIP(host) != nil {
		return d.connect(ctx, network, addr)
	}
	addrs, err := d.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	var last error
	for i, a := range addrs {
		share := ctx
		if dl, ok := ctx.Deadline(); ok && i < len(addrs)-1 {
			var cancel context.CancelFunc
			share, cancel = context.WithTimeout(ctx, time.Until(dl)/time.Duration(len(addrs)-i))
			defer cancel()
		}
		conn, err := d.connect(share, network, net.JoinHostPort(a, port))
		if err == nil {
			return conn, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (d *dialer) lookup(ctx context.Context, host string) ([]string, error) {
	d.mu.Lock()
	good, known := d.good[host]
	d.mu.Unlock()
	if known && time.Since(good.at) < dnsFresh {
		return good.addrs, nil
	}
	// Half of the time at most, so that a resolver that hangs leaves enough to dial the remembered
	// addresses.
	lctx := ctx
	if dl, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		lctx, cancel = context.WithTimeout(ctx, time.Until(dl)/2)
		defer cancel()
	}
	var addrs []string
	var err error
	select {
	case got := <-d.asking.DoChan(host, func() (any, error) { return d.ask(context.WithoutCancel(ctx), host) }):
		if err = got.Err; err == nil {
			addrs = got.Val.([]string)
		}
	case <-lctx.Done():
		err = context.Cause(lctx)
	}
	if err == nil {
		return addrs, nil
	}
	if known && time.Since(d.failing(ctx, host)) < dnsKeep {
		return good.addrs, nil
	}
	return nil, err
}

// failing is since when the name, whose lookup has just failed, cannot be looked up. One that
// nobody has looked up for hours, since its connections are kept, fails since now. A caller who
// left has learned nothing.
func (d *dialer) failing(ctx context.Context, host string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	good := d.good[host]
	if ctx.Err() != nil {
		return good.failing
	}
	now := time.Now()
	if good.failing.IsZero() || now.Sub(good.failed) > dnsKeep { // of that failure nobody knows whether it went on
		good.failing = now
	}
	good.failed = now
	d.good[host] = good
	return good.failing
}

// ask looks a name up for all dials that wait, of which the one that began it may leave. It ends by
// itself.
func (d *dialer) ask(ctx context.Context, host string) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout/2, errDialTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errors.New("the name " + host + " has no address")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good[host] = goodAddrs{addrs: addrs, at: time.Now()}
	return addrs, nil
}
