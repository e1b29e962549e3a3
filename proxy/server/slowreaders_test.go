package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// A client that takes nothing of its answer for writePatience is ended, long before the request's
// deadline, and what it asked of the shards with it.
func TestWhoReadsNothingIsEnded(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Minute
	if timeout < 2*patience {
		t.Fatal("the deadline could end the request in place of what is tested")
	}
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(timeout))
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "generate 10GiB"}); err != nil {
		t.Fatal(err)
	}
	w := r.wire()
	_ = w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	w.say("GET /api/v1/query?" + url.Values{"query": {`up{cluster="heron"}`}}.Encode() + " HTTP/1.1\r\nHost: x\r\n\r\n")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.WaitSeen(ctx, "/api/v1/query", 1); err != nil {
		t.Fatal(err)
	}
	r.idle()
}

// TestClientsGiveConnectionsUpFirst: a POST on a connection that is closed meanwhile is lost, since
// nobody repeats it. Go's clients keep connections for a while, and others for a minute.
func TestClientsGiveConnectionsUpFirst(t *testing.T) {
	s, _ := startProxy(t, t.Context(), oneShard("http://127.0.0.1:1", ""))
	theirs := http.DefaultTransport.(*http.Transport).IdleConnTimeout
	if own := s.opts.IdleTimeout; own <= theirs+10*time.Second || own%time.Minute == 0 {
		t.Errorf("idle connections are closed after %s; Go's clients close theirs after %s", own, theirs)
	}
}

// TestWhoReadsNoPage: who asks for pages and reads none of them is given up, on each listener, and
// keeps nobody from the metrics meanwhile.
func TestWhoReadsNoPage(t *testing.T) {
	t.Parallel()
	var admin string
	fake := fakeshard.Start(t, fakeshard.Config{})
	text := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	s, base := startProxy(t, t.Context(), text, func(o *Options) {
		o.MetricsListenAddress = "127.0.0.1:0"
		o.Ready = func(_, a netAddr) { admin = a.String() }
	})
	r := &rig{t: t, s: s}
	metrics := s.metricsAddr.String()
	open := func() float64 { return r.metric("spillway_connections") }
	before := open()
	const each = 5 // more than make metrics at once
	main := strings.TrimPrefix(base, "http://")
	for i, path := range []string{"/-/healthy", "/nothing", "/metrics", "/nothing", "/metrics", "/api/spillway/v1/nothing"} {
		address := []string{main, metrics, admin}[i/2]
		for range each {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			go func() {
				_, _ = io.WriteString(conn, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n", 50_000))
			}()
		}
	}
	r.eventually("all have come", func() bool { return open() >= before+6*each })
	for range 20 {
		if code, _, body := spoken(t, metrics, "GET /metrics"); code != http.StatusOK {
			t.Errorf("somebody else: %d %.200s", code, body)
		}
		time.Sleep(50 * time.Millisecond)
	}
	over := time.Now().Add(pagePatience + patience)
	for open() > before && time.Now().Before(over) {
		time.Sleep(100 * time.Millisecond)
	}
	if n := open(); n > before {
		t.Errorf("%v connections are still open, %v of the main listener and %v of the admin's", n-before,
			r.metric("spillway_connections", "listener=main"), r.metric("spillway_connections", "listener=admin"))
	}
}

// However many requests one address has under way, another one's is answered, whoever both say that
// they are.
func TestOneAddressLeavesPlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Query: "up", Nth: 1, To: 20, Script: "wait go; answer"}); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/query?" + url.Values{"query": {`up{cluster="heron"}`}}.Encode()
	for i := range 40 { // more than a shard has places for
		w := r.wire()
		w.say(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 203.0.113.%d\r\nX-Grafana-User: u%d\r\n\r\n", path, i, i))
	}
	r.eventually("one address has its share, and the others of its requests wait", func() bool {
		return s.InFlight() == 20 && r.metric("spillway_shard_calls_waiting", "group=heron", "shard=0") == 20
	})
	from, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("this machine has no second address on its loopback interface: %v", err)
	}
	_ = from.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	tr := &http.Transport{DialContext: d.DialContext}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("another address was answered with %d", resp.StatusCode)
	}
	s.Release("go")
}

// However much is held for answers to one address, there is memory for another one's.
func TestOneAddressLeavesMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample)+"memory: {budget: 16MiB}\n")
	// Each stalls with fewer than the 10,000 series after which an answer ends.
	if err := r.all()[0].Set("", fakeshard.Route{Path: "/api/v1/series", Script: "limit 900KiB stall; generate 40MiB"}); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	const all = 18 // for which less than 12 MiB are not enough
	answers := make(chan *reply, all)
	for i := range all {
		go func() {
			answers <- r.ask(r.request(ctx, asking{path: "/api/v1/series"}, "match[]", fmt.Sprintf(`up{cluster="heron",i!="%d"}`, i)))
		}()
	}
	if got := <-answers; got.status != http.StatusTooManyRequests || !strings.Contains(got.message.Error, "from this address") {
		t.Errorf("an address that has its part: %s", got)
	}
	other := r.request(t.Context(), asking{path: "/api/v1/query"}, "query", `quantile(0.5, up)`)
	if got := r.askFrom("127.0.0.2", other); got.status != 200 {
		t.Errorf("another address: %s", got)
	}
	leave()
	for range all - 1 {
		<-answers
	}
	r.idle()
}
