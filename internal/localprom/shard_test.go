package localprom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is for all requests of these tests: it keeps no connections, so that goleak sees what the
// shard leaves and nothing else.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func start(t testing.TB, opts Options) *Shard {
	t.Helper()
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func load(t testing.TB, s *Shard, text string, at time.Time) {
	t.Helper()
	if err := s.LoadAt(text, at); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, s *Shard, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// data decodes the data field of a 200 answer.
func data[T any](t testing.TB, s *Shard, path string) T {
	t.Helper()
	code, body := get(t, s, path)
	var answer struct{ Data T }
	if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %v %.500s", path, code, err, body)
	}
	return answer.Data
}

// eventually asks until f says yes; a test that waits longer than a minute fails.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			t.Fatalf("still not so after a minute: %s", what)
		case <-tick.C:
		}
	}
}

func promAPI(t testing.TB, s *Shard) promv1.API {
	t.Helper()
	c, err := api.NewClient(api.Config{Address: s.URL(), Client: client})
	if err != nil {
		t.Fatal(err)
	}
	return promv1.NewAPI(c)
}

const jobs = `load 15s
  http_requests_total{job="api", instance="a"} 0+15x40
  http_requests_total{job="api", instance="b"} 0+30x40
  up{job="api", instance="a"} 1x40
  up{job="api", instance="b"} 1x10 stale
  latency{job="api"} {{schema:0 sum:4 count:4 buckets:[1 2 1]}}x40
`

var epoch = time.UnixMilli(0).UTC()

func TestQueriesOfAClient(t *testing.T) {
	s := start(t, Options{ExternalLabels: labels.FromStrings("replica", "a")})
	load(t, s, jobs, epoch)
	c := promAPI(t, s)

	v, _, err := c.Query(t.Context(), `sum by (job) (increase(http_requests_total[1m]))`, epoch.Add(5*time.Minute))
	if err != nil || v.String() != `{job="api"} => 180 @[300]` {
		t.Errorf("query: %v, %v", v, err)
	}
	v, _, err = c.Query(t.Context(), `up`, epoch.Add(5*time.Minute)) // b is stale by then; the external label is not on queries
	if err != nil || v.String() != `up{instance="a", job="api"} => 1 @[300]` {
		t.Errorf("query of up: %v, %v", v, err)
	}
	v, _, err = c.QueryRange(t.Context(), `histogram_count(latency)`,
		promv1.Range{Start: epoch, End: epoch.Add(time.Minute), Step: 30 * time.Second})
	if m, ok := v.(model.Matrix); err != nil || !ok || len(m) != 1 || len(m[0].Values) != 3 || m[0].Values[2].Value != 4 {
		t.Errorf("query_range: %v, %v", v, err)
	}
	series, _, err := c.Series(t.Context(), []string{`{instance="b"}`}, epoch, epoch.Add(time.Hour))
	if err != nil || len(series) != 2 || series[0]["__name__"] != "http_requests_total" {
		t.Errorf("series: %v, %v", series, err)
	}
	names, _, err := c.LabelNames(t.Context(), nil, epoch, epoch.Add(time.Hour))
	if err != nil || !slices.Equal(names, model.LabelNames{"__name__", "instance", "job"}) {
		t.Errorf("labels: %v, %v", names, err)
	}
	values, _, err := c.LabelValues(t.Context(), "instance", []string{"up"}, epoch, epoch.Add(time.Hour))
	if err != nil || len(values) != 2 || values[1] != "b" {
		t.Errorf("values: %v, %v", values, err)
	}
	_, _, err = c.Query(t.Context(), `sum(`, epoch)
	if e, ok := errors.AsType[*promv1.Error](err); !ok || e.Type != promv1.ErrBadData {
		t.Errorf("a broken query: %v", err)
	}
}

func TestRemoteReadStreamsChunksWithExternalLabels(t *testing.T) {
	s := start(t, Options{ExternalLabels: labels.FromStrings("replica", "a", "job", "never: the series has one")})
	load(t, s, jobs, epoch)
	u, err := url.Parse(s.URL() + "/api/v1/read")
	if err != nil {
		t.Fatal(err)
	}
	for _, chunked := range []bool{true, false} {
		t.Run(fmt.Sprint("chunked=", chunked), func(t *testing.T) {
			c, err := remote.NewReadClient("test", &remote.ClientConfig{
				URL: &commonconfig.URL{URL: u}, Timeout: model.Duration(time.Minute), ChunkedReadLimit: config.DefaultChunkedReadLimit,
			})
			if err != nil {
				t.Fatal(err)
			}
			if !chunked {
				c = samplesOnly{u, c}
			}
			q, err := remote.ToQuery(0, 600_000, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__",
				"http_requests_total"), labels.MustNewMatcher(labels.MatchEqual, "replica", "a")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			set, err := c.Read(t.Context(), q, true)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			var it chunkenc.Iterator
			for set.Next() {
				it = set.At().Iterator(it)
				n := 0
				for it.Next() != chunkenc.ValNone {
					n++
				}
				got = append(got, fmt.Sprint(set.At().Labels(), n))
			}
			if set.Err() != nil {
				t.Fatal(set.Err())
			}
			want := []string{
				`{__name__="http_requests_total", instance="a", job="api", replica="a"} 41`,
				`{__name__="http_requests_total", instance="b", job="api", replica="a"} 41`,
			}
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// samplesOnly asks the old way: one snappy message with all samples.
type samplesOnly struct {
	url *url.URL
	remote.ReadClient
}

func (c samplesOnly) Read(ctx context.Context, q *prompb.Query, _ bool) (storage.SeriesSet, error) {
	res, err := readSamples(ctx, c.url.String(), q)
	if err != nil {
		return nil, err
	}
	return remote.FromQueryResult(false, res), nil
}

func TestFederate(t *testing.T) {
	s := start(t, Options{ExternalLabels: labels.FromStrings("replica", "a")})
	now := time.Now().Truncate(time.Second)
	load(t, s, "load 15s\n  up{job=\"api\"} 1x8\n  old 1", now.Add(-2*time.Minute))
	load(t, s, "load 15s\n  older{replica=\"own\"} 1", now.Add(-30*time.Minute))
	code, body := get(t, s, "/federate?match[]="+url.QueryEscape(`{__name__=~"up|older"}`))
	want := fmt.Sprintf("# TYPE up untyped\nup{job=\"api\",instance=\"\",replica=\"a\"} 1 %d\n", now.UnixMilli())
	if code != http.StatusOK || body != want {
		t.Errorf("%d\n%s\nwant\n%s", code, body, want)
	}
}

func TestScrape(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\njobs_total 7\n")
	}))
	defer target.Close()
	addr := strings.TrimPrefix(target.URL, "http://")
	s := start(t, Options{
		ExternalLabels: labels.FromStrings("replica", "a"),
		Config:         fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n- job_name: text\n  static_configs: [{targets: [%q]}]\n", addr),
		ScrapeConfigs:  []*config.ScrapeConfig{scrapeConfig(t, "value", addr)},
	})
	c := promAPI(t, s)
	eventually(t, "both jobs are scraped", func() bool {
		v, _, err := c.Query(t.Context(), `jobs_total == 7`, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return len(v.(model.Vector)) == 2
	})
	targets, err := c.Targets(t.Context())
	if err != nil || len(targets.Active) != 2 || targets.Active[0].Health != promv1.HealthGood {
		t.Errorf("targets: %+v, %v", targets, err)
	}
	meta, err := c.Metadata(t.Context(), "jobs_total", "")
	if err != nil || len(meta["jobs_total"]) != 1 || meta["jobs_total"][0].Type != promv1.MetricTypeCounter {
		t.Errorf("metadata: %+v, %v", meta, err)
	}
}

func scrapeConfig(t testing.TB, job, addr string) *config.ScrapeConfig {
	t.Helper()
	c, err := config.Load(fmt.Sprintf("scrape_configs:\n- job_name: %s\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  static_configs: [{targets: [%q]}]\n", job, addr), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.ScrapeConfigs[0]
}

func TestStatus(t *testing.T) {
	s := start(t, Options{
		ExternalLabels: labels.FromStrings("cluster", "jaguar", "replica", "a"), Retention: 30 * 24 * time.Hour, LookbackDelta: time.Minute,
		MaxSamples: 12345,
		Features:   []string{"promql-experimental-functions"},
	})
	if c := data[struct{ YAML string }](t, s, "/api/v1/status/config").YAML; !strings.Contains(c, "external_labels:\n    cluster: jaguar\n    replica: a\n") || !strings.Contains(c, "time: 30d") {
		t.Errorf("status/config:\n%s", c)
	}
	flags := data[map[string]string](t, s, "/api/v1/status/flags")
	for name, want := range map[string]string{
		"query.lookback-delta": "1m", "query.max-samples": "12345", "query.timeout": "2m",
		"enable-feature":              "promql-experimental-functions",
		"storage.tsdb.retention.time": "30d", "storage.tsdb.path": s.Dir(), "web.listen-address": strings.TrimPrefix(s.URL(), "http://"),
	} {
		if flags[name] != want {
			t.Errorf("status/flags: %s = %q, want %q", name, flags[name], want)
		}
	}
	build := data[map[string]string](t, s, "/api/v1/status/buildinfo")
	if build["version"] != Version || build["goVersion"] != runtime.Version() {
		t.Errorf("status/buildinfo: %v", build)
	}
	info := data[struct {
		StorageRetention    string
		ReloadConfigSuccess bool
	}](t, s, "/api/v1/status/runtimeinfo")
	if !info.ReloadConfigSuccess || info.StorageRetention != "30d" {
		t.Errorf("status/runtimeinfo: %+v", info)
	}
	feat := data[map[string]map[string]bool](t, s, "/api/v1/features")
	if !feat["promql"]["experimental_functions"] && !feat["promql_functions"]["limitk"] && !feat["promql_operators"]["limitk"] {
		t.Errorf("features do not show the experimental functions: %v", feat)
	}
	for _, path := range []string{
		"/-/ready", "/-/healthy", "/api/v1/status/tsdb", "/api/v1/status/walreplay", "/api/v1/targets", "/api/v1/rules", "/api/v1/alerts",
		"/api/v1/alertmanagers", "/api/v1/format_query?query=up",
		"/api/v1/parse_query?query=up", "/api/v1/query_exemplars?query=up", "/api/v1/targets/metadata", "/api/v1/notifications", "/version",
		"/debug/pprof/cmdline",
	} {
		if code, body := get(t, s, path); code != http.StatusOK {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	if code, _ := get(t, s, "/api/v1/nothing"); code != http.StatusNotFound {
		t.Errorf("an unknown path: %d", code)
	}
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`github\.com/prometheus/prometheus v0\.(\d)(\d\d)\.(\d+)\n`).FindSubmatch(text)
	if m == nil {
		t.Fatal("go.mod does not require prometheus/prometheus at v0.XYY.Z")
	}
	if want := fmt.Sprintf("%s.%s.%s", m[1], strings.TrimPrefix(string(m[2]), "0"), m[3]); want != Version {
		t.Errorf("Version is %s, go.mod has that of %s", Version, want)
	}
}

func TestMetricsAreTheShardsOwn(t *testing.T) {
	a, b := start(t, Options{}), start(t, Options{})
	load(t, a, jobs, epoch)
	for _, path := range []string{"/api/v1/query?query=up", "/api/v1/query?query=up", "/federate?match[]=up"} {
		get(t, a, path)
	}
	_, inA := get(t, a, "/metrics")
	_, inB := get(t, b, "/metrics")
	for _, want := range []string{
		"\nprometheus_tsdb_head_series 5\n", "\nprometheus_http_requests_total{code=\"200\",handler=\"/api/v1/query\"} 2\n",
		"\nprometheus_ready 1\n", "\nprometheus_engine_queries 0\n",
		"version=\"" + Version + "\"", "\nprocess_resident_memory_bytes ", "\ngo_goroutines ",
		"\nprometheus_config_last_reload_successful 1\n", "\nprometheus_tsdb_head_max_time_seconds 600\n",
	} {
		if !strings.Contains(inA, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	for _, want := range []string{
		"\nprometheus_tsdb_head_series 0\n",
		"\nprometheus_http_requests_total{code=\"200\",handler=\"/api/v1/query\"} 0\n",
	} {
		if !strings.Contains(inB, want) {
			t.Errorf("/metrics of the other shard lacks %q", want)
		}
	}
}

func TestRoutePrefix(t *testing.T) {
	s := start(t, Options{RoutePrefix: "/prom/"})
	if !strings.HasSuffix(s.URL(), "/prom") {
		t.Errorf("URL is %s", s.URL())
	}
	for _, path := range []string{"/api/v1/labels", "/-/ready", "/metrics", "/federate?match[]=up"} {
		if code, body := get(t, s, path); code != http.StatusOK {
			t.Errorf("%s: %d %.100s", path, code, body)
		}
	}
	res, err := client.Get(strings.TrimSuffix(s.URL(), "/prom") + "/api/v1/labels")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("without the prefix: %d", res.StatusCode)
	}
}

// hangingRead is a remote_read endpoint that says when a request begins and ends, and answers none.
func hangingRead(t testing.TB) (conf string, begun, ended <-chan struct{}) {
	t.Helper()
	b, e := make(chan struct{}, 1), make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		b <- struct{}{}
		<-r.Context().Done()
		e <- struct{}{}
	}))
	t.Cleanup(srv.Close)
	return fmt.Sprintf("remote_read: [{url: %q, read_recent: true, remote_timeout: 1h}]\n", srv.URL), b, e
}

func TestClientThatLeavesCancelsItsQuery(t *testing.T) {
	conf, begun, ended := hangingRead(t)
	s := start(t, Options{Config: conf})
	for _, path := range []string{"/api/v1/query?query=up", "/api/v1/query_range?query=up&start=0&end=60&step=15", "/api/v1/series?match[]=up"} {
		t.Run(path, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				res, err := client.Do(req)
				if err == nil {
					res.Body.Close()
				}
				done <- err
			}()
			<-begun
			cancel()
			<-ended
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("the client saw %v", err)
			}
		})
	}
}

func TestCloseEndsWhatIsRunning(t *testing.T) {
	conf, begun, ended := hangingRead(t)
	s := start(t, Options{Config: conf})
	dir := s.Dir()
	done := make(chan error, 1)
	go func() {
		res, err := client.Get(s.URL() + "/api/v1/query?query=up")
		if err == nil {
			res.Body.Close()
		}
		done <- err
	}()
	<-begun
	silent, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://")) // says nothing, and is closed too
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	<-done
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection is still open")
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://")); err == nil {
		t.Error("the port is still open")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary directory is still there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		opts Options
		want string
	}{
		{"unknown feature", t.Context(), Options{Features: []string{"old-ui"}}, `feature "old-ui" cannot be had`},
		{"negative bounds, all named", t.Context(), Options{Timeout: -1, MaxSamples: -2}, "Timeout is -1ns: it must not be negative"},
		{"broken configuration", t.Context(), Options{Config: "scrape_configs: 7"}, "the shard's prometheus.yml"},
		{"remote_write", t.Context(), Options{Config: "remote_write: [{url: http://127.0.0.1:1/}]"}, "remote_write cannot be had"},
		{"one job twice", t.Context(), Options{ScrapeConfigs: []*config.ScrapeConfig{
			scrapeConfig(t, "a", "x:1"),
			scrapeConfig(t, "a", "x:1"),
		}}, "job names must be unique"},
		{"port taken", t.Context(), Options{Listen: taken.Addr().String()}, "listen on " + taken.Addr().String()},
		{"no such blocks", t.Context(), Options{Blocks: []string{filepath.Join(t.TempDir(), "none")}}, "blocks directory"},
		{"broken rules", t.Context(), Options{Config: "rule_files: [" + writeFile(t, "groups: [{name: a, rules: [{record: b, expr: 'sum('}]}]") + "]"}, "rule manager"},
		{"ended context", cancelled, Options{}, "context canceled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			s, err := Start(tc.ctx, tc.opts)
			if err == nil {
				s.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q\nlacks %q", err, tc.want)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func writeFile(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRulesAndReload(t *testing.T) {
	rules := writeFile(t, "groups: [{name: a, interval: 1s, rules: [{record: two, expr: vector(2)}, {alert: Always, expr: vector(1)}]}]")
	s := start(t, Options{Config: "rule_files: [" + rules + "]", EnableLifecycle: true})
	c := promAPI(t, s)
	eventually(t, "the rule is recorded", func() bool {
		v, _, err := c.Query(t.Context(), "two", time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return v.String() != ""
	})
	eventually(t, "the alert, which is evaluated after it, fires", func() bool {
		alerts, err := c.Alerts(t.Context())
		return err == nil && len(alerts.Alerts) == 1
	})
	reload := func() (int, string) {
		res, err := client.Post(s.URL()+"/-/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if err := os.WriteFile(rules, []byte("groups: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, body := reload(); code != http.StatusOK {
		t.Errorf("reload: %d %s", code, body)
	}
	if g, err := c.Rules(t.Context(), nil); err != nil || len(g.Groups) != 0 {
		t.Errorf("rules after the reload: %v, %v", g, err)
	}
	if err := os.WriteFile(rules, []byte("groups: 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, body := reload(); code != http.StatusInternalServerError || !strings.Contains(body, "rule manager") {
		t.Errorf("broken reload: %d %s", code, body)
	}
	if _, m := get(t, s, "/metrics"); !strings.Contains(m, "\nprometheus_config_last_reload_successful 0\n") {
		t.Error("the metric does not show that the reload failed")
	}
}

func TestDirIsReopened(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Options{Dir: dir})
	load(t, s, jobs, epoch)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, Options{Dir: dir})
	v, _, err := promAPI(t, s).Query(t.Context(), `count({job="api"})`, epoch.Add(time.Minute))
	if err != nil || v.String() != "{} => 5 @[60]" {
		t.Errorf("after the second start: %v, %v", v, err)
	}
}

func TestCost(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	start(t, Options{}) // what is shared is paid by the first
	const n = 8
	h, g := heap(), runtime.NumGoroutine()
	for range n {
		start(t, Options{})
	}
	perShard, goroutines := (heap()-h)/n, (runtime.NumGoroutine()-g)/n
	t.Logf("an idle shard: %d KiB of heap, %d goroutines", perShard>>10, goroutines)
	if perShard > 3<<20 || goroutines > 20 {
		t.Errorf("an idle shard costs more than doc.go says: %d KiB of heap, %d goroutines", perShard>>10, goroutines)
	}
}
