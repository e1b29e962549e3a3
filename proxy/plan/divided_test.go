package plan

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestDividedAnewIsReadRaw: what reads the time since a group got another shard is evaluated here,
// since two shards may scrape the same; what was before is not.
func TestDividedAnewIsReadRaw(t *testing.T) {
	g := config.Group{Name: "main"}
	for i := range 3 {
		fake := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "node": fmt.Sprint(i)}}})
		g.Shards = append(g.Shards, config.Shard{Replicas: []config.Replica{
			{URL: fake.URL(), Type: config.TypePrometheus, HTTPClient: commonconfig.DefaultHTTPClientConfig},
		}})
	}
	var top *shard.Topology
	modes := func(n int) (now, before Mode) {
		t.Helper()
		of := g
		of.Shards = g.Shards[:n]
		next, err := shard.New([]config.Group{of}, shard.Options{}, top)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		top = next
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		awaitTrust(ctx, t, top)
		at := func(until time.Time) Mode {
			p, err := NewView(top, time.Now()).Query(ctx, rangeOf(t, "sum(up)", until))
			if err != nil {
				t.Fatal(err)
			}
			return p.Mode
		}
		return at(time.Now()), at(time.Now().Add(-time.Hour))
	}
	for _, c := range []struct {
		shards      int
		now, before Mode
	}{{2, ModePush, ModePush}, {3, ModeRaw, ModePush}, {3, ModeRaw, ModePush}} {
		if now, before := modes(c.shards); now != c.now || before != c.before {
			t.Errorf("%d shards: %s now and %s before, want %s and %s", c.shards, now, before, c.now, c.before)
		}
	}
}

// thanosOf is a Thanos Query with a sidecar of that cluster.
func thanosOf(t *testing.T, cluster string) config.Replica {
	stores := `{"status":"success","data":{"sidecar":[{"name":"s1","lastCheck":"2026-10-01T00:00:00Z","lastError":null,` +
		`"labelSets":[{"cluster":"` + cluster + `"}],"minTime":0,"maxTime":9223372036854775807}]}}`
	fake := fakeshard.Start(t, fakeshard.Config{
		Version: "0.42.4",
		Flags:   map[string]string{"query.lookback-delta": "0s", "query.default-evaluation-interval": "1m", "query.timeout": "2m"},
		Series:  []map[string]string{{"__name__": "up", "cluster": cluster, "job": "node", "node": "x"}},
		Routes: []fakeshard.Route{
			{Path: "/api/v1/stores", Script: "header Content-Type application/json; send '" + stores + "'"},
			{Path: "/api/v1/status/config", Script: "status 404; send no"},
			{Path: "/api/v1/features", Script: "status 404; send no"},
		},
	})
	return config.Replica{URL: fake.URL(), Type: config.TypeThanos, HTTPClient: commonconfig.DefaultHTTPClientConfig}
}

// TestDividedBesideThanos: while a group of pairs is divided anew what a Thanos Query has part in
// goes on as it is, be it another group or pairs of this one, since nothing of it can be evaluated
// here; what the group's own servers answer alone is read raw.
func TestDividedBesideThanos(t *testing.T) {
	main := config.Group{Name: "main", Labels: map[string]string{"cluster": "main"}, Heartbeat: "up"}
	for i := range 3 {
		var pair config.Shard
		for range 2 {
			series := []map[string]string{{"__name__": "up", "job": "node", "node": fmt.Sprint(i)}}
			fake := fakeshard.Start(t, fakeshard.Config{Series: series})
			pair.Replicas = append(pair.Replicas, config.Replica{
				URL: fake.URL(), Type: config.TypePrometheus, HTTPClient: commonconfig.DefaultHTTPClientConfig,
			})
		}
		main.Shards = append(main.Shards, pair)
	}
	history := config.Shard{Replicas: []config.Replica{thanosOf(t, "main"), thanosOf(t, "main")}}
	old := config.Group{Name: "old", Labels: map[string]string{"cluster": "old"}, Shards: []config.Shard{
		{Replicas: []config.Replica{thanosOf(t, "old")}},
	}}
	for name, c := range map[string]struct {
		beside []config.Group
		own    []config.Shard
		alone  Mode // of what selects the group's own series
	}{
		"a group of its own":    {[]config.Group{old}, nil, ModeRaw},
		"a shard of this group": {nil, []config.Shard{history}, ModePush},
	} {
		t.Run(name, func(t *testing.T) {
			var top *shard.Topology
			for n := 2; n <= 3; n++ {
				g := main
				g.Shards = slices.Concat(main.Shards[:n], c.own)
				next, err := shard.New(append([]config.Group{g}, c.beside...), shard.Options{}, top)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(next.Close)
				top = next
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				awaitTrust(ctx, t, top)
				for text, want := range map[string]Mode{"sum(up)": ModePush, `sum(up{cluster="main"})`: c.alone} {
					if n == 2 {
						want = ModePush
					}
					p, err := NewView(top, time.Now()).Query(ctx, rangeOf(t, text, time.Now()))
					if err != nil {
						t.Fatal(err)
					}
					if p.Mode != want || p.Refused != nil {
						t.Errorf("%d shards: %s is %s, cause %s, refused: %v", n, text, p.Mode, p.Cause, p.Refused)
					}
				}
			}
		})
	}
}

// awaitTrust starts a topology and waits until its servers were compared.
func awaitTrust(ctx context.Context, t *testing.T, top *shard.Topology) {
	t.Helper()
	top.Start(ctx)
	if err := top.WaitFirstProbe(ctx); err != nil {
		t.Fatal(err)
	}
	for !top.Groups[0].Trusted() {
		if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
			t.Fatalf("the servers were not compared: %v", top.Groups[0].Sick())
		}
	}
}
