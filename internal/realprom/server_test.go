package realprom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

func TestServer(t *testing.T) {
	var log syncBuffer
	s, err := Start(t.Context(), Options{
		Config:         "global: {scrape_interval: 7s}\n",
		ExternalLabels: labels.FromStrings("replica", "a$b"),
		Flags:          []string{"--query.max-samples=12345"},
		Env:            []string{"GOMEMLIMIT=1GiB"},
		Log:            &log,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	rss, err := s.RSS()
	if peak, err2 := s.PeakRSS(); err != nil || err2 != nil || rss < 10<<20 || peak < rss {
		t.Errorf("memory %d, peak %d, %v, %v", rss, peak, err, err2)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"query", "instant", s.URL(), "1+1"}, "scalar: 2"},
		{[]string{"query", "series", "--match=up", s.URL()}, ""},
	} {
		out, stderr, err := Promtool(t.Context(), tc.args...)
		if err != nil || !strings.Contains(out, tc.want) {
			t.Errorf("promtool %v: %q, %q, %v", tc.args, out, stderr, err)
		}
	}
	if _, stderr, err := Promtool(t.Context(), "query", "instant", s.URL(), "sum("); err == nil ||
		!strings.Contains(err.Error(), "parse error") || !strings.Contains(stderr, "parse error") {
		t.Errorf("promtool with a broken query: %q, %v", stderr, err)
	}
	if !strings.Contains(s.Log(), "Server is ready to receive web requests") || !strings.Contains(log.String(), "Server is ready") {
		t.Error("the log was not kept")
	}
	dir := s.temp
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Log(), "See you next time!") {
		t.Errorf("it was not stopped in order; its log ends with:\n%s", s.log.last(5))
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestServerKeepsItsDir(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second finds what the first left
		s, err := Start(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir + "/wal"); err != nil {
			t.Errorf("the data directory was not kept: %v", err)
		}
	}
}

func TestServerThatCannotStart(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("changed my mind"))
	for _, tc := range []struct {
		name string
		ctx  context.Context
		opts Options
		want string
	}{
		{"broken configuration", t.Context(), Options{Config: "scrape_configs: 7"}, "cannot unmarshal"},
		{
			"broken YAML below labels", t.Context(),
			Options{Config: "a: [", ExternalLabels: labels.FromStrings("a", "b")},
			"put external labels into the configuration",
		},
		{"unknown flag", t.Context(), Options{Flags: []string{"--no-such-flag"}}, "unknown long flag"},
		{"no such blocks", t.Context(), Options{Blocks: []string{"/nonexistent"}}, "blocks directory"},
		{"ended context", cancelled, Options{}, "changed my mind"},
		{"no memory", t.Context(), Options{MaxRSS: 1 << 20}, "out of memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			s, err := Start(tc.ctx, tc.opts)
			if err == nil {
				_ = s.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q\nlacks %q", err, tc.want)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestIsOurs: an answer from the right port is not yet an answer from the right server.
func TestIsOurs(t *testing.T) {
	a, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	if err := a.isOurs(t.Context()); err != nil {
		t.Error(err)
	}
	other := &Server{url: a.url, dir: "/another"}
	if err := other.isOurs(t.Context()); !errors.Is(err, errOtherServer) {
		t.Errorf("error: %v", err)
	}
}

// TestPortTakenInBetween: the first port is held by a listener that says nothing, the second by a
// server that says ready to everything, the third is free.
func TestPortTakenInBetween(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ready := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer ready.Close()
	taken := []int{silent.Addr().(*net.TCPAddr).Port, ready.Listener.Addr().(*net.TCPAddr).Port}
	tries := 0
	s, err := Start(t.Context(), Options{freePort: func() (int, error) {
		if tries++; tries <= len(taken) {
			return taken[tries-1], nil
		}
		return FreePort()
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if tries != 3 {
		t.Errorf("%d ports were tried, want 3", tries)
	}
}

func TestFreePort(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestThanos(t *testing.T) {
	grpc, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	web, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Thanos(t.Context(), "query", fmt.Sprintf("--grpc-address=127.0.0.1:%d", grpc),
		fmt.Sprintf("--http-address=127.0.0.1:%d", web))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.WaitReady(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/-/ready", web)); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// Ports of one program are told apart: the system hands a closed one out again.
func TestFreePorts(t *testing.T) {
	seen := map[int]bool{}
	ports, err := FreePorts(500)
	for _, p := range ports {
		seen[p] = true
	}
	if err != nil || len(seen) != 500 {
		t.Errorf("%d different ports of 500: %v", len(seen), err)
	}
}
