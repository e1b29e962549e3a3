package h1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBroken: what is no answer is an error and costs its connection, and the next call is not
// touched by it.
func TestBroken(t *testing.T) {
	long := strings.Repeat("x", 9<<10)
	for _, tt := range []struct {
		name, answer string
		want         error // nil for any
		inBody       bool
	}{
		{"nothing", "", io.ErrUnexpectedEOF, false},
		{"half a header", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", io.ErrUnexpectedEOF, false},
		{"half a line", "HTTP/1.1 200 OK\r\nContent-Le", nil, false},
		{"no HTTP", "220 smtp.example.org ESMTP\r\n\r\n", nil, false},
		{"a header too long", "HTTP/1.1 200 OK\r\nX-Long: " + long + "\r\nContent-Length: 2\r\n\r\nok", ErrHeaderTooLarge, false},
		{"1xx for ever", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20), nil, false},
		{
			"1xx with long headers", strings.Repeat("HTTP/1.1 103 Early Hints\r\nX-Long: "+long[:4000]+"\r\n\r\n", 3), ErrHeaderTooLarge,
			false,
		},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", nil, false},
		{"a cut length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", io.ErrUnexpectedEOF, true},
		{"a cut chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", io.ErrUnexpectedEOF, true},
		{"no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", io.ErrUnexpectedEOF, true},
		{"a chunk of no size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, tr := serve(t, func(conn, _ int, _ *http.Request, c net.Conn) bool {
				if conn > 1 {
					return say(c, ok)
				}
				say(c, tt.answer)
				return false
			})
			resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, ""))
			if tt.inBody {
				if err != nil {
					t.Fatal(err)
				}
				_, err = io.ReadAll(resp.Body)
				if _, again := resp.Body.Read(make([]byte, 1)); again == nil || again == io.EOF {
					t.Errorf("a second read: %v", again)
				}
			}
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, not %v", err, tt.want)
			}
			if got, err := get(t, tr); err != nil || got != "ok" {
				t.Errorf("the next call: %q, %v", got, err)
			}
		})
	}
}

// TestStalePool: of connections that a server gave up while they were idle, and resets when they
// are used again, the first one to be used says so for all.
func TestStalePool(t *testing.T) {
	const pool = 10
	var over atomic.Bool
	all := make(chan struct{})
	var first, refused atomic.Int32
	s, tr := serve(t, func(conn, n int, _ *http.Request, c net.Conn) bool {
		if over.Load() && conn <= pool { // what a restarted server does to the connections of the one before
			refused.Add(1)
			_ = c.(*net.TCPConn).SetLinger(0)
			return false
		}
		if first.Add(1) == pool {
			close(all)
		}
		<-all // so that each has a connection of its own
		return say(c, ok)
	})
	tr.MaxIdle = pool
	var fill sync.WaitGroup
	for range pool {
		fill.Go(func() {
			if got, err := get(t, tr); err != nil || got != "ok" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	fill.Wait()
	over.Store(true)
	for i := range 6 {
		if got, err := get(t, tr); err != nil || got != "ok" {
			t.Errorf("call %d: %q, %v", i, got, err)
		}
	}
	if refused.Load() != 1 || s.conns.Load() != pool+1 {
		t.Errorf("%d requests went over stale connections and %d connections were made, not 1 and %d", refused.Load(), s.conns.Load(), pool+1)
	}
}

// TestBrokenOver: a connection that breaks long after the request went out broke over it. The
// request is not made anew, used before or not.
func TestBrokenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int32
		var servers sync.WaitGroup
		tr := &Transport{
			Addr: "server:80", MaxHeaderBytes: 8 << 10, MaxIdle: 2, IdleTimeout: time.Minute,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				servers.Go(func() {
					defer far.Close()
					in := bufio.NewReader(far)
					for {
						if _, err := http.ReadRequest(in); err != nil {
							return
						}
						if seen.Add(1) > 1 {
							time.Sleep(5 * time.Second)
							return
						}
						say(far, ok)
					}
				})
				return near, nil
			},
		}
		if got, err := get(t, tr); err != nil || got != "ok" {
			t.Fatalf("%q, %v", got, err)
		}
		if _, err := get(t, tr); err == nil {
			t.Error("a call that was not answered succeeded")
		}
		if seen.Load() != 2 {
			t.Errorf("the server was asked %d times, not twice", seen.Load())
		}
		servers.Wait()
	})
}
