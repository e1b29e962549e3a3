package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// until is when the clusters of experiments/testdata/setup.load are looked at.
var until = time.UnixMilli(0).Add(100 * time.Minute).UTC()

// open makes an instance that ends with the test.
func open(t testing.TB, s backend.DataSourceInstanceSettings) *Datasource {
	t.Helper()
	s.Type, s.UID, s.Name = ID, "u", "Experiments"
	i, err := New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	d := i.(*Datasource)
	d.now = func() time.Time { return until }
	t.Cleanup(d.Dispose)
	return d
}

// served is an instance whose proxy answers by h.
func served(t testing.TB, jsonData string, h http.HandlerFunc) *Datasource {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return open(t, backend.DataSourceInstanceSettings{URL: srv.URL, JSONData: []byte(jsonData)})
}

// setup is an instance over a Prometheus with experiments/testdata/setup.load, without the lines that have one of the texts.
func setup(t testing.TB, without ...string) *Datasource {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "experiments", "testdata", "setup.load"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(string(text), "\n") {
		keep := true
		for _, w := range without {
			keep = keep && !strings.Contains(line, w)
		}
		if keep {
			lines = append(lines, line)
		}
	}
	shard, err := localprom.Start(context.Background(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shard.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := shard.Load(strings.Join(lines, "\n")); err != nil {
		t.Fatal(err)
	}
	return open(t, backend.DataSourceInstanceSettings{URL: shard.URL()})
}

// queries makes a request of the JSON of queries, which are called A, B and so on.
func queries(list ...string) *backend.QueryDataRequest {
	req := &backend.QueryDataRequest{}
	for i, q := range list {
		req.Queries = append(req.Queries, backend.DataQuery{
			RefID: string(rune('A' + i)), JSON: []byte(q), TimeRange: backend.TimeRange{From: until.Add(-time.Hour), To: until}, MaxDataPoints: 100, Interval: time.Minute,
		})
	}
	return req
}

func ask(t testing.TB, d *Datasource, list ...string) backend.Responses {
	t.Helper()
	resp, err := d.QueryData(t.Context(), queries(list...))
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Responses) != len(list) {
		t.Fatalf("%d answers to %d queries", len(resp.Responses), len(list))
	}
	return resp.Responses
}

// get calls a resource.
func get(t testing.TB, d *Datasource, method, path, params string) (int, string, map[string][]string) {
	t.Helper()
	var got *backend.CallResourceResponse
	err := d.CallResource(t.Context(), &backend.CallResourceRequest{Method: method, Path: path, URL: path + "?" + params}, backend.CallResourceResponseSenderFunc(
		func(r *backend.CallResourceResponse) error {
			if got != nil {
				t.Errorf("%s: a second answer", path)
			}
			got = r
			return nil
		}))
	if err != nil || got == nil {
		t.Fatalf("%s: %v", path, err)
	}
	if !json.Valid(got.Body) || got.Headers["Content-Type"][0] != "application/json" {
		t.Errorf("%s: no JSON: %s", path, got.Body)
	}
	return got.Status, string(got.Body), got.Headers
}

const good = `{"status":"success","data":{"resultType":"vector","result":[]}}`

func TestQueries(t *testing.T) {
	d := setup(t)
	got := ask(t, d,
		`{"queryType":"promql","instant":true,"expr":"sum(experiment:pod:gpus{$__experiment})","clusters":["full"]}`,
		`{"queryType":"experiments","clusters":["full"]}`,
		`{"queryType":"pending","clusters":["no-labels"]}`,
		`{"queryType":"nonsense"}`,
		`[`,
		`{"queryType":"promql","expr":"sum("}`,
		`{"queryType":"pods","clusters":["full"]}`)
	first := got["A"]
	if first.Error != nil || first.Status != 200 || len(first.Frames) != 1 || first.Frames[0].RefID != "A" || first.Frames[0].Meta.Type != data.FrameTypeNumericMulti ||
		first.Frames[0].Meta.ExecutedQueryString != `sum(experiment:pod:gpus{cluster="full"})` {
		t.Fatalf("%+v", first)
	}
	if v, ok := first.Frames[0].Fields[0].ConcreteAt(0); !ok || v != 8.0 {
		t.Errorf("GPUs: %v", v)
	}
	for ref, want := range map[string]struct {
		status backend.Status
		says   string
	}{
		"C": {http.StatusFailedDependency, "--metric-labels-allowlist=pods=[experiment,"},
		"D": {400, `query D: queryType: "nonsense" is unknown`},
		"E": {400, "query E is not what this datasource's editor writes"},
		"F": {400, "parse error"},
	} {
		r := got[ref]
		if r.Error == nil || r.Status != want.status || r.ErrorSource != backend.ErrorSourceDownstream || !backend.IsDownstreamError(r.Error) || !strings.Contains(r.Error.Error(), want.says) {
			t.Errorf("%s: %d %s %v, want %d with %q", ref, r.Status, r.ErrorSource, r.Error, want.status, want.says)
		}
	}
	for _, ref := range []string{"B", "G"} {
		if got[ref].Error != nil || got[ref].Frames[0].Rows() != 1 {
			t.Errorf("%s: %v", ref, got[ref].Error)
		}
	}
	req := queries(`{"queryType":"experiments"}`)
	req.Queries[0].TimeRange.From = until
	if resp, err := d.QueryData(t.Context(), req); err != nil || resp.Responses["A"].Status != 400 || !strings.Contains(resp.Responses["A"].Error.Error(), "ends before it begins") {
		t.Errorf("an empty range: %+v, %v", resp, err)
	}
}

// A panel that shows today asks until midnight: instant queries are asked now, not then.
func TestRangeInTheFuture(t *testing.T) {
	var asked []string
	d := served(t, "", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.FormValue("time"))
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`))
	})
	req := queries(`{"queryType":"promql","expr":"up","instant":true}`)
	req.Queries[0].TimeRange.To = until.Add(6 * time.Hour)
	resp, err := d.QueryData(t.Context(), req)
	if err != nil || resp.Responses["A"].Error != nil || len(asked) != 1 || asked[0] != strconv.FormatInt(until.Unix(), 10) {
		t.Errorf("asked at %v, want %d: %v, %v", asked, until.Unix(), err, resp.Responses["A"].Error)
	}
	req.Queries[0].TimeRange.From = until.Add(time.Hour)
	resp, err = d.QueryData(t.Context(), req)
	if err != nil || resp.Responses["A"].Error == nil || !strings.Contains(resp.Responses["A"].Error.Error(), "future") || len(asked) != 1 {
		t.Errorf("a range in the future: %v, %v", err, resp.Responses["A"].Error)
	}
}

// Every type of query has a handler.
func TestHandlers(t *testing.T) {
	for _, kind := range model.QueryTypes {
		if experiments.Handlers[kind] == nil {
			t.Errorf("%s has none", kind)
		}
	}
	if len(experiments.Handlers) != len(model.QueryTypes) {
		t.Errorf("%d handlers of %d types", len(experiments.Handlers), len(model.QueryTypes))
	}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
	}{
		{&prom.Refusal{Status: 422}, 422},
		{fmt.Errorf("wrapped: %w", &prom.Refusal{Status: 429}), 429},
		{&prom.Refusal{Status: 401}, 401},
		{&prom.Refusal{Status: 200}, 502},
		{&prom.Refusal{Status: 500}, 502},
		{&prom.Refusal{Status: 503}, 503},
		{&prom.Failure{Status: 504}, 504},
		{&experiments.SetupError{}, 424},
		{fmt.Errorf("given up: %w", context.Canceled), 499},
		{context.DeadlineExceeded, 504},
		{errors.New("20001 pods are chosen"), 400},
		{errPanic, 500},
	} {
		r := failed(tc.err)
		source := backend.ErrorSourceDownstream
		if tc.status == 500 {
			source = backend.ErrorSourcePlugin
		}
		if int(r.Status) != tc.status || r.ErrorSource != source || backend.IsDownstreamError(r.Error) != (source == backend.ErrorSourceDownstream) || r.Error.Error() != tc.err.Error() {
			t.Errorf("%v: %d %s, want %d %s", tc.err, r.Status, r.ErrorSource, tc.status, source)
		}
	}
}

// panics is a proxy's client that panics.
type panics struct{}

func (panics) Instant(context.Context, string, time.Time) (prom.Answer, error) { panic("secret") }
func (panics) Range(context.Context, string, time.Time, time.Time, time.Duration) (prom.Answer, error) {
	panic("secret")
}

func TestPanics(t *testing.T) {
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"version":"1"}}`)
	})
	d.asker = panics{}
	for ref, r := range ask(t, d, `{"queryType":"promql","expr":"up"}`, `{"queryType":"experiments"}`, `{"queryType":"cost"}`) { // the second asks in goroutines
		if r.Status != 500 || r.ErrorSource != backend.ErrorSourcePlugin || !errors.Is(r.Error, errPanic) || strings.Contains(r.Error.Error(), "secret") {
			t.Errorf("%s: %d %s %v", ref, r.Status, r.ErrorSource, r.Error)
		}
	}
	if h, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{}); err != nil || h.Status != backend.HealthStatusError || h.Message != errPanic.Error() {
		t.Errorf("%+v, %v", h, err)
	}
	for _, path := range []string{"health", "experiments", "teams"} {
		if status, body, _ := get(t, d, "GET", path, ""); status != 500 || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Settings that cannot be used are the answer of everything, never an error of the protocol.
func TestBrokenSettings(t *testing.T) {
	for _, tc := range []struct {
		url, jsonData, says string
	}{
		{"", "", "has no URL"},
		{"ftp://x", "", "must begin with"},
		{"http://x", "[", "settings"},
		{"http://x", `{"idleBelow":-1,"currency":"x"}`, "idleBelow"},
		{"http://x", `{"access":5}`, "wrong type"},
		{"http://x", `{"tlsAuthWithCACert":true,"serverName":5}`, "wrong type"},
		{"http://x", `{"keepCookies":"a"}`, "keepCookies"},
	} {
		d := open(t, backend.DataSourceInstanceSettings{URL: tc.url, JSONData: []byte(tc.jsonData)})
		r := ask(t, d, `{}`)["A"]
		if r.Error == nil || r.Status != 400 || r.ErrorSource != backend.ErrorSourceDownstream || !strings.Contains(r.Error.Error(), tc.says) {
			t.Errorf("%s %s: %d %v, want one with %q", tc.url, tc.jsonData, r.Status, r.Error, tc.says)
		}
		if h, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{}); err != nil || h.Status != backend.HealthStatusError || !strings.Contains(h.Message, tc.says) {
			t.Errorf("%s %s: health %+v, %v", tc.url, tc.jsonData, h, err)
		}
		if status, body, _ := get(t, d, "GET", "teams", ""); status != 400 || !strings.Contains(body, tc.says) {
			t.Errorf("%s %s: resource %d %s", tc.url, tc.jsonData, status, body)
		}
	}
}

func TestHealth(t *testing.T) {
	// Of the clusters only full is left: nothing is missing.
	var others []string
	for _, c := range strings.Fields("no-labels no-names no-rules no-pods idle no-requests cpu-only others-gpus no-allocated no-dcgm no-profiling set-aside no-pod no-node no-gpu-rules no-faults no-fault-rules") {
		others = append(others, fmt.Sprintf("cluster=%q", c))
	}
	check := func(without ...string) (*backend.CheckHealthResult, health) {
		h, err := setup(t, append(without, others...)...).CheckHealth(t.Context(), &backend.CheckHealthRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var details health
		if err := json.Unmarshal(h.JSONDetails, &details); err != nil {
			t.Fatalf("%s: %v", h.JSONDetails, err)
		}
		if details.Version != localprom.Version || details.Findings == nil {
			t.Errorf("%+v", details)
		}
		return h, details
	}
	if h, d := check(); h.Status != backend.HealthStatusOk || len(d.Findings) != 0 || h.Message != "The proxy answers (version "+localprom.Version+"), and everything that is shown here is set up." {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	if h, d := check("NVLINK"); h.Status != backend.HealthStatusOk || len(d.Findings) != 1 || !strings.Contains(h.Message, "One thing is not set up: dcgm-exporter tells nothing in cluster \"full\" of NVLink") {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	if h, d := check("NVLINK", "infiniband"); h.Status != backend.HealthStatusOk || len(d.Findings) != 2 || !strings.Contains(h.Message, "2 things are not set up") ||
		!strings.Contains(d.Verbose, "dcgm-counters.csv") {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	if h, d := check("experiment:"); h.Status != backend.HealthStatusError || len(d.Findings) == 0 || !strings.Contains(h.Message, "there is nothing to show: kube-state-metrics gives no labels of pods") ||
		!strings.Contains(h.Message, "--metric-labels-allowlist=pods=[experiment,") {
		t.Errorf("%s %q %+v", h.Status, h.Message, d)
	}
	for _, tc := range []struct {
		answer http.HandlerFunc
		says   string
	}{
		{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusForbidden) }, "credentials"},
		{func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, "no Prometheus API"},
		{func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "buildinfo") {
				_, _ = io.WriteString(w, `{"status":"success","data":{"version":"1"}}`)
				return
			}
			qerr.Overload("max_concurrency", "20", time.Second, "try again", "all slots are taken").WriteTo(w)
		}, "all slots are taken"},
	} {
		h, err := served(t, "", tc.answer).CheckHealth(t.Context(), &backend.CheckHealthRequest{})
		if err != nil || h.Status != backend.HealthStatusError || !strings.Contains(h.Message, tc.says) {
			t.Errorf("%+v, %v, want one with %q", h, err, tc.says)
		}
	}
}

func TestResources(t *testing.T) {
	d := setup(t)
	for _, tc := range []struct{ path, params, want string }{
		{"teams", "", `["t"]`},
		{"teams", "cluster=nowhere", `[]`},
		{"/clusters", "experiment=e&cluster=full&cluster=idle&cluster=", `["full","idle"]`},
		{"namespaces", "team=t&cluster=full", `["ml"]`},
		{"nodes", "experiment=e&cluster=full", `["n"]`},
		{"nodes", "experiment=.%2B", `[]`},
		{"experiments", "cluster=full", `[{"name":"e","team":"t","cluster":"full","namespace":"ml","state":""}]`},
		{"experiments", "cluster=full&q=E&limit=1", `[{"name":"e","team":"t","cluster":"full","namespace":"ml","state":""}]`},
		{"experiments", "cluster=full&q=x", `[]`},
		{"experiments", "cluster=idle", `[{"name":"e","team":"t","cluster":"idle","namespace":"ml","state":"ended"}]`},
	} {
		if status, body, _ := get(t, d, "GET", tc.path, tc.params); status != 200 || body != tc.want {
			t.Errorf("%s?%s: %d %s, want %s", tc.path, tc.params, status, body, tc.want)
		}
	}
	if _, body, _ := get(t, d, "GET", "experiments", "limit=3"); strings.Count(body, `"name"`) != 3 {
		t.Errorf("three of all: %s", body)
	}
	if _, body, _ := get(t, d, "GET", "health", ""); !strings.Contains(body, `"findings":[{"missing":"`) || !strings.Contains(body, `"clusters":["no-pods"]`) {
		t.Errorf("health: %s", body)
	}
	for _, tc := range []struct {
		method, path, params string
		status               int
		says                 string
	}{
		{"GET", "", "", 404, "there are clusters, experiments, health, namespaces, nodes, teams"},
		{"GET", "../teams", "", 404, "no such resource"},
		{"GET", "teams/", "", 404, "no such resource"},
		{"GET", "//teams", "", 404, "no such resource"},
		{"GET", "api/v1/query", "query=up", 404, "no such resource"},
		{"POST", "teams", "", 405, "GET"},
		{"GET", "experiments", "limit=x", 400, "limit"},
		{"GET", "experiments", "limit=-1", 400, "limit"},
		{"GET", "experiments", "q=%zz", 400, "cannot be read"},
		{"GET", "teams", strings.Repeat("team=x&", model.MaxNames+1), 400, "names are more than"},
		{"GET", "teams", "cluster=" + strings.Repeat("x", model.MaxNameBytes+1), 400, "at most"},
	} {
		status, body, headers := get(t, d, tc.method, tc.path, tc.params)
		if status != tc.status || !strings.Contains(body, tc.says) || !strings.HasPrefix(body, `{"message":"`) {
			t.Errorf("%s %s?%.40s: %d %s, want %d with %q", tc.method, tc.path, tc.params, status, body, tc.status, tc.says)
		}
		if status == 405 && headers["Allow"][0] != "GET" {
			t.Errorf("Allow: %q", headers["Allow"])
		}
	}
	refusing := served(t, "", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) })
	if status, body, _ := get(t, refusing, "GET", "teams", ""); status != 502 || !strings.Contains(body, "credentials") {
		t.Errorf("a proxy's 401: %d %s", status, body)
	}
}

// Who asks is told to the proxy as Grafana says it; what a browser could write and what the settings do not pass on is not.
func TestHeaders(t *testing.T) {
	var (
		mu  sync.Mutex
		got []http.Header
	)
	h := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, r.Header)
		mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "buildinfo") {
			_, _ = io.WriteString(w, `{"status":"success","data":{"version":"1"}}`)
			return
		}
		_, _ = io.WriteString(w, good)
	}
	user := backend.PluginContext{User: &backend.User{Login: "ada\n\u202e<b>"}}
	secret := map[string]string{"http_Authorization": "Bearer t", "http_X-Id-Token": "i", "http_Cookie": "grafana_session=s", "http_X-Grafana-User": "eve", "http_X-Forwarded-For": "1.2.3.4", "http_Accept-Encoding": "br"}
	sent := map[string]string{"http_X-Dashboard-Uid": "d1", "http_X-Panel-Id": "7"}
	for k, v := range secret {
		sent[k] = v
	}
	asks := map[string]func(d *Datasource, p backend.PluginContext, headers map[string]string){
		"query": func(d *Datasource, p backend.PluginContext, headers map[string]string) {
			req := queries(`{"queryType":"promql","expr":"up"}`)
			req.PluginContext, req.Headers = p, headers
			if _, err := d.QueryData(t.Context(), req); err != nil {
				t.Error(err)
			}
		},
		"health": func(d *Datasource, p backend.PluginContext, headers map[string]string) {
			if _, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{PluginContext: p, Headers: headers}); err != nil {
				t.Error(err)
			}
		},
		"resource": func(d *Datasource, p backend.PluginContext, headers map[string]string) {
			req := &backend.CallResourceRequest{PluginContext: p, Method: "GET", Path: "teams", Headers: map[string][]string{}}
			for k, v := range headers {
				req.Headers[strings.TrimPrefix(k, "http_")] = []string{v}
			}
			d.resource(prom.WithHeaders(t.Context(), d.headers(p, req.GetHTTPHeaders(), nil)), req)
		},
	}
	for name, do := range asks {
		for _, tc := range []struct {
			jsonData string
			plugin   backend.PluginContext
			want     map[string]string
		}{
			{"", user, map[string]string{"X-Dashboard-Uid": "d1", "X-Panel-Id": "7", "X-Grafana-User": "ada<b>", "Authorization": "", "X-Id-Token": "", "Cookie": "", "X-Forwarded-For": "", "Accept-Encoding": "gzip"}},
			{"", backend.PluginContext{}, map[string]string{"X-Grafana-User": ""}},
			{`{"oauthPassThru":true,"keepCookies":["grafana_session"]}`, user, map[string]string{"Authorization": "Bearer t", "X-Id-Token": "i", "Cookie": "grafana_session=s", "X-Forwarded-For": ""}},
		} {
			got = nil
			do(served(t, tc.jsonData, h), tc.plugin, sent)
			if len(got) == 0 {
				t.Fatalf("%s: nothing was asked", name)
			}
			for _, header := range got {
				for k, v := range tc.want {
					if header.Get(k) != v {
						t.Errorf("%s with %s: %s is %q, want %q", name, tc.jsonData, k, header.Get(k), v)
					}
				}
			}
		}
	}
	got = nil
	asks["query"](served(t, "", h), backend.PluginContext{}, map[string]string{"FromAlert": "true", "http_X-Rule-Uid": "r1"})
	if len(got) != 1 || got[0].Get("Fromalert") != "true" || got[0].Get("X-Rule-Uid") != "r1" || got[0].Get("X-Grafana-User") != "" {
		t.Errorf("an alert: %v", got)
	}
}

// Settings of HTTP are Grafana's own.
func TestHTTPSettings(t *testing.T) {
	var got *http.Request
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, good)
	}))
	defer srv.Close()
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // is not looked at
	d := open(t, backend.DataSourceInstanceSettings{
		URL: srv.URL, BasicAuthEnabled: true, BasicAuthUser: "u", JSONData: []byte(`{"tlsSkipVerify":true,"httpHeaderName1":"X-Scope-OrgID","timeout":0}`),
		DecryptedSecureJSONData: map[string]string{"basicAuthPassword": "p", "httpHeaderValue1": "team"},
	})
	if r := ask(t, d, `{"queryType":"promql","expr":"up"}`)["A"]; r.Error != nil {
		t.Fatal(r.Error)
	}
	if u, p, ok := got.BasicAuth(); !ok || u != "u" || p != "p" || got.Header.Get("X-Scope-OrgID") != "team" {
		t.Errorf("%v", got.Header)
	}
	d = open(t, backend.DataSourceInstanceSettings{URL: srv.URL})
	if r := ask(t, d, `{"queryType":"promql","expr":"up"}`)["A"]; r.Error == nil || r.Status != 502 || !strings.Contains(r.Error.Error(), "certificate") {
		t.Errorf("a certificate that nobody knows: %d %v", r.Status, r.Error)
	}
}

// No more than maxRequests are sent at a time, and ten queries of a request run at once; who leaves while waiting for room is let go.
func TestBounds(t *testing.T) {
	var (
		mu        sync.Mutex
		now, most int
	)
	full, once := make(chan struct{}), sync.Once{}
	d := served(t, "", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if now++; now > most {
			most = now
		}
		if now == maxRequests {
			once.Do(func() { close(full) })
		}
		mu.Unlock()
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
		mu.Lock()
		now--
		mu.Unlock()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	results := make(chan backend.DataResponse, 1000)
	for range 8 {
		wg.Go(func() {
			var list []string
			for range 12 {
				list = append(list, `{"queryType":"promql","expr":"up"}`)
			}
			resp, err := d.QueryData(ctx, queries(list...))
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range resp.Responses {
				results <- r
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-full:
	case <-ended:
		t.Error("the requests ended by themselves")
	}
	cancel()
	<-ended
	close(results)
	n := 0
	for r := range results {
		if n++; r.Error == nil || r.Status != 499 || r.ErrorSource != backend.ErrorSourceDownstream {
			t.Errorf("%d %s %v", r.Status, r.ErrorSource, r.Error)
		}
	}
	if n != 96 || most != maxRequests {
		t.Errorf("%d answers, %d requests at a time", n, most)
	}
	late, stop := context.WithTimeout(t.Context(), time.Nanosecond)
	defer stop()
	<-late.Done()
	g := &gate{asker: panics{}, slots: make(chan struct{})}
	var f *prom.Failure
	if _, err := g.Instant(late, "up", until); !errors.As(err, &f) || f.Status != 504 {
		t.Errorf("%v", err)
	}
}

// The back end reads no environment, no files and no flags, and starts nothing: the catalog's rule, and everything comes from the settings. main may ask who its
// parent is, and end.
func TestImports(t *testing.T) {
	never := map[string]bool{"os/exec": true, "syscall": true, "io/ioutil": true, "flag": true, "path/filepath": true, "unsafe": true, "plugin": true, "net/rpc": true}
	dirs := []string{"..", "../model", "../parent", "../prom", "../experiments", "."}
	files := 0
	for _, dir := range dirs {
		list, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range list {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if path := strings.Trim(i.Path.Value, `"`); never[path] || path == "os" && filepath.Base(file) != "main.go" {
					t.Errorf("%s imports %s", file, path)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" && s.Sel.Name != "Exit" && s.Sel.Name != "Getppid" {
						t.Errorf("%s uses os.%s", file, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if files < 20 {
		t.Errorf("%d files: the test reads the wrong place", files)
	}
}
