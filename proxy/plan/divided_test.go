package plan

import (
	"context"
	"errors"
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		top = follow(ctx, t, top, of)
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

// threePairs are a group with a heartbeat.
func threePairs(t *testing.T) config.Group {
	g := config.Group{Name: "main", Labels: map[string]string{"cluster": "main"}, Heartbeat: "up"}
	for i := range 3 {
		var pair config.Shard
		for range 2 {
			series := []map[string]string{{"__name__": "up", "job": "node", "node": fmt.Sprint(i)}}
			fake := fakeshard.Start(t, fakeshard.Config{Series: series})
			pair.Replicas = append(pair.Replicas, config.Replica{
				URL: fake.URL(), Type: config.TypePrometheus, HTTPClient: commonconfig.DefaultHTTPClientConfig,
			})
		}
		g.Shards = append(g.Shards, pair)
	}
	return g
}

// TestDividedBesideThanos: while a group of pairs is divided anew what a Thanos Query has part in
// goes on as it is, be it another group or pairs of this one, since nothing of it can be evaluated
// here; what the group's own servers answer alone is read raw.
func TestDividedBesideThanos(t *testing.T) {
	main := threePairs(t)
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
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				top = follow(ctx, t, top, append([]config.Group{g}, c.beside...)...)
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

// TestMissingWhileDivided: what a replica of a pair has that failed may be missing while the group
// is divided anew, since one has its configuration before the other, whatever is known by the
// heartbeat: a reader is told, and where nobody would see it there is no answer. Where nothing is
// known at any time it stays a warning.
func TestMissingWhileDivided(t *testing.T) {
	for _, c := range []struct {
		name      string
		heartbeat string
		shards    int
		before    bool // the window ends before the third shard came
		missing   bool // for a reader
		refused   bool // where nobody would see it
	}{
		{"two shards", "up", 2, false, false, false},
		{"a third one", "up", 3, false, true, true},
		{"what was before it", "up", 3, true, false, false},
		{"without a heartbeat", "", 3, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := threePairs(t)
			g.Heartbeat = c.heartbeat
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var top *shard.Topology
			for n := 2; n <= c.shards; n++ {
				of := g
				of.Shards = g.Shards[:n]
				top = follow(ctx, t, top, of)
			}
			now := time.Now()
			w := Window{now.Add(-time.Hour).UnixMilli(), now.UnixMilli()}
			if c.before {
				w = Window{now.Add(-2 * time.Hour).UnixMilli(), now.Add(-time.Hour).UnixMilli()}
			}
			s := top.Groups[0].Shards[0]
			for _, unseen := range []bool{false, true} {
				missing, err := Missing(ctx, s, s.Replicas[1:], s.Replicas[:1], w, now, unseen)
				refused := unseen && c.refused
				if errors.Is(err, ErrLacked) != refused || refused != (err != nil) || missing != (c.missing && !refused) {
					t.Errorf("unseen %t: missing %t, %v", unseen, missing, err)
				}
			}
		})
	}
}

// follow is a topology of the groups in the place of top, nil for none, that is trusted.
func follow(ctx context.Context, t *testing.T, top *shard.Topology, groups ...config.Group) *shard.Topology {
	t.Helper()
	next, err := shard.New(groups, shard.Options{}, top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	awaitTrust(ctx, t, next)
	return next
}
