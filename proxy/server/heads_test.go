package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/admit"
)

// What may come as a form may come in the URL of a GET, however many values a variable of Grafana
// has; header fields have 20 KiB and pages 16. Refusals of either are Prometheus errors.
func TestLongHeads(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{2}}}, limits(ample))
	hosts := func(n int) string {
		return url.Values{"match[]": {`up{instance=~"` + strings.Repeat("gpu-node-0001.example:9100|", n) + `i.*"}`}}.Encode()
	}
	for _, c := range []struct {
		name, path, query string
		fields            string
		status            int
	}{
		{name: "1,300 hosts", path: "/api/v1/label/instance/values", query: hosts(1300), status: 200},
		{name: "encoded throughout", path: "/api/v1/query", query: "query=up" + strings.Repeat("%20", 60<<10), status: 200},
		{name: "more than a query may have", path: "/api/v1/query", query: "query=up" + strings.Repeat("%20", 70<<10), status: 422},
		{name: "a URL beyond", path: "/api/v1/query", query: "query=up" + strings.Repeat("+", maxURLBytes), status: 431},
		{name: "fields beyond", path: "/api/v1/query", query: "query=up", fields: strings.Repeat("a", 21<<10), status: 431},
		{name: "a page", path: "/graph", query: "g0.expr=up" + strings.Repeat("+", 20<<10), status: 431},
	} {
		fields := []string{}
		if c.fields != "" {
			fields = []string{"X-Y", c.fields}
		}
		got := r.sendForm(http.MethodGet, r.url+c.path+"?"+c.query, nil, "", fields...)
		if got.err != nil || got.status != c.status {
			t.Errorf("%s: want %d, got %.300s", c.name, c.status, got)
			continue
		}
		if v := got.header.Get(verdictHeader); v == "" || (v == "refuse") != (c.status >= 400) {
			t.Errorf("%s: the verdict is %q", c.name, v)
		}
		if c.status == 431 && !strings.Contains(string(got.body), `"errorType":"bad_data"`) {
			t.Errorf("%s: %.300s", c.name, got.body)
		}
	}
	for range 2 * longHeads { // over connections that stay open
		if got := r.sendForm(http.MethodGet, r.url+"/api/v1/label/instance/values?"+hosts(700), nil, ""); got.status != 200 {
			t.Fatalf("once more: %.300s", got)
		}
	}
}

// flowing is a connection over which as much comes as is read.
type flowing struct{ net.Conn }

func (flowing) Read(p []byte) (int, error) { return len(p), nil }
func (flowing) Close() error               { return nil }

// TestLongHeadsOfOneAddress: one address leaves places for others, and its next ones wait for its
// own.
func TestLongHeadsOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetricsForTest()
		l := &capped{
			slots: make(chan struct{}, 9), waits: new(timers.Set), open: m.conns.WithLabelValues("main"),
			longHeads: &longHeadPlaces{admit.NewGate(3, 2, nil), time.Minute},
		}
		var there atomic.Int32
		begin := func(from string) {
			l.slots <- struct{}{}
			c := newCappedConn(flowing{}, l, l.slots, netip.MustParsePrefix(from))
			go func() {
				if _, err := c.Read(make([]byte, shortHead+1)); err == nil {
					there.Add(1)
				}
			}()
		}
		for range 4 {
			begin("192.0.2.1/32")
		}
		begin("192.0.2.2/32")
		if synctest.Wait(); there.Load() != 3 || l.longHeads.Held() != 3 {
			t.Errorf("%d are there, want two of one address and one of another", there.Load())
		}
		time.Sleep(2 * time.Minute)
		if synctest.Wait(); there.Load() != 3 {
			t.Errorf("%d are there after those that waited gave up", there.Load())
		}
	})
}

// Only so many connections hold a long head at once. The others wait, for a while.
func TestLongHeadsHavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetricsForTest()
		l := &capped{
			slots: make(chan struct{}, 9), waits: new(timers.Set), open: m.conns.WithLabelValues("main"),
			longHeads: &longHeadPlaces{admit.NewGate(2, 2, nil), time.Minute},
		}
		var there atomic.Int32
		begin := func() *cappedConn {
			l.slots <- struct{}{}
			c := newCappedConn(flowing{}, l, l.slots, netip.Prefix{})
			go func() {
				for range 20 {
					if _, err := c.Read(make([]byte, 4<<10)); err != nil {
						return
					}
				}
				there.Add(1)
			}()
			return c
		}
		want := func(n int32, when string) {
			t.Helper()
			if synctest.Wait(); there.Load() != n {
				t.Errorf("%s: %d long heads are there, want %d", when, there.Load(), n)
			}
		}
		first, second := begin(), begin()
		want(2, "two places")
		third, fourth := begin(), begin()
		want(2, "two more")
		first.headCame()
		want(2, "one came")
		first.headHeld()
		want(3, "one is held elsewhere")
		_ = second.Close()
		_ = second.Close()
		want(4, "one is closed")
		begin()
		time.Sleep(2 * time.Minute)
		want(4, "one is given up")
		third.nextHead()
		_ = fourth.Close()
		if n := l.longHeads.Held(); n != 0 {
			t.Errorf("%d places are taken in the end", n)
		}
		// A body is no head, and neither is what comes next behind short ones.
		first.headCame()
		for range 9 {
			_, _ = first.Read(make([]byte, 4<<10))
		}
		for range 9 {
			first.nextHead()
			_, _ = first.Read(make([]byte, 4<<10))
		}
		if n := l.longHeads.Held(); n != 0 {
			t.Errorf("%d places are taken by short heads", n)
		}
	})
}
