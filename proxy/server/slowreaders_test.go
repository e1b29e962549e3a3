package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
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

// However many requests one address has under way, another one's is answered, whoever both say that
// they are.
func TestOneAddressLeavesPlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Nth: 1, To: 20, Script: "wait go; answer"}); err != nil {
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
