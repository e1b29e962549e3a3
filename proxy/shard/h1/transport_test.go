package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a server that answers each request on a connection with the next of its texts, and
// notes what it saw.
type script struct {
	t       *testing.T
	ln      net.Listener
	conns   atomic.Int32
	open    sync.WaitGroup
	respond func(conn int, n int, req *http.Request, c net.Conn) (goOn bool)
}

func serve(t *testing.T, respond func(conn, n int, req *http.Request, c net.Conn) bool) (*script, *Transport) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, ln: ln, respond: respond}
	s.open.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			id := int(s.conns.Add(1))
			s.open.Go(func() { s.talk(id, c) })
		}
	})
	tr := &Transport{
		Addr: ln.Addr().String(), Dial: (&net.Dialer{}).DialContext, MaxHeaderBytes: 8 << 10, MaxIdle: 4,
		IdleTimeout: time.Minute,
	}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = ln.Close()
		s.open.Wait() // every connection was closed by the client, or this hangs
	})
	return s, tr
}

func (s *script) talk(id int, c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for n := 1; ; n++ {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		if !s.respond(id, n, req, c) {
			return
		}
	}
}

func say(c net.Conn, text string) bool {
	_, err := io.WriteString(c, text)
	return err == nil
}

const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"

func get(t *testing.T, tr *Transport) (string, error) {
	t.Helper()
	resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, ""))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func request(t *testing.T, ctx context.Context, method, body string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://server.invalid/api?q=1", r)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestReuse: whether the next call goes over the same connection, by how the server ends an answer.
// Reusing one too many mixes up answers; one too few costs a handshake for each call.
func TestReuse(t *testing.T) {
	for _, tt := range []struct {
		name, answer, body string
		reused             bool
	}{
		{"length", ok, "ok", true},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", true},
		{"chunks with a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-A: b\r\n\r\n", "ok", true},
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", "", true},
		{"an error", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", "no", true},
		{"a redirect", "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", "", true},
		{"told that more comes", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok, "ok", true},
		{"the server closes", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false},
		{"more than was promised", ok + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nothers", "ok", false},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, tr := serve(t, func(_, _ int, _ *http.Request, c net.Conn) bool { return say(c, tt.answer) })
			for range 3 {
				if got, err := get(t, tr); err != nil || got != tt.body {
					t.Fatalf("got %q, %v, not %q", got, err, tt.body)
				}
			}
			want := int32(3)
			if tt.reused {
				want = 1
			}
			if n := s.conns.Load(); n != want {
				t.Errorf("three calls took %d connections, not %d", n, want)
			}
		})
	}
}

// TestArrived: an answer that is here as a whole is told from one that is still coming, before
// anything of it was read and after.
func TestArrived(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"
	for _, tt := range []struct {
		name, now, later string
		arrived          bool
	}{
		{"length", ok, "", true},
		{"half of it", ok[:len(ok)-1], "k", false},
		{"nothing of it", ok[:len(ok)-2], "ok", false},
		{"chunks", chunked + "0\r\n\r\n", "", true},
		{"no last chunk", chunked, "0\r\n\r\n", false},
		{"half a last chunk", chunked + "0\r\n", "\r\n", false},
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			goOn := make(chan struct{}, 1)
			_, tr := serve(t, func(_, _ int, _ *http.Request, c net.Conn) bool {
				if !say(c, tt.now) {
					return false
				}
				<-goOn
				return say(c, tt.later)
			})
			defer close(goOn)
			resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, ""))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b := resp.Body.(interface{ Arrived() bool })
			if b.Arrived() != tt.arrived {
				t.Errorf("Arrived is %v", !tt.arrived)
			}
			goOn <- struct{}{}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Fatal(err)
			}
			if !b.Arrived() {
				t.Error("what was read to its end has not arrived")
			}
		})
	}
}

// TestIdleGone: a connection that the server closed, or spoke on, while nobody used it, is found
// out before anything is sent on it.
func TestIdleGone(t *testing.T) {
	for _, last := range []string{"", "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"} {
		done := make(chan struct{})
		var seen atomic.Int32
		s, tr := serve(t, func(conn, n int, _ *http.Request, c net.Conn) bool {
			seen.Add(1)
			say(c, ok)
			if conn > 1 {
				return true
			}
			say(c, last)
			_ = c.(*net.TCPConn).CloseWrite()
			close(done)
			return true
		})
		if _, err := get(t, tr); err != nil {
			t.Fatal(err)
		}
		<-done
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			tr.mu.Lock()
			gone := len(tr.idle) == 0
			if !gone {
				gone = !quiet(tr.idle[0].Conn)
			}
			tr.mu.Unlock()
			if gone {
				break
			}
		}
		if got, err := get(t, tr); err != nil || got != "ok" || s.conns.Load() != 2 || seen.Load() != 2 {
			t.Errorf("%q, %v over %d connections, %d requests seen", got, err, s.conns.Load(), seen.Load())
		}
	}
}

// TestLeave: a caller that leaves ends the connection, whatever it was waiting for.
func TestLeave(t *testing.T) {
	left := errors.New("left")
	for _, stage := range []string{"before", "dial", "header", "body", "between"} {
		t.Run(stage, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			gone := make(chan struct{})
			_, tr := serve(t, func(conn, n int, _ *http.Request, c net.Conn) bool {
				if n == 1 && stage == "between" {
					return say(c, ok)
				}
				if stage == "body" {
					say(c, ok[:len(ok)-1])
				} else {
					cancel(left)
				}
				_, _ = c.Read(make([]byte, 1)) // until the client closes
				close(gone)
				return false
			})
			switch stage {
			case "before":
				cancel(left)
				close(gone)
			case "dial":
				tr.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					cancel(left)
					<-ctx.Done()
					close(gone)
					return nil, context.Cause(ctx)
				}
			case "between": // a connection that a call left unharmed serves the next one
				if _, err := get(t, tr); err != nil {
					t.Fatal(err)
				}
			}
			resp, err := tr.RoundTrip(request(t, ctx, http.MethodGet, ""))
			if stage == "body" {
				if err != nil {
					t.Fatal(err)
				}
				cancel(left)
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("half a body was whole")
				}
			} else if !errors.Is(err, left) {
				t.Errorf("got %v", err)
			}
			<-gone
			if len(tr.idle) != 0 {
				t.Error("the connection went back")
			}
		})
	}
}

// TestCloseEarly: a body that is not wanted is not read; its connection is closed.
func TestCloseEarly(t *testing.T) {
	gone := make(chan struct{})
	_, tr := serve(t, func(_, _ int, _ *http.Request, c net.Conn) bool {
		say(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
		for say(c, strings.Repeat("x", 64<<10)) {
		}
		close(gone)
		return false
	})
	resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	resp.Body.Close()
	<-gone
	if n, err := resp.Body.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes were read after the end", n)
	}
}

// TestPost: a body is sent, and a server that answers without reading it is heard.
func TestPost(t *testing.T) {
	_, tr := serve(t, func(_, _ int, req *http.Request, c net.Conn) bool {
		b, _ := io.ReadAll(req.Body)
		text := fmt.Sprintf("%s %s %s %s %d", req.Method, req.RequestURI, req.Host, req.Header.Get("X-A"), len(b))
		return say(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	})
	req := request(t, t.Context(), http.MethodPost, strings.Repeat("b", 100_000))
	req.Header.Set("X-A", "a")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "POST /api?q=1 server.invalid a 100000" {
		t.Errorf("the server saw %q", b)
	}
	resp.Body.Close()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		say(c, "HTTP/1.1 413 Request Entity Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
		_ = c.(*net.TCPConn).CloseWrite()
		time.Sleep(50 * time.Millisecond)
		_ = c.Close() // with what was not read: a reset
	}()
	early := &Transport{
		Addr: ln.Addr().String(), Dial: (&net.Dialer{}).DialContext, MaxHeaderBytes: 8 << 10, MaxIdle: 4,
		IdleTimeout: time.Minute,
	}
	resp, err = early.RoundTrip(request(t, t.Context(), http.MethodPost, strings.Repeat("b", 32<<20)))
	if err == nil {
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge || string(b) != "big" {
			t.Errorf("%d %q", resp.StatusCode, b)
		}
	} // else the reset came first and took the answer with it, which the client cannot help
	if len(early.idle) != 0 {
		t.Error("a connection with half a request on it went back")
	}
}

// TestIdle: idle connections are bounded in number and time, and none is kept once they were told
// to go.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialled, closed atomic.Int32
		var servers sync.WaitGroup
		tr := &Transport{
			Addr: "server:80", MaxHeaderBytes: 8 << 10, MaxIdle: 2, IdleTimeout: time.Minute,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				dialled.Add(1)
				near, far := net.Pipe()
				servers.Go(func() {
					in := bufio.NewReader(far)
					for {
						if _, err := http.ReadRequest(in); err != nil {
							closed.Add(1)
							return
						}
						say(far, ok)
					}
				})
				return near, nil
			},
		}
		open := func(n int) []*http.Response {
			out := make([]*http.Response, n)
			for i := range out {
				resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodGet, ""))
				if err != nil {
					t.Fatal(err)
				}
				out[i] = resp
			}
			return out
		}
		finish := func(rs []*http.Response) {
			for _, r := range rs {
				if _, err := io.ReadAll(r.Body); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		want := func(what string, d, c int32) {
			t.Helper()
			if dialled.Load() != d || closed.Load() != c {
				t.Errorf("%s: %d dialled and %d closed, not %d and %d", what, dialled.Load(), closed.Load(), d, c)
			}
		}
		finish(open(4))
		want("four at once", 4, 2)
		time.Sleep(40 * time.Second)
		finish(open(1))
		want("one more", 4, 2)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		want("the one that was not used", 4, 3)
		time.Sleep(time.Minute)
		synctest.Wait()
		want("the other one", 4, 4)
		rs := open(1)
		tr.CloseIdleConnections()
		finish(rs)
		want("told to go while in use", 5, 5)
		finish(open(1))
		want("used again", 6, 5)
		tr.CloseIdleConnections()
		servers.Wait()
		want("at the end", 6, 6)
	})
}

// TestCannotTell: over connections of which the system does not know whether they are closed, a
// call that finds out is made anew, once, with its body.
func TestCannotTell(t *testing.T) {
	var dialled atomic.Int32
	var servers sync.WaitGroup
	tr := &Transport{
		Addr: "server:80", MaxHeaderBytes: 8 << 10, MaxIdle: 2, IdleTimeout: time.Minute,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			n := dialled.Add(1)
			near, far := net.Pipe()
			servers.Go(func() {
				defer far.Close()
				req, err := http.ReadRequest(bufio.NewReader(far))
				if err != nil {
					return
				}
				b, _ := io.ReadAll(req.Body)
				if n < 3 {
					say(far, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b), b))
				}
			})
			return near, nil
		},
	}
	for i, want := range []string{"", "", "cut"} {
		resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodPost, "words"))
		if err != nil {
			if want == "" {
				t.Errorf("call %d: %v", i, err)
			}
			continue
		}
		if b, err := io.ReadAll(resp.Body); want != "" || err != nil || string(b) != "words" {
			t.Errorf("call %d: %q, %v", i, b, err)
		}
	}
	if n := dialled.Load(); n != 3 {
		t.Errorf("%d connections were made", n)
	}
	servers.Wait()
}

// TestEarlyAnswer: an answer that comes before the request was taken whole is read to its end,
// however long that takes.
func TestEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers sync.WaitGroup
		tr := &Transport{
			Addr: "server:80", MaxHeaderBytes: 8 << 10, MaxIdle: 2, IdleTimeout: time.Minute,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				servers.Go(func() {
					defer far.Close()
					say(far, "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 6\r\n\r\ntoo")
					time.Sleep(3 * time.Second)
					say(far, "big")
				})
				return deaf{near}, nil
			},
		}
		resp, err := tr.RoundTrip(request(t, t.Context(), http.MethodPost, strings.Repeat("b", 100_000)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "toobig" {
			t.Errorf("%q, %v", b, err)
		}
		if len(tr.idle) != 0 {
			t.Error("a connection with half a request on it went back")
		}
		servers.Wait()
	})
}

// deaf is a connection whose peer reads nothing any more.
type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
