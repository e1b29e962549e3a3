package plan

import (
	"context"
	"fmt"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// panels are queries of small dashboard panels, as loadtest/mix has them.
var panels = []struct{ name, text string }{
	{"selector", `DCGM_FI_DEV_GPU_UTIL{node="gpu-00001"}`},
	{"max", `max by (gpu) (DCGM_FI_DEV_GPU_TEMP{node="gpu-00001"})`},
	{"rate", `sum by (mode) (rate(node_cpu_seconds_total{node="gpu-00001",mode!="idle"}[5m]))`},
	{"quotient", `1 - node_memory_MemAvailable_bytes{node="gpu-00001"} / node_memory_MemTotal_bytes{node="gpu-00001"}`},
	{"condition", `kube_node_status_condition{node="gpu-00001",status="true"}`},
	{"sum", `sum by (name) (workqueue_depth)`},
	{"quantile", `histogram_quantile(0.99, sum by (le) (rate(apiserver_request_duration_seconds_bucket{resource="pods",verb="GET"}[5m])))`},
}

// benchTopology are servers in one group, one for each shard, with hints on which node is where if
// there are several.
func benchTopology(t testing.TB, shards int, labels map[string]string) *shard.Topology {
	t.Helper()
	g := config.Group{Name: "main", Labels: labels}
	rule := trust.Hashmod{Label: "node", Modulus: uint64(shards)}
	if shards > 1 {
		g.ShardBy, g.Hashmod = []string{"node"}, config.Hashmod{Labels: []string{"node"}, Modulus: shards}
	}
	for i := range shards {
		series := []map[string]string{}
		for n := range 4 * shards {
			if node := fmt.Sprintf("gpu-%05d", n); rule.Of(node) == uint64(i) {
				series = append(series, map[string]string{"__name__": "up", "node": node})
			}
		}
		fake := fakeshard.Start(t, fakeshard.Config{Series: series})
		g.Shards = append(g.Shards, config.Shard{
			Hash:     config.Hash{N: uint64(i), Set: shards > 1},
			Replicas: []config.Replica{{URL: fake.URL(), Type: config.TypePrometheus, HTTPClient: commonconfig.DefaultHTTPClientConfig}},
		})
	}
	top, err := shard.New([]config.Group{g}, shard.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	top.Start(ctx)
	if err := top.WaitFirstProbe(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range top.Groups[0].Shards {
		for !s.Replicas[0].Clean() || shards > 1 && !s.Group.HashmodTrusted() {
			if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
				t.Fatal("the servers were not looked at")
			}
		}
	}
	return top
}

// rangeOf is the question of a range panel for the query text.
func rangeOf(t testing.TB, text string, now time.Time) Query {
	t.Helper()
	req := &endpoint.Request{
		ID: endpoint.QueryRange, Query: text, Start: endpoint.At(now.Add(-time.Hour).UnixMilli()),
		End: endpoint.At(now.UnixMilli()), Step: 30 * time.Second,
	}
	limits := config.Default().Limits.Limits
	limits.MaxRange, limits.Unselective = 1000*time.Hour, config.UnselectiveAllow
	d, err := policy.Decide(req, policy.Limits(limits), nil, now)
	if err != nil {
		t.Fatal(err)
	}
	q := Query{
		Text: text, Grid: merge.Grid{Start: req.Start.Ms, End: req.End.Ms, Step: 30_000}, Range: true, Interval: time.Minute,
		Constant: d.Constant, Expr: d.Expr, NoExplain: true,
		Avoid: func(*shard.Replica) bool { return false }, Lost: func(*shard.Shard) bool { return false },
	}
	for _, w := range d.Windows {
		q.Windows = append(q.Windows, Window{w.Start, w.End})
	}
	return q
}

// BenchmarkQuery is planning alone, after policy.
func BenchmarkQuery(b *testing.B) {
	for _, tc := range []struct {
		name   string
		shards int
		labels map[string]string
	}{{"1", 1, nil}, {"1labelled", 1, map[string]string{"cluster": "jaguar"}}, {"4", 4, nil}} {
		top := benchTopology(b, tc.shards, tc.labels)
		for _, p := range panels {
			b.Run(tc.name+"/"+p.name, func(b *testing.B) {
				ctx, now := context.Background(), time.Now()
				q := rangeOf(b, p.text, now)
				b.ReportAllocs()
				for b.Loop() {
					plan, err := NewView(top, now).Query(ctx, q)
					if err != nil || plan.Refused != nil {
						b.Fatal(plan, err)
					}
				}
			})
		}
	}
}
