package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// caller is a client with a connection of its own, which it can leave in both ways.
type caller struct {
	t    testing.TB
	conn *net.TCPConn
}

// call sends a request over a new connection.
func (r *rig) call1(req *http.Request) *caller {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	c := &caller{r.t, conn.(*net.TCPConn)}
	r.t.Cleanup(func() { _ = conn.Close() })
	var b bytes.Buffer
	if err := req.Write(&b); err != nil {
		r.t.Fatal(err)
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// leave ends the connection, by RST or by FIN, and says when.
func (c *caller) leave(reset bool) time.Time {
	if reset {
		if err := c.conn.SetLinger(0); err != nil {
			c.t.Error(err)
		}
	}
	at := time.Now()
	_ = c.conn.Close() // the proxy may have been faster
	return at
}

// manyShards is one group of n shards.
func manyShards(n int) []rigGroup {
	g := rigGroup{name: "jaguar"}
	for range n {
		g.replicas = append(g.replicas, 1)
	}
	return []rigGroup{g}
}

// The client leaves at every stage of a request, by FIN and by RST: every request to a shard ends, it is counted, and nothing is said at error level.
func TestClientLeaves(t *testing.T) {
	metadata := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}, post: true}
	rawQuery := asking{path: "/api/v1/query", form: url.Values{"query": {"sum(up)"}}}
	exists := asking{path: "/api/v1/label/cluster/values", form: url.Values{"match[]": {"up"}}}
	bulk := asking{path: "/federate", form: url.Values{"match[]": {"up"}}}
	list := asking{path: "/api/v1/rules"}
	stages := []struct {
		name string
		ask  asking
		at   string // the path on the shards
		// slow is what all shards do, but for the first one, which does first.
		slow, first string
		sent        int64 // how many bytes of its body a slow shard has sent when the client leaves
	}{
		{name: "waiting for headers", ask: metadata, at: "/api/v1/series", slow: "stall", first: "stall"},
		{name: "waiting for the headers of one", ask: metadata, at: "/api/v1/series", slow: "stall", first: "answer"},
		{name: "in the body", ask: metadata, at: "/api/v1/series", slow: "limit 30 stall; answer", first: "limit 30 stall; answer", sent: 30},
		{name: "in the body of an endless answer", ask: asking{path: "/api/v1/rules"}, at: "/api/v1/rules", slow: "drip 1KiB/5ms; generate 10GiB", first: "drip 1KiB/5ms; generate 10GiB", sent: 4096},
		{name: "in the merge", ask: metadata, at: "/api/v1/series", slow: "limit 30 stall; answer", first: "answer", sent: 30},
		{name: "raw, waiting for headers", ask: rawQuery, at: "/api/v1/read", slow: "stall", first: "stall"},
		{name: "raw, in the body", ask: rawQuery, at: "/api/v1/read", slow: "limit 30 stall; answer", first: "answer", sent: 30},
		{name: "looking whether there is any series", ask: exists, at: "/api/v1/series", slow: "stall", first: "answer"},
		{name: "federate", ask: bulk, at: "/api/v1/read", slow: "stall", first: "answer"},
		{name: "rules", ask: list, at: "/api/v1/rules", slow: "limit 30 stall; answer", first: "answer", sent: 30},
	}
	for _, st := range stages {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, RST %v", st.name, reset), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, manyShards(3), limits(25*time.Second))
				all := r.shards["jaguar"]
				for i, s := range all {
					script := st.slow
					if i == 0 {
						script = st.first
					}
					if err := s[0].Set("", fakeshard.Route{Path: st.at, Script: script}); err != nil {
						t.Fatal(err)
					}
				}
				c := r.call1(r.request(context.Background(), st.ask))
				ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
				defer cancel()
				for _, s := range all {
					if err := s[0].WaitSeen(ctx, st.at, 1); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range all[1:] {
					if err := s[0].WaitSent(ctx, st.sent); err != nil {
						t.Fatal(err)
					}
				}
				r.leaves(c, reset, 1)
			})
		}
	}
}

// leaves lets the client leave, and checks that everything that was done for it ends.
func (r *rig) leaves(c *caller, reset bool, count float64) {
	t := r.t
	t.Helper()
	before := r.metric("spillway_cancellations_total")
	left := c.leave(reset)
	r.idle()
	var last time.Time
	for _, s := range r.all() {
		for _, rec := range s.Requests() {
			if rec.Ended.After(last) && rec.End.PeerLeft() {
				last = rec.Ended
			}
		}
	}
	if last.IsZero() && count > 0 {
		t.Log("no shard was being asked any more")
	}
	if d := last.Sub(left); d > 5*time.Second {
		t.Errorf("the last shard's request ended %s after its client had left", d)
	} else {
		t.Logf("the last shard's request ended %s after its client had left", d)
	}
	r.eventually("the cancellation is counted", func() bool { return r.metric("spillway_cancellations_total") == before+count })
	if n := r.metric("spillway_requests_total", "outcome=canceled"); n != before+count {
		t.Errorf("%v requests have the outcome canceled, want %v", n, before+count)
	}
	seen := 0
	for _, s := range r.all() {
		seen += s.Seen()
	}
	for _, line := range r.log.atLeast(slog.LevelWarn) {
		t.Errorf("logged: %s", line)
	}
	for _, s := range r.all() {
		seen -= len(s.Requests())
	}
	if seen != 0 {
		t.Errorf("%d requests to shards began after the client had left", seen)
	}
}

// The client leaves while the proxy waits for a slot: the shards are never asked for it, and those that hold the slots are not disturbed.
func TestClientLeavesTheQueue(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("RST %v", reset), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, manyShards(2), limits(25*time.Second))
			for _, s := range r.all() {
				if err := s.Set("", fakeshard.Route{Path: "/api/v1/series", Script: "wait go; answer"}); err != nil {
					t.Fatal(err)
				}
			}
			killer := asking{path: "/api/v1/series", form: url.Values{"match[]": {`{le!=""}`}}}
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					if got := r.ask(r.request(ctx, killer)); got.status != 200 || got.err != nil {
						t.Errorf("one that holds a slot: %s", got)
					}
				})
			}
			for _, s := range r.all() {
				if err := s.WaitSeen(ctx, "/api/v1/series", 2); err != nil {
					t.Fatal(err)
				}
			}
			c := r.call1(r.request(ctx, killer))
			r.eventually("three requests are in flight", func() bool { return r.metric("spillway_requests_in_flight") == 3 })
			c.leave(reset)
			r.eventually("the one that waited is gone", func() bool { return r.metric("spillway_requests_in_flight") == 2 })
			if n := r.metric("spillway_cancellations_total"); n != 1 {
				t.Errorf("%v cancellations, want 1", n)
			}
			for _, s := range r.all() {
				if n := len(s.RequestsTo("/api/v1/series")); n != 2 {
					t.Errorf("the shard was asked %d times, want 2", n)
				}
				s.Release("go")
			}
			wg.Wait()
			r.idle()
			for _, line := range r.log.atLeast(slog.LevelWarn) {
				t.Errorf("logged: %s", line)
			}
		})
	}
}

// The client leaves while the proxy connects to a shard that does not take the connection: dialing is given up.
func TestClientLeavesDialing(t *testing.T) {
	for _, reset := range []bool{false, true} {
		var mu sync.Mutex
		dialing, ended := 0, 0
		stop := make(chan struct{})
		healthy := fakeshard.Start(t, fakeshard.Config{})
		// It connects until told not to, so that the proxy can start.
		open := true
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			ok := open
			if !ok {
				dialing++
			}
			mu.Unlock()
			if ok {
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
			defer func() {
				mu.Lock()
				ended++
				mu.Unlock()
			}()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-stop:
				return nil, syscall.ECONNREFUSED
			}
		}
		log := &logbook{}
		s, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q, headers: {Connection: close}}]}]}]\n", healthy.URL()), func(o *Options) {
			o.Logger = slog.New(log)
			o.shards = shard.Options{Dial: dial, DialTimeout: 20 * time.Second, ProbeInterval: time.Hour}
		})
		mu.Lock()
		open = false
		mu.Unlock()
		// The connection that the probe left idle is used up first, if there is one.
		r := &rig{t: t, s: s, url: base, log: log, client: newClient(t), names: map[*fakeshard.Shard]string{healthy: "jaguar/" + healthy.Addr()}}
		if err := healthy.Set("", fakeshard.Route{Path: "/api/v1/series", Script: "header Connection close; answer"}); err != nil {
			t.Fatal(err)
		}
		a := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}}
		for range 10 {
			mu.Lock()
			n := dialing
			mu.Unlock()
			if n > 0 {
				break
			}
			before := r.metric("spillway_requests_in_flight")
			c := r.call1(r.request(context.Background(), a))
			r.eventually("it is answered or dials", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return dialing > 0 || r.metric("spillway_requests_total") > 0 && r.metric("spillway_requests_in_flight") == before
			})
			mu.Lock()
			n = dialing
			mu.Unlock()
			if n == 0 {
				continue
			}
			left := c.leave(reset)
			r.eventually("dialing has ended", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return dialing == ended
			})
			t.Logf("dialing ended within %s", time.Since(left))
		}
		mu.Lock()
		if dialing == 0 {
			t.Error("the proxy never dialed")
		}
		mu.Unlock()
		r.eventually("the cancellation is counted", func() bool { return r.metric("spillway_cancellations_total") == 1 })
		for _, line := range log.atLeast(slog.LevelWarn) {
			t.Errorf("logged: %s", line)
		}
		close(stop)
	}
}

// How long the last of eight shards works on after its client has left, in the stage waiting for headers and in the body.
func BenchmarkClientLeaves(b *testing.B) {
	for _, stage := range []struct {
		name, script string
		sent         int64
	}{{"headers", "stall", 0}, {"body", "limit 30 stall; answer", 30}} {
		for _, reset := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/rst=%v", stage.name, reset), func(b *testing.B) {
				r := newRig(b, manyShards(8), limits(25*time.Second))
				for _, s := range r.all() {
					if err := s.Set("", fakeshard.Route{Path: "/api/v1/series", Script: stage.script}); err != nil {
						b.Fatal(err)
					}
				}
				a := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}}
				ctx := b.Context()
				var took []time.Duration
				for n := 1; b.Loop() || n <= 300; n++ {
					c := r.call1(r.request(ctx, a))
					for _, s := range r.all() {
						if err := s.WaitSeen(ctx, "/api/v1/series", n); err != nil {
							b.Fatal(err)
						}
					}
					r.eventually("every shard is in its stage", func() bool {
						for _, s := range r.all() {
							all := s.RequestsTo("/api/v1/series")
							if all[len(all)-1].Sent < stage.sent {
								return false
							}
						}
						return true
					})
					left := c.leave(reset)
					var last time.Time
					for _, s := range r.all() {
						if err := s.WaitIdle(ctx); err != nil {
							b.Fatal(err)
						}
						all := s.RequestsTo("/api/v1/series")
						if at := all[len(all)-1].Ended; at.After(last) {
							last = at
						}
					}
					took = append(took, last.Sub(left))
				}
				slices.Sort(took)
				at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1000 }
				b.ReportMetric(at(0.5), "p50-ms")
				b.ReportMetric(at(0.99), "p99-ms")
				b.ReportMetric(at(1), "max-ms")
				b.ReportMetric(float64(len(took)), "runs")
			})
		}
	}
}
