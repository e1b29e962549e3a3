package fakeshard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// startInBubble gives a shard in memory, and a client of it, for a synctest bubble.
func startInBubble(t *testing.T, cfg Config) (*Shard, *http.Client) {
	t.Helper()
	m := NewMemory()
	cfg.Listener = m
	s := Start(t, cfg)
	tr := &http.Transport{DialContext: m.DialContext, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return s, &http.Client{Transport: tr}
}

// Waiting steps take exactly the time they say, on the bubble's clock.
func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		script string
		head   time.Duration // from asking to the head
		body   time.Duration // from asking to the end of the body
	}{
		{"answer", 0, 0},
		{"delay 2s", 2 * time.Second, 2 * time.Second},
		{"delay 2s; flush; delay 3s; send abc", 2 * time.Second, 5 * time.Second},
		{"flush; delay 1h; send abc", 0, time.Hour},
		{"flush; drip 1B/10ms; send abcde", 0, 50 * time.Millisecond},
		{"flush; drip 4B/1s; send abcde", 0, 2 * time.Second},
		{"compute 9s; send abc", 9 * time.Second, 9 * time.Second},
	} {
		t.Run(tc.script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := startInBubble(t, Config{Default: tc.script})
				began := time.Now()
				resp, err := c.Get(s.URL() + "/api/v1/series")
				if err != nil {
					t.Fatal(err)
				}
				head := time.Since(began)
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if body := time.Since(began); head != tc.head || body != tc.body {
					t.Errorf("head after %v, end after %v; want %v and %v", head, body, tc.head, tc.body)
				}
				synctest.Wait()
				if r := s.Requests()[0]; r.End != Completed || r.Ended.Sub(r.Began) != tc.body {
					t.Errorf("%v", r)
				}
			})
		})
	}
}

// The peer leaves after a second: a request that waits has ended at this very moment, one that
// computes when it has done its work.
func TestEnds(t *testing.T) {
	for _, tc := range []struct {
		script string
		ended  time.Duration
	}{
		{"stall", time.Second},
		{"delay 1h", time.Second},
		{"wait a", time.Second},
		{"flush; stall", time.Second},
		{"drip 1B/300ms; answer", time.Second},
		{"compute 10s; answer", 10 * time.Second},
	} {
		t.Run(tc.script, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := startInBubble(t, Config{Default: tc.script})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/api/v1/series", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("the client got %v", err)
				}
				if err := s.WaitIdle(t.Context()); err != nil {
					t.Fatal(err)
				}
				r := s.Requests()[0]
				if r.End != PeerClosed || r.Left.Sub(r.Began) != time.Second || r.Ended.Sub(r.Began) != tc.ended {
					t.Errorf("%v, left after %v; want it closed after 1s and ended after %v", r, r.Left.Sub(r.Began), tc.ended)
				}
			})
		})
	}
}

func TestMemoryListener(t *testing.T) {
	m := NewMemory()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.DialContext(ctx, "tcp", "a:1"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with nobody there: %v", err)
	}
	m.Close()
	m.Close()
	if _, err := m.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if _, err := m.DialContext(t.Context(), "tcp", "a:1"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial after close: %v", err)
	}
}
