package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// empty is a server that answers every request for series.
func empty() fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if strings.HasSuffix(r.Path, "/series") {
			return fakeshard.Answer{Status: 200, Body: []byte(`{"status":"success","data":[]}`)}, true
		}
		return fakeshard.Answer{}, false
	}}
}

// ofReplicas are the label values of all series whose metric has these labels.
func ofReplicas(t *testing.T, reg *prometheus.Registry, names ...string) (out []string) {
	t.Helper()
	for _, f := range gather(t, reg) {
		for _, m := range f.GetMetric() {
			var have, values []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName())
				if slices.Contains(names, l.GetName()) {
					values = append(values, l.GetValue())
				}
			}
			if len(values) == len(names) && (m.Counter != nil || m.Histogram != nil) &&
				!slices.Contains(have, "class") && (len(names) == 3 || !slices.Contains(have, "replica")) {
				out = append(out, f.GetName()+" "+strings.Join(values, " "))
			}
		}
	}
	return out
}

// soundCalls is how many calls of a server are counted as ok, and of how many the time.
func soundCalls(t *testing.T, reg *prometheus.Registry, r *Replica) (ok float64, times uint64) {
	t.Helper()
	for _, f := range gather(t, reg) {
		for _, m := range f.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if of["group"] != r.Shard.Group.Name || of["shard"] != fmt.Sprint(r.Shard.Index) || of["replica"] != r.host {
				continue
			}
			switch {
			case f.GetName() == "spillway_shard_requests_total" && of["outcome"] == "ok":
				ok += m.GetCounter().GetValue()
			case f.GetName() == "spillway_shard_header_duration_seconds":
				times += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return ok, times
}

// TestReloadsKeepCounters: whichever topology goes, and in which order, a server that one has where
// it was goes on being counted.
func TestReloadsKeepCounters(t *testing.T) {
	ours, other := fakeshard.Start(t, empty()), fakeshard.Start(t, empty())
	plain := group(other.URL(), ours.URL())
	rotated := group(other.URL(), ours.URL())
	rotated.Shards[0].Replicas[1].Headers = map[string]config.Secret{"X-Scope-Orgid": "rotated"}
	twice := group(other.URL(), ours.URL(), ours.URL())
	without := group(other.URL())
	broken := plain
	broken.Names = []string{"("}
	for _, tc := range []struct {
		name  string
		steps func(reload func(g config.Group, start bool) *Topology, ask func(*Topology))
		last  config.Group
	}{
		{"another token", func(reload func(config.Group, bool) *Topology, ask func(*Topology)) {
			old := reload(plain, true)
			ask(old)
			top := reload(rotated, true)
			ask(top) // while a request is still answered under the old configuration
			old.Close()
			ask(top)
		}, rotated},
		{"another token, which is refused", func(reload func(config.Group, bool) *Topology, ask func(*Topology)) {
			old := reload(plain, true)
			ask(old)
			next, err := New([]config.Group{rotated}, Options{}, old)
			if err != nil {
				t.Fatal(err)
			}
			next.Close()
			next.Close()
			for range 3 {
				if _, err := New([]config.Group{rotated, broken}, Options{}, old); err == nil {
					t.Fatal("no error")
				}
			}
			ask(old)
		}, plain},
		{"away for one reload", func(reload func(config.Group, bool) *Topology, ask func(*Topology)) {
			old := reload(plain, true)
			away := reload(without, true)
			back := reload(plain, true)
			away.Close()
			ask(back)
			old.Close() // its last request has ended
			ask(back)
		}, plain},
		{"listed twice", func(reload func(config.Group, bool) *Topology, ask func(*Topology)) {
			old := reload(twice, true)
			top := reload(plain, true)
			ask(top)
			old.Close()
			ask(top)
		}, plain},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			var top *Topology
			reload := func(g config.Group, start bool) *Topology {
				next, err := New([]config.Group{g}, Options{Registerer: reg}, top)
				if err != nil {
					t.Fatal(err)
				}
				if top = next; start {
					top.Start(t.Context())
				}
				t.Cleanup(next.Close)
				return next
			}
			asked := 0
			ask := func(of *Topology) {
				t.Helper()
				for range 100 {
					if _, err := readAll(t.Context(), of.Groups[0].Shards[0].Replicas[1], seriesRequest, CallOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				asked += 100
			}
			tc.steps(reload, ask)
			r := top.Groups[0].Shards[0].Replicas[1]
			ok, times := soundCalls(t, reg, r)
			if ok != float64(asked) || times != uint64(asked) {
				t.Errorf("%g calls and %d times are counted of %d", ok, times, asked)
			}
			top.Close()
			if left := ofReplicas(t, reg, "group", "shard", "replica"); len(left) > 0 {
				t.Errorf("left when all is closed: %q", left)
			}
			if left := ofReplicas(t, reg, "group", "shard"); len(left) > 0 {
				t.Errorf("left when all is closed: %q", left)
			}
		})
	}
}

// TestFormerPlacesAreForgotten: shards that come and go shift the places of those behind them. What
// was counted of a server at a place that it has no more goes with the last configuration that had
// it there; so it does where another group still has the server.
func TestFormerPlacesAreForgotten(t *testing.T) {
	reg := prometheus.NewRegistry()
	const shards = 10
	var top *Topology
	reload := func(groups ...config.Group) {
		next, err := New(groups, Options{Registerer: reg}, top)
		if err != nil {
			t.Fatal(err)
		}
		for r := range next.replicas() { // each is asked something
			c := r.counters()
			c.ok.Inc()
			c.bytes.Add(1)
			c.header.Observe(.1)
			c.duration.Observe(.1)
			r.count(next.metrics.retries)
		}
		if top != nil {
			top.Close()
		}
		top = next
	}
	var list []string
	for i := range 100 {
		list = append(list, fmt.Sprintf("http://10.1.0.%d:9090", i))
		if len(list) > shards { // pods are replaced one at a time
			list = list[1:]
		}
		reload(sharded(list...))
	}
	const each = 5 // requests, retries, bytes, header, quarantined
	if left := ofReplicas(t, reg, "group", "shard", "replica"); len(left) != each*shards {
		t.Errorf("%d series of %d servers", len(left), shards)
	}
	gone := sharded(list...)
	gone.Name = "gone"
	reload(sharded(list...), gone)
	reload(sharded(list...))
	for _, names := range [][]string{{"group", "shard", "replica"}, {"group", "shard"}} {
		for _, left := range ofReplicas(t, reg, names...) {
			if strings.Contains(left, "gone") {
				t.Errorf("of a group that is gone: %s", left)
			}
		}
	}
	reload(sharded(list[0]))
	top.Close()
	if left := append(ofReplicas(t, reg, "group", "shard", "replica"), ofReplicas(t, reg, "group", "shard")...); len(left) > 0 {
		t.Errorf("left when all is closed: %q", left)
	}
	if m := top.metrics; len(m.accounts) > 0 || len(m.shards) > 0 {
		t.Errorf("accounts of %d replicas and %d shards are kept", len(m.accounts), len(m.shards))
	}
}

// TestCountedAfterForgotten: a call that ends after its configuration, which had its server last,
// counts nowhere and brings no series back.
func TestCountedAfterForgotten(t *testing.T) {
	reg := prometheus.NewRegistry()
	fake := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Script: "stall"}}})
	top, err := New([]config.Group{group(fake.URL())}, Options{Registerer: reg}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := top.Groups[0].Shards[0].Replicas[0]
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			if _, err := readAll(ctx, r, seriesRequest, CallOptions{}); err == nil {
				t.Error("an answer")
			}
		})
	}
	calls.Go(func() { // while it is forgotten
		for range 1000 {
			r.count(top.metrics.requests, "canceled")
			r.counters().ok.Inc()
		}
	})
	wait, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := fake.WaitSeen(wait, seriesPath, 4); err != nil {
		t.Fatal(err)
	}
	top.Close()
	cancel()
	calls.Wait()
	r.count(top.metrics.retries)
	if left := append(ofReplicas(t, reg, "group", "shard", "replica"), ofReplicas(t, reg, "group", "shard")...); len(left) > 0 {
		t.Errorf("they are back: %q", left)
	}
}
