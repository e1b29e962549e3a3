package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// clientWorld is a small cluster in which every client finds what it asks for: shards and replicas
// behind a proxy, and one server that holds everything, whose answers are what a client would get
// without sharding. All replicas of a shard hold the same samples, so that answers are equal bit
// for bit.
type clientWorld struct {
	t       testing.TB
	servers []*localprom.Shard // the shards' replicas
	one     *localprom.Shard   // holds everything, with the groups' labels stored
	config  string
	idle    map[*localprom.Shard]int // the nodes on which each server's alert fires
	url     string                   // the proxy's
	s       *Server
}

// span is a stretch of time for which the world holds samples.
type span struct{ from, until time.Time }

const worldStep = 30 * time.Second

// worldGroups are the groups and the nodes of each of their shards.
var worldGroups = []struct {
	name  string
	nodes [][]string
}{
	{"jaguar", [][]string{{"gpu-1", "gpu-2"}, {"gpu-3", "gpu-4"}}},
	{"ibis", [][]string{{"gpu-5", "gpu-6"}, {"gpu-7"}}},
}

// worldRules are what every server evaluates. The alert fires on one node of each group; the
// recorded series keep their node, so no two shards record the same.
const worldRules = `
groups:
  - name: nodes
    interval: 1s
    rules:
      - {alert: NodeIdle, expr: 'node_load1 == 0', for: 0s, labels: {severity: page}, annotations: {summary: 'nothing runs on {{ $labels.node }}'}}
      - {record: 'node:load1:max', expr: 'max by (cluster, node) (node_load1)'}
`

// worldSeries is one series: its labels as a shard stores them and its samples, i steps after the
// beginning of a span.
type worldSeries struct {
	labels   labels.Labels
	value    func(i int) float64
	native   bool
	exemplar bool
}

func constant(v float64) func(int) float64 { return func(int) float64 { return v } }
func counting(v float64) func(int) float64 { return func(i int) float64 { return float64(i) * v } }

// nodeSeries are the series of one node, the n-th of all.
func nodeSeries(node string, n int) []worldSeries {
	l := func(name string, more ...string) labels.Labels {
		return labels.FromStrings(append([]string{"__name__", name, "node", node, "instance", fmt.Sprintf("10.0.0.%d:9100", n)},
			more...)...)
	}
	load := float64(n) / 2
	if n == 2 || n == 6 {
		load = 0
	}
	down := 1.0
	if n == 3 {
		down = 0
	}
	x := 0.0
	if n == 4 || n == 7 {
		x = 79
	}
	step := worldStep.Seconds()
	return []worldSeries{
		{labels: l("up", "job", "node"), value: constant(down)},
		{labels: l("up", "job", "api"), value: constant(1)},
		{labels: l("node_load1", "job", "node"), value: constant(load)},
		{labels: l("node_cpu_seconds_total", "job", "node", "cpu", "0", "mode", "user"), value: counting(step * 0.1 * float64(n))},
		{labels: l("node_cpu_seconds_total", "job", "node", "cpu", "0", "mode", "idle"), value: counting(step * 0.2)},
		{
			labels: l("http_requests_total", "job", "api", "pod", fmt.Sprintf("api-%d", n), "code", "200"), value: counting(7 * float64(n)),
			exemplar: true,
		},
		{labels: l("apiserver_request_duration_seconds_bucket", "job", "api", "le", "0.5"), value: counting(float64(n)), exemplar: true},
		{
			labels: l("apiserver_request_duration_seconds_bucket", "job", "api", "le", "+Inf"), value: counting(float64(2 * n)),
			exemplar: true,
		},
		{labels: l("apiserver_request_duration_seconds", "job", "api"), native: true},
		{labels: l("kube_node_info", "job", "ksm", "kubelet_version", "v1.34.1"), value: constant(1)},
		{
			labels: l("kube_pod_info", "job", "ksm", "namespace", fmt.Sprintf("research-%d", n%3), "pod", fmt.Sprintf("train-%d", n)),
			value:  constant(1),
		},
		{
			labels: l("kube_pod_labels", "job", "ksm", "namespace", "vision-lab", "pod", fmt.Sprintf("vit-%d", n), "team", "vision"),
			value:  constant(1),
		},
		{labels: l("container_memory_working_set_bytes", "job", "cadvisor", "namespace", fmt.Sprintf("research-%d", n%3), "pod",
			fmt.Sprintf("train-%d", n)), value: constant(1e9 + float64(n))},
		{labels: l("DCGM_FI_DEV_XID_ERRORS", "job", "dcgm", "gpu", "0"), value: constant(x)},
		{labels: l("ALERTS_FOR_STATE", "alertname", "Down", "severity", "page"), value: constant(1755000000 + float64(n))},
		{labels: l("my_foo_total", "job", "api", "http.status", "200"), value: counting(1)},
		{labels: l("job:up:max", "job", "node"), value: constant(down)},
		{labels: l("prometheus_build_info", "job", "prometheus", "version", "3.15.0"), value: constant(1)},
	}
}

// startClientWorld starts servers that hold the spans, replicas of them for each shard of each
// group, and a proxy over them. spans must be in order.
func startClientWorld(t testing.TB, replicas map[string]int, spans []span) *clientWorld {
	t.Helper()
	w := &clientWorld{t: t, idle: map[*localprom.Shard]int{}}
	rules := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(rules, []byte(worldRules), 0o600); err != nil {
		t.Fatal(err)
	}
	exporter := startExporter(t)
	start := func(targets string, external ...string) *localprom.Shard {
		p, err := localprom.Start(t.Context(), localprom.Options{
			DisableWAL: true, ExternalLabels: labels.FromStrings(external...), Features: []string{"exemplar-storage"},
			// The spans lie far apart; one long block keeps them in the head.
			BlockDuration: 5 * 365 * 24 * time.Hour, Retention: 10 * 365 * 24 * time.Hour,
			Config: "rule_files: [" + rules + "]\nscrape_configs: [{job_name: exporter, scrape_interval: 4s, scrape_timeout: 4s, static_configs: [" + targets + "]}]",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	load := func(p *localprom.Shard, list []worldSeries) {
		for _, s := range list {
			if s.labels.Get(model.MetricNameLabel) == "node_load1" && s.value(0) == 0 {
				w.idle[p]++
			}
		}
		if err := p.Append(func(app storage.Appender) error { return appendSeries(app, list, spans) }); err != nil {
			t.Fatal(err)
		}
	}
	var cfg strings.Builder
	cfg.WriteString("groups:\n")
	var all []worldSeries
	var targets strings.Builder // of all shards, as one server would have them
	n := 0
	for _, g := range worldGroups {
		fmt.Fprintf(&cfg, "  - name: %s\n    labels: {cluster: %s}\n    replica_labels: [prometheus_replica]\n    shards:\n", g.name, g.name)
		for _, nodes := range g.nodes {
			var list []worldSeries
			fmt.Fprintf(&targets, "{targets: [%q], labels: {cluster: %s, node: %s-exporter}}, ", exporter, g.name, nodes[0])
			for _, node := range nodes {
				n++
				list = append(list, nodeSeries(node, n)...)
			}
			cfg.WriteString("      - replicas:\n")
			for r := range replicas[g.name] {
				p := start(fmt.Sprintf("{targets: [%q], labels: {node: %s-exporter}}", exporter, nodes[0]), "cluster", g.name,
					"prometheus_replica", string(rune('a'+r)))
				load(p, list)
				w.servers = append(w.servers, p)
				fmt.Fprintf(&cfg, "          - {url: %q}\n", p.URL())
			}
			for _, s := range list {
				s.labels = labels.NewBuilder(s.labels).Set("cluster", g.name).Labels()
				all = append(all, s)
			}
		}
	}
	w.one = start(targets.String())
	load(w.one, all)
	w.config = cfg.String()
	w.s, w.url = startProxy(t, t.Context(), w.config, func(o *Options) {
		o.Flags = map[string]string{"web.listen-address": "127.0.0.1:9090"}
	})
	return w
}

// startExporter serves a page with one metric of each kind, for targets and metadata. It returns
// host:port.
func startExporter(t testing.TB) string {
	const page = "# HELP exporter_ready Whether it is.\n# TYPE exporter_ready gauge\nexporter_ready 1\n" +
		"# HELP exporter_requests_total Requests.\n# TYPE exporter_requests_total counter\nexporter_requests_total 3\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, page)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// appendSeries appends the samples of every span, in the order of their times.
func appendSeries(app storage.Appender, list []worldSeries, spans []span) error {
	refs := make([]storage.SeriesRef, len(list))
	for _, sp := range spans {
		for i := 0; ; i++ {
			at := sp.from.Add(time.Duration(i) * worldStep).UnixMilli()
			if at > sp.until.UnixMilli() {
				break
			}
			for k, s := range list {
				var err error
				if s.native {
					refs[k], err = app.AppendHistogram(refs[k], s.labels, at, tsdbutil.GenerateTestHistogram(int64(i)), nil)
				} else {
					refs[k], err = app.Append(refs[k], s.labels, at, s.value(i))
				}
				if err == nil && s.exemplar && i%20 == 0 {
					_, err = app.AppendExemplar(refs[k], s.labels,
						exemplar.Exemplar{Labels: labels.FromStrings("trace_id", fmt.Sprint(i)), Value: 0.25, Ts: at, HasTs: true})
				}
				if err != nil {
					return fmt.Errorf("%s at %s: %w", s.labels, time.UnixMilli(at).UTC(), err)
				}
			}
		}
	}
	return nil
}

// waitRules waits until every server has evaluated its rules, so that their alerts are all there.
func (w *clientWorld) waitRules() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	for _, p := range append([]*localprom.Shard{w.one}, w.servers...) {
		want := map[string]int{"node:load1:max": 1, "exporter_ready": 1, "ALERTS": w.idle[p]}
		if p == w.one {
			want["exporter_ready"] = len(worldGroups) * len(worldGroups[0].nodes)
		}
		for !holds(w.t, ctx, p, want) {
			select {
			case <-ctx.Done():
				w.t.Fatalf("%s has not evaluated its rules in time", p.URL())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// holds tells whether the server has so many series of each metric in the last minute.
func holds(t testing.TB, ctx context.Context, p *localprom.Shard, want map[string]int) bool {
	t.Helper()
	now := time.Now().UnixMilli()
	q, err := p.Storage().Querier(now-int64(time.Minute/time.Millisecond), now)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for name, n := range want {
		ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name)}
		set := q.Select(ctx, false, nil, ms...)
		found := 0
		for set.Next() {
			found++
		}
		if err := set.Err(); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if found < n {
			return false
		}
	}
	return true
}

// dial opens a connection to the address of a URL.
func dial(t testing.TB, url string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
