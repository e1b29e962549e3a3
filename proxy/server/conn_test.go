package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// told is what a connection was told, in place of a connection.
type told struct {
	net.Conn
	mu     sync.Mutex
	read   []time.Time
	writes []int
	closed bool
}

func (c *told) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = append(c.read, t)
	return nil
}

func (c *told) Write(p []byte) (int, error) {
	c.writes = append(c.writes, len(p))
	return len(p), nil
}

func (c *told) Close() error { c.closed = true; return nil }

func (c *told) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.read)
}

func toldConn() (*told, *cappedConn) {
	under := &told{}
	m := newMetricsForTest()
	l := &capped{slots: make(chan struct{}, 1), waits: new(timers.Set), open: m.conns.WithLabelValues("main")}
	l.slots <- struct{}{}
	return under, newCappedConn(under, l, l.slots, netip.Prefix{})
}

// A deadline that is taken back in time never reaches the connection; one that passes does, in its
// moment; one that is near or has passed does at once.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, c := toldConn()
		for range 100 {
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			time.Sleep(4 * time.Second)
			_ = c.SetReadDeadline(time.Time{})
			time.Sleep(time.Minute)
		}
		if n := under.count(); n != 0 {
			t.Fatalf("the connection was told %d deadlines that never passed", n)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		time.Sleep(5*time.Second - time.Millisecond)
		synctest.Wait()
		if n := under.count(); n != 0 {
			t.Fatal("the deadline passed too early")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if n := under.count(); n != 1 || under.read[0].After(time.Now()) {
			t.Fatalf("the deadline passed and the connection knows %v", under.read)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Hour)) // takes the old one off the connection
		if n := under.count(); n != 2 || !under.read[1].IsZero() {
			t.Fatalf("a passed deadline stays on the connection: %v", under.read)
		}
		past, near := time.Unix(1, 0), time.Now().Add(distant/2)
		for _, at := range []time.Time{past, near, {}, {}} {
			_ = c.SetReadDeadline(at)
		}
		if want := []time.Time{past, near, {}}; !slices.EqualFunc(under.read[2:], want, time.Time.Equal) {
			t.Fatalf("the connection was told %v, not %v", under.read[2:], want)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Hour))
		if err := c.Close(); err != nil || !under.closed {
			t.Fatal("it was not closed")
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Hour)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a deadline on a closed connection: %v", err)
		}
		n := under.count()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if under.count() != n {
			t.Error("a closed connection was told of a deadline")
		}
	})
}

// On real connections too: a read that waits ends when its deadline passes, and a deadline that is
// set anew gives it another go.
func TestDeadlineEndsRead(t *testing.T) {
	l, err := listen("127.0.0.1:0", caps{4, 4, 0}, "main", newMetricsForTest(), new(timers.Set), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	_ = c.SetReadDeadline(began.Add(distant + 200*time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < distant {
		t.Fatalf("the read ended with %v after %s", err, time.Since(began))
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("under a deadline that is far away: %v", err)
	}
}

// What came in time and was not read in time, since this process had no processor, is no reason to
// cut a client off; one that has sent nothing is.
func TestLateOurselves(t *testing.T) {
	t.Parallel()
	l, err := listen("127.0.0.1:0", caps{4, 4, 0}, "main", newMetricsForTest(), new(timers.Set), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pair := func() (client, server net.Conn) {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	spoke, heard := pair()
	defer spoke.Close()
	defer heard.Close()
	if _, err := spoke.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	silent, waited := pair()
	defer silent.Close()
	defer waited.Close()
	const more = 2 * time.Second // a deadline that is less than distant when it is set is the connection's own
	for _, c := range []net.Conn{heard, waited} {
		_ = c.SetReadDeadline(time.Now().Add(distant + more))
	}
	time.Sleep(distant + more + ourDelay/4) // nobody reads
	if _, err := heard.Read(make([]byte, 1)); err != nil {
		t.Errorf("what had come in time: %v", err)
	}
	if _, err := waited.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client that says nothing: %v", err)
	}
	if _, err := heard.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the rest, which does not come: %v", err)
	}
}

// An IPv4 address is one however it is written, and of IPv6 the half that a machine is given.
func TestWhose(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		of := func(s string) netip.Prefix {
			return whose(&peer{addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(s), 1))})
		}
		if got := of(c.a) == of(c.b); got != c.same {
			t.Errorf("%s (%s) and %s (%s): one is %v", c.a, of(c.a), c.b, of(c.b), got)
		}
	}
}

// A request takes from the share that its connection takes from, and audit lines have the whole
// address.
func TestRequestsShareAsConnectionsDo(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "")
	for at, want := range map[string]string{
		"[2001:db8:0:1:ffff::2]:4711": "2001:db8:0:1::/64", "[::ffff:192.0.2.1]:4711": "192.0.2.1", "192.0.2.1:4711": "192.0.2.1",
	} {
		req := httptest.NewRequest(http.MethodGet, "/api/v1/query?query=up", nil)
		req.RemoteAddr = at
		_, ctx, leave := r.s.enter(httptest.NewRecorder(), req)
		leave()
		if got := identity.From(ctx).Peer; got != want {
			t.Errorf("%s takes from the share of %s, want %s", at, got, want)
		}
		if got := r.s.requestedBy(req, "/").peer; got != netip.MustParseAddrPort(at).Addr().Unmap().String() {
			t.Errorf("the audit line of %s has %s", at, got)
		}
	}
}

// peer is a connection from an address.
type peer struct {
	net.Conn
	addr net.Addr
}

func (p *peer) RemoteAddr() net.Addr { return p.addr }

// Whatever its size, and however it is written, an answer arrives whole and unchanged; what is
// written first of one whose length is known is there before the handler goes on.
func TestTogether(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	s := &Server{}
	s.state.Store(&state{pool: admit.NewPool(64 << 20)})
	for _, secure := range []bool{false, true} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("secure=%v,known=%v", secure, known), func(t *testing.T) {
				release := make(chan struct{}, 1)
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if conn(r) == nil {
						t.Error("the request does not know its connection")
					}
					c := s.coded(w, r)
					defer c.release()
					var first, second int
					fmt.Sscanf(r.URL.RawQuery, "%d,%d", &first, &second)
					if known {
						c.Header().Set("Content-Length", fmt.Sprint(first+second))
					}
					if n, err := c.Write(payload[:first]); n != first || err != nil {
						t.Errorf("the first write of %d bytes took %d: %v", first, n, err)
					}
					if r.Header.Get("X-Wait") != "" {
						if !known {
							_ = http.NewResponseController(w).Flush()
						}
						<-release
					}
					if n, err := c.Write(payload[first : first+second]); n != second || err != nil {
						t.Errorf("the second write of %d bytes took %d: %v", second, n, err)
					}
				})
				srv := httptest.NewUnstartedServer(handler)
				inner := srv.Listener
				m := newMetricsForTest()
				srv.Listener = &capped{
					Listener: inner, slots: make(chan struct{}, 8), done: make(chan struct{}),
					from: crowd{most: 8, of: map[netip.Prefix]int{}},
					open: m.conns.WithLabelValues("main"), full: m.connsFull.WithLabelValues("main"), waits: new(timers.Set),
				}
				srv.Config.ConnContext = withConn
				if secure {
					srv.StartTLS()
				} else {
					srv.Start()
				}
				defer srv.Close()
				client := srv.Client()
				ask := func(first, second int, wait bool) *http.Response {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/?%d,%d", srv.URL, first, second), nil)
					if wait {
						req.Header.Set("X-Wait", "1")
					}
					res, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					return res
				}
				sizes := []int{0, 1, 100, 1000, 2047, 2048, 2049, 8191, 8192, 8193, 20_000, 70_000}
				for n := 3700; n < 4300; n += 7 { // around the sizes at which header and body just fill net/http's buffer, or just do not
					sizes = append(sizes, n)
				}
				if known {
					for n := 3880; n < 4100; n++ {
						sizes = append(sizes, n)
					}
				}
				for _, first := range sizes {
					for _, second := range []int{0, 10} {
						res := ask(first, second, false)
						got, err := io.ReadAll(res.Body)
						res.Body.Close()
						if err != nil || !bytes.Equal(got, payload[:first+second]) {
							t.Fatalf("of %d and %d bytes %d came: %v", first, second, len(got), err)
						}
					}
				}
				// An answer that goes on later: what was written of it before is there.
				for _, first := range []int{100, 8192, 20_000} {
					res := ask(first, 5, true)
					got := make([]byte, first)
					if _, err := io.ReadFull(res.Body, got); err != nil {
						t.Fatal(err)
					}
					release <- struct{}{}
					rest, err := io.ReadAll(res.Body)
					res.Body.Close()
					if err != nil || !bytes.Equal(append(got, rest...), payload[:first+5]) {
						t.Fatalf("the rest is %d bytes: %v", len(rest), err)
					}
				}
			})
		}
	}
}

// halves writes as net/http does: what fills its buffer at once, and the rest when it is flushed
// or, being longer than the buffer, at once too.
type halves struct {
	http.ResponseWriter
	c    *cappedConn
	held func() int // what has left so far
	seen int        // of that, after the first 4 KiB
	rest []byte
}

func (h *halves) Write(p []byte) (int, error) {
	_, _ = h.c.Write(p[:heldBytes])
	h.seen = h.held()
	if h.rest = p[heldBytes:]; len(h.rest) > heldBytes {
		_, _ = h.c.Write(h.rest)
		h.rest = nil
	}
	return len(p), nil
}

func (h *halves) FlushError() error {
	if len(h.rest) > 0 {
		_, _ = h.c.Write(h.rest)
	}
	return nil
}

// The beginning of an answer leaves with its rest, and not before.
func TestTogetherIsOneWrite(t *testing.T) {
	for _, now := range []bool{true, false} {
		sizes := []int{3 * heldBytes, 3*heldBytes + 1, 50_000}
		if now {
			sizes = append(sizes, heldBytes, heldBytes+1, 2*heldBytes, 2*heldBytes+1)
		}
		for _, size := range sizes {
			oneWrite(t, size, now)
		}
	}
}

func oneWrite(t *testing.T, size int, now bool) {
	under, c := toldConn()
	total := func() (n int) {
		for _, w := range under.writes {
			n += w
		}
		return n
	}
	w := &halves{c: c, held: total}
	if n, err := c.together(w, make([]byte, size), now); n != size || err != nil {
		t.Errorf("%d bytes: %d were taken: %v", size, n, err)
	}
	if w.seen != 0 || total() != size {
		t.Errorf("%d bytes: %d had left after the first write, %d at the end", size, w.seen, total())
	}
	if n, err := c.Write(make([]byte, 10)); n != 10 || err != nil || total() != size+10 {
		t.Errorf("%d bytes: what is written afterwards is held", size)
	}
}

// noFiles is a listener to which the operating system gives no more files.
type noFiles struct{ net.Listener }

func (noFiles) Accept() (net.Conn, error) { return nil, os.NewSyscallError("accept4", syscall.EMFILE) }

// A connection that cannot be accepted is counted, said now and then, and keeps no slot.
func TestAcceptErrorsAreTold(t *testing.T) {
	m := newMetricsForTest()
	var lines bytes.Buffer
	l := &capped{
		Listener: noFiles{}, slots: make(chan struct{}, 1), done: make(chan struct{}), full: m.connsFull.WithLabelValues("main"),
		failed: m.unaccepted.WithLabelValues("main"), log: slog.New(slog.NewTextHandler(&lines, nil)),
	}
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
	if n := testutil.ToFloat64(l.failed); n != 20 {
		t.Errorf("%v failures are counted, want 20", n)
	}
	if n := strings.Count(lines.String(), "too many open files"); n != 2 {
		t.Errorf("%d lines in 20 s, want 2: %s", n, lines.String())
	}
}

// TestHalfAnAnswerOfOld: to a client of HTTP/1.0, whose answers have neither a length nor chunks,
// half an answer does not look whole.
func TestHalfAnAnswerOfOld(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ours")
	ca.issue("server")
	ask := url.Values{"query": {`up{cluster="jaguar"}`}}.Encode()
	for name, c := range map[string]struct {
		script string
		whole  bool
	}{
		"cut":                {"limit 3MiB close; generate 4MiB", false},
		"cut by length":      {"length 4194304; limit 3MiB close; generate 4MiB", false},
		"garbage":            {"generate 3MiB; garbage", false},
		"what is not cut is": {"generate 4MiB", true},
	} {
		for _, fields := range []string{"", "Accept-Encoding: gzip\r\n"} {
			for _, web := range []string{"", ca.webConfig("")} {
				r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, roomy(ample), func(o *Options) { o.WebConfigFile = web })
				if err := r.all()[0].Set("", fakeshard.Route{Path: "/api/v1/query", Script: c.script}); err != nil {
					t.Fatal(err)
				}
				w := r.wire()
				if web != "" {
					w.Conn = tls.Client(w.Conn, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
					w.r = bufio.NewReader(w.Conn)
				}
				w.say("GET /api/v1/query?" + ask + " HTTP/1.0\r\n" + fields + "\r\n")
				_ = w.SetReadDeadline(time.Now().Add(patience))
				text, err := io.ReadAll(w.r)
				said := strings.HasPrefix(string(text), "HTTP/1.0 200 OK\r\n") || !c.whole && len(text) == 0 // a coder keeps what is short
				if isTimeout(err) || !said || (err == nil) != c.whole {
					t.Errorf("%s, %q, TLS %t: %d bytes, %v: %.100q", name, fields, web != "", len(text), err, text)
				}
				r.idle()
			}
		}
	}
}

// TestHalfAnAnswerOfOldAtTheEnd: likewise where this process ends meanwhile.
func TestHalfAnAnswerOfOldAtTheEnd(t *testing.T) {
	t.Parallel()
	r := runAlone(t, 100*time.Millisecond)
	if err := r.all()[0].Set("", fakeshard.Route{Path: "/api/v1/query", Script: "generate 32MiB"}); err != nil {
		t.Fatal(err)
	}
	w := r.wire()
	w.say("GET /api/v1/query?query=up HTTP/1.0\r\n\r\n")
	if _, err := io.ReadFull(w.r, make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	_ = r.end() // TestDrainLimit
	_ = w.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.Copy(io.Discard, w.r); err == nil || isTimeout(err) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
