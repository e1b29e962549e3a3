package realpromtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/realprom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

const series = `load 15s
  http_requests_total{job="api", instance="a", code="200"} 0+15x120
  http_requests_total{job="api", instance="b", code="200"} 0+30x120
  http_requests_total{job="api", instance="b", code="500"} _x60 0+1x40 stale
  up{job="api", instance="a"} 1x120
  up{job="api", instance="b"} 1x110 0x10
  temperature{room="é"} 20-0.25x120
  own{replica="mine"} 1x120
  latency_bucket{le="0.1"} 0+1x120
  latency_bucket{le="1"} 0+2x120
  latency_bucket{le="+Inf"} 0+3x120
  native{job="api"} {{schema:0 sum:4 count:4 buckets:[1 2 1]}}+{{schema:0 sum:2 count:2 buckets:[0 1 1]}}x120
`

// TestEmbeddedShardAnswersAsTheRealServer asks localprom and a real server, which hold the same
// blocks, the same things and compares the answers byte for byte (statuses, headers of content,
// JSON), but for what differs by nature.
func TestEmbeddedShardAnswersAsTheRealServer(t *testing.T) {
	end := time.Now().Add(-30 * time.Second).Truncate(15 * time.Second) // federation answers from the last five minutes
	begin := end.Add(-30 * time.Minute)
	blocks := t.TempDir()
	func() {
		s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.LoadAt(series, begin); err != nil {
			t.Fatal(err)
		}
		if err := s.DB().Snapshot(blocks, true); err != nil {
			t.Fatal(err)
		}
	}()
	ext := labels.FromStrings("cluster", "jaguar", "replica", "$a")
	local, err := localprom.Start(t.Context(), localprom.Options{Blocks: []string{blocks}, ExternalLabels: ext})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	server := Start(t, realprom.Options{Blocks: []string{blocks}, ExternalLabels: ext})

	at := func(d time.Duration) string {
		return strconv.FormatFloat(float64(begin.Add(d).UnixMilli())/1000, 'f', -1, 64)
	}
	q := func(path string, kv ...string) string {
		v := url.Values{}
		for i := 0; i < len(kv); i += 2 {
			v.Add(kv[i], kv[i+1])
		}
		return path + "?" + v.Encode()
	}
	instant := func(expr string) string { return q("/api/v1/query", "query", expr, "time", at(20*time.Minute)) }
	ranged := func(expr string) string {
		return q("/api/v1/query_range", "query", expr, "start", at(0), "end", at(30*time.Minute), "step", "37")
	}
	paths := []string{
		instant(`up`), instant(`{job="api"}`), instant(`sum by (code) (rate(http_requests_total[5m]))`),
		instant(`histogram_quantile(0.9, rate(native[5m]))`),
		instant(`http_requests_total[2m]`), instant(`1+1`), instant(`"text"`), instant(`sum(`), instant(`{le!=""}`), instant(`{le=~".*"}`),
		instant(`temperature{room="é"}`),
		instant(`max_over_time(up[10m:1m])`), instant(`limitk(1, up)`), instant(`rate(temperature[5m])`),
		instant(`up * on (instance) group_left http_requests_total`),
		ranged(`rate(http_requests_total[2m])`), ranged(`histogram_quantile(0.9, rate(latency_bucket[5m]))`),
		ranged(`topk(1, http_requests_total)`), ranged(`native`), ranged(`own`), ranged(`absent(nothing)`),
		q("/api/v1/query_range", "query", "up", "start", "0", "end", "1000000", "step", "1"),
		q("/api/v1/query_range", "query", "up", "start", "5", "end", "1", "step", "1"), q("/api/v1/query_range", "query", "up"),
		q("/api/v1/query", "query", "up", "time", "yesterday"), q("/api/v1/query", "query", "up", "timeout", "never"),
		q("/api/v1/series", "match[]", `{__name__=~"up|own"}`, "start", at(0), "end", at(time.Hour)),
		q("/api/v1/series", "match[]", `{le!=""}`), q("/api/v1/series"), q("/api/v1/series", "match[]", "{}"),
		q("/api/v1/series", "match[]", `{__name__!=""}`, "limit", "2"), q("/api/v1/series", "match[]", `up`, "start", "0", "end", "1"),
		"/api/v1/labels", q("/api/v1/labels", "match[]", "up"), q("/api/v1/labels", "limit", "1"),
		"/api/v1/label/instance/values", "/api/v1/label/__name__/values", q("/api/v1/label/le/values", "match[]", "latency_bucket"),
		"/api/v1/label/replica/values", "/api/v1/label/bad-name/values", "/api/v1/label/none/values",
		q("/api/v1/format_query", "query", "sum(up)by(job)"), q("/api/v1/parse_query", "query", "up"), "/api/v1/metadata",
		"/api/v1/targets", "/api/v1/rules", "/api/v1/alerts", "/api/v1/alertmanagers",
		q("/api/v1/query_exemplars", "query", "up", "start", "0", "end", "1"), "/api/v1/status/config", "/api/v1/status/tsdb",
		"/api/v1/status/walreplay", "/api/v1/nothing", "/-/ready", "/-/healthy", "/-/reload",
		"/api/v1/admin/tsdb/snapshot", "/api/v1/read",
		q("/federate", "match[]", `{__name__=~"up|own|http_requests_total|latency_bucket|temperature"}`), q("/federate", "match[]", "none"), q("/federate", "match[]", "{}"), "/federate",
	}
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			a, b := ask(t, local.URL(), method, path), ask(t, server.URL(), method, path)
			if a != b {
				t.Errorf("%s %s\nembedded: %s\nreal:     %s", method, path, a, b)
			}
		}
	}
	for _, matcher := range []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "job", "api"), labels.MustNewMatcher(labels.MatchEqual, "replica", "mine"),
		labels.MustNewMatcher(labels.MatchEqual, "replica", "$a"),
		labels.MustNewMatcher(labels.MatchRegexp, "replica", ".+"), labels.MustNewMatcher(labels.MatchEqual, "cluster", "jaguar"),
	} {
		a, b := read(t, local.URL(), begin, end, matcher), read(t, server.URL(), begin, end, matcher)
		if a != b {
			t.Errorf("remote read of %s\nembedded: %s\nreal:     %s", matcher, a, b)
		}
		if matcher.Value == "api" && !strings.Contains(a, `cluster="jaguar"`) {
			t.Errorf("remote read of %s lacks the external label:\n%s", matcher, a)
		}
	}
	compareFlags(t, local.URL(), server.URL())
	compareFeatures(t, local.URL(), server.URL())
	if !strings.Contains(ask(t, local.URL(), http.MethodGet, paths[0]), `"instance":"a"`) {
		t.Error("the suite compares nothing: up has no series")
	}
}

// compareFlags: every flag that the embedded shard shows is one of the server's, with the server's
// value unless it is named here.
func compareFlags(t *testing.T, embedded, real string) {
	t.Helper()
	a, b := data[map[string]string](t, embedded+"/api/v1/status/flags"), data[map[string]string](t, real+"/api/v1/status/flags")
	differ := []string{"storage.tsdb.path", "web.listen-address", "storage.tsdb.block-reload-interval"} // these are the shard's own
	for name, v := range a {
		want, ok := b[name]
		if !ok {
			t.Errorf("status/flags: the server has no --%s", name)
		}
		if v != want && !slices.Contains(differ, name) {
			t.Errorf("status/flags: --%s is %q in the shard, %q in the server", name, v, want)
		}
	}
}

// compareFeatures: the same features, but for the service discoveries, of which neither build has
// all.
func compareFeatures(t *testing.T, embedded, real string) {
	t.Helper()
	a, b := data[map[string]map[string]bool](t, embedded+"/api/v1/features"), data[map[string]map[string]bool](t, real+"/api/v1/features")
	delete(a, "service_discovery_providers")
	delete(b, "service_discovery_providers")
	for category := range b {
		if _, ok := a[category]; !ok {
			t.Errorf("features: the shard lacks the category %s", category)
		}
	}
	for category, fs := range a {
		if !maps.Equal(fs, b[category]) {
			t.Errorf("features of %s\nembedded: %v\nreal:     %v", category, fs, b[category])
		}
	}
}

// data is the data field of an answer.
func data[T any](t *testing.T, url string) T {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ Data T }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.Data
}

// ask returns status, content type and body of an answer, with the parts taken out that differ by
// nature.
func ask(t *testing.T, base, method, path string) string {
	t.Helper()
	var body io.Reader
	target := base + path
	if p, form, ok := strings.Cut(path, "?"); ok && method == http.MethodPost {
		target, body = base+p, strings.NewReader(form)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(path, "/federate") {
		// Families are not sorted by series: the order within a family is that of a sort by name
		// only.
		lines := strings.Split(string(text), "\n")
		slices.Sort(lines)
		text = []byte(strings.Join(lines, "\n"))
	}
	if strings.HasPrefix(path, "/api/v1/query?") {
		text = sortVector(text) // the order of an instant vector is not defined
	}
	return fmt.Sprintf("%d %s %s", res.StatusCode, res.Header.Get("Content-Type"), bytes.TrimSpace(text))
}

func sortVector(text []byte) []byte {
	var answer struct {
		Data struct {
			ResultType string
			Result     []json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Data.ResultType != "vector" {
		return text
	}
	slices.SortFunc(answer.Data.Result, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	out, err := json.Marshal(answer)
	if err != nil {
		return text
	}
	return out
}

// read returns what remote read answers, in streamed chunks.
func read(t *testing.T, base string, begin, end time.Time, m *labels.Matcher) string {
	t.Helper()
	u, err := url.Parse(base + "/api/v1/read")
	if err != nil {
		t.Fatal(err)
	}
	c, err := remote.NewReadClient("test", &remote.ClientConfig{
		URL: &commonconfig.URL{URL: u}, Timeout: model.Duration(time.Minute),
		ChunkedReadLimit: config.DefaultChunkedReadLimit,
	},
		commonconfig.WithKeepAlivesDisabled())
	if err != nil {
		t.Fatal(err)
	}
	q, err := remote.ToQuery(begin.UnixMilli(), end.UnixMilli(), []*labels.Matcher{m}, nil)
	if err != nil {
		t.Fatal(err)
	}
	set, err := c.Read(t.Context(), q, true)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var it chunkenc.Iterator
	for set.Next() {
		fmt.Fprintf(&b, "%s:", set.At().Labels())
		it = set.At().Iterator(it)
		for v := it.Next(); v != chunkenc.ValNone; v = it.Next() {
			if v == chunkenc.ValFloat {
				ts, f := it.At()
				fmt.Fprintf(&b, " %d=%v", ts, f)
			} else {
				ts, h := it.AtFloatHistogram(nil)
				fmt.Fprintf(&b, " %d=%v", ts, h)
			}
		}
		b.WriteByte('\n')
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return b.String()
}
