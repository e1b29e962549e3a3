package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint/endpointtest"
)

// clientAnswer is what a client read from the wire.
type clientAnswer struct {
	status  int
	header  http.Header
	body    []byte
	message struct {
		Status    string
		Data      json.RawMessage
		ErrorType string
		Error     string
		Warnings  []string
		Infos     []string
	}
}

func (a *clientAnswer) String() string {
	return fmt.Sprintf("status %d, %v: %.600s", a.status, a.header, a.body)
}

// replay sends the bytes as they are over a new connection, only with the proxy's own host:port,
// and reads one answer.
func replay(t testing.TB, base string, raw []byte) *clientAnswer {
	t.Helper()
	conn := dial(t, base)
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	host := []byte("\r\nHost: " + strings.TrimPrefix(base, "http://") + "\r\n")
	sent := bytes.Replace(raw, []byte("\r\nHost: 127.0.0.1:9090\r\n"), host, 1)
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(string(raw), " ")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	a := &clientAnswer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatalf("half an answer: %v", err)
	}
	switch enc := a.header.Get("Content-Encoding"); enc {
	case "", "snappy":
	case "gzip":
		if !bytes.Contains(raw, []byte("gzip")) {
			t.Error("gzip for a client that did not ask for it")
		}
		zr, err := gzip.NewReader(bytes.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		if a.body, err = io.ReadAll(zr); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("Content-Encoding %q, which Grafana cannot read", enc)
	}
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/json") && method != http.MethodHead {
		d := json.NewDecoder(bytes.NewReader(a.body))
		if err := d.Decode(&a.message); err != nil {
			t.Fatalf("%v in %.300q", err, a.body)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Errorf("something follows the answer: %.300q", a.body)
		}
	}
	return a
}

// clientCase is one replay: the world, the request and the answer.
type clientCase struct {
	*testing.T
	w   *clientWorld
	req endpointtest.ClientRequest
	a   *clientAnswer
}

// need is something that a client needs of its answer.
type need func(c *clientCase)

// clientNeeds says what the sender of each request needs. Every file has a row; what all clients
// need is in everyClient.
var clientNeeds = map[string][]need{
	"client-golang-delete-series":    {fails(404, "not_found")},
	"client-golang-exemplars":        {list, same, filled},
	"client-golang-label-names":      {list, same, filled},
	"client-golang-label-values":     {list, same, has(`"node"`), quiet},
	"client-golang-metadata":         {object, same, has(`"exporter_requests_total":[{"type":"counter"`)},
	"client-golang-query-get":        {result("vector"), same, filled, quiet},
	"client-golang-query":            {result("vector"), same, filled, has(`"stats":{`, `"samples"`, `"timings"`)},
	"client-golang-range":            {result("matrix"), same, filled, quiet},
	"client-golang-runtimeinfo":      {object, has(`"startTime":"`, `"reloadConfigSuccess":true`, `"goroutineCount":`)},
	"client-golang-alertmanagers":    {object, has(`"activeAlertmanagers":[`, `"droppedAlertmanagers":[`)},
	"client-golang-targets-metadata": {list},
	"client-golang-targets": {
		object,
		has(`"activeTargets":[{`, `"droppedTargets":[]`, `"health":"up"`, `"cluster":"jaguar"`, `"cluster":"ibis"`),
	},
	"client-golang-tsdb": {object, has(`"headStats":{`, `"seriesCountByMetricName":[{`, `"memoryInBytesByLabelName":[`,
		`"seriesCountByLabelValuePair":[`, `"labelValueCountByLabelName":[`)},
	"client-golang-walreplay":          {object, has(`"min":0`, `"max":0`, `"current":0`)},
	"curl-data":                        {result("vector"), same, filled},
	"curl-get":                         {result("vector"), same, filled},
	"curl-head":                        {status(405), allow("GET", "POST"), empty},
	"curl-openapi":                     {bodyHas("openapi: 3.1.0", `"/api/v1/query":`)},
	"curl-search-metrics":              {bodyHas(`{"name":"node_cpu_seconds_total"`, `{"status":"success","has_more":`)},
	"curl-search-names":                {bodyHas(`{"name":"instance"}`, `{"status":"success","has_more":false}`)},
	"curl-search-values":               {bodyHas(`{"status":"success","has_more":`)},
	"curl-json":                        {fails(400, "bad_data")},
	"curl-multipart":                   {fails(400, "bad_data")},
	"curl-plus":                        {result("vector"), same, filled},
	"grafana-11-buildinfo":             {fails(405, "bad_data"), allow("GET")},
	"grafana-11-discovery-flags":       {object, stringMap},
	"grafana-11-discovery-query":       {result("vector"), same, filled},
	"grafana-11-series-histograms":     {list, same, filled, boundedSeries},
	"grafana-11-values":                {list, same, filled},
	"grafana-12-alerting-alerts":       {object, has(`"alerts":[{`, `"alertname":"NodeIdle"`, `"state":"firing"`), eachAlertOnce},
	"grafana-12-alerting-rules":        {object, has(`"groups":[{`, `"name":"NodeIdle"`, `"type":"alerting"`), lacks(`"type":"recording"`)},
	"grafana-12-exemplars":             {list, same, filled},
	"grafana-12-ruler-mimir":           {fails(404, "not_found")},
	"grafana-12-ruler":                 {fails(404, "not_found")},
	"grafana-12-rules-subtype":         {object, has(`"groups":[{`)},
	"grafana-13-alerting":              {result("vector"), same, filled, quiet},
	"grafana-13-buildinfo":             {object, has(`"version":"3.15.0"`), lacks(`"features"`), stringMap},
	"grafana-13-custom-parameters":     {result("vector"), same, filled, has(`"stats":{`)},
	"grafana-13-health":                {result("scalar"), has(`"resultType":"scalar","result":[4,"2"]`), quiet},
	"grafana-13-incremental":           {result("matrix"), same, filled, quiet},
	"grafana-13-instant":               {result("vector"), same, filled, quiet},
	"grafana-13-labels-get":            {list, same, filled, has(`"cluster"`), lacks(`"prometheus_replica"`)},
	"grafana-13-open-exemplars":        {list, data(`[]`), quiet},
	"grafana-13-open-labels":           {list, same, filled, has(`"cluster"`), lacks(`"prometheus_replica"`)},
	"grafana-13-open-metadata":         {object, same, has(`"exporter_ready":[{"type":"gauge"`)},
	"grafana-13-open-names":            {list, same, filled, has(`"node_load1"`)},
	"grafana-13-open-rules":            {object, has(`"groups":[{`, `"type":"alerting"`, `"type":"recording"`)},
	"grafana-13-query-result":          {result("vector"), same, filled, count(5)},
	"grafana-13-range":                 {result("matrix"), same, filled, quiet},
	"grafana-13-range-fractional-step": {result("matrix"), same, filled},
	"grafana-13-range-get":             {result("matrix"), same, filled, quiet},
	"grafana-13-series-all":            {list, same, filled, boundedSeries},
	"grafana-13-series-get":            {list, same, filled, has(`"my_foo_total"`)},
	"grafana-13-series-variable":       {list, same, filled, quiet, has(`"cluster":"jaguar"`, `"cluster":"ibis"`)},
	"grafana-13-values-adhoc":          {list, data(`["gpu-1","gpu-2","gpu-3","gpu-4","gpu-5","gpu-6","gpu-7"]`), same},
	"grafana-13-values-post":           {list, same, has(`"vision-lab"`, `"research-1"`)},
	"grafana-13-values-utf8":           {list, data(`["200"]`), same},
	"keda":                             {result("vector"), same, count(1), quiet},
	"mcp-grafana-names":                {list, same, filled, has(`"node_load1"`)},
	"prometheus-mcp-names":             {list, same, filled, has(`"node_load1"`)},
	"opencost-instant":                 {result("vector"), same, filled, quiet},
	"opencost-range":                   {result("matrix"), same, filled, quiet},
	"perses-parse-query":               {status(200), same, has(`"type":"aggregation"`)},
	"perses-range":                     {result("matrix"), same, filled, quiet},
	"perses-series":                    {list, same, filled, quiet},
	"perses-values":                    {list, same, filled, quiet},
	"prometheus-adapter-query":         {result("vector"), same, filled, quiet},
	"prometheus-adapter-series":        {list, same, filled},
	"prometheus-federate":              {federated},
	"prometheus-remote-read":           {streamed},
	"prometheus-remote-read-two":       {streamed},
	"prometheus-ui-alerts":             {object, has(`"groups":[{`, `"alerts":[{`)},
	"prometheus-ui-features": {
		object, has(`"api":{`, `"admin":false`, `"remote_write_receiver":false`, `"search":true`),
		has(`"search_fuzz_alg_jarowinkler":true`, `"ui_v3":false`, `"subqueries":true`),
	},
	"prometheus-ui-format":             {data(`"sum by (job) (up)"`), same},
	"prometheus-ui-labels":             {list, same, filled, has(`"cluster"`)},
	"prometheus-ui-metadata":           {object, same, has(`"exporter_ready":[{`)},
	"prometheus-ui-names":              {list, same, filled},
	"prometheus-ui-notifications":      {fails(404, "not_found")},
	"prometheus-ui-notifications-list": {bodyHas(`"data":[]`)},
	"prometheus-ui-parse":              {status(200), same, has(`"type":"aggregation"`)},
	"prometheus-ui-query":              {result("vector"), same, filled, has(`"stats":{`)},
	"prometheus-ui-range":              {result("matrix"), same, filled, has(`"stats":{`)},
	"prometheus-ui-rules":              {object, has(`"groups":[{`, `"type":"recording"`), lacks(`"type":"alerting"`)},
	"prometheus-ui-series":             {list, same, filled, quiet},
	"prometheus-ui-scrape-pools":       {object, has(`"scrapePools":["`)},
	"prometheus-ui-targets":            {object, has(`"activeTargets":[{`)},
	"prometheus-ui-time":               {result("scalar"), quiet},
	"prometheus-ui-values":             {list, same, filled, quiet},
	"promtool-analyze":                 {result("matrix"), same, filled, has(`"histograms":[`)},
	"promtool-instant":                 {result("vector"), same, filled, quiet},
	"promtool-labels":                  {list, same, filled, narrowed},
	"promtool-range":                   {result("matrix"), same, filled, quiet},
	"promtool-series":                  {list, same, filled, narrowed},
	"thanos-rule-instant-get":          {result("vector"), same, filled, quiet},
	"thanos-rule-instant":              {result("vector"), same, filled, quiet},
	"thanos-rule-restore":              {result("matrix"), same, filled, quiet},
	"thanos-sidecar-buildinfo":         {object, has(`"version":"3.15.0"`), lacks(`"features"`)},
	"thanos-sidecar-config":            {object, has(`"yaml":"`, `groups:`)},
	"thanos-sidecar-flags":             {object, stringMap},
	"thanos-sidecar-read":              {streamed},
	"vmalert-instant-offset":           {result("vector"), same, filled, quiet},
	"vmalert-instant":                  {result("vector"), same, filled, quiet},
	"vmalert-replay":                   {result("matrix"), same, filled, quiet},
	"vmalert-restore":                  {fails(400, "bad_data")},
}

// withoutShards are the requests that are answered while no shard is: the health check above all,
// or Grafana calls the data source broken.
var withoutShards = []string{
	"client-golang-runtimeinfo", "client-golang-walreplay", "prometheus-ui-notifications-list", "curl-openapi",
	"grafana-11-discovery-flags", "grafana-13-health", "grafana-13-open-exemplars",
	"perses-parse-query", "prometheus-ui-format",
	"prometheus-ui-parse", "prometheus-ui-time", "thanos-sidecar-config", "thanos-sidecar-flags",
}

// clientSpans are the times at which the files ask, and now.
func clientSpans() []span {
	at := func(sec int64) time.Time { return time.Unix(sec, 0) }
	now := time.Now().Truncate(time.Second)
	return []span{
		{at(1754996400), at(1755003690)},        // 12 August 2025, 11:00 to 13:01:30
		{at(1787388900), at(1787392830)},        // 22 August 2026, 08:55 to 10:00:30
		{at(1791000000 - 1800), at(1791000000)}, // the end of promtool's now plus 9999 hours
		{now.Add(-30 * time.Minute), now},
	}
}

func loadClients(t testing.TB) []endpointtest.ClientRequest {
	t.Helper()
	all, err := endpointtest.Load("../endpoint/testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestClientsGetWhatTheyNeed replays every request of every client, byte for byte, over a sharded
// cluster and over a single server.
func TestClientsGetWhatTheyNeed(t *testing.T) {
	clients := loadClients(t)
	if end := clientSpans()[2].until; time.Now().Before(end) {
		t.Fatalf("the clock says %s, but the requests ask for times up to %s", time.Now(), end)
	}
	w := startClientWorld(t, map[string]int{"jaguar": 2, "ibis": 1}, clientSpans())
	w.waitRules()
	single := *w
	single.s, single.url = startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: all, shards: [{replicas: [{url: %q}]}]}]", w.one.URL()), func(o *Options) {
		o.Flags = map[string]string{"web.listen-address": "127.0.0.1:9090"}
	})
	for _, topology := range []struct {
		name string
		w    *clientWorld
	}{{"sharded", w}, {"single", &single}} {
		t.Run(topology.name, func(t *testing.T) {
			for _, req := range clients {
				t.Run(req.Name, func(t *testing.T) {
					if req.Name == "prometheus-remote-read-two" {
						t.Run("as samples", func(t *testing.T) { sampledRead(&clientCase{T: t, w: topology.w, req: req}) })
					}
					needs, ok := clientNeeds[req.Name]
					if !ok {
						t.Fatalf("nothing says what %s needs: add a row to clientNeeds", req.Client)
					}
					c := &clientCase{T: t, w: topology.w, req: req, a: replay(t, topology.w.url, req.Raw)}
					everyClient(c)
					for _, n := range needs {
						n(c)
					}
					if t.Failed() {
						t.Logf("%s\n%.400q\n%s", req.Client, req.Raw, c.a)
					}
				})
			}
		})
	}
	for name := range clientNeeds {
		if !slices.ContainsFunc(clients, func(c endpointtest.ClientRequest) bool { return c.Name == name }) {
			t.Errorf("clientNeeds has a row for %s, but there is no such file", name)
		}
	}
	t.Run("federation formats", func(t *testing.T) { federateFormats(t, w) })
	t.Run("notices", func(t *testing.T) { clientsSeeNotices(t, w, w.url, single.url) })
	t.Run("no shard answers", func(t *testing.T) { clientsWithoutShards(t, clients) })
}

// clientsWithoutShards replays everything against a proxy none of whose shards can be reached.
// Whatever needs a shard is a 502 or 503 in JSON: a 400, 403, 405 or 501 would be asked again as
// GET by Grafana or client_golang, and a 2xx would be believed by thanos rule, which does not read
// status.
func clientsWithoutShards(t *testing.T, clients []endpointtest.ClientRequest) {
	_, base := startProxy(t, t.Context(), "groups: [{name: gone, labels: {cluster: gone}, shards: [{replicas: [{url: 'http://127.0.0.1:1'}]}, {replicas: [{url: 'http://127.0.0.1:2'}]}]}]", func(o *Options) {
		o.Flags = map[string]string{"web.listen-address": "127.0.0.1:9090"}
	})
	for _, req := range clients {
		t.Run(req.Name, func(t *testing.T) {
			c := &clientCase{T: t, req: req, a: replay(t, base, req.Raw)}
			everyClient(c)
			switch {
			case req.Status != http.StatusOK || slices.Contains(withoutShards, req.Name):
				if want := clientStatus(req); c.a.status != want {
					t.Errorf("status %d, want %d", c.a.status, want)
				}
			case req.Name == "vmalert-restore": // it is no PromQL, with or without shards
				fails(400, "bad_data")(c)
			case c.a.status != 502 && c.a.status != 503:
				t.Errorf("status %d, want 502 or 503", c.a.status)
			default:
				if c.a.message.Status != "error" || c.a.message.ErrorType == "" ||
					!strings.Contains(c.a.message.Error, "gone") && !strings.Contains(c.a.message.Error, "127.0.0.1:") {
					t.Errorf("the error does not name who failed: %.300s", c.a.body)
				}
				if bytes.Contains(c.a.body, []byte(`"data"`)) {
					t.Errorf("an error with data: %.300s", c.a.body)
				}
			}
			if t.Failed() {
				t.Logf("%s\n%.400q\n%s", req.Client, req.Raw, c.a)
			}
		})
	}
}

// TestClientsAndPartialAnswers replays what rulers send while one of four shards is down: thanos
// rule with partial_response=false gets an error that it sees, with true it gets data and a
// warning.
func TestClientsAndPartialAnswers(t *testing.T) {
	w := startClientWorld(t, map[string]int{"jaguar": 1, "ibis": 1}, clientSpans()[1:])
	if err := w.servers[0].Close(); err != nil {
		t.Fatal(err)
	}
	partial := map[string]bool{
		"thanos-rule-instant": false, "thanos-rule-instant-get": true, "thanos-rule-restore": true,
		"vmalert-instant": false, "keda": false,
	}
	for _, req := range loadClients(t) {
		goesOn, ok := partial[req.Name]
		if !ok {
			continue
		}
		t.Run(req.Name, func(t *testing.T) {
			c := &clientCase{T: t, w: w, req: req, a: replay(t, w.url, req.Raw)}
			everyClient(c)
			if !goesOn {
				if c.a.status != 502 && c.a.status != 503 || c.a.message.Status != "error" || len(c.a.message.Data) > 0 {
					t.Errorf("a ruler would take this for the truth: %s", c.a)
				}
				return
			}
			if c.a.status != 200 || c.a.message.Status != "success" ||
				!slices.ContainsFunc(c.a.message.Warnings,
					func(s string) bool { return strings.Contains(s, "partial") && strings.Contains(s, "jaguar") }) {
				t.Errorf("want a success whose warning names the shard: %s", c.a)
			}
		})
	}
}

// clientStatus is the status that a client gets: the parser's, unless the expression is refused
// later.
func clientStatus(req endpointtest.ClientRequest) int {
	if req.Name == "vmalert-restore" {
		return 400
	}
	return req.Status
}

// everyClient checks what all clients need.
func everyClient(c *clientCase) {
	a := c.a
	if a.status >= 300 && a.status < 400 || a.header.Get("Location") != "" {
		c.Errorf("a redirect: clients turn a redirected POST into a GET without a body")
	}
	want := "application/json"
	switch {
	case a.status != 200:
	case c.req.Endpoint == "read":
		want = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
	case c.req.Endpoint == "openapi":
		want = "application/yaml; charset=utf-8"
	case strings.HasPrefix(c.req.Endpoint, "search_"):
		want = "application/x-ndjson; charset=utf-8"
	case c.req.Endpoint == "federate":
		want = "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8" // what Prometheus itself answers; see federateFormats
	}
	if got := a.header.Values("Content-Type"); !reflect.DeepEqual(got, []string{want}) {
		c.Errorf("Content-Type %q, want %q", got, want)
	}
	if a.header.Get("X-Content-Type-Options") != "nosniff" {
		c.Error("no X-Content-Type-Options: nosniff")
	}
	verdict := a.header.Get(verdictHeader)
	if !slices.Contains([]string{"pass", "clamp", "refuse"}, verdict) || (verdict == "refuse") != (a.status >= 300) {
		c.Errorf("%s: %q with status %d", verdictHeader, verdict, a.status)
	}
	if bytes.Contains(bytes.ToLower(a.body[:min(len(a.body), 512)]), []byte("<html")) {
		c.Error("HTML")
	}
	if want != "application/json" || len(a.body) == 0 {
		return
	}
	m := a.message
	switch {
	case a.status == 200:
		if m.Status != "success" || m.ErrorType != "" || m.Error != "" || len(m.Data) == 0 {
			c.Errorf("not a success in JSON: %.300s", a.body)
		}
	case m.Status != "error" || m.ErrorType == "" || m.Error == "":
		c.Errorf("status %d without an error in JSON: %.300s", a.status, a.body)
	}
}

// federateFormats asks for each format that scrapers accept; the answer says which it is and parses
// as that.
func federateFormats(t *testing.T, w *clientWorld) {
	path := "/federate?" + url.Values{"match[]": {`{job="node"}`}}.Encode()
	for _, accept := range []string{
		"", "*/*", "text/plain;version=0.0.4", "text/plain;version=1.0.0;escaping=allow-utf-8", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3",
	} {
		t.Run(accept, func(t *testing.T) {
			var types [2]string
			var pages [2][]string
			for i, base := range []string{w.url, w.one.URL()} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if accept != "" {
					req.Header.Set("Accept", accept)
				}
				resp, err := newClient(t).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("status %d, %v", resp.StatusCode, err)
				}
				types[i] = resp.Header.Get("Content-Type")
				pages[i] = parsePage(t, &clientAnswer{header: resp.Header, body: body})
			}
			if types[0] != types[1] {
				t.Errorf("Content-Type %q, Prometheus answers %q", types[0], types[1])
			}
			if !slices.Equal(pages[0], pages[1]) || len(pages[0]) == 0 {
				t.Errorf("series\n%q\nPrometheus\n%q", pages[0], pages[1])
			}
		})
	}
}

// clientsSeeNotices asks what Prometheus answers with warnings or infos; Grafana shows both at the
// panel, word for word.
func clientsSeeNotices(t *testing.T, w *clientWorld, proxies ...string) {
	at := fmt.Sprint(time.Now().Add(-time.Minute).Unix())
	for _, form := range []url.Values{
		{"query": {"rate(node_load1[5m])"}},
		{"query": {`sum(rate(node_load1{cluster="ibis"}[5m]))`}},
		{"query": {`rate(node_load1{node="gpu-5",cluster="ibis"}[5m])`}},
		{"query": {"histogram_quantile(0.9, node_load1)"}},
		{"query": {"histogram_quantile(2, sum by (le) (rate(apiserver_request_duration_seconds_bucket[5m])))"}},
		{"query": {"quantile(7, node_load1)"}},
		{"query": {"sum(apiserver_request_duration_seconds) + sum(node_load1)"}},
		{"query": {"sort(node_load1)"}, "limit": {"2"}},
	} {
		form.Set("time", at)
		body := form.Encode()
		raw := []byte(fmt.Sprintf("POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		want := replay(t, w.one.URL(), raw).message
		if len(want.Warnings)+len(want.Infos) == 0 {
			t.Errorf("%s: Prometheus has nothing to say; the test needs another query", form)
		}
		for _, base := range proxies {
			a := replay(t, base, raw)
			if a.status != 200 || !slices.Equal(a.message.Warnings, want.Warnings) || !slices.Equal(a.message.Infos, want.Infos) {
				t.Errorf("%s: %s\nwant warnings %q, infos %q", form, a, want.Warnings, want.Infos)
			}
		}
	}
}

// TestClientsThatOnlyKnock asks for the pages that machines and people ask for before they use the
// API.
func TestClientsThatOnlyKnock(t *testing.T) {
	_, base := startProxy(t, t.Context(), "groups: [{name: gone, shards: [{replicas: [{url: 'http://127.0.0.1:1'}]}]}]")
	for _, c := range []struct {
		client, request string
		status          int
		contentType     string
	}{
		{"Perses and Kubernetes", "GET /-/healthy", 200, "text/plain; charset=utf-8"},
		{"Kubernetes", "GET /-/ready", 200, "text/plain; charset=utf-8"},
		{"a load balancer", "HEAD /-/ready", 200, "text/plain; charset=utf-8"},
		{"a browser", "GET /", 200, "text/html; charset=utf-8"},
		{"a link in an alert", "GET /graph?g0.expr=up%7Bjob%3D%22node%22%7D&g0.tab=1", 200, "text/html; charset=utf-8"},
		{"Thanos sidecar", "GET /metrics", 404, "application/json"},
		{"Grafana looking for Cortex", "GET /rules/test/test", 404, "application/json"},
		{"someone's mistake", "POST /-/reload", 404, "application/json"},
		{"someone's mistake", "GET /api/v1/query/?query=up", 404, "application/json"},
		{"someone's mistake", "GET //api/v1/query?query=up", 404, "application/json"},
	} {
		a := replay(t, base, []byte(c.request+" HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nContent-Length: 0\r\n\r\n"))
		if got := a.header.Get("Content-Type"); a.status != c.status || got != c.contentType || a.header.Get("Location") != "" {
			t.Errorf("%s, %s: status %d, %q, want %d, %q: %.200s", c.client, c.request, a.status, got, c.status, c.contentType, a.body)
		}
	}
}

// TestDocsNameEveryClient holds docs/clients.md and the files together: each file is named by one
// of the page's patterns, each pattern names a file.
func TestDocsNameEveryClient(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| files |")
	table, _, _ = strings.Cut(table, "\n\n")
	used := map[string]bool{}
	for _, line := range strings.Split(table, "\n")[2:] {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for _, pattern := range strings.Split(cell, ", ") {
			used[strings.Trim(pattern, "`")] = false
		}
	}
	for _, c := range loadClients(t) {
		named := false
		for pattern := range used {
			ok, err := path.Match(pattern, c.Name)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				used[pattern], named = true, true
			}
		}
		if !named {
			t.Errorf("docs/clients.md does not name %s", c.Name)
		}
	}
	for pattern, ok := range used {
		if !ok {
			t.Errorf("docs/clients.md names %s, and no file is called so", pattern)
		}
	}
}
