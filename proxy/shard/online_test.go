package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// ups are the series of up for targets i to j, and a label that differs between replicas.
func ups(i, j int, replica string) []map[string]string {
	var out []map[string]string
	for ; i < j; i++ {
		out = append(out, map[string]string{
			"__name__": "up", "job": "node", "instance": fmt.Sprintf("node-%d", i),
			"prometheus_replica": replica,
		})
	}
	return out
}

// recorder is a server with ten targets that records one series, with the label zone where it is
// given.
func recorder(name, query, zone string, from int) fakeshard.Config {
	series := map[string]string{"__name__": name}
	if zone != "" {
		series["zone"] = zone
	}
	rules := fmt.Sprintf(`{"status":"success","data":{"groups":[{"name":"g","rules":[{"type":"recording","name":%q,"query":%q},{"type":"alerting","name":"Down"}]}]}}`, name, query)
	return fakeshard.Config{
		Series: append(ups(from, from+10, "a"), series, map[string]string{"__name__": "node_cpu"}),
		Routes: []fakeshard.Route{{Path: "/api/v1/rules", Script: "header Content-Type application/json; send '" + rules + "'"}},
	}
}

// young is a server that was started 40 s before now.
func young(now time.Time, s []map[string]string) fakeshard.Config {
	started := now.Add(-40 * time.Second).UTC().Format(time.RFC3339Nano)
	return fakeshard.Config{Series: s, Routes: []fakeshard.Route{{
		Path: "/api/v1/status/runtimeinfo", Script: fmt.Sprintf(`send {"status":"success","data":{"startTime":%q}}`, started),
	}}}
}

func TestCheckOnline(t *testing.T) {
	type servers [][]fakeshard.Config // shards of replicas
	const sum = "sum(up)"
	now := time.Now() // all the time: however long it takes until they are asked, none gets older
	for _, tc := range []struct {
		name      string
		in        servers
		want      []string // path and text of each problem, in order
		heartbeat string
		ended     bool // the first shard's slice, an hour ago
	}{
		{name: "sound", in: servers{
			{
				{Series: ups(0, 10, "a"), ExternalLabels: map[string]string{"prometheus_replica": "a"}},
				{Series: ups(0, 10, "b"), ExternalLabels: map[string]string{"cluster": "jaguar"}},
			},
			{{Series: ups(10, 20, "a")}},
		}},
		{
			name: "an external label", in: servers{{{Series: ups(0, 1, "a"), ExternalLabels: map[string]string{"env": "prod"}}}},
			want: []string{`groups[0].shards[0].replicas[0]: jaguar/HOST: its external label env="prod" is not among`},
		},
		{
			name: "replicas that are shards", in: servers{{{Series: ups(0, 10, "a")}, {Series: ups(10, 20, "a")}}},
			want: []string{`groups[0].shards[0].replicas[1]: jaguar/HOST: listed as a replica of HOST, but they hold different targets (10 and 10, 0 in common)`},
		},
		{
			name: "replicas that have just begun", in: servers{{young(now, ups(0, 10, "a")), young(now, ups(10, 20, "a"))}},
			want: []string{`groups[0].shards[0].replicas[1]: jaguar/HOST: listed as a replica of HOST, but they hold different targets (10 and 10, 0 in common); if they are shards, give each its own entry under shards (HOST was started 40s ago and may`},
		},
		{
			name: "a heartbeat that has just begun", heartbeat: "upp",
			in:   servers{{young(now, ups(0, 10, "a")), young(now, ups(0, 10, "b"))}},
			want: []string{`groups[0].heartbeat: upp selects nothing on any replica of shard jaguar[0], so that none is known to be whole, and queries read all copies; name what every server scrapes, such as up{job="node-exporter"} (HOST was started 40s ago and may`},
		},
		{
			name: "shards that are replicas", in: servers{{{Series: ups(0, 10, "a")}}, {{Series: ups(0, 10, "b")}}},
			want: []string{`groups[0].shards[1].replicas[0]: jaguar/HOST: holds the same targets as HOST of shard 0; these two look like replicas of one shard`},
		},
		{
			name: "shards that overlap", in: servers{{{Series: ups(0, 10, "a")}}, {{Series: ups(9, 20, "b")}}},
			want: []string{`groups[0].shards[1].replicas[0]: jaguar/HOST: 1 of its targets are on HOST of shard 0 too, such as {__name__="up", instance="node-9", job="node"}`},
		},
		{
			name: "a clock", in: servers{{{
				Series: ups(0, 1, "a"),
				Routes: []fakeshard.Route{{Path: "/api/v1/query", Script: "skew 5m; answer"}},
			}}},
			want: []string{`groups[0].shards[0].replicas[0]: jaguar/HOST: its clock is `},
		},
		{
			name: "an engine", in: servers{{
				{Series: ups(0, 1, "a")},
				{Series: ups(0, 1, "a"), Flags: map[string]string{"query.lookback-delta": "1m"}},
			}},
			want: []string{`groups[0].shards[0].replicas[1]: jaguar/HOST: its query engine differs from most others: query.lookback-delta is 1m, not 5m`},
		},
		{
			name: "rules that record the same on two shards",
			in:   servers{{recorder("total", sum, "", 0)}, {recorder("total", sum, "", 10)}, {{Series: ups(20, 30, "a")}}},
			want: []string{`groups[0]: shards 0 (HOST) and 1 (HOST) both record {__name__="total"}: each computes it over its own part`},
		},
		{name: "rules that record what differs", in: servers{{recorder("total", sum, "a", 0)}, {recorder("total", sum, "b", 10)}}},
		{
			name: "rules that look at no series",
			in:   servers{{recorder("limit", "vector(0.99)", "", 0)}, {recorder("limit", "vector(0.99)", "", 10)}},
		},
		{
			name: "rules with a name that is an expression, and one that matches it",
			in:   servers{{recorder("node.cpu", sum, "", 0)}, {recorder("node.cpu", sum, "", 10)}},
			want: []string{`groups[0]: shards 0 (HOST) and 1 (HOST) both record {__name__="node.cpu"}: each`},
		},
		{
			name: "rules that cannot be read",
			in: servers{{recorder("total", sum, "", 0)}, {{
				Series: ups(10, 20, "a"), Routes: []fakeshard.Route{{Path: "/api/v1/rules", Script: "status 500; send no"}},
			}}},
			want: []string{`groups[0]: what the rules of shard 1 (HOST) record cannot be compared with what other shards' do: `},
		},
		{name: "rules of one shard", in: servers{{recorder("total", sum, "", 0)}, {recorder("other", sum, "", 10)}}},
		{
			name: "a heartbeat of nothing", heartbeat: "upp", in: servers{{{Series: ups(0, 10, "a")}, {Series: ups(0, 10, "b")}}},
			want: []string{`groups[0].heartbeat: upp selects nothing on any replica of shard jaguar[0]`},
		},
		{
			name: "a heartbeat of a slice that has ended", heartbeat: "upp", ended: true,
			in: servers{{{Series: ups(0, 10, "a")}, {Series: ups(0, 10, "b")}}, {{Series: ups(10, 20, "a")}}},
		},
		{name: "a heartbeat of one server", heartbeat: "upp", in: servers{{{Series: ups(0, 10, "a")}}}},
		{
			name: "not served", in: servers{{{
				Series: ups(0, 1, "a"),
				Routes: []fakeshard.Route{{Path: "/api/v1/status/config", Script: "status 404; send no"}},
			}}},
			want: []string{`groups[0].shards[0].replicas[0]: jaguar/HOST: status/config is not served (status 404)`},
		},
		{
			name: "down", in: servers{{{Routes: []fakeshard.Route{{Path: "/-/ready", Script: "status 503; send 'Service Unavailable'"}}}}},
			want: []string{`groups[0].shards[0].replicas[0].url: jaguar/HOST: the server cannot be examined`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := config.Group{}
			var hosts []string
			for si, s := range tc.in {
				var urls []string
				for _, c := range s {
					urls = append(urls, fakeshard.Start(t, c).URL())
				}
				made := group(urls...)
				if si == 0 {
					g = made
				} else {
					g.Shards = append(g.Shards, made.Shards[0])
				}
				for _, u := range urls {
					hosts = append(hosts, strings.TrimPrefix(u, "http://"))
				}
			}
			if g.Heartbeat = tc.heartbeat; tc.ended {
				g.Shards[0].Until = config.Moment{Abs: now.Add(-time.Hour), Set: true}
			}
			cfg := &config.Config{Groups: []config.Group{g}}
			problems, err := checkOnline(context.Background(), cfg, Options{Clock: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			if len(problems) != len(tc.want) {
				t.Fatalf("got %d problems, want %d:\n%v", len(problems), len(tc.want), problems)
			}
			for i, p := range problems {
				got := p.String()
				for _, h := range hosts {
					got = strings.ReplaceAll(got, h, "HOST")
				}
				if !strings.HasPrefix(got, tc.want[i]) {
					t.Errorf("got  %s\nwant %s", got, tc.want[i])
				}
			}
		})
	}
}

func TestCheckOnlineEnds(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/-/ready", Script: "stall"}}})
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("interrupted")
	cancel(stop)
	if _, err := CheckOnline(ctx, &config.Config{Groups: []config.Group{group(fake.URL())}}); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}
