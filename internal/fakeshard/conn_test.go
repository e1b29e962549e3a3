package fakeshard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// The peer leaves at each stage, and the shard sees it.
func TestPeerLeaves(t *testing.T) {
	for _, tc := range []struct {
		script string
		sent   int64 // leave once so many bytes of the body were sent
	}{
		{script: "stall"},
		{script: "delay 1h"},
		{script: "wait forever"},
		{script: "flush; stall"},
		{script: "drip 1B/1h; answer"},
		{script: "send abc; stall", sent: 3},
		{script: "limit 10 stall; answer", sent: 10},
		{script: "gzip; send abc; stall", sent: 3},
		{script: "generate 10GiB", sent: 1 << 20},
		{script: "gzip bomb", sent: 1 << 20},
	} {
		t.Run(tc.script, func(t *testing.T) {
			s := Start(t, Config{Default: tc.script})
			c := newClient(t)
			ctx, leave := context.WithCancel(soon(t))
			defer leave()
			done := make(chan error, 1)
			go func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/api/v1/query", strings.NewReader("query=up"))
				if err != nil {
					done <- err
					return
				}
				resp, err := c.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
			if err := s.WaitSeen(soon(t), "/api/v1/query", 1); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitSent(soon(t), "/api/v1/query", tc.sent); err != nil {
				t.Fatal(err)
			}
			if n := s.InFlight(); n != 1 {
				t.Fatalf("%d in flight, want 1", n)
			}
			leave()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("the client got %v", err)
			}
			if err := s.WaitIdle(soon(t)); err != nil {
				t.Fatal(err)
			}
			r := s.Requests()[0]
			if !r.End.PeerLeft() || r.Left.IsZero() || r.Ended.Before(r.Began) || r.Sent < tc.sent {
				t.Errorf("%v, left at %v: the shard did not see its peer leave", r, r.Left)
			}
			if err := s.WaitConns(soon(t), 0); err != nil {
				t.Error(err)
			}
		})
	}
}

// A peer that resets is told from one that closes.
func TestPeerResets(t *testing.T) {
	s := Start(t, Config{Default: "stall"})
	for i, how := range []End{PeerClosed, PeerReset} {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /api/v1/labels HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := s.WaitSeen(soon(t), "", i+1); err != nil {
			t.Fatal(err)
		}
		if how == PeerReset {
			if err := c.(*net.TCPConn).SetLinger(0); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if err := s.WaitIdle(soon(t)); err != nil {
			t.Fatal(err)
		}
		if r := s.Requests()[i]; r.End != how {
			t.Errorf("%v, want it %v", r, how)
		}
	}
}

// The next request on a connection is not taken for, and does not hide, the peer's leaving.
func TestPipelining(t *testing.T) {
	s := Start(t, Config{Routes: []Route{{Path: "/b", Script: "delay 1ms; send b"}, {Path: "/c", Script: "stall"}}})
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all strings.Builder
	for _, p := range []string{"/b", "/b", "/c", "/d"} {
		fmt.Fprintf(&all, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", p)
	}
	if _, err := io.WriteString(c, all.String()); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	for range 2 {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "b" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if err := s.WaitSeen(soon(t), "/c", 1); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := s.WaitIdle(soon(t)); err != nil {
		t.Fatal(err)
	}
	if rs := s.Requests(); len(rs) != 3 || rs[0].End != Completed || rs[1].End != Completed || !rs[2].End.PeerLeft() {
		t.Errorf("%v", rs)
	}
}
