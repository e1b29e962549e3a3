package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
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
func (r *rig) call(req *http.Request) *caller {
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

// The client leaves at every stage of a request, by FIN and by RST: every request to a shard ends,
// it is counted, and nothing is said at error level.
func TestClientLeaves(t *testing.T) {
	metadata := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}, post: true}
	rawQuery := asking{path: "/api/v1/query", form: url.Values{"query": {"count(info(up))"}}}
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
		{
			name: "in the body", ask: metadata, at: "/api/v1/series", slow: "limit 30 stall; answer", first: "limit 30 stall; answer",
			sent: 30,
		},
		{
			name: "in the body of an endless answer", ask: asking{path: "/api/v1/rules"}, at: "/api/v1/rules",
			slow: "drip 1KiB/5ms; generate 10GiB", first: "drip 1KiB/5ms; generate 10GiB", sent: 4096,
		},
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
				r := newRig(t, manyShards(3), limits(10*patience),
					func(o *Options) { o.shards = shard.Options{ProgressTimeout: 10 * patience} })
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
				c := r.call(r.request(context.Background(), st.ask))
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				for _, s := range all {
					if err := s[0].WaitSeen(ctx, st.at, 1); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range all[1:] {
					if err := s[0].WaitSent(ctx, st.at, st.sent); err != nil {
						t.Fatal(err)
					}
				}
				r.leaves(c, reset, st.at)
			})
		}
	}
}

// leaves lets the client leave, and checks that everything that was done for it at the path of the
// shards ends, and nothing new begins.
func (r *rig) leaves(c *caller, reset bool, at string) {
	t := r.t
	t.Helper()
	asked := func() (all []fakeshard.Record) {
		for _, s := range r.all() {
			all = append(all, askedOf(s, at)...)
		}
		return all
	}
	before := len(asked())
	left := c.leave(reset)
	r.idle()
	r.eventually("the cancellation is counted", func() bool { return r.metric("spillway_cancellations_total") == 1 })
	if n := r.metric("spillway_requests_total", "outcome=canceled"); n != 1 {
		t.Errorf("%v requests have the outcome canceled, want 1", n)
	}
	after := asked()
	if len(after) != before {
		t.Errorf("%d requests to shards began after the client had left", len(after)-before)
	}
	var last time.Time
	for _, rec := range after {
		if rec.End.PeerLeft() && rec.Ended.After(last) {
			last = rec.Ended
		}
	}
	switch d := last.Sub(left); {
	case last.IsZero():
		t.Error("no shard saw its request end early")
	case d > 20*time.Second: // no deadline comes as soon: nothing else ends it
		t.Errorf("the last shard's request ended %s after its client had left", d)
	default:
		t.Logf("the last shard's request ended %s after its client had left", d)
	}
	for _, line := range r.log.atLeast(slog.LevelWarn) {
		t.Errorf("logged: %s", line)
	}
}

// The client leaves while the proxy waits for a slot: the shards are never asked for it, and those
// that hold the slots are not disturbed.
func TestClientLeavesTheQueue(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("RST %v", reset), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, manyShards(2), limits(10*patience))
			for _, s := range r.all() {
				if err := s.Set("", fakeshard.Route{Path: "/api/v1/series", Script: "wait go; answer"}); err != nil {
					t.Fatal(err)
				}
			}
			killer := func(i int) asking { // identical ones would be asked once
				return asking{path: "/api/v1/series", form: url.Values{"match[]": {`{le!=""}`}, "limit": {itoa(int64(100 + i))}}}
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					if got := r.ask(r.request(ctx, killer(i))); got.status != 200 || got.err != nil {
						t.Errorf("one that holds a slot: %s", got)
					}
				})
			}
			for _, s := range r.all() {
				if err := s.WaitSeen(ctx, "/api/v1/series", 2); err != nil {
					t.Fatal(err)
				}
			}
			c := r.call(r.request(ctx, killer(2)))
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

// The client leaves while the proxy connects to a shard that does not take the connection: dialing
// is given up.
func TestClientLeavesDialing(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("RST %v", reset), func(t *testing.T) {
			t.Parallel()
			var silent atomic.Bool
			var dialing, ended atomic.Int64
			dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
				if !silent.Load() {
					return (&net.Dialer{}).DialContext(ctx, network, addr)
				}
				dialing.Add(1)
				defer ended.Add(1)
				<-ctx.Done() // an address that swallows every packet
				return nil, ctx.Err()
			}
			// so that no connection is kept
			s := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Script: "header Connection close; answer"}}})
			r := &rig{t: t, log: &logbook{}, names: map[*fakeshard.Shard]string{s: "jaguar/" + s.Addr()}}
			r.s, r.url = startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}]\n", s.URL()), func(o *Options) {
				o.Logger = slog.New(r.log)
				o.shards = seldom
				o.shards.Dial, o.shards.DialTimeout = dial, 20*time.Second
			})
			r.quiet()
			silent.Store(true)
			c := r.call(r.request(context.Background(), asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}}))
			r.eventually("the proxy dials", func() bool { return dialing.Load() == 1 })
			left := c.leave(reset)
			r.eventually("it has given up", func() bool { return ended.Load() == 1 })
			t.Logf("dialing ended within %s", time.Since(left))
			r.eventually("the cancellation is counted", func() bool { return r.metric("spillway_cancellations_total") == 1 })
			r.idle()
			if n := dialing.Load(); n != 1 {
				t.Errorf("dialed %d times", n)
			}
			for _, line := range r.log.atLeast(slog.LevelWarn) {
				t.Errorf("logged: %s", line)
			}
		})
	}
}
