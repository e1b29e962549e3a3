package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// TestRealClients runs the clients themselves against a proxy over two groups of two shards of two
// replicas, and against one server that holds everything.
func TestRealClients(t *testing.T) {
	now := time.Now().Truncate(worldStep)
	w := startClientWorld(t, map[string]int{"jaguar": 2, "ibis": 2}, []span{{now.Add(-time.Hour), now}})
	w.waitRules()
	t.Run("promtool", func(t *testing.T) { promtoolAnswers(t, w, now) })
	t.Run("client_golang", func(t *testing.T) { clientGolangAnswers(t, w, now) })
	t.Run("prometheus remote_read", func(t *testing.T) { prometheusReads(t, w, now) })
	t.Run("prometheus federation", func(t *testing.T) { prometheusFederates(t, w) })
	t.Run("thanos rule", func(t *testing.T) { thanosRules(t, w) }) // the last: it ends a shard
}

// promtoolAnswers compares what promtool prints.
func promtoolAnswers(t *testing.T, w *clientWorld, now time.Time) {
	at := func(ago time.Duration) string { return now.Add(-ago).UTC().Format(time.RFC3339) }
	queries := []string{
		"up", "1 + 1", "node_load1 > 1", `up{cluster="jaguar"}`, `up{cluster=~"jag.*",node="gpu-1"}`, "sum by (cluster, job) (up)",
		"count(up == 0)",
		`sum by (node) (rate(node_cpu_seconds_total{mode!="idle"}[5m]))`, "avg(http_requests_total) / count(http_requests_total)", "absent(nothing)", "time()",
		"histogram_quantile(0.9, sum by (le) (rate(apiserver_request_duration_seconds_bucket[5m])))", "histogram_count(apiserver_request_duration_seconds)",
		"kube_pod_info * on (node) group_left () node_load1", `max_over_time(node_load1[10m:1m])`, "nothing", `node_load1 offset 10m`, `label_replace(up, "x", "$1", "node", "(.*)")`,
		`count_values("v", node_load1)`, `my_foo_total{"http.status"="200"}`,
	}
	for i, q := range queries {
		samePrint(t, w, func(base string) []string { return []string{"query", "instant", "--time=" + at(time.Minute), base, q} })
		if i < 5 {
			samePrint(t, w, func(base string) []string {
				return []string{"query", "-o", "json", "instant", "--time=" + at(time.Minute), base, q}
			})
		}
		samePrint(t, w, func(base string) []string {
			return []string{"query", "range", "--start=" + at(20*time.Minute), "--end=" + at(time.Minute), "--step=1m", base, q}
		})
	}
	samePrint(t, w, func(base string) []string { return []string{"query", "series", "--match=kube_node_info", base} })
	samePrint(t, w, func(base string) []string {
		return []string{
			"query", "series", "--match=up{job=\"node\"}", "--match=node_load1", "--start=" + at(20*time.Minute),
			"--end=" + at(time.Minute), base,
		}
	})
	for _, name := range []string{"node", "cluster", "job", "nothing", "__name__"} {
		samePrint(t, w, func(base string) []string { return []string{"query", "labels", "--match=up", base, name} })
	}
	samePrint(t, w, func(base string) []string {
		return []string{
			"query", "analyze", "--server=" + base, "--type=histogram", "--match=apiserver_request_duration_seconds_bucket",
			"--match=apiserver_request_duration_seconds", "--duration=20m", "--time=" + at(time.Minute),
		}
	})

	// With its own defaults, now and now ± 9999 hours, the whole answer is what the narrowed range
	// holds, and promtool says on standard error that it was narrowed.
	_, stderr, err := realprom.Promtool(t.Context(), "query", "labels", w.url, "node")
	if err != nil || !strings.Contains(stderr, "narrowed the range") {
		t.Errorf("promtool query labels: %v, standard error %q: want the warning", err, stderr)
	}
	// A refusal reaches the user as the sentence that says what to do.
	_, stderr, err = realprom.Promtool(t.Context(), "query", "instant", w.url, `count({le!=""})`)
	if err == nil || !strings.Contains(stderr, "{le!=") {
		t.Errorf("promtool with an unselective query: %v, %q: want the refusal", err, stderr)
	}
}

// samePrint compares promtool's output against the proxy and against the one server; the order of
// an instant vector and of series is free.
func samePrint(t *testing.T, w *clientWorld, args func(base string) []string) {
	t.Helper()
	var out [2]string
	for i, base := range []string{w.url, w.one.URL()} {
		text, stderr, err := realprom.Promtool(t.Context(), args(base)...)
		if err != nil {
			t.Errorf("promtool %q: %v %s", args(base), err, stderr)
			return
		}
		lines := strings.Split(text, "\n")
		if strings.HasPrefix(text, "[") {
			var list []json.RawMessage
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Errorf("promtool %q: %v", args(base), err)
			}
			lines = lines[:0]
			for _, l := range list {
				lines = append(lines, string(l))
			}
		}
		slices.Sort(lines)
		out[i] = strings.Join(lines, "\n")
	}
	if out[0] != out[1] {
		t.Errorf("promtool %q prints\n%.1500s\nand with one server\n%.1500s", args(w.url), out[0], out[1])
	}
	if strings.TrimSpace(out[1]) == "" && !slices.Contains(args(""), "nothing") {
		t.Errorf("promtool %q prints nothing: the comparison proves nothing", args(w.url))
	}
}

func clientGolang(t testing.TB, base string) promv1.API {
	t.Helper()
	c, err := api.NewClient(api.Config{Address: base, Client: newClient(t)})
	if err != nil {
		t.Fatal(err)
	}
	return promv1.NewAPI(c)
}

// clientGolangAnswers calls every read method of client_golang's API. What it returns must be what
// it returns about one server, or, where each server tells about itself, what the design says.
func clientGolangAnswers(t *testing.T, w *clientWorld, now time.Time) {
	ctx, proxy, one := t.Context(), clientGolang(t, w.url), clientGolang(t, w.one.URL())
	from, until := now.Add(-30*time.Minute), now.Add(-time.Minute)
	long := promv1.WithTimeout(time.Minute)
	for _, call := range []struct {
		name string
		do   func(promv1.API) (any, promv1.Warnings, error)
	}{
		{"Query", func(c promv1.API) (any, promv1.Warnings, error) {
			return c.Query(ctx, "sum by (cluster, node) (node_load1)", until, long, promv1.WithLookbackDelta(2*time.Minute),
				promv1.WithLimit(100))
		}},
		{"Query, scalar", func(c promv1.API) (any, promv1.Warnings, error) { return c.Query(ctx, "scalar(sum(up))", until) }},
		{"Query, range vector", func(c promv1.API) (any, promv1.Warnings, error) { return c.Query(ctx, "node_load1[5m]", until) }},
		{"Query, native histograms", func(c promv1.API) (any, promv1.Warnings, error) {
			return c.Query(ctx, "sum by (cluster) (apiserver_request_duration_seconds)", until)
		}},
		{"Query, nothing", func(c promv1.API) (any, promv1.Warnings, error) { return c.Query(ctx, "nothing", until) }},
		{"QueryRange", func(c promv1.API) (any, promv1.Warnings, error) {
			return c.QueryRange(ctx, "rate(http_requests_total[5m])", promv1.Range{Start: from, End: until, Step: 30 * time.Second}, long)
		}},
		{"QueryExemplars", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.QueryExemplars(ctx, "rate(http_requests_total[5m])", from, until)
			slices.SortFunc(v, func(a, b promv1.ExemplarQueryResult) int {
				return strings.Compare(a.SeriesLabels.String(), b.SeriesLabels.String())
			})
			return v, nil, err
		}},
		{"Series", func(c promv1.API) (any, promv1.Warnings, error) {
			v, warnings, err := c.Series(ctx, []string{"kube_pod_info", `up{cluster="ibis"}`}, from, until)
			slices.SortFunc(v, func(a, b model.LabelSet) int { return strings.Compare(a.String(), b.String()) })
			return v, warnings, err
		}},
		{"LabelNames", func(c promv1.API) (any, promv1.Warnings, error) {
			return c.LabelNames(ctx, []string{"kube_pod_info"}, from, until)
		}},
		{"LabelNames, no selector", func(c promv1.API) (any, promv1.Warnings, error) { return c.LabelNames(ctx, nil, from, until) }},
		{"LabelValues", func(c promv1.API) (any, promv1.Warnings, error) { return c.LabelValues(ctx, "node", nil, from, until) }},
		{"LabelValues of a group's label", func(c promv1.API) (any, promv1.Warnings, error) {
			return c.LabelValues(ctx, "cluster", []string{"kube_node_info"}, from, until)
		}},
		{"LabelValues with a limit", func(c promv1.API) (any, promv1.Warnings, error) {
			return c.LabelValues(ctx, "node", []string{"up"}, from, until, promv1.WithLimit(100))
		}},
		{"Metadata", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.Metadata(ctx, "", "")
			return v, nil, err
		}},
		{"FormatQuery", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.FormatQuery(ctx, "sum(up)by(job)")
			return v, nil, err
		}},
		{"Alerts", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.Alerts(ctx)
			var out []string
			for _, a := range v.Alerts {
				out = append(out, fmt.Sprint(a.Labels, a.Annotations, a.State, a.Value))
			}
			slices.Sort(out)
			return out, nil, err
		}},
		{"Targets", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.Targets(ctx)
			var out []string
			for _, a := range v.Active {
				out = append(out, fmt.Sprint(a.Labels, a.Health, a.ScrapePool))
			}
			slices.Sort(out)
			return out, nil, err
		}},
		{"TargetsMetadata", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.TargetsMetadata(ctx, `{job="exporter",cluster="ibis"}`, "exporter_ready", "")
			var out []string
			for _, m := range v {
				out = append(out, fmt.Sprint(m.Target["node"], m.Metric, m.Type, m.Help))
			}
			slices.Sort(out)
			return out, nil, err
		}},
		{"Buildinfo", func(c promv1.API) (any, promv1.Warnings, error) {
			v, err := c.Buildinfo(ctx)
			return v.Version, nil, err
		}},
	} {
		t.Run(call.name, func(t *testing.T) {
			got, warnings, err := call.do(proxy)
			want, wantWarnings, wantErr := call.do(one)
			if err != nil || wantErr != nil {
				t.Fatalf("%v; one server: %v", err, wantErr)
			}
			if !reflect.DeepEqual(normal(got), normal(want)) {
				t.Errorf("got  %.1500v\nwant %.1500v", got, want)
			}
			if !slices.Equal(warnings, wantWarnings) {
				t.Errorf("warnings %q, want %q", warnings, wantWarnings)
			}
			if call.name != "Query, nothing" &&
				fmt.Sprint(normal(want)) == fmt.Sprint(normal(reflect.Zero(reflect.TypeOf(want)).Interface())) {
				t.Error("an empty answer proves nothing")
			}
		})
	}

	t.Run("Rules", func(t *testing.T) {
		v, err := proxy.Rules(ctx, nil)
		if err != nil || len(v.Groups) == 0 {
			t.Fatalf("%v, %v", v, err)
		}
		firing := map[string]int{}
		for _, g := range v.Groups {
			for _, r := range g.Rules {
				switch r := r.(type) {
				case promv1.AlertingRule:
					if r.Health != promv1.RuleHealthGood || r.LastError != "" {
						t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
					}
					for _, a := range r.Alerts {
						firing[string(a.Labels["cluster"]+"/"+a.Labels["node"])]++
					}
				case promv1.RecordingRule:
					if r.Name != "node:load1:max" {
						t.Errorf("recording rule %s", r.Name)
					}
				}
			}
		}
		if !reflect.DeepEqual(firing, map[string]int{"jaguar/gpu-2": 1, "ibis/gpu-6": 1}) {
			t.Errorf("alerts %v, want one in each group", firing)
		}
	})
	t.Run("TSDB", func(t *testing.T) {
		v, err := proxy.TSDB(ctx, promv1.WithLimit(1000))
		if err != nil {
			t.Fatal(err)
		}
		o, err := one.TSDB(ctx, promv1.WithLimit(1000))
		if err != nil {
			t.Fatal(err)
		}
		if v.HeadStats.NumSeries == 0 || v.HeadStats.NumSeries != o.HeadStats.NumSeries || v.HeadStats.MaxTime == 0 ||
			len(v.SeriesCountByMetricName) == 0 {
			t.Errorf("%d series in %d metrics, one server holds %d", v.HeadStats.NumSeries, len(v.SeriesCountByMetricName),
				o.HeadStats.NumSeries)
		}
	})
	t.Run("Flags", func(t *testing.T) {
		if v, err := proxy.Flags(ctx); err != nil || v["web.listen-address"] == "" {
			t.Errorf("%v, %v", v, err)
		}
	})
	t.Run("Config", func(t *testing.T) {
		if v, err := proxy.Config(ctx); err != nil || !strings.Contains(v.YAML, "name: jaguar") {
			t.Errorf("%v, %v", v, err)
		}
	})
	t.Run("Runtimeinfo", func(t *testing.T) {
		if v, err := proxy.Runtimeinfo(ctx); err != nil || v.StartTime.IsZero() || v.GoroutineCount == 0 || !v.ReloadConfigSuccess {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("WalReplay", func(t *testing.T) {
		if v, err := proxy.WalReplay(ctx); err != nil || v.Current != v.Max {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("a refusal", func(t *testing.T) {
		_, _, err := proxy.Query(ctx, `count({le!=""})`, until)
		if e := (*promv1.Error)(nil); !errors.As(err, &e) || e.Type != promv1.ErrorType("execution") ||
			!strings.Contains(e.Msg, "unselective") && !strings.Contains(e.Msg, "le!=") {
			t.Errorf("%#v: want an execution error that quotes the selector", err)
		}
	})
	t.Run("admin API", func(t *testing.T) {
		if err := proxy.DeleteSeries(ctx, []string{"up"}, from, until); err == nil {
			t.Error("DeleteSeries succeeded")
		}
		if v, _, err := one.Query(ctx, "count(up)", until); err != nil || fmt.Sprint(v) == "" {
			t.Errorf("%v, %v", v, err)
		}
	})
}

// normal is a value in an order of its own: that of an instant vector is free.
func normal(v any) any {
	if vec, ok := v.(model.Vector); ok {
		slices.SortFunc(vec, func(a, b *model.Sample) int { return strings.Compare(a.Metric.String(), b.Metric.String()) })
	}
	return v
}

// equalVectors compares a query's answer of two servers, but for times.
func equalVectors(t *testing.T, got, want promv1.API, query string, at time.Time) error {
	t.Helper()
	text := func(c promv1.API) (string, error) {
		v, _, err := c.Query(t.Context(), query, at)
		if err != nil {
			return "", err
		}
		var lines []string
		for _, s := range v.(model.Vector) {
			lines = append(lines, fmt.Sprint(s.Metric, s.Value, s.Histogram))
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n"), nil
	}
	g, err := text(got)
	if err != nil {
		return err
	}
	w, err := text(want)
	if err != nil {
		return err
	}
	if g != w || g == "" {
		return fmt.Errorf("%s gives\n%.1000s\nwant\n%.1000s", query, g, w)
	}
	return nil
}

// prometheusReads queries a real Prometheus that holds nothing and reads from the proxy.
func prometheusReads(t *testing.T, w *clientWorld, now time.Time) {
	p := realpromtest.Start(t, realprom.Options{Config: "remote_read: [{url: '" + w.url + "/api/v1/read', read_recent: true}]"})
	c, one := clientGolang(t, p.URL()), clientGolang(t, w.one.URL())
	for _, q := range []string{
		"node_load1", `up{cluster="jaguar",job="node"}`, "sum by (cluster) (rate(http_requests_total[5m]))",
		"apiserver_request_duration_seconds", `count({job="node"})`,
		"histogram_quantile(0.9, sum by (le) (rate(apiserver_request_duration_seconds_bucket[5m])))", "kube_pod_info * on (node, cluster) group_left () node_load1",
	} {
		if err := equalVectors(t, c, one, q, now.Add(-10*time.Minute)); err != nil {
			t.Error(err)
		}
	}
	r := promv1.Range{Start: now.Add(-40 * time.Minute), End: now.Add(-time.Minute), Step: 15 * time.Second}
	got, _, err := c.QueryRange(t.Context(), "rate(node_cpu_seconds_total[5m])", r)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := one.QueryRange(t.Context(), "rate(node_cpu_seconds_total[5m])", r)
	if err != nil || !reflect.DeepEqual(got, want) || got.String() == "" {
		t.Errorf("%v\ngot  %.800v\nwant %.800v", err, got, want)
	}
}

// prometheusFederates lets a real Prometheus scrape the proxy's /federate.
func prometheusFederates(t *testing.T, w *clientWorld) {
	p := realpromtest.Start(t, realprom.Options{Config: `
scrape_configs:
  - job_name: federate
    honor_labels: true
    scrape_interval: 1s
    scrape_timeout: 1s
    metrics_path: /federate
    params: {'match[]': ['{job="node"}', 'kube_pod_info', '{__name__=~"job:.*"}']}
    static_configs: [{targets: ['` + strings.TrimPrefix(w.url, "http://") + `']}]
`})
	c, one := clientGolang(t, p.URL()), clientGolang(t, w.one.URL())
	// Prometheus' own data ends where the test's began; the newest samples are federated with their
	// times. On a busy machine a scrape may come too late: the next one does not.
	federated := func() error {
		if err := equalVectors(t, c, one, `{__name__=~"node_load1|kube_pod_info|job:.*|node_cpu_seconds_total",job!=""}`, time.Now()); err != nil {
			return err
		}
		targets, err := c.Targets(t.Context())
		if err != nil || len(targets.Active) != 1 || targets.Active[0].Health != promv1.HealthGood || targets.Active[0].LastError != "" {
			return fmt.Errorf("%v, %+v: want one target that is up", err, targets.Active)
		}
		return nil
	}
	err := federated()
	for end := time.Now().Add(2 * patience); err != nil && time.Now().Before(end); err = federated() {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
}

// recorder is a server in front of the proxy that notes what a ruler sends.
type recorder struct {
	mu    sync.Mutex
	forms map[string][]url.Values // by path
}

// startRecorder returns it and its URL.
func startRecorder(t *testing.T, proxy string) (*recorder, string) {
	t.Helper()
	target, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{forms: map[string][]url.Values{}}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	forward := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, Transport: tr}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		r.forms[req.Method+" "+req.URL.Path] = append(r.forms[req.Method+" "+req.URL.Path], form)
		r.mu.Unlock()
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		forward.ServeHTTP(rw, req)
	}))
	t.Cleanup(s.Close)
	return r, s.URL
}

// partials are the values of partial_response seen for a query.
func (r *recorder) partials(query string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, f := range r.forms["POST /api/v1/query"] {
		if f.Get("query") == query && !slices.Contains(out, f.Get("partial_response")) {
			out = append(out, f.Get("partial_response"))
		}
	}
	return out
}

// thanosRule is the part of a rule in /api/v1/rules of thanos rule that matters.
type thanosRule struct {
	Name, Health, LastError, State string
	LastEvaluation                 time.Time
	Alerts                         []struct {
		Labels map[string]string
		Value  string
	}
}

// thanosRules runs the real thanos rule against the proxy: with all shards it evaluates without
// errors; when a shard has gone, the group that aborts on partial answers says so, and the one that
// takes them goes on.
func thanosRules(t *testing.T, w *clientWorld) {
	seen, base := startRecorder(t, w.url)
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yml")
	if err := os.WriteFile(rules, []byte(`
groups:
  - name: strict
    interval: 1s
    rules:
      - {alert: Idle, expr: 'node_load1 == 0', labels: {severity: page}}
      - {record: 'cluster:up:sum', expr: 'sum by (cluster) (up{job="node"})'}
  - name: lenient
    interval: 1s
    partial_response_strategy: WARN
    rules:
      - {record: 'cluster:up:count', expr: 'count by (cluster) (up{job="node"})'}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	httpPort, err := realprom.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	grpcPort, err := realprom.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	ruler := fmt.Sprintf("http://127.0.0.1:%d", httpPort)
	realpromtest.Thanos(t, ruler+"/-/ready", "rule", fmt.Sprintf("--http-address=127.0.0.1:%d", httpPort),
		fmt.Sprintf("--grpc-address=127.0.0.1:%d", grpcPort), "--http-grace-period=1s", "--grpc-grace-period=1s",
		"--data-dir="+filepath.Join(dir, "data"), "--rule-file="+rules, "--eval-interval=1s", `--label=replica="a"`, "--query="+base,
		"--log.level=warn")

	wait := func(what string, ok func(map[string]thanosRule) bool) {
		t.Helper()
		var last map[string]thanosRule
		for end := time.Now().Add(2 * patience); ; time.Sleep(50 * time.Millisecond) {
			if last = readThanosRules(t, ruler); ok(last) {
				return
			}
			if time.Now().After(end) {
				t.Errorf("waited in vain until %s: %+v", what, last)
				return
			}
		}
	}
	began := time.Now()
	wait("every rule is evaluated well", func(r map[string]thanosRule) bool {
		for _, x := range r {
			if x.Health != "ok" || x.LastError != "" || x.LastEvaluation.Before(began) {
				return false
			}
		}
		return len(r) == 3
	})
	wait("the alert fires for one node of each group", func(r map[string]thanosRule) bool {
		var nodes []string
		for _, a := range r["Idle"].Alerts {
			nodes = append(nodes, a.Labels["cluster"]+"/"+a.Labels["node"])
		}
		slices.Sort(nodes)
		return r["Idle"].State == "firing" && slices.Equal(nodes, []string{"ibis/gpu-6", "jaguar/gpu-2"})
	})
	if got := seen.partials("node_load1 == 0"); !slices.Equal(got, []string{"false"}) {
		t.Errorf("partial_response of the strict group is %q", got)
	}
	if got := seen.partials(`count by (cluster) (up{job="node"})`); !slices.Equal(got, []string{"true"}) {
		t.Errorf("partial_response of the lenient group is %q", got)
	}

	// Both replicas of jaguar's first shard go.
	for _, p := range w.servers[:2] {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wait("the strict group fails and the lenient one goes on", func(r map[string]thanosRule) bool {
		gone := r["cluster:up:sum"]
		return gone.Health == "err" && gone.LastError != "" && r["cluster:up:count"].Health == "ok" &&
			r["cluster:up:count"].LastEvaluation.After(began.Add(time.Second))
	})
}

// readThanosRules asks the ruler for its rules, by name; an answer that cannot be had is none.
func readThanosRules(t *testing.T, base string) map[string]thanosRule {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/rules", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var m struct {
		Data struct {
			Groups []struct{ Rules []thanosRule }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		t.Errorf("the ruler's rules: %v", err)
	}
	out := map[string]thanosRule{}
	for _, g := range m.Data.Groups {
		for _, r := range g.Rules {
			out[r.Name] = r
		}
	}
	return out
}
