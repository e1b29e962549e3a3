package inventory

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// client leaves no connections behind.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}

const textPage = `# HELP latency_seconds Everything that the server changes.
# TYPE latency_seconds histogram
latency_seconds_bucket{le="0.5",path="/"} 1
latency_seconds_bucket{le="1",path="/"} 2
latency_seconds_bucket{le="30",path="/"} 2
latency_seconds_bucket{le="1e+06",path="/"} 2
latency_seconds_bucket{le="+Inf",path="/"} 3
latency_seconds_sum{path="/"} 4
latency_seconds_count{path="/"} 3
# TYPE rpc summary
rpc{quantile="0.5"} 1
rpc{quantile="1"} 1
rpc_sum 3
rpc_count 3
# TYPE clash gauge
clash{job="other",instance="there",exported_job="twice",zone="page"} 1
clash{empty="",le="30"} 1
# TYPE jobs_total counter
jobs_total{code="200"} 3
jobs_total{code="200"} 3
jobs_total{job="",exported_instance="x"} 3
loose_bucket{le="10"} 1
odd{text="a\"b\\c\nd","é"="ü"} NaN
{"dots.in.name","label with space"="x"} 1
up{from="page"} 1
`

const openPage = `# TYPE work_seconds counter
# UNIT work_seconds seconds
work_seconds_total{kind="a"} 1 # {trace_id="b"} 0.5
work_seconds_created{kind="a"} 1.6e9
# TYPE size histogram
size_bucket{le="1"} 1
size_bucket{le="+Inf"} 2
size_sum 2
size_count 2
# TYPE build info
build_info{version="1"} 1
# TYPE state stateset
state{state="on"} 1
state{state="off"} 0
# TYPE depth gaugehistogram
depth_bucket{le="10"} 1
depth_bucket{le="+Inf"} 2
depth_gsum 2
depth_gcount 2
# EOF
`

// TestSeriesAreThoseOfTheServer scrapes pages of three formats with a real Prometheus, and compares
// what it stores with what each source says of the same pages.
func TestSeriesAreThoseOfTheServer(t *testing.T) {
	reg := prometheus.NewRegistry()
	native := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "both_seconds", Buckets: []float64{0.1, 1, 30},
		NativeHistogramBucketFactor: 1.1,
	}, []string{"path"})
	only := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "only_seconds", NativeHistogramBucketFactor: 1.1})
	plain := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "plain_seconds", Buckets: []float64{1, 2}})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "rpc_seconds", Objectives: map[float64]float64{0.5: 0.1, 1: 0.1}})
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "hits_total"})
	reg.MustRegister(native, only, plain, summary, counter)
	native.WithLabelValues("/").Observe(0.3)
	only.Observe(2)
	plain.Observe(1)
	summary.Observe(1)

	fixed := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			if _, err := io.WriteString(w, body); err != nil {
				t.Error(err)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/text", fixed("text/plain; version=0.0.4", textPage))
	mux.HandleFunc("/open", fixed(openMetricsType, openPage))
	mux.Handle("/binary", promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	host := strings.TrimPrefix(web.URL, "http://")

	formats := []string{"text", "open", "binary"}
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_native_histograms: true, always_scrape_classic_histograms: true}\nscrape_configs:\n")
	for _, name := range formats {
		fmt.Fprintf(&config, "- {job_name: %s, metrics_path: /%s, static_configs: [{targets: [%q]}]}\n", name, name, host)
	}
	// The first job again, with a label more, as Pages cannot have.
	fmt.Fprintf(&config, "- {job_name: zoned, metrics_path: /text, static_configs: [{targets: [%q], labels: {zone: a, le: t}}]}\n", host)
	fmt.Fprintf(&config, "- {job_name: honest, honor_labels: true, metrics_path: /text, static_configs: [{targets: [%q], labels: {zone: a}}]}\n", host)
	server := realpromtest.Start(t, realprom.Options{Config: config.String(), Flags: []string{"--web.enable-admin-api"}})

	stored := func() (all []string) {
		var answer struct {
			Data []map[string]string `json:"data"`
		}
		get(t, server.URL()+"/api/v1/series?"+url.Values{"match[]": {`{__name__=~".+"}`}}.Encode(), &answer)
		for _, ls := range answer.Data {
			all = append(all, labels.FromMap(ls).String())
		}
		slices.Sort(all)
		return all
	}
	var all []string
	wait(t, "the server has scraped everything", func() bool {
		all = stored()
		n := 0
		for _, s := range all {
			if strings.Contains(s, `__name__="scrape_duration_seconds"`) {
				n++
			}
		}
		return n == len(formats)+2
	})
	ofJob := func(jobs ...string) (out []string) {
		for _, s := range all {
			own := strings.Contains(s, `__name__="scrape_`) || strings.Contains(s, `__name__="up"`) && !strings.Contains(s, `from="page"`)
			if !own && slices.ContainsFunc(jobs, func(job string) bool {
				return strings.Contains(s, fmt.Sprintf(" job=%q", job)) || job == "" && !strings.Contains(s, " job=")
			}) {
				out = append(out, s)
			}
		}
		return out
	}
	if n := len(ofJob(formats...)); n < 40 {
		t.Fatalf("only %d series are stored", n)
	}

	t.Run("pages", func(t *testing.T) {
		dir := t.TempDir()
		file := url.PathEscape(host)
		write(t, dir, "text/"+file+".prom", textPage)
		write(t, dir, "open/"+file+".om.gz", zip(t, openPage))
		write(t, dir, "binary/"+file+".pb", binary(t, web.URL+"/binary"))
		src, err := Pages(dir)
		if err != nil {
			t.Fatal(err)
		}
		sameLines(t, names(t, src), ofJob(formats...))
	})
	t.Run("scrape", func(t *testing.T) {
		var targets []Target
		for _, name := range formats {
			targets = append(targets, Target{URL: web.URL + "/" + name, Job: name})
		}
		targets = append(targets, Target{URL: web.URL + "/text", Job: "zoned", Labels: map[string]string{"zone": "a", "le": "t"}})
		targets = append(targets, Target{URL: web.URL + "/text", Job: "honest", HonorLabels: true, Labels: map[string]string{"zone": "a"}})
		src, err := Scrape(client, targets)
		if err != nil {
			t.Fatal(err)
		}
		// The page of the honest job has a label job of its own on one series, and an empty one on
		// another.
		sameLines(t, names(t, src), ofJob(append(formats, "zoned", "honest", "other", "")...))
		inv, err := Collect(t.Context(), src, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"both_seconds": true, "only_seconds": true, "both_seconds_bucket": false,
			"plain_seconds_bucket": false,
		} {
			if m := inv.Metric("binary", name); m == nil || m.Native != want || m.Type != "histogram" {
				t.Errorf("%s: %+v", name, m)
			}
		}
	})
	for _, limit := range []int{0, 7, 100} {
		t.Run(fmt.Sprintf("API with a limit of %d", limit), func(t *testing.T) {
			src, err := API(client, server.URL(), APIOptions{Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			sameLines(t, names(t, src), all)
			inv, err := Collect(t.Context(), src, nil)
			if err != nil {
				t.Fatal(err)
			}
			pages, err := Scrape(client, []Target{
				{URL: web.URL + "/text", Job: "text"},
				{URL: web.URL + "/open", Job: "open"},
				{URL: web.URL + "/binary", Job: "binary"},
			})
			if err != nil {
				t.Fatal(err)
			}
			want, err := Collect(t.Context(), pages, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range want.Metrics {
				m := inv.Metric(w.Job, w.Name)
				if m == nil {
					t.Errorf("%s %s is missing", w.Job, w.Name)
					continue
				}
				if m.Name != "up" && (m.Type != w.Type || m.Native != w.Native || m.SamplesPerSecond != float64(m.Series)) {
					t.Errorf("%s %s: type %s, native %v, %g samples a second; the page says %s, %v, with %d series", w.Job, w.Name, m.Type, m.Native, m.SamplesPerSecond, w.Type, w.Native, w.Series)
				}
			}
		})
	}
	t.Run("blocks", func(t *testing.T) {
		resp, err := client.Post(server.URL()+"/api/v1/admin/tsdb/snapshot", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Blocks(server.Dir()); err == nil || !strings.Contains(err.Error(), "snapshot") {
			t.Errorf("a server with nothing but a head: %v", err)
		}
		snapshots, err := filepath.Glob(filepath.Join(server.Dir(), "snapshots", "*"))
		if err != nil || len(snapshots) != 1 {
			t.Fatalf("%v, %v", snapshots, err)
		}
		src, err := Blocks(snapshots[0])
		if err != nil {
			t.Fatal(err)
		}
		all = stored()
		sameLines(t, names(t, src), all)
		inv, err := Collect(t.Context(), src, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m := inv.Metric("binary", "both_seconds"); m == nil || !m.Native {
			t.Errorf("the native histogram is %+v", m)
		}
		if m := inv.Metric("binary", "both_seconds_bucket"); m == nil || m.Native {
			t.Errorf("the classic histogram is %+v", m)
		}
		// What the API says of samples is what the blocks hold, native histograms included.
		api, err := API(client, strings.Replace(server.URL(), "://", "://some:body@", 1), APIOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, begin, end := samplesOf(t, src, math.MinInt64, math.MaxInt64)
		got, _, _ := samplesOf(t, api, begin, end)
		if len(want) < 40 || !maps.Equal(got, want) {
			t.Errorf("got samples\n%v\nwant\n%v", got, want)
		}
	})
}

// names are the labels of all series, sorted.
func names(t testing.TB, src Source) []string {
	t.Helper()
	var out []string
	if err := src.Scan(t.Context(), func(s *Series) error { out = append(out, s.Labels.String()); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func binary(t testing.TB, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", protobufType)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !isProtobuf(resp.Header.Get("Content-Type")) {
		t.Fatalf("%s, %v", resp.Header.Get("Content-Type"), err)
	}
	return string(body)
}

func get(t testing.TB, url string, out any) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		t.Fatal(err)
	}
}

func wait(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// samplesOf are all samples between begin and end of half of the series, by series, and the times
// of the first and the last.
func samplesOf(t testing.TB, src Source, begin, end int64) (samples map[string]string, first, last int64) {
	t.Helper()
	samples, first, last = map[string]string{}, math.MaxInt64, math.MinInt64
	half := func(ls labels.Labels) bool { return ls.Hash()%2 == 0 || ls.Get("__name__") == "both_seconds" }
	err := src.(Sampled).Samples(t.Context(), time.Hour, half, func(s *Series, floats []promql.FPoint, histograms []promql.HPoint) error {
		if !half(s.Labels) {
			t.Errorf("%s was not wanted", s.Labels)
		}
		text := ""
		note := func(ms int64, v any) {
			if ms >= begin && ms <= end {
				text += fmt.Sprintf("%v@%d ", v, ms)
				first, last = min(first, ms), max(last, ms)
			}
		}
		for _, p := range floats {
			note(p.T, p.F)
		}
		for _, p := range histograms {
			note(p.T, p.H)
		}
		samples[s.Labels.String()] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return samples, first, last
}
