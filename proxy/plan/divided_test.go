package plan

import (
	"context"
	"fmt"
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
		top.Start(ctx)
		if err := top.WaitFirstProbe(ctx); err != nil {
			t.Fatal(err)
		}
		for !top.Groups[0].Trusted() {
			if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
				t.Fatalf("the servers were not compared: %v", top.Groups[0].Sick())
			}
		}
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
