package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

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

func has(texts ...string) need {
	return func(c *clientCase) {
		for _, s := range texts {
			if !bytes.Contains(c.a.message.Data, []byte(s)) {
				c.Errorf("no %s in data", s)
			}
		}
	}
}

// bodyHas is has for an answer that is no JSON.
func bodyHas(texts ...string) need {
	return func(c *clientCase) {
		for _, s := range texts {
			if !bytes.Contains(c.a.body, []byte(s)) {
				c.Errorf("no %s", s)
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
	if c.a.header.Get(verdictHeader) != "clamp" ||
		!slices.ContainsFunc(c.a.message.Warnings, func(s string) bool { return strings.Contains(s, "narrowed the range") }) {
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

// same needs the answer of one server that holds everything: the same series, names and values.
// Only the order of an instant vector is free, and what the clock decided where the request names
// no time.
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
	// The answer over the whole range of promtool's ± 9999 hours is what the narrowed range holds
	// too: the world's series do not change.
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

// ordered is data in one order, without statistics, and without the time of each sample where the
// clock chose it.
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

// streamed needs frames of chunks that Prometheus' own reader decodes, with the samples that one
// server has.
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

// compareReads needs equal samples in the ranges asked for; beyond them Prometheus sends whole
// chunks.
func compareReads(c *clientCase, decode func(*clientCase, *clientAnswer, func(query int, l labels.Labels, t int64, v float64)), got,
	want *clientAnswer,
) {
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

// readFrames decodes streamed chunks. Series of one query must be in order: Prometheus merges them
// so.
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

// sampledRead is the remote read of a client that accepts samples only, as Prometheus before 2.13
// and several others do: the request of a file, changed in that.
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

// federated needs a page that Prometheus' own parser reads, and in it what one server would have
// sent: the newest sample of every series asked for, with its time.
func federated(c *clientCase) {
	status(200)(c)
	want := replay(c.T, c.w.one.URL(), c.req.Raw)
	got, wanted := parsePage(c.T, c.a), parsePage(c.T, want)
	if !slices.Equal(got, wanted) || len(got) == 0 {
		c.Errorf("got  %.1500q\nwant %.1500q", got, wanted)
	}
	if g, w := c.a.header.Get("Content-Type"), want.header.Get("Content-Type"); g != w {
		c.Errorf("Content-Type %q, Prometheus answers %q", g, w)
	}
}

// parsePage parses an exposition as its Content-Type says and returns its series with their
// samples, sorted.
func parsePage(t testing.TB, a *clientAnswer) []string {
	t.Helper()
	p, err := textparse.New(a.body, a.header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var series []string
	seen := map[string]bool{}
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
		_, at, v := p.Series()
		var l labels.Labels
		p.Labels(&l)
		if at == nil || time.Since(time.UnixMilli(*at)).Abs() > 5*time.Minute {
			t.Errorf("%s has no time of the last five minutes", l)
		}
		name := l.Get(model.MetricNameLabel) + labels.NewBuilder(l).Del(model.MetricNameLabel).Labels().String()
		if l.Has("prometheus_replica") || seen[name] {
			t.Errorf("%s has its replica's label, or is there twice", l)
		}
		seen[name] = true
		if at != nil && !strings.HasPrefix(name, "ALERTS") { // each server evaluates its alerts at times of its own
			name += fmt.Sprint(" ", v, " ", *at)
		}
		series = append(series, name)
	}
	slices.Sort(series)
	return series
}
