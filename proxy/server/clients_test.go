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
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

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

// replay sends the bytes as they are over a new connection, only with the proxy's own host:port, and reads one answer.
func replay(t testing.TB, base string, raw []byte) *clientAnswer {
	t.Helper()
	conn := dial(t, base)
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
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

// clientNeeds says what the sender of each request needs. Every file has a row; what all clients need is in everyClient.
var clientNeeds = map[string][]need{
	"client-golang-delete-series":      {fails(404, "not_found")},
	"client-golang-exemplars":          {list, same, filled},
	"client-golang-label-names":        {list, same, filled},
	"client-golang-label-values":       {list, same, holds(`"node"`), quiet},
	"client-golang-metadata":           {object, same, holds(`"exporter_requests_total":[{"type":"counter"`)},
	"client-golang-query-get":          {result("vector"), same, filled, quiet},
	"client-golang-query":              {result("vector"), same, filled, holds(`"stats":{`, `"samples"`, `"timings"`)},
	"client-golang-range":              {result("matrix"), same, filled, quiet},
	"client-golang-runtimeinfo":        {object, holds(`"startTime":"`, `"reloadConfigSuccess":true`, `"goroutineCount":`)},
	"client-golang-targets-metadata":   {list},
	"client-golang-targets":            {object, holds(`"activeTargets":[{`, `"droppedTargets":[]`, `"health":"up"`, `"cluster":"jaguar"`, `"cluster":"ibis"`)},
	"client-golang-tsdb":               {object, holds(`"headStats":{`, `"seriesCountByMetricName":[{`, `"memoryInBytesByLabelName":[`, `"seriesCountByLabelValuePair":[`, `"labelValueCountByLabelName":[`)},
	"client-golang-walreplay":          {object, holds(`"min":0`, `"max":0`, `"current":0`)},
	"curl-data":                        {result("vector"), same, filled},
	"curl-get":                         {result("vector"), same, filled},
	"curl-head":                        {status(405), allow("GET", "POST"), empty},
	"curl-json":                        {fails(400, "bad_data")},
	"curl-multipart":                   {fails(400, "bad_data")},
	"curl-plus":                        {result("vector"), same, filled},
	"grafana-11-buildinfo":             {fails(405, "bad_data"), allow("GET")},
	"grafana-11-discovery-flags":       {object, stringMap},
	"grafana-11-discovery-query":       {result("vector"), same, filled},
	"grafana-11-series-histograms":     {list, same, filled, boundedSeries},
	"grafana-11-values":                {list, same, filled},
	"grafana-12-alerting-alerts":       {object, holds(`"alerts":[{`, `"alertname":"NodeIdle"`, `"state":"firing"`), eachAlertOnce},
	"grafana-12-alerting-rules":        {object, holds(`"groups":[{`, `"name":"NodeIdle"`, `"type":"alerting"`), lacks(`"type":"recording"`)},
	"grafana-12-exemplars":             {list, same, filled},
	"grafana-12-ruler-mimir":           {fails(404, "not_found")},
	"grafana-12-ruler":                 {fails(404, "not_found")},
	"grafana-12-rules-subtype":         {object, holds(`"groups":[{`)},
	"grafana-13-alerting":              {result("vector"), same, filled, quiet},
	"grafana-13-buildinfo":             {object, holds(`"version":"3.15.0"`), lacks(`"features"`), stringMap},
	"grafana-13-custom-parameters":     {result("vector"), same, filled, holds(`"stats":{`)},
	"grafana-13-health":                {result("scalar"), holds(`"resultType":"scalar","result":[4,"2"]`), quiet},
	"grafana-13-incremental":           {result("matrix"), same, filled, quiet},
	"grafana-13-instant":               {result("vector"), same, filled, quiet},
	"grafana-13-labels-get":            {list, same, filled, holds(`"cluster"`), lacks(`"prometheus_replica"`)},
	"grafana-13-open-exemplars":        {list, data(`[]`), quiet},
	"grafana-13-open-labels":           {list, same, filled, holds(`"cluster"`), lacks(`"prometheus_replica"`)},
	"grafana-13-open-metadata":         {object, same, holds(`"exporter_ready":[{"type":"gauge"`)},
	"grafana-13-open-names":            {list, same, filled, holds(`"node_load1"`)},
	"grafana-13-open-rules":            {object, holds(`"groups":[{`, `"type":"alerting"`, `"type":"recording"`)},
	"grafana-13-query-result":          {result("vector"), same, filled, count(5)},
	"grafana-13-range":                 {result("matrix"), same, filled, quiet},
	"grafana-13-range-fractional-step": {result("matrix"), same, filled},
	"grafana-13-range-get":             {result("matrix"), same, filled, quiet},
	"grafana-13-series-all":            {list, same, filled, boundedSeries},
	"grafana-13-series-get":            {list, same, filled, holds(`"my_foo_total"`)},
	"grafana-13-series-variable":       {list, same, filled, quiet, holds(`"cluster":"jaguar"`, `"cluster":"ibis"`)},
	"grafana-13-values-adhoc":          {list, data(`["gpu-1","gpu-2","gpu-3","gpu-4","gpu-5","gpu-6","gpu-7"]`), same},
	"grafana-13-values-post":           {list, same, holds(`"vision-lab"`, `"research-1"`)},
	"grafana-13-values-utf8":           {list, data(`["200"]`), same},
	"keda":                             {result("vector"), same, count(1), quiet},
	"mcp-grafana-names":                {list, same, filled, holds(`"node_load1"`)},
	"opencost-instant":                 {result("vector"), same, filled, quiet},
	"opencost-range":                   {result("matrix"), same, filled, quiet},
	"perses-parse-query":               {status(200), same, holds(`"type":"aggregation"`)},
	"perses-range":                     {result("matrix"), same, filled, quiet},
	"perses-series":                    {list, same, filled, quiet},
	"perses-values":                    {list, same, filled, quiet},
	"prometheus-adapter-query":         {result("vector"), same, filled, quiet},
	"prometheus-adapter-series":        {list, same, filled},
	"prometheus-federate":              {federated},
	"prometheus-remote-read":           {streamed},
	"prometheus-remote-read-two":       {streamed},
	"prometheus-ui-alerts":             {object, holds(`"groups":[{`, `"alerts":[{`)},
	"prometheus-ui-features":           {object, holds(`"api":{`)},
	"prometheus-ui-format":             {data(`"sum by (job) (up)"`), same},
	"prometheus-ui-labels":             {list, same, filled, holds(`"cluster"`)},
	"prometheus-ui-metadata":           {object, same, holds(`"exporter_ready":[{`)},
	"prometheus-ui-names":              {list, same, filled},
	"prometheus-ui-notifications":      {fails(404, "not_found")},
	"prometheus-ui-parse":              {status(200), same, holds(`"type":"aggregation"`)},
	"prometheus-ui-query":              {result("vector"), same, filled, holds(`"stats":{`)},
	"prometheus-ui-range":              {result("matrix"), same, filled, holds(`"stats":{`)},
	"prometheus-ui-rules":              {object, holds(`"groups":[{`, `"type":"recording"`), lacks(`"type":"alerting"`)},
	"prometheus-ui-series":             {list, same, filled, quiet},
	"prometheus-ui-targets":            {object, holds(`"activeTargets":[{`)},
	"prometheus-ui-time":               {result("scalar"), quiet},
	"prometheus-ui-values":             {list, same, filled, quiet},
	"promtool-analyze":                 {result("matrix"), same, filled, holds(`"histograms":[`)},
	"promtool-instant":                 {result("vector"), same, filled, quiet},
	"promtool-labels":                  {list, same, filled, narrowed},
	"promtool-range":                   {result("matrix"), same, filled, quiet},
	"promtool-series":                  {list, same, filled, narrowed},
	"thanos-rule-instant-get":          {result("vector"), same, filled, quiet},
	"thanos-rule-instant":              {result("vector"), same, filled, quiet},
	"thanos-rule-restore":              {result("matrix"), same, filled, quiet},
	"thanos-sidecar-buildinfo":         {object, holds(`"version":"3.15.0"`), lacks(`"features"`)},
	"thanos-sidecar-config":            {object, holds(`"yaml":"`, `groups:`)},
	"thanos-sidecar-flags":             {object, stringMap},
	"thanos-sidecar-read":              {streamed},
	"vmalert-instant-offset":           {result("vector"), same, filled, quiet},
	"vmalert-instant":                  {result("vector"), same, filled, quiet},
	"vmalert-replay":                   {result("matrix"), same, filled, quiet},
	"vmalert-restore":                  {fails(400, "bad_data")},
}

// withoutShards are the requests that are answered while no shard is: the health check above all, or Grafana calls the data source broken.
var withoutShards = []string{
	"client-golang-runtimeinfo", "client-golang-walreplay", "grafana-11-discovery-flags", "grafana-13-health", "grafana-13-open-exemplars", "perses-parse-query", "prometheus-ui-format",
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

// TestClientsGetWhatTheyNeed replays every request of every client, byte for byte, over a sharded cluster and over a single server.
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
	t.Run("no shard answers", func(t *testing.T) { clientsWithoutShards(t, clients) })
}

// clientsWithoutShards replays everything against a proxy none of whose shards can be reached. Whatever needs a shard is a 502 or 503 in JSON: a 400, 403, 405 or 501 would be
// asked again as GET by Grafana or client_golang, and a 2xx would be believed by thanos rule, which does not read status.
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
				if c.a.message.Status != "error" || c.a.message.ErrorType == "" || !strings.Contains(c.a.message.Error, "gone") && !strings.Contains(c.a.message.Error, "127.0.0.1:") {
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

// TestClientsAndPartialAnswers replays what rulers send while one of four shards is down: thanos rule with partial_response=false gets an error that it
// sees, with true it gets data and a warning.
func TestClientsAndPartialAnswers(t *testing.T) {
	w := startClientWorld(t, map[string]int{"jaguar": 1, "ibis": 1}, clientSpans()[1:])
	if err := w.servers[0].Close(); err != nil {
		t.Fatal(err)
	}
	partial := map[string]bool{"thanos-rule-instant": false, "thanos-rule-instant-get": true, "thanos-rule-restore": true, "vmalert-instant": false, "keda": false}
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
			if c.a.status != 200 || c.a.message.Status != "success" || !slices.ContainsFunc(c.a.message.Warnings, func(s string) bool { return strings.Contains(s, "partial") && strings.Contains(s, "jaguar") }) {
				t.Errorf("want a success whose warning names the shard: %s", c.a)
			}
		})
	}
}

// clientStatus is the status that a client gets: the parser's, unless the expression is refused later.
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
	case c.req.Endpoint == "federate":
		want = "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8" // what Prometheus itself answers; see TestFederateSpeaksWhatTheScraperAsksFor
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

func status(want int) need {
	return func(c *clientCase) {
		if c.a.status != want {
			c.Errorf("status %d, want %d", c.a.status, want)
		}
	}
}

// fails needs an error of Prometheus' shape.
func fails(code int, errorType string) need {
	return func(c *clientCase) {
		status(code)(c)
		if c.a.message.ErrorType != errorType {
			c.Errorf("errorType %q, want %q", c.a.message.ErrorType, errorType)
		}
	}
}

func allow(methods ...string) need {
	return func(c *clientCase) {
		got := strings.Split(strings.Join(c.a.header.Values("Allow"), ", "), ", ")
		slices.Sort(got)
		if !slices.Equal(got, methods) {
			c.Errorf("Allow: %q, want %q", got, methods)
		}
	}
}

func empty(c *clientCase) {
	if len(c.a.body) > 0 {
		c.Errorf("a body: %.100q", c.a.body)
	}
}

// quiet needs an answer without warnings and infos: they would show on every panel.
func quiet(c *clientCase) {
	if len(c.a.message.Warnings) > 0 || len(c.a.message.Infos) > 0 {
		c.Errorf("warnings %q, infos %q", c.a.message.Warnings, c.a.message.Infos)
	}
}

func kind(c *clientCase, first byte) {
	status(200)(c)
	if d := c.a.message.Data; len(d) == 0 || d[0] != first {
		c.Errorf("data is no %c…: %.100s", first, d)
	}
}

// list needs a JSON list, never null: Grafana and client_golang iterate it.
func list(c *clientCase) { kind(c, '[') }

func object(c *clientCase) {
	kind(c, '{')
	if bytes.Contains(c.a.message.Data, []byte(`:null`)) {
		c.Errorf("a null in an object that clients iterate: %.600s", c.a.message.Data)
	}
}

func holds(texts ...string) need {
	return func(c *clientCase) {
		for _, s := range texts {
			if !bytes.Contains(c.a.message.Data, []byte(s)) {
				c.Errorf("no %s in data", s)
			}
		}
	}
}

func lacks(texts ...string) need {
	return func(c *clientCase) {
		for _, s := range texts {
			if bytes.Contains(c.a.message.Data, []byte(s)) {
				c.Errorf("%s in data", s)
			}
		}
	}
}

func data(want string) need {
	return func(c *clientCase) {
		status(200)(c)
		if got := string(c.a.message.Data); got != want {
			c.Errorf("data is %.300s, want %s", got, want)
		}
	}
}

// stringMap needs an object of strings: Grafana and Thanos decode no other.
func stringMap(c *clientCase) {
	var m map[string]string
	if err := json.Unmarshal(c.a.message.Data, &m); err != nil || len(m) == 0 {
		c.Errorf("not a map of strings: %v", err)
	}
}

// result needs the kind of result, and no nulls in it.
func result(want string) need {
	return func(c *clientCase) {
		status(200)(c)
		var d struct {
			ResultType string
			Result     json.RawMessage
		}
		if err := json.Unmarshal(c.a.message.Data, &d); err != nil || d.ResultType != want || len(d.Result) == 0 || d.Result[0] != '[' {
			c.Errorf("want a %s: %v, %.200s", want, err, c.a.message.Data)
		}
	}
}

// elements are the series of a query's result, or the elements of a list.
func (c *clientCase) elements() []json.RawMessage {
	raw := c.a.message.Data
	var d struct{ Result []json.RawMessage }
	var l []json.RawMessage
	err := json.Unmarshal(raw, &l)
	if len(raw) > 0 && raw[0] == '{' {
		if err = json.Unmarshal(raw, &d); err == nil {
			l = d.Result
		}
	}
	if err != nil {
		c.Errorf("%v in %.200s", err, raw)
	}
	return l
}

func filled(c *clientCase) {
	if len(c.elements()) == 0 {
		c.Error("an empty answer proves nothing")
	}
}

func count(n int) need {
	return func(c *clientCase) {
		if got := len(c.elements()); got != n {
			c.Errorf("%d elements, want %d", got, n)
		}
	}
}

// narrowed needs a warning that says that the range was cut, and by what.
func narrowed(c *clientCase) {
	if c.a.header.Get(verdictHeader) != "clamp" || !slices.ContainsFunc(c.a.message.Warnings, func(s string) bool { return strings.Contains(s, "narrowed the range") }) {
		c.Errorf("verdict %s, warnings %q: want clamp and a warning about the range", c.a.header.Get(verdictHeader), c.a.message.Warnings)
	}
}

// boundedSeries needs the answer to an unselective selector: clamped, and every series a label set.
func boundedSeries(c *clientCase) {
	if got := c.a.header.Get(verdictHeader); got != "clamp" {
		c.Errorf("verdict %q, want clamp", got)
	}
	var sets []map[string]string
	if err := json.Unmarshal(c.a.message.Data, &sets); err != nil || len(sets) > 1000*len(worldGroups)*2 {
		c.Errorf("%d series, %v", len(sets), err)
	}
}

// eachAlertOnce needs every alert once, although every replica has it.
func eachAlertOnce(c *clientCase) {
	var d struct {
		Alerts []struct{ Labels map[string]string }
	}
	if err := json.Unmarshal(c.a.message.Data, &d); err != nil {
		c.Fatal(err)
	}
	seen := map[string]bool{}
	for _, al := range d.Alerts {
		key := al.Labels["alertname"] + "/" + al.Labels["cluster"] + "/" + al.Labels["node"]
		if seen[key] || al.Labels["prometheus_replica"] != "" {
			c.Errorf("alert %v twice or with its replica", al.Labels)
		}
		seen[key] = true
	}
	if !seen["NodeIdle/jaguar/gpu-2"] || !seen["NodeIdle/ibis/gpu-6"] || len(seen) != 2 {
		c.Errorf("alerts %v, want one of each group", seen)
	}
}

// same needs the answer of one server that holds everything: the same series, names and values. Only the order of an instant vector is free, and what the
// clock decided where the request names no time.
func same(c *clientCase) {
	if c.a.status != 200 {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.req.Raw)))
	if err != nil {
		c.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.Fatal(err)
	}
	method, target := r.Method, c.w.one.URL()+r.URL.EscapedPath()
	if c.req.Endpoint == "label_values" {
		method = http.MethodGet // Prometheus has no other there
	}
	// The answer over the whole range of promtool's ± 9999 hours is what the narrowed range holds too: the world's series do not change.
	params := r.URL.Query()
	params.Del("timeout") // prometheus-adapter computes a negative one, which Prometheus refuses
	req, err := http.NewRequestWithContext(c.Context(), method, target+"?"+params.Encode(), bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := newClient(c).Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	var m struct {
		Error string
		Data  json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil || resp.StatusCode != 200 {
		c.Fatalf("the server that holds everything: status %d, %v %s", resp.StatusCode, err, m.Error)
	}
	noTime := c.req.Endpoint == "query" && c.req.Params.Get("time") == ""
	if c.req.Endpoint == "series" { // Prometheus lists them in the order of its index, Spillway sorted, each once
		c.checkSorted()
	}
	got, want := ordered(c, c.a.message.Data, noTime), ordered(c, m.Data, noTime)
	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		wt, _ := json.Marshal(want)
		c.Errorf("not the answer of one server that holds everything:\ngot  %.1500s\nwant %.1500s", g, wt)
	}
}

// ordered is data in one order, without statistics, and without the time of each sample where the clock chose it.
func ordered(c *clientCase, raw json.RawMessage, noTime bool) any {
	var d any
	if err := json.Unmarshal(raw, &d); err != nil {
		c.Fatalf("%v in %.300s", err, raw)
	}
	if list, ok := d.([]any); ok && c.req.Endpoint == "series" {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(jsonText(a), jsonText(b)) })
	}
	m, ok := d.(map[string]any)
	if !ok {
		return d
	}
	delete(m, "stats")
	if m["resultType"] == "vector" {
		list, _ := m["result"].([]any)
		if noTime {
			for _, s := range list {
				s.(map[string]any)["value"].([]any)[0] = 0.0
			}
		}
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(jsonText(a), jsonText(b)) })
	}
	return m
}

// checkSorted needs label sets in order, each once.
func (c *clientCase) checkSorted() {
	var last labels.Labels
	for i, raw := range c.elements() {
		var m map[string]string
		if err := json.Unmarshal(raw, &m); err != nil {
			c.Fatal(err)
		}
		l := labels.FromMap(m)
		if i > 0 && labels.Compare(last, l) >= 0 {
			c.Errorf("%s after %s", l, last)
		}
		last = l
	}
}

func jsonText(v any) string {
	b, _ := json.Marshal(v) // it came out of JSON
	return string(b)
}

// streamed needs frames of chunks that Prometheus' own reader decodes, with the samples that one server has.
func streamed(c *clientCase) {
	status(200)(c)
	if enc := c.a.header.Get("Content-Encoding"); enc != "" {
		c.Errorf("Content-Encoding %q on a stream", enc)
	}
	compareReads(c, readFrames, c.a, replay(c.T, c.w.one.URL(), c.req.Raw))
}

// reads are the samples of a remote read's answer: by query, then by series.
type reads []map[string][]string

// readRanges are the ranges of the queries in a remote read's body.
func readRanges(c *clientCase) *prompb.ReadRequest {
	_, body, _ := bytes.Cut(c.req.Raw, []byte("\r\n\r\n"))
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		c.Fatal(err)
	}
	var req prompb.ReadRequest
	if err := req.Unmarshal(raw); err != nil {
		c.Fatal(err)
	}
	return &req
}

// compareReads needs equal samples in the ranges asked for; beyond them Prometheus sends whole chunks.
func compareReads(c *clientCase, decode func(*clientCase, *clientAnswer, func(query int, l labels.Labels, t int64, v float64)), got, want *clientAnswer) {
	queries := readRanges(c).Queries
	var both [2]reads
	for i, a := range []*clientAnswer{got, want} {
		for range queries {
			both[i] = append(both[i], map[string][]string{})
		}
		decode(c, a, func(query int, l labels.Labels, t int64, v float64) {
			if q := queries[query]; t >= q.StartTimestampMs && t <= q.EndTimestampMs {
				both[i][query][l.String()] = append(both[i][query][l.String()], fmt.Sprint(t, " ", v))
			}
		})
	}
	for q, series := range both[0] {
		if len(series) == 0 {
			c.Errorf("query %d: nothing", q)
		}
	}
	if !reflect.DeepEqual(both[0], both[1]) {
		c.Errorf("not what one server holds:\ngot  %.1500v\nwant %.1500v", both[0], both[1])
	}
}

// readFrames decodes streamed chunks. Series of one query must be in order: Prometheus merges them so.
func readFrames(c *clientCase, a *clientAnswer, sample func(int, labels.Labels, int64, float64)) {
	frames := remote.NewChunkedReader(bytes.NewReader(a.body), config.DefaultChunkedReadLimit, nil)
	last, lastQuery := labels.EmptyLabels(), int64(0)
	for {
		var f prompb.ChunkedReadResponse
		if err := frames.NextProto(&f); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			c.Fatal(err)
		}
		for _, s := range f.ChunkedSeries {
			l := promLabels(s.Labels)
			if f.QueryIndex == lastQuery && labels.Compare(last, l) > 0 {
				c.Errorf("%s after %s", l, last)
			}
			last, lastQuery = l, f.QueryIndex
			for _, ch := range s.Chunks {
				dec, err := chunkenc.FromData(chunkenc.EncXOR, ch.Data)
				if err != nil || ch.Type != prompb.Chunk_XOR {
					c.Fatalf("chunk of type %s: %v", ch.Type, err)
				}
				it := dec.Iterator(nil)
				for it.Next() != chunkenc.ValNone {
					t, v := it.At()
					sample(int(f.QueryIndex), l, t, v)
				}
				if it.Err() != nil {
					c.Fatal(it.Err())
				}
			}
		}
	}
}

// readSamples decodes the answer to a client that accepts no streams.
func readSamples(c *clientCase, a *clientAnswer, sample func(int, labels.Labels, int64, float64)) {
	if got := a.header.Get("Content-Type") + " " + a.header.Get("Content-Encoding"); got != "application/x-protobuf snappy" {
		c.Errorf("Content-Type and Content-Encoding are %q", got)
	}
	raw, err := snappy.Decode(nil, a.body)
	if err != nil {
		c.Fatal(err)
	}
	var resp prompb.ReadResponse
	if err := resp.Unmarshal(raw); err != nil {
		c.Fatal(err)
	}
	for q, r := range resp.Results {
		for _, ts := range r.Timeseries {
			for _, s := range ts.Samples {
				sample(q, promLabels(ts.Labels), s.Timestamp, s.Value)
			}
		}
	}
}

// sampledRead is the remote read of a client that accepts samples only, as Prometheus before 2.13 and several others do: the request of a file, changed in that.
func sampledRead(c *clientCase) {
	req := readRanges(c)
	req.AcceptedResponseTypes = nil
	raw, err := req.Marshal()
	if err != nil {
		c.Fatal(err)
	}
	body := snappy.Encode(nil, raw)
	c.req.Raw = append([]byte(fmt.Sprintf("POST /api/v1/read HTTP/1.1\r\nHost: 127.0.0.1:9090\r\nContent-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n"+
		"X-Prometheus-Remote-Read-Version: 0.1.0\r\nContent-Length: %d\r\n\r\n", len(body))), body...)
	c.a = replay(c.T, c.w.url, c.req.Raw)
	status(200)(c)
	compareReads(c, readSamples, c.a, replay(c.T, c.w.one.URL(), c.req.Raw))
}

func promLabels(ls []prompb.Label) labels.Labels {
	b := labels.NewScratchBuilder(len(ls))
	for _, l := range ls {
		b.Add(l.Name, l.Value)
	}
	return b.Labels()
}

// federated needs a page that Prometheus' own parser reads: the newest sample of every series asked for, with its time and the group's labels, and an empty instance where there is none.
func federated(c *clientCase) {
	status(200)(c)
	names := parsePage(c.T, c.a)
	for _, want := range []string{`up{cluster="jaguar",`, `node_load1{cluster="ibis",`, `job:up:max{`} {
		if !slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, want) }) {
			c.Errorf("no series %s… in %q", want, names)
		}
	}
}

// parsePage parses an exposition as its Content-Type says and returns its series, each once.
func parsePage(t testing.TB, a *clientAnswer) []string {
	t.Helper()
	p, err := textparse.New(a.body, a.header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%.500s", err, a.body)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, at, _ := p.Series()
		var l labels.Labels
		p.Labels(&l)
		if at == nil || time.Since(time.UnixMilli(*at)).Abs() > 5*time.Minute {
			t.Errorf("%s has no time of the last five minutes", l)
		}
		if l.Has("prometheus_replica") || slices.Contains(names, federatedName(l)) {
			t.Errorf("%s has its replica's label, or is there twice", l)
		}
		names = append(names, federatedName(l))
	}
	return names
}

func federatedName(l labels.Labels) string {
	return l.Get(labels.MetricName) + labels.NewBuilder(l).Del(labels.MetricName).Labels().String()
}

// TestFederateSpeaksWhatTheScraperAsksFor asks for each format that scrapers accept; the answer says which it is and parses as that.
func TestFederateSpeaksWhatTheScraperAsksFor(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	w := startClientWorld(t, map[string]int{"jaguar": 1, "ibis": 1}, []span{{now.Add(-5 * time.Minute), now}})
	w.waitRules()
	path := "/federate?" + url.Values{"match[]": {`{job="node"}`}}.Encode()
	var first []string
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
				slices.Sort(pages[i])
			}
			if types[0] != types[1] {
				t.Errorf("Content-Type %q, Prometheus answers %q", types[0], types[1])
			}
			if !slices.Equal(pages[0], pages[1]) || len(pages[0]) == 0 {
				t.Errorf("series\n%q\nPrometheus\n%q", pages[0], pages[1])
			}
			if first == nil {
				first = pages[0]
			}
		})
	}
}
