package shard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// homed is a group of shards by hash of node, one replica each, of which the last one has the names
// alone.
func homed(urls []string, patterns ...string) config.Group {
	g := hashed(urls...)
	g.Shards[len(urls)-1].Names = patterns
	return g
}

func trustShardNames(g *Group) {
	for _, s := range g.Shards {
		for _, r := range s.Replicas {
			r.up.health.shardNames = trust.Fact{Promise: s.promised.shardNames, State: trust.Trusted, At: time.Now()}
		}
	}
}

func named1(name string) []*labels.Matcher {
	return []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name)}
}

// TestShardNamesPrune: the shard that has a metric alone is asked for it, wherever its node's hash
// is, and nobody before the others were seen to have none.
func TestShardNamesPrune(t *testing.T) {
	top := build(t, Options{}, false, homed([]string{"http://a:1", "http://a:2", "http://a:3"}, "kube_pod_.+"), group("http://b:1"))
	g := top.Groups[0]
	on := func(ms []*labels.Matcher) (at []int) {
		holds := prune(g, ms)
		if holds == nil {
			return nil
		}
		if !holds(top.Groups[1].Shards[0]) {
			t.Error("a shard of another group is left out")
		}
		for _, s := range g.Shards {
			if holds(s) {
				at = append(at, s.Index)
			}
		}
		return at
	}
	node := labels.MustNewMatcher(labels.MatchEqual, "node", valueOf(t, 0, 3, 0))
	believe(g)
	if at := on(append(named1("kube_pod_info"), node)); !slices.Equal(at, []int{0}) || on(named1("kube_pod_info")) != nil {
		t.Errorf("asked %v before anything was checked", at)
	}
	trustShardNames(g)
	for _, ms := range [][]*labels.Matcher{named1("kube_pod_info"), append(named1("kube_pod_info"), node)} {
		if at := on(ms); !slices.Equal(at, []int{2}) {
			t.Errorf("%v: asked %v", ms, at)
		}
	}
	if at := on(append(named1("up"), node)); !slices.Equal(at, []int{0}) || on(named1("up")) != nil {
		t.Errorf("of another metric: %v", at)
	}
	g.Shards[0].Replicas[0].up.health.shardNames.State = trust.Broken
	if at := on(append(named1("kube_pod_info"), node)); !slices.Equal(at, []int{0}) || on(named1("kube_pod_info")) != nil {
		t.Errorf("asked %v while a server breaks it", at)
	}
}

// TestShardNamesInTime: outside the time of its shard a name says nothing; what the group does not
// answer for does not matter.
func TestShardNamesInTime(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(text string) config.Moment {
		m, err := config.ParseMoment(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	cfg := sharded("http://a:1", "http://a:2", "http://a:3")
	cfg.From = at("-30d")
	cfg.Shards[1].Names, cfg.Shards[1].Until = []string{"kube_.+"}, at("2026-11-20T00:00:00Z")
	cfg.Shards[2].Names, cfg.Shards[2].From = []string{"kube_.+"}, at("2026-11-20T00:00:00Z")
	g := build(t, Options{Clock: func() time.Time { return now }}, false, cfg).Groups[0]
	trustShardNames(g)
	day := func(d int) int64 { return time.Date(2026, 11, d, 0, 0, 0, 0, time.UTC).UnixMilli() }
	for _, tc := range []struct {
		name        string
		from, until int64
		want        []int
	}{
		{"after", day(20), day(21), []int{2}},
		{"from then on", day(20), math.MaxInt64, []int{2}},
		{"before", day(10), day(20) - 1, []int{1}},
		{"since before the group", math.MinInt64, day(12), []int{1}},
		{"across", day(19), day(21), []int{0, 1, 2}},
		{"to its first instant", day(19), day(20), []int{0, 1, 2}},
		{"always", math.MinInt64, math.MaxInt64, []int{0, 1, 2}},
	} {
		var got []int
		holds, alone := g.Prune(named1("kube_x"), tc.from, tc.until, now)
		for _, s := range g.Shards {
			if holds == nil || holds(s) {
				got = append(got, s.Index)
			}
		}
		if !slices.Equal(got, tc.want) || alone != (len(got) == 1) {
			t.Errorf("%s: asked %v, alone %t, want %v", tc.name, got, alone, tc.want)
		}
	}
	if s, why := g.Shards[1].Replicas[0].ShardNames(); s != trust.Trusted {
		t.Errorf("a shard whose names begin when it ends: %s, %s", s, why)
	}
}

// TestShardNamesCheck: each outcome of asking another server for its metrics, in the status, the
// log, the metric and the check of a configuration.
func TestShardNamesCheck(t *testing.T) {
	answer := func(rest string) string {
		return `header Content-Type application/json; send '{"status":"success",` + rest + `}'`
	}
	for _, tc := range []struct {
		name, script string
		state        trust.State
		says         string
	}{
		{"none of them", answer(`"data":["up","kube"]`), trust.Trusted, ""},
		{"nothing", answer(`"data":[]`), trust.Trusted, ""},
		{"one of them", answer(`"data":["up","kube_apiserver_x"]`), trust.Broken, `the metric kube_apiserver_x, and the pattern "kube_.+" says that shard jaguar[1] alone has it; write that pattern narrower`},
		{"what a rule records", answer(`"data":["kube_pod_info:sum"]`), trust.Broken, "kube_pod_info:sum"},
		{"cut", answer(`"data":["up"],"warnings":["results truncated due to limit"]`), trust.Unchecked, "truncated"},
		{"not served", "status 404; send no", trust.Unchecked, "status 404"},
		{"no data", `header Content-Type application/json; send '{"status":"success"}'`, trust.Unchecked, "makes no sense"},
		{"null", answer(`"data":null`), trust.Unchecked, "makes no sense"},
		{"too many", "generate 9MiB values", trust.Unchecked, "more than"},
		{"fails", "status 500; send no", trust.Unchecked, "have not been read yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			const path = "/api/v1/label/__name__/values"
			a := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: path, Script: tc.script}}})
			b := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: path, Script: answer(`"data":["up","kube_x"]`)}}})
			reg := prometheus.NewRegistry()
			cfg := sharded(a.URL(), b.URL())
			cfg.Name, cfg.Shards[1].Names = "jaguar", []string{"kube_.+"}
			top := build(t, Options{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, cfg)
			g := top.Groups[0]
			awaitExamined(t, g)
			if state, why := g.Shards[0].Replicas[0].ShardNames(); state != tc.state || !strings.Contains(why, tc.says) ||
				(tc.state == trust.Trusted) != (why == "") {
				t.Errorf("state %s, %q", state, why)
			}
			if g.ShardNamesTrusted() != (tc.state == trust.Trusted) {
				t.Errorf("trusted %t", g.ShardNamesTrusted())
			}
			if i := top.Status(); i[0].ShardNames != tc.state || !strings.Contains(i[0].ShardNamesError, tc.says) ||
				i[1].ShardNames != trust.Trusted || i[0].Names != "" {
				t.Errorf("status %+v", i)
			}
			if said := log.String(); tc.state == trust.Broken &&
				(!strings.Contains(said, "shards[].names") || !strings.Contains(said, "level=ERROR")) {
				t.Errorf("the log does not tell it:\n%s", log.String())
			}
			want, got := 0.0, -1.0
			if tc.state == trust.Trusted {
				want = 1
			}
			for _, mf := range gather(t, reg) {
				if mf.GetName() == "spillway_shard_own_names_trusted" {
					got = mf.Metric[0].GetGauge().GetValue()
				}
			}
			if got != want {
				t.Errorf("metric %v, want %v", got, want)
			}
			problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{cfg}})
			if err != nil {
				t.Fatal(err)
			}
			told := slices.ContainsFunc(problems, func(p config.Problem) bool {
				return p.Path == "groups[0].shards[1].names" && strings.Contains(p.Message, tc.says)
			})
			if told == (tc.state == trust.Trusted) {
				t.Errorf("check config --online: %v", problems)
			}
		})
	}
}

// TestShardNamesOverTime: a metric that appears on another shard ends it at the next refresh, its
// going away brings it back; who goes on answering queries and tells its names no more is not
// believed for ever.
func TestShardNamesOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := func(v string) string {
			return `header Content-Type application/json; send '{"status":"success","data":["` + v + `"]}'`
		}
		const path = "/api/v1/label/__name__/values"
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: path, Nth: 1, To: 2, Script: values("up")},
			{Path: path, Nth: 3, Script: values("kube_x")},
			{Path: path, Nth: 4, Script: values("up")},
			{Path: path, Nth: 5, To: 1000, Script: "stall"},
		}}, fakeshard.Config{Routes: []fakeshard.Route{{Path: path, Script: values("kube_x")}}})
		cfg := sharded(b.urls...)
		cfg.Shards[1].Names = []string{"kube_.+"}
		top := build(t, Options{Dial: b.dial}, false, cfg)
		top.Start(t.Context())
		defer b.close()
		defer top.Close()
		var seen []string
		for range 50 {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			state, _ := top.Groups[0].Shards[0].Replicas[0].ShardNames()
			if s := fmt.Sprint(state, " ", top.Groups[0].ShardNamesTrusted()); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
		if want := []string{"trusted true", "broken false", "trusted true", "unchecked false"}; !slices.Equal(seen, want) {
			t.Errorf("got %q, want %q", seen, want)
		}
	})
}

// TestManyPromises: what is kept of the promises grows with the shards, and not with their square.
func TestManyPromises(t *testing.T) {
	const shards = 100
	var urls []string
	for i := range shards {
		urls = append(urls, fmt.Sprintf("http://s%d:9090", i))
	}
	cfg := sharded(urls...)
	cfg.Names = []string{".+"}
	for i := range cfg.Shards {
		for p := range 50 {
			cfg.Names = append(cfg.Names, fmt.Sprintf("team%d_%d_.+", i, p))
			cfg.Shards[i].Names = append(cfg.Shards[i].Names, fmt.Sprintf("team%d_exporter%d_(pod|node|namespace)_.+", i, p))
		}
		cfg.Shards[i].From = config.Moment{Rel: -time.Duration(1+i) * time.Hour, Set: true}
	}
	for _, s := range build(t, Options{}, false, cfg).Groups[0].Shards {
		if n := len(s.promised.names) + len(s.promised.shardNames); n > 400 {
			t.Fatalf("%s keeps %d bytes", s.Name(), n)
		}
	}
}

// TestShardNamesAfterReload: what was found for some patterns says nothing for others, nor for
// another shard's, nor of another time of that shard.
func TestShardNamesAfterReload(t *testing.T) {
	a := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up"}}})
	b := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "kube_x"}}})
	cfg := func(of int, patterns ...string) config.Group {
		g := sharded(a.URL(), b.URL())
		g.Shards[of].Names = patterns
		return g
	}
	old := build(t, Options{}, true, cfg(1, "kube_.+"))
	awaitExamined(t, old.Groups[0])
	reload := func(name string, g config.Group, want trust.State) {
		t.Helper()
		next, err := New([]config.Group{g}, Options{}, old)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if got := next.Groups[0].ShardNamesTrusted(); got != (want == trust.Trusted) {
			t.Errorf("%s: trusted %t", name, got)
		}
		if holds := prune(next.Groups[0], named1("kube_x")); (holds != nil) != (want == trust.Trusted) {
			t.Errorf("%s: pruned %t", name, holds != nil)
		}
	}
	reload("the same", cfg(1, "kube_.+"), trust.Trusted)
	reload("other patterns", cfg(1, "kube_.+", "x"), trust.Unchecked)
	reload("none", cfg(1), trust.Unchecked)
	reload("on the other shard", cfg(0, "kube_.+"), trust.Unchecked)
	later := cfg(1, "kube_.+")
	later.Shards[1].From = config.Moment{Rel: -time.Hour, Set: true}
	reload("for another time", later, trust.Unchecked)
}
