package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestExternalLabels is the rule of labels: each external label is one of the group's labels, with
// its value, or one of its replica labels.
func TestExternalLabels(t *testing.T) {
	for _, tc := range []struct {
		name     string
		external map[string]string
		script   string // for status/config
		state    State
		says     string
		note     string
	}{
		{name: "none", state: Up},
		{name: "both kinds", external: map[string]string{"cluster": "jaguar", "prometheus_replica": "a"}, state: Up},
		{
			name: "one that the group lacks", external: map[string]string{"region": "eu"}, state: Misconfigured,
			says: `add region: "eu" under labels`,
		},
		{
			name: "another value", external: map[string]string{"cluster": "ibis"}, state: Misconfigured,
			says: `external label cluster is "ibis"`,
		},
		{name: "not served", script: "status 403; send no", state: Up, note: "external labels are not known"},
		{name: "not YAML", script: `header Content-Type application/json; send '{"status":"success","data":{"yaml":": : :"}}'`, state: Up, note: "cannot be understood"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := fakeshard.Config{ExternalLabels: tc.external}
			if tc.script != "" {
				cfg.Routes = []fakeshard.Route{{Path: "/api/v1/status/config", Script: tc.script}}
			}
			fake := fakeshard.Start(t, cfg)
			top := build(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, group(fake.URL()))
			r := top.Groups[0].Shards[0].Replicas[0]
			if r.State() != tc.state {
				t.Errorf("state %s, want %s", r.State(), tc.state)
			}
			_, err := ask(context.Background(), top.Groups[0].Shards[0], seriesRequest)
			if _, err2 := readAll(context.Background(), r, seriesRequest, CallOptions{}); kindOf(err) != kindOf(err2) {
				t.Errorf("the shard says %v, the replica %v", err, err2)
			}
			if tc.state == Up {
				if err != nil {
					t.Error(err)
				}
			} else {
				if kindOf(err) != "shard_failed" || !strings.Contains(err.Error(), tc.says) || len(fake.RequestsTo(seriesPath)) > 0 {
					t.Errorf("got %v and %d requests", err, len(fake.RequestsTo(seriesPath)))
				}
				if advice := qerr.From(err).Advice; !strings.HasPrefix(advice, "correct the configuration") {
					t.Errorf("what to do: %s", advice)
				}
				if !strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), tc.says) {
					t.Errorf("the log does not say %q:\n%s", tc.says, log.String())
				}
			}
			i := top.Status()[0]
			if i.State != tc.state || !strings.Contains(i.Note, tc.note) || (tc.note == "") != (i.Note == "") {
				t.Errorf("status %+v", i)
			}
		})
	}
}

// TestAdvice: which line to add is seen from the other servers.
func TestAdvice(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b map[string]string
		says string
	}{
		{"equal on all", map[string]string{"env": "prod"}, map[string]string{"env": "prod"}, `add env: "prod" under labels, since`},
		{"different", map[string]string{"replica": "a"}, map[string]string{"replica": "b"}, `add replica under replica_labels, since`},
	} {
		a, b := fakeshard.Start(t, fakeshard.Config{ExternalLabels: tc.a}), fakeshard.Start(t, fakeshard.Config{ExternalLabels: tc.b})
		top := build(t, Options{}, true, group(a.URL(), b.URL()))
		if why := top.Groups[0].Shards[0].Replicas[0].misconfigured(); len(why) != 1 || !strings.Contains(why[0], tc.says) {
			t.Errorf("%s: %q", tc.name, why)
		}
		top.Close()
	}
}

// TestFacts: version, flags, and whether labels of ours are stored.
func TestFacts(t *testing.T) {
	a := fakeshard.Start(t, fakeshard.Config{Version: "3.15.0", Series: []map[string]string{{"__name__": "up", "cluster": "x"}}})
	b := fakeshard.Start(t, fakeshard.Config{Version: "2.53.1"})
	c := fakeshard.Start(t, fakeshard.Config{
		Version: "3.9.0-rc.1",
		Flags:   map[string]string{"query.lookback-delta": "1m", "enable-feature": "promql-delayed-name-removal,exemplar-storage"},
	})
	top := build(t, Options{}, true, group(a.URL(), b.URL(), c.URL()))
	if v := top.LowestVersion(); v != "2.53.1" {
		t.Errorf("lowest version %q", v)
	}
	rs := top.Groups[0].Shards[0].Replicas
	if stores, known := rs[0].Stores("cluster"); !stores || !known || rs[0].Clean() {
		t.Errorf("a stores cluster: %t, known %t, clean %t", stores, known, rs[0].Clean())
	}
	if stores, known := rs[1].Stores("cluster"); stores || !known || !rs[1].Clean() {
		t.Errorf("b stores cluster: %t, known %t, clean %t", stores, known, rs[1].Clean())
	}
	if d := top.EngineDifferences(rs[0]); len(d) != 0 {
		t.Errorf("a differs: %q", d)
	}
	if d := top.EngineDifferences(rs[1]); len(d) == 0 || !strings.Contains(d[0], "before 3.0") {
		t.Errorf("b differs: %q", d)
	}
	d := strings.Join(top.EngineDifferences(rs[2]), "; ")
	if !strings.Contains(d, "lookback-delta is 1m, not 5m") || !strings.Contains(d, "promql-delayed-name-removal") ||
		strings.Contains(d, "exemplar") {
		t.Errorf("c differs: %q", d)
	}
	if _, err := json.Marshal(top.Status()); err != nil {
		t.Error(err)
	}
}

// TestDownAndUp: a server that dies is found and its shard named; it is asked again soon after it
// is back.
func TestDownAndUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		var dial atomic.Pointer[DialFunc]
		dial.Store(&b.dial)
		top := build(t, Options{Dial: func(ctx context.Context, n, a string) (net.Conn, error) { return (*dial.Load())(ctx, n, a) }}, true,
			group(b.urls[0]))
		s := top.Groups[0].Shards[0]
		if _, err := ask(t.Context(), s, seriesRequest); err != nil {
			t.Fatal(err)
		}
		refuse := DialFunc(func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") })
		dial.Store(&refuse)
		b.fakes[0].Close()
		time.Sleep(12 * time.Second)
		if state := s.Replicas[0].State(); state != Down {
			t.Errorf("state %s", state)
		}
		_, err := ask(t.Context(), s, seriesRequest)
		if kindOf(err) != "shard_failed" || !strings.Contains(err.Error(), "jaguar[0]") || !strings.Contains(err.Error(), "10.0.0.1:9090") {
			t.Errorf("got %v", err)
		}
		// The same address comes back, as another process.
		fresh := newBubble(t, fakeshard.Config{})
		dial.Store(&fresh.dial)
		start := time.Now()
		for s.Replicas[0].State() != Up {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("up again after %s", took)
		}
		if _, err := ask(t.Context(), s, seriesRequest); err != nil {
			t.Error(err)
		}
		top.Close()
		b.close()
		fresh.close()
	})
}

// TestHungReplicaIsLeft: a query waits as long as its deadline lets it, but not for a server that
// stops answering probes while another is well.
func TestHungReplicaIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/api/v1/query", Script: "stall"},
			{Path: "/-/ready", Nth: 2, To: 1000, Script: "stall"},
		}}
		b := newBubble(t, hung, fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		name, err := ask(ctx, top.Groups[0].Shards[0], &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(0)})
		if err != nil || name != "jaguar/10.0.0.2:9090" {
			t.Errorf("%s, %v", name, err)
		}
		top.Close()
		b.close()
	})
}

// TestBeforeTheFirstProbe: a request waits briefly for it, then asks all the same: no shard is left
// out for what is not known.
func TestBeforeTheFirstProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/-/ready", Script: "stall"}}})
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		top.Start(t.Context())
		start := time.Now()
		if _, err := ask(t.Context(), top.Groups[0].Shards[0], seriesRequest); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("waited %s", took)
		}
		top.Close()
		b.close()
	})
}

// TestReload: what did not change is taken over, what is gone is closed, and metrics speak of the
// new one.
func TestReload(t *testing.T) {
	a, b, c := fakeshard.Start(t, fakeshard.Config{}), fakeshard.Start(t, fakeshard.Config{}), fakeshard.Start(t, fakeshard.Config{})
	reg := prometheus.NewPedanticRegistry()
	old := build(t, Options{Registerer: reg}, true, group(a.URL(), b.URL()))
	ask := func(r *Replica) {
		t.Helper()
		if _, err := readAll(context.Background(), r, seriesRequest, CallOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ask(old.Groups[0].Shards[0].Replicas[0])
	ask(old.Groups[0].Shards[0].Replicas[1])
	changed := group(a.URL(), b.URL(), c.URL())
	changed.Shards[0].Replicas[1].Headers = map[string]config.Secret{"X-Scope-Orgid": "a"}
	top, err := New([]config.Group{changed}, Options{}, old)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	old.Close()
	or, nr := old.Groups[0].Shards[0].Replicas, top.Groups[0].Shards[0].Replicas
	if or[0].up != nr[0].up || or[1].up == nr[1].up {
		t.Error("the unchanged server was not taken over, or the changed one was")
	}
	if or[0].up.refs.Load() != 1 || or[1].up.refs.Load() != 0 {
		t.Errorf("references %d and %d", or[0].up.refs.Load(), or[1].up.refs.Load())
	}
	accepted := a.Accepted()
	ask(nr[0])
	if a.Accepted() != accepted {
		t.Error("the connection was not kept")
	}
	top.Start(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := top.WaitFirstProbe(ctx); err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(gather(t, reg)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
	if err := func() error { _, err := New([]config.Group{group("ftp://x")}, Options{}, top); return err }(); err == nil {
		t.Error("a url of no use was taken")
	}
	if nr[0].up.refs.Load() != 1 {
		t.Error("a failed reload changed references")
	}
}
